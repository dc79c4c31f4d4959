"""The kernel behind `fused.join`, in Triton.

Tensors are matrices: channels along a row where they lie last in memory, else a row for each plane
of a channel.
"""

import triton
import triton.language as tl


@triton.jit
def normalized(x, channel, there, mean, deviation, weight, bias, ORDER: tl.constexpr):
    m = tl.load(mean + channel, mask=there, other=0.0).to(tl.float32)
    s = tl.load(deviation + channel, mask=there, other=0.0).to(tl.float32)
    w = tl.load(weight + channel, mask=there, other=0.0).to(tl.float32)
    b = tl.load(bias + channel, mask=there, other=0.0).to(tl.float32)
    if ORDER == 0:
        first, second, third = w * (x - m), s, b
    elif ORDER == 1:
        first, second, third = x - m, s * w, b
    elif ORDER == 2:
        first, second, third = x, w * s, b - m * (w * s)
    else:
        first, second, third = x, w * s, tl.fma(-m, w * s, b)
    second = tl.broadcast_to(second, x.shape)
    third = tl.broadcast_to(third, x.shape)
    return tl.fma(first, second, third)


@triton.jit
def joined(
    x1,
    x2,
    out,
    mean1,
    deviation1,
    weight1,
    bias1,
    mean2,
    deviation2,
    weight2,
    bias2,
    rows,
    columns,
    channels,
    LAST: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    if LAST:
        channel = column[None, :]
        there = (column < columns)[None, :]
    else:
        channel = (row % channels)[:, None]
        there = (row < rows)[:, None]
    kind = out.dtype.element_ty
    a = tl.load(x1 + at, mask=inside, other=0.0).to(tl.float32)
    if FIRST >= 0:
        a = normalized(a, channel, there, mean1, deviation1, weight1, bias1, FIRST)
        a = a.to(kind).to(tl.float32)
    if SECOND >= -1:
        b = tl.load(x2 + at, mask=inside, other=0.0).to(tl.float32)
        if SECOND >= 0:
            b = normalized(b, channel, there, mean2, deviation2, weight2, bias2, SECOND)
            b = b.to(kind).to(tl.float32)
        a = (a + b).to(kind).to(tl.float32)
    if RELU:
        a = tl.where(a < 0.0, 0.0, a)
    tl.store(out + at, a.to(kind), mask=inside)
