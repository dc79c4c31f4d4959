"""Smaller forms of saved storages that stay on the device.

A form gives back what some nodes of autograd read of a storage. Which nodes read it is known in
backward of the recorded step; `serves` tells whether a form suffices for them.

| form | storage | gives back |
|---|---|---|
| `Indices` | places of maxima in their plane, int64 | the places |
| `Bits` of bool | masks | the mask |
| `Bits` of a floating type | results of ReLU | 1 where the gradient passes, else 0 |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from oocdnn.torch.limit import fused
from oocdnn.torch.limit.bits import CODES, pack, packed_bytes, unpack
from oocdnn.torch.limit.entry import Kept, Packed
from oocdnn.torch.limit.trace import Node

_POOLS = {2: "MaxPool2DWithIndicesBackward0", 3: "MaxPool3DWithIndicesBackward0"}
_RELU = "ReluBackward0"
# ReLU's backward compares its result with 0; pools read sizes and memory order of their input.
_SIGNS = {(_RELU, "result"), *((name, "self") for name in _POOLS.values())}
_ROLES = {_RELU: ("result",), **dict.fromkeys(_POOLS.values(), ("self", "result1"))}


class Reader(NamedTuple):
    """A read of a saved tensor: the node, what the tensor is to it, and the tensor's type."""

    node: str
    role: str
    dtype: torch.dtype


def reader_of(node: Node | None, packed: Packed) -> Reader:
    """The reader whose node asks for a saved tensor; its names are empty where unknown, as in
    versions of PyTorch that do not tell what a node saves."""
    name = "" if node is None else str(node.name())
    for role in _ROLES.get(name, ()):
        if getattr(getattr(node, f"_raw_saved_{role}"), "data", None) is packed:
            return Reader(name, role, packed.like[0])
    return Reader(name, "", packed.like[0])


def reads_form_only(node: Node | None, packed: Packed) -> bool:
    """Whether a node reads only sizes and memory order of a saved tensor."""
    return reader_of(node, packed)[:2] == (_POOLS[2], "self")


class Form(Protocol):
    """A smaller form. Storages are one-dimensional tensors of bytes."""

    @property
    def whole(self) -> bool:
        """Whether what comes back serves every reader, recipes too."""

    def nbytes(self, nbytes: int) -> int:
        """Bytes of the form of a storage of `nbytes`."""

    def squeeze(self, storage: Tensor) -> Tensor: ...

    def expand(self, small: Tensor, nbytes: int) -> Tensor:
        """A storage of `nbytes`."""

    def serves(self, reader: Reader) -> bool: ...


@dataclass(frozen=True)
class Indices:
    """Indices of max pooling over so many axes in a smaller integer type.

    Every value must be at least 0 and below the number of elements of a plane.
    """

    planes: int
    dtype: torch.dtype

    @property
    def whole(self) -> bool:
        return False

    def nbytes(self, nbytes: int) -> int:
        return nbytes // 8 * int(self.dtype.itemsize)

    def squeeze(self, storage: Tensor) -> Tensor:
        return storage.view(torch.int64).to(self.dtype)

    def expand(self, small: Tensor, nbytes: int) -> Tensor:
        del nbytes
        return small.to(torch.int64).view(torch.uint8)

    def serves(self, reader: Reader) -> bool:
        return reader == Reader(_POOLS[self.planes], "result1", torch.int64)


@dataclass(frozen=True)
class Bits:
    """One bit for each element: of bool its value, of a floating type false where <= 0."""

    dtype: torch.dtype

    @property
    def whole(self) -> bool:
        return bool(self.dtype == torch.bool)

    def nbytes(self, nbytes: int) -> int:
        return packed_bytes(nbytes, self.dtype)

    def squeeze(self, storage: Tensor) -> Tensor:
        return pack(storage, self.dtype)

    def expand(self, small: Tensor, nbytes: int) -> Tensor:
        return unpack(small, self.dtype, nbytes)

    def serves(self, reader: Reader) -> bool:
        served = self.whole or reader[:2] in _SIGNS
        return served and bool(reader.dtype == self.dtype)


@dataclass
class Squeezed:
    """The smaller form of one storage."""

    form: Form
    small: Tensor


def form_of(tensor: Tensor, beside: list[Packed | Kept]) -> Form | None:
    """The form of a tensor that is being saved beside others, which its readers may need more of:
    `serves` tells later."""
    if tensor.dtype == torch.int64:
        return _indices(tensor, beside)
    if tensor.is_cuda and not fused.is_there(tensor):
        return None
    made = tensor.grad_fn
    signs = tensor.dtype in CODES and made is not None and made.name() == _RELU
    if tensor.dtype != torch.bool and not signs:
        return None
    whole = tensor.untyped_storage().nbytes() % tensor.element_size() == 0
    return Bits(tensor.dtype) if whole else None


def _indices(tensor: Tensor, beside: list[Packed | Kept]) -> Indices | None:
    """For what looks like a pool's indices: int64 beside one saved tensor, the pool's input, with
    the same batch and channels."""
    if len(beside) != 1 or tensor.dim() < 3:
        return None
    size = beside[0].like[1]
    if len(size) != tensor.dim():
        return None
    planes = 2 if tensor.dim() < 5 else 3
    if size[:-planes] != tensor.size()[:-planes]:
        return None
    elements = math.prod(size[-planes:])
    if elements <= 1 << 16:
        return Indices(planes, torch.uint16)
    return Indices(planes, torch.int32) if elements < 1 << 31 else None
