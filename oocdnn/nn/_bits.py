"""What a fused forward pass saved, unpacked: places of winners, and where activations are flat."""

from math import prod
from types import ModuleType
from typing import Any

from oocdnn._call import Convolution, Pool
from oocdnn._cdefs import Activation

_CLIPS = (Activation.RELU, Activation.CLIPPED_RELU)
_SPAN = 4  # bytes that hold an element of up to 25 bits, wherever it begins in the first


def clips(call: Convolution) -> bool:
    """Whether the activation has flat parts."""
    return call.epilogue.activation in _CLIPS


def winners(module: ModuleType, bits: Any, call: Convolution, z: tuple[int, ...]) -> Any:
    """Of a max pool, the winner's place for each element of z; the number of places where none is
    to have a gradient. `bits` is None where there is one place only."""
    assert call.pool is not None
    places = prod(call.pool.window)
    if bits is None:
        return module.zeros(z, "uint8")
    return unpacked(module, bits, z, (places + clips(call) - 1).bit_length())


def alive(
    module: ModuleType, bits: Any, call: Convolution, y: tuple[int, ...], z: tuple[int, ...]
) -> Any:
    """Without a max pool, 1 for each element of y where the activation is not flat, 0 elsewhere and
    where no window reaches."""
    rows = y if call.pool is None else (*y[:2], *_reached(call.pool, y[2:], z[2:]))
    result = module.zeros(y, "uint32")
    result[tuple(slice(size) for size in rows)] = unpacked(module, bits, rows, 1)
    return result


def _reached(pool: Pool, y: tuple[int, ...], z: tuple[int, ...]) -> tuple[int, ...]:
    """The spatial extents of y up to the last row that a window reaches."""
    axes = zip(y, z, pool.window, pool.stride, pool.before, strict=True)
    return tuple(min((o - 1) * s - before + w, e) for e, o, w, s, before in axes)


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
