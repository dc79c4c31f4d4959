"""The kernel behind `fused.join`, in Triton."""

import triton
import triton.language as tl


@triton.jit
def normalized(x, at, mask, mean, deviation, weight, bias, channels, inner, ORDER: tl.constexpr):
    c = (at // inner) % channels
    m = tl.load(mean + c, mask=mask, other=0.0).to(tl.float32)
    s = tl.load(deviation + c, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weight + c, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(bias + c, mask=mask, other=0.0).to(tl.float32)
    if ORDER == 0:
        y = tl.fma(w * (x - m), s, b)
    elif ORDER == 1:
        y = tl.fma(x - m, s * w, b)
    elif ORDER == 2:
        y = tl.fma(x, w * s, b - m * (w * s))
    else:
        y = tl.fma(x, w * s, tl.fma(-m, w * s, b))
    return y


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
    count,
    channels,
    inner,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    kind = out.dtype.element_ty
    a = tl.load(x1 + at, mask=mask, other=0.0).to(tl.float32)
    if FIRST >= 0:
        a = normalized(a, at, mask, mean1, deviation1, weight1, bias1, channels, inner, FIRST)
        a = a.to(kind).to(tl.float32)
    if SECOND >= -1:
        b = tl.load(x2 + at, mask=mask, other=0.0).to(tl.float32)
        if SECOND >= 0:
            b = normalized(b, at, mask, mean2, deviation2, weight2, bias2, channels, inner, SECOND)
            b = b.to(kind).to(tl.float32)
        a = (a + b).to(kind).to(tl.float32)
    if RELU:
        a = tl.where(a < 0.0, 0.0, a)
    tl.store(out + at, a.to(kind), mask=mask)
