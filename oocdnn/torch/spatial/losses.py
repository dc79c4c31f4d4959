"""Losses of split tensors: means and sums over the whole tensor, which each process has."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.exchange import summed
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.operands import aligned
from oocdnn.torch.spatial.reductions import HALVES
from oocdnn.torch.spatial.tensor import (
    functions_named,
    implements_each,
    layout_of,
    local,
    split_in,
    without_dispatch,
    wrap,
)

_REDUCTIONS = ("none", "mean", "sum")


def _checked(function: Any, reduction: str, options: dict[str, Any]) -> None:
    known = (*_REDUCTIONS, "batchmean") if function is F.kl_div else _REDUCTIONS
    if reduction not in known:
        raise ValueError(f"{reduction} is no reduction of {function.__name__}: {', '.join(known)}")
    if options.get("size_average") is not None or options.get("reduce") is not None:
        raise NotImplementedError(
            f"{function.__name__} of split tensors with size_average or reduce; say reduction"
        )


def _summed(values: Tensor, layout: Layout) -> Tensor:
    """Over all processes, and of halves in float32."""
    return summed(values.sum(dtype=torch.float32 if values.dtype in HALVES else None), layout.group)


@implements_each(
    *functions_named(
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
        "binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss kl_div",
        F,
    )
)
def _of_elements(
    function: Any, input: Any, target: Any, *args: Any, reduction: str = "mean", **kwargs: Any
) -> Any:
    if args:
        raise NotImplementedError(f"{function.__name__} of split tensors: its options by keyword")
    _checked(function, reduction, kwargs)
    layout = next(split_in(input, target)).spatial_layout
    kwargs = {name: aligned(value, layout) for name, value in kwargs.items()}
    rows = [aligned(value, layout) for value in (input, target)]
    with without_dispatch():
        found = function(*rows, reduction="none", **kwargs)
        if reduction == "none":
            return wrap(found, layout)
        total = _summed(found, layout)
        if (
            reduction == "mean"
            and function in (F.mse_loss, F.l1_loss)
            and kwargs.get("weight") is not None
        ):
            total = total / _summed(kwargs["weight"].expand_as(found), layout)
        elif reduction != "sum":
            whole = layout.whole(found.shape)
            total = total / (whole[0] if reduction == "batchmean" else whole.numel())
        return total.to(found.dtype)


@implements_each(F.cross_entropy, F.nll_loss)
def _of_classes(
    function: Any, input: Any, target: Any, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", **kwargs: Any,
) -> Any:  # fmt: skip
    _checked(function, reduction, {"size_average": size_average, "reduce": reduce})
    layout = layout_of(input, function)
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
    wide = rows.float() if rows.dtype in HALVES else rows
    if weight is not None:
        options["weight"] = weight.to(wide.dtype)
    if own.is_floating_point():
        own = own.to(wide.dtype)
    total = summed(function(wide, own, reduction="sum", **options), layout.group)
    if reduction == "mean" and own.is_floating_point():
        total = total / (layout.whole(rows.shape).numel() // rows.shape[1])
    elif reduction == "mean":
        total = total / summed(_weights(own, weight, ignore_index), layout.group)
    return total.to(rows.dtype)


def _weights(target: Tensor, weight: Tensor | None, ignore_index: int) -> Tensor:
    """The sum of the weights of the own elements that count."""
    counts = target != ignore_index
    if weight is None:
        return counts.sum()
    return (weight[target.where(counts, 0)] * counts).sum()
