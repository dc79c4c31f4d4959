"""Bytes of the state that optimizers will allocate, and the gradients of their parameters."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from oocdnn.torch.limit.heap.allocator import is_small

_ADAPTIVE = 2  # tensors of a parameter's size that an optimizer keeps, where that is not known


def state_bytes(device: torch.device, *, large: bool = False) -> int:
    """Bytes that the process's optimizers allocate on a device in their first step; `large`: those
    from the large pool of PyTorch's allocator."""
    total = 0
    for optimizer in _optimizers():
        for group in optimizer.param_groups:
            count = _tensors(optimizer, group)
            total += count * sum(
                one.nbytes
                for one in group["params"]
                if one.device == device
                and one.requires_grad
                and one not in optimizer.state
                and not (large and is_small(one.nbytes))
            )
    return total


def gradients(device: torch.device) -> list[Tensor]:
    """The gradients on a device of all parameters that the process's optimizers know."""
    found = {
        id(one): one.grad
        for optimizer in _optimizers()
        for group in optimizer.param_groups
        for one in group["params"]
        if one.grad is not None and one.grad.device == device
    }
    return list(found.values())


def _optimizers() -> Iterator[Optimizer]:
    for one in gc.get_objects():
        if issubclass(type(one), Optimizer):
            yield one


def _tensors(optimizer: Optimizer, group: dict[str, Any]) -> int:
    """Number of tensors of a parameter's size in the state that an optimizer keeps for it."""
    if isinstance(optimizer, torch.optim.SGD):
        return int(group["momentum"] != 0)
    if isinstance(optimizer, torch.optim.RMSprop):
        return 1 + int(group["momentum"] != 0) + int(group["centered"])
    return _ADAPTIVE + int(bool(group.get("amsgrad")))
