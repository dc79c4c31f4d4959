"""One bit for each element of a storage, which is false where the element is <= 0.

Elements are compared as the integers of their bytes, so that all types share one arithmetic: what
is above 0 is so as an integer, and NaN is above infinity without its sign.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class _Code(NamedTuple):
    """An integer type of the same size, and the bytes of 1 and of the largest that is no NaN."""

    integer: torch.dtype
    one: int
    infinite: int


CODES = {
    torch.bool: _Code(torch.uint8, 1, 0xFF),
    torch.float16: _Code(torch.int16, 0x3C00, 0x7C00),
    torch.bfloat16: _Code(torch.int16, 0x3F80, 0x7F80),
    torch.float32: _Code(torch.int32, 0x3F80 << 16, 0x7F80 << 16),
    torch.float64: _Code(torch.int64, 0x3FF0 << 48, 0x7FF0 << 48),
}
_BLOCK = 256  # bytes of bits of one program


def packed_bytes(nbytes: int, dtype: torch.dtype) -> int:
    """Bytes of the bits of a storage of `nbytes`."""
    return -(-nbytes // (8 * int(dtype.itemsize)))


def pack(storage: Tensor, dtype: torch.dtype) -> Tensor:
    """The bits of a storage of elements of `dtype`, eight in a byte, the first lowest; uint8.

    Bit = not (element <= 0): true for NaN.
    """
    code, nbytes = CODES[dtype], storage.numel()
    elements, most = storage.view(code.integer), torch.iinfo(code.integer).max
    small = torch.empty(packed_bytes(nbytes, dtype), dtype=torch.uint8, device=storage.device)
    if not storage.is_cuda:
        values = elements.numpy()
        bits = (values > 0) | ((values & most) > code.infinite)
        small.numpy()[:] = np.packbits(bits, bitorder="little")
    elif nbytes:
        from oocdnn.torch.limit import _bit_kernels  # Triton comes with PyTorch for GPUs only

        with torch.cuda.device_of(small):  # Triton takes the current device
            _bit_kernels.pack[(-(-small.numel() // _BLOCK),)](
                elements,
                small,
                elements.numel(),
                small.numel(),
                MOST=most,
                INFINITE=code.infinite,
                NARROW=dtype.itemsize < 4,
                BLOCK=_BLOCK,
            )
    return small


def unpack(small: Tensor, dtype: torch.dtype, nbytes: int) -> Tensor:
    """A storage of `nbytes` with 1 of `dtype` where the bit is set, else 0."""
    code = CODES[dtype]
    storage = torch.empty(nbytes, dtype=torch.uint8, device=small.device)
    elements = storage.view(code.integer)
    if not small.is_cuda:
        bits = np.unpackbits(small.numpy(), count=elements.numel(), bitorder="little")
        np.multiply(bits, code.one, out=elements.numpy(), dtype=elements.numpy().dtype)
    elif nbytes:
        from oocdnn.torch.limit import _bit_kernels

        with torch.cuda.device_of(small):
            _bit_kernels.unpack[(-(-small.numel() // _BLOCK),)](
                small, elements, elements.numel(), ONE=code.one, BLOCK=8 * _BLOCK
            )
    return storage
