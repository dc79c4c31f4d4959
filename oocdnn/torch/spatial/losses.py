"""Losses of split tensors: means and sums over the whole tensor, which each process has."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.elementwise import aligned
from oocdnn.torch.spatial.exchange import summed
from oocdnn.torch.spatial.tensor import implements_each, local, named, plainly, split_in, wrap


@implements_each(
    *named(
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
        "binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss kl_div",
        F,
    )
)
def _of_elements(
    function: Any, input: Any, target: Any, *args: Any, reduction: str = "mean", **kwargs: Any
) -> Any:
    if args or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
        raise NotImplementedError(
            f"{function.__name__} of split tensors takes its options by keyword, and neither "
            "size_average nor reduce"
        )
    layout = next(split_in(input, target)).spatial_layout
    kwargs = {name: aligned(value, layout) for name, value in kwargs.items()}
    rows = [aligned(value, layout) for value in (input, target)]
    with plainly():
        found = function(*rows, reduction="none", **kwargs)
    if reduction == "none":
        return wrap(found, layout)
    total = summed(found.sum(), layout.group)
    if reduction == "sum":
        return total
    count = layout.whole(found.shape).numel()
    if reduction == "batchmean":
        count = found.shape[0]
    return total / count


@implements_each(F.cross_entropy, F.nll_loss)
def _of_classes(
    function: Any, input: Any, target: Any, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", **kwargs: Any,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None:
        raise NotImplementedError(
            f"{function.__name__} of split tensors with size_average or reduce"
        )
    layout = input.spatial_layout
    if layout.dim(input.ndim) < 2:
        raise NotImplementedError(
            f"{function.__name__} of a tensor that is split along its classes"
        )
    rows, own = local(input), local(aligned(target, layout))
    options = {"weight": weight, **kwargs}
    if not own.is_floating_point():
        options["ignore_index"] = ignore_index
    if reduction == "none":
        return wrap(function(rows, own, reduction="none", **options), layout)
    total = function(rows, own, reduction="sum", **options)
    if reduction == "sum":
        return summed(total, layout.group)
    if own.is_floating_point():
        return summed(total, layout.group) / (layout.whole(rows.shape).numel() // rows.shape[1])
    return summed(total, layout.group) / summed(_weights(own, weight, ignore_index), layout.group)


def _weights(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """The sum of the weights of the own elements that count."""
    counts = target != ignore_index
    if weight is None:
        return counts.sum()
    return (weight[target.where(counts, 0)] * counts).sum()
