"""relu(norm(a) + norm(b)) and its parts in one pass, rounded where forward rounds.

The normalisation's arithmetic is that of the library that forward used: four orders of the same
operations in float32 are known, of which one gives its bits.

    0: fma(w * (x - mean), d, b)             PyTorch's CUDA kernels; cuDNN, channels first
    1: fma(x - mean, d * w, b)               cuDNN, channels last
    2: fma(x, w * d, b - mean * (w * d))     cuDNN, channels first, small planes
    3: fma(x, w * d, fma(-mean, w * d, b))   PyTorch on the CPU

with d the inverse deviation, w the weight and b the bias. Compared on an H100 (PyTorch 2.11, cuDNN
9.19) in float32, float16 and bfloat16, both memory orders, 2-D and 3-D: no bit differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

ORDERS = 4
_BLOCK = 2048  # elements of one program

Table = tuple[Tensor, Tensor, Tensor, Tensor]  # mean, inverse deviation, weight, bias


@dataclass
class Term:
    """A tensor, or its normalisation, which is rounded to the tensor's type."""

    x: Tensor
    table: Table | None = None
    order: int = 0


def join(terms: Sequence[Term], relu: bool) -> Tensor:
    """The sum of one or two terms of the same shape, type and memory order; relu of it if asked."""
    if terms[0].x.is_cuda and all(_alike(terms[0].x, term.x) for term in terms):
        return _join_on_gpu(terms, relu)
    parts = [_normalized(term) for term in terms]
    whole = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return torch.relu(whole) if relu else whole


def _alike(a: Tensor, b: Tensor) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride())


def _normalized(term: Term) -> Tensor:
    if term.table is None:
        return term.x
    x = term.x if term.x.dtype == torch.float64 else term.x.float()
    axes = (1, -1, *[1] * (x.dim() - 2))
    mean, deviation, weight, bias = (one.view(axes).to(x.dtype) for one in term.table)
    if term.order == 0:
        y = _fma(weight * (x - mean), deviation, bias)
    elif term.order == 1:
        y = _fma(x - mean, deviation * weight, bias)
    else:
        scale = weight * deviation
        shift = bias - mean * scale if term.order == 2 else _fma(-mean, scale, bias)
        y = _fma(x, scale, shift)
    return y.to(term.x.dtype)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c in float32, rounded once: the product is exact in float64, and the sum there is
    rounded to odd, so that the second rounding has what it needs."""
    product, addend = a.double() * b.double(), c.double().expand(a.shape)
    total = product + addend
    seen = total - product
    error = (product - (total - seen)) + (addend - seen)
    bits = total.view(torch.int64)
    even = (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (total > 0)
    bits += torch.where(even, torch.where(away, 1, -1), 0)
    return total.to(a.dtype)


def _join_on_gpu(terms: Sequence[Term], relu: bool) -> Tensor:
    first, second = terms[0], terms[1] if len(terms) > 1 else None
    x = first.x
    out = torch.empty_like(x)
    last = x.dim() > 2 and x.stride(1) == 1
    columns = x.shape[1] if last else x[0, 0].numel()
    rows = x.numel() // columns
    block_columns = min(1 << (columns - 1).bit_length(), _BLOCK if not last else 256)
    block_rows = max(_BLOCK // block_columns, 1)
    none = x  # a pointer that is not read
    tables = [
        term.table if term is not None and term.table is not None else (none,) * 4
        for term in (first, second)
    ]
    from oocdnn.torch.limit import _kernels  # Triton comes with PyTorch for GPUs only

    _kernels.joined[(-(-rows // block_rows), -(-columns // block_columns))](
        x,
        second.x if second is not None else none,
        out,
        *tables[0],
        *tables[1],
        rows,
        columns,
        x.shape[1],
        LAST=last,
        FIRST=-1 if first.table is None else first.order,
        SECOND=-2 if second is None else -1 if second.table is None else second.order,
        RELU=relu,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        enable_fp_fusion=False,
    )
    return out


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True where every element has the same bits, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(torch.equal(a.view(whole), b.view(whole)))


@cache
def order_of(kind: str, like: _Like) -> int | None:
    """The order in which the library normalises tensors like that in training, None if unknown.

    Found with random weights and biases: where they are 1 and 0, as they are in a model's first
    step, several orders give the same bits.
    """
    del kind
    x = torch.empty_strided(like.size, like.stride, dtype=like.dtype, device=like.device)
    generator = torch.Generator(like.device).manual_seed(1)
    x.normal_(0.3, 1.7, generator=generator)
    wide = torch.float64 if like.dtype == torch.float64 else torch.float32
    weight, bias = (
        torch.empty(x.shape[1], dtype=wide, device=like.device).normal_(generator=generator)
        for _ in range(2)
    )
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(_same, _same):
        y = torch.nn.functional.batch_norm(
            x, None, None, weight.requires_grad_(), bias, True, 0.0, like.epsilon
        )
    node = y.grad_fn
    table = (node._saved_result1, node._saved_result2, weight.detach(), bias)
    for order in range(ORDERS):
        if same_bits(join([Term(x, table, order)], relu=False), y.detach()):
            return order
    return None


def _same(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class _Like:
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    epsilon: float


def like(x: Tensor, epsilon: float) -> _Like:
    """What the order depends on."""
    return _Like(x.size(), x.stride(), x.dtype, x.device, epsilon)
