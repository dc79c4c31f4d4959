"""Normalisation by saved statistics, in the arithmetic of the kernels that forward used.

A kernel applies a mean, an inverse deviation d, a weight w and a bias b to each element in float32
in one of these orders; which one is found by comparing bits, on random values.

    0: fma(w * (x - mean), d, b)             batch norm: PyTorch on GPUs; cuDNN, channels first
    1: fma(x - mean, d * w, b)               batch norm: cuDNN, channels last
    2: fma(x, w * d, b - mean * (w * d))     batch norm: cuDNN, channels first, small planes
    3: fma(x, w * d, fma(-mean, w * d, b))   batch norm on the CPU, group norm
    4: fma((x - mean) * d, w, b)             layer norm
    5: fma(fma(x, d, -mean * d), w, b)       layer norm on the CPU, 16-bit types
    6: (x - mean) * d * w                    layer norm on GPUs, no bias

Batch norm compared on an H100 (PyTorch 2.11, cuDNN 9.19) in float32, float16 and bfloat16, both
memory orders, 2-D and 3-D: no bit differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

ORDERS = 7
_WITHOUT_BIAS = 6  # the order of norms that have none


@dataclass(frozen=True)
class Term:
    """Tensors that broadcast to the shape of `x`; the result has its type. A number stands for an
    absent weight or bias."""

    x: Any
    mean: Any
    deviation: Any
    weight: Any
    bias: Any

    @property
    def all(self) -> tuple[Any, Any, Any, Any, Any]:
        return self.x, self.mean, self.deviation, self.weight, self.bias


def batch(x: Any, mean: Any, deviation: Any, weight: Any, bias: Any) -> Term:
    """Statistics of each channel."""
    axes = (1, -1, *[1] * (len(x.shape) - 2))
    mean, deviation = mean.view(axes), deviation.view(axes)
    weight = 1.0 if weight is None else weight.view(axes)
    return Term(x, mean, deviation, weight, 0.0 if bias is None else bias.view(axes))


def group(x: Any, mean: Any, deviation: Any, weight: Any, bias: Any) -> Term:
    """Statistics of each image's groups; of a view of `x` with an axis for groups."""
    groups, channels = mean.shape[1], x.shape[1]
    ones = [1] * (len(x.shape) - 2)
    split = x.view((x.shape[0], groups, channels // groups, *x.shape[2:]))
    mean, deviation = (one.view((-1, groups, 1, *ones)) for one in (mean, deviation))
    axes = (1, groups, -1, *ones)
    weight = 1.0 if weight is None else weight.view(axes)
    return Term(split, mean, deviation, weight, 0.0 if bias is None else bias.view(axes))


def layer(x: Any, mean: Any, deviation: Any, weight: Any, bias: Any) -> Term:
    """Statistics of each row."""
    weight = 1.0 if weight is None else weight
    return Term(x, mean, deviation, weight, 0.0 if bias is None else bias)


def apply(term: Term, order: int) -> Tensor:
    """The normalised tensor, by PyTorch's operations."""
    wide = torch.float64 if term.x.dtype == torch.float64 else torch.float32
    x, mean, d, w, b = (
        one.to(wide) if isinstance(one, Tensor) else torch.tensor(one, dtype=wide)
        for one in term.all
    )
    if order == 0:
        y = _fma(w * (x - mean), d, b)
    elif order == 1:
        y = _fma(x - mean, d * w, b)
    elif order == 2:
        y = _fma(x, w * d, b - mean * (w * d))
    elif order == 3:
        y = _fma(x, w * d, _fma(-mean, w * d, b))
    elif order == 4:
        y = _fma((x - mean) * d, w, b)
    elif order == 5:
        y = _fma(_fma(x, d, -mean * d), w, b)
    else:
        y = (x - mean) * d * w
    return y.to(term.x.dtype)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c in float32, rounded once: the product is exact in float64, and the sum there is
    rounded to odd, so that the second rounding has what it needs."""
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    seen = total - product
    error = (product - (total - seen)) + (addend - seen)
    bits = total.view(torch.int64)
    even = (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (total > 0)
    bits += torch.where(even, torch.where(away, 1, -1), 0)
    return total.to(a.dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True where every element has the same bits, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return bool(torch.equal(a, b))
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(a.element_size())
    return whole is not None and bool(torch.equal(a.view(whole), b.view(whole)))


@dataclass(frozen=True)
class Case:
    """What the order depends on.

    Args:
        kind: `batch`, `group` or `layer`.
        setting: Epsilon of batch norm, which may decide on the kernel; the number of groups; the
            normalised shape.
        types: Of the weight and the bias; None where there is none.
    """

    kind: str
    setting: Any
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    types: tuple[torch.dtype | None, torch.dtype | None]


_TRIALS = 16  # at least, and more for few channels or elements
_CHANNELS, _ELEMENTS = 1 << 10, 1 << 15

Apply = Callable[[Term, int], Tensor]


def order_of(
    kind: str,
    setting: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    applied: Apply = apply,
) -> int | None:
    """The order in which forward normalises tensors like these in training, None if unknown."""
    types = tuple(None if one is None else one.dtype for one in (weight, bias))
    case = Case(kind, setting, x.size(), x.stride(), x.dtype, x.device, types)  # type: ignore[arg-type]
    return _order(case, applied)


@cache
def _order(case: Case, applied: Apply) -> int | None:
    """The order that gives forward's bits on random tensors; the first one where several do.

    Weights and biases are random, because several orders agree where they are 1 and 0, as in a
    model's first step. Inputs lie near values whose normalised ones are near -1 and 1, and the bias
    takes the weight away again; without a bias near 0 too. What is left of many elements is small,
    and shows the arithmetic's rounding in 16-bit types too. These have few values in each channel,
    which many trials make up for.
    """
    x = torch.empty_strided(case.size, case.stride, dtype=case.dtype, device=case.device)
    generator = torch.Generator(case.device).manual_seed(1)
    shape = case.setting if case.kind == "layer" else x.shape[1:2]
    left = list(range(ORDERS))
    for trial in range(max(_TRIALS, _CHANNELS // x.shape[1], _ELEMENTS // max(x.numel(), 1))):
        x.normal_(0.0, 0.02, generator=generator)
        for _ in range(1 if case.types[1] is not None else 2):
            x += torch.empty_like(x).bernoulli_(0.5, generator=generator).mul_(2.0) - 1.3
        weight, bias = (
            None if dtype is None else torch.empty(shape, dtype=dtype, device=case.device)
            for dtype in case.types
        )
        if weight is not None:
            weight.normal_(generator=generator)
        if bias is not None:
            bias.normal_(generator=generator) if weight is None else bias.copy_(weight).neg_()
        if trial == 1:  # elements that are their mean show the sign of zero
            (x[:, :1] if case.kind == "batch" else x[:1]).fill_(0.5)
        left = _that_give_the_bits(case, applied, x, weight, bias, left)
        if not left or (len(left) == 1 and trial > 0):
            break
    return left[0] if left else None


def _that_give_the_bits(
    case: Case,
    applied: Apply,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    orders: list[int],
) -> list[int]:
    with torch.no_grad():
        y, mean, deviation = RUN[case.kind](x, weight, bias, case.setting)[:3]
        term = TERMS[case.kind](x, mean, deviation, weight, bias)
        if bias is not None:
            orders = [order for order in orders if order != _WITHOUT_BIAS]
        return [order for order in orders if same_bits(applied(term, order).view(x.shape), y)]


def _batch(x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float) -> Any:
    cudnn = torch.backends.cudnn.enabled
    return torch._batch_norm_impl_index(x, weight, bias, None, None, True, 0.0, epsilon, cudnn)


def _group(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int) -> Any:
    images, channels = x.shape[:2]
    elements = x[0, 0].numel()
    return torch.native_group_norm(x, weight, bias, images, channels, elements, groups, 1e-5)


def _layer(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]) -> Any:
    return torch.native_layer_norm(x, shape, weight, bias, 1e-5)


# Forward's operations below autograd, whose nodes would be counted among the step's: the result,
# the means and the inverse deviations.
RUN: dict[str, Callable[..., Any]] = {"batch": _batch, "group": _group, "layer": _layer}
TERMS: dict[str, Callable[..., Term]] = {"batch": batch, "group": group, "layer": layer}
