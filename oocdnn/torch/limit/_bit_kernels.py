"""Bits of elements in Triton: one read and one write of memory."""

import triton
import triton.language as tl


@triton.jit
def pack(
    x,
    small,
    elements,
    nbytes,
    MOST: tl.constexpr,
    INFINITE: tl.constexpr,
    NARROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bit i of byte b is set where element 8 b + i is above 0 or NaN."""
    byte = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, 8)
    element = byte[:, None] * 8 + place[None, :]
    value = tl.load(x + element, mask=element < elements, other=0)
    if NARROW:
        value = value.to(tl.int32)
    bit = (value > 0) | ((value & MOST) > INFINITE)
    bits = tl.sum(bit.to(tl.int32) << place[None, :], axis=1)
    tl.store(small + byte, bits.to(tl.uint8), mask=byte < nbytes)


@triton.jit
def unpack(small, out, elements, ONE: tl.constexpr, BLOCK: tl.constexpr):
    """ONE where the element's bit is set, else 0."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = element < elements
    byte = tl.load(small + (element >> 3), mask=there, other=0).to(tl.int32)
    bit = (byte >> (element & 7).to(tl.int32)) & 1
    tl.store(out + element, bit.to(out.dtype.element_ty) * ONE, mask=there)
