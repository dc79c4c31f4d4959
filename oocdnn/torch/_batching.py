"""Batching rules of operators: how torch.vmap calls them.

Where the first operand alone is batched and its first axis is that of samples, the batch becomes
samples of one call. All else is a call for each entry of the batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Adapts the arguments behind the first operand to `times` as many samples.
Scale = Callable[[tuple[Any, ...], int], tuple[Any, ...]]


def _alike(others: tuple[Any, ...], times: int) -> tuple[Any, ...]:
    return others


def first_shape(others: tuple[Any, ...], times: int) -> tuple[Any, ...]:
    """For an operator whose first argument behind two operands is the shape of the result."""
    w, (samples, *sizes), *rest = others
    return (w, [samples * times, *sizes], *rest)


def register(operator: Any, samples: bool, scale: Scale = _alike) -> None:
    """Registers the rule; `samples` says that the result has the samples of the first operand."""
    if not hasattr(operator, "register_vmap"):  # before torch 2.5, which calls for each entry
        return

    def rule(info: Any, in_dims: Sequence[Any], *inputs: Any) -> tuple[Tensor, int]:
        times: int = info.batch_size
        batched = {i: dim for i, dim in enumerate(in_dims) if isinstance(dim, int)}
        if samples and list(batched) == [0]:
            first, *others = inputs
            batch = first.movedim(batched[0], 0)
            y = operator(batch.flatten(0, 1), *scale(tuple(others), times))
            return y.unflatten(0, (times, batch.shape[1])), 0
        entries = [
            [one.select(batched[i], n) if i in batched else one for i, one in enumerate(inputs)]
            for n in range(times)
        ]
        return torch.stack([operator(*entry) for entry in entries]), 0

    operator.register_vmap(rule)
