"""The places of winners that a fused forward pass saved, unpacked."""

from math import prod
from types import ModuleType
from typing import Any

from oocdnn._call import Pool

_SPAN = 4  # bytes that hold an element of up to 25 bits, wherever it begins in the first


def winners(module: ModuleType, bits: Any, pool: Pool, z: tuple[int, ...]) -> Any:
    """Of a max pool behind an activation without flat parts, the winner's place for each element of
    z. `bits` is None where there is one place only."""
    if bits is None:
        return module.zeros(z, "uint8")
    return unpacked(module, bits, z, (prod(pool.window) - 1).bit_length())


def unpacked(module: ModuleType, bits: Any, shape: tuple[int, ...], width: int) -> Any:
    """Numbers of `width` bits each, in rows along the last axis of whole bytes."""
    if 0 in shape:
        return module.zeros(shape, "uint32")
    rows = bits.reshape(prod(shape[:-1]), -1)
    padded = module.zeros((rows.shape[0], rows.shape[1] + _SPAN), "uint32")
    padded[:, : rows.shape[1]] = rows
    begin = module.arange(shape[-1]) * width
    first, shift = begin // 8, (begin % 8).astype("uint32")
    word = padded[:, first]
    for byte in range(1, _SPAN):
        word |= padded[:, first + byte] << module.uint32(8 * byte)
    mask = module.uint32((1 << width) - 1)
    return ((word >> shift) & mask).reshape(shape)
