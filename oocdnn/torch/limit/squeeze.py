"""Indices of max pooling in two bytes or four instead of eight.

PyTorch saves the place of each maximum in its plane as int64. A plane of up to 65,536 elements
needs 16 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Kept, Packed

_POOLS = {"MaxPool2DWithIndicesBackward0": 2, "MaxPool3DWithIndicesBackward0": 3}


@dataclass(frozen=True)
class Form:
    """The smaller type, and what is subtracted to fit it."""

    dtype: torch.dtype
    offset: int

    def nbytes(self, nbytes: int) -> int:
        return nbytes // 8 * int(self.dtype.itemsize)


@dataclass
class Squeezed:
    """The smaller form of one storage of int64."""

    form: Form
    small: Tensor

    def expand(self) -> Tensor:
        """The storage, as bytes."""
        wide = self.small.to(torch.int64)
        if self.form.offset:
            wide += self.form.offset
        return wide.view(torch.uint8)


def squeeze(storage: Tensor, form: Form) -> Squeezed:
    """Every value must be at least 0 and below the number of elements of a plane."""
    wide = storage.view(torch.int64)
    return Squeezed(form, (wide - form.offset if form.offset else wide).to(form.dtype))


def form_of(tensor: Tensor, beside: list[Packed | Kept]) -> Form | None:
    """The form of a tensor that looks like a pool's indices: int64 beside one saved tensor, the
    pool's input, with the same batch and channels. `serves` tells later whether it was a pool."""
    if tensor.dtype != torch.int64 or len(beside) != 1 or tensor.dim() < 3:
        return None
    size = beside[0].like[1]
    if len(size) != tensor.dim():
        return None
    planes = 2 if tensor.dim() < 5 else 3
    if size[:-planes] != tensor.size()[:-planes]:
        return None
    elements = math.prod(size[-planes:])
    if elements <= 1 << 16:
        return Form(torch.int16, 1 << 15)
    return Form(torch.int32, 0) if elements < 1 << 31 else None


def serves(name: str, dimensions: int) -> bool:
    """Whether the node of this name, that saved a tensor of so many dimensions, is a pool."""
    planes = _POOLS.get(name)
    return planes is not None and dimensions - planes in (1, 2)
