"""Elementwise operations in Triton, as PyTorch's CUDA kernels compute them in float32.

The kernels that `fused` generates call them. Multiplications and additions are contracted only
where `tl.fma` says so.
"""

import linecache
from functools import cache

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Whether a compiled kernel is launched with all of its arguments, those in its text included.
LAUNCHES = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3)


@triton.jit
def relu(x):
    return tl.where(x != x, x, tl.maximum(x, 0.0))


@triton.jit
def leaky_relu(x, slope):
    return tl.where(x > 0.0, x, x * slope)


@triton.jit
def hardtanh(x, low, high):
    return tl.where(x != x, x, tl.minimum(tl.maximum(x, low), high))


@triton.jit
def clamped(x):
    """x + 3 between 0 and 6."""
    y = x + 3.0
    y = tl.where(y < 0.0, 0.0, y)
    return tl.where(y > 6.0, 6.0, y)


@triton.jit
def hardsigmoid(x):
    return clamped(x) * 0.16666667163372040


@triton.jit
def hardswish(x):
    return x * clamped(x) * 0.16666667163372040


@triton.jit
def sigmoid(x):
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + libdevice.exp(-x))


@triton.jit
def silu(x):
    return tl.div_rn(x, 1.0 + libdevice.exp(-x))


@triton.jit
def tanh(x):
    return libdevice.tanh(x)


@triton.jit
def gelu(x):
    return x * 0.5 * (1.0 + libdevice.erf(x * 0.70710678118654752))


@triton.jit
def gelu_tanh(x):
    cube = x * x * x
    inner = 0.79788456080286536 * fma(tl.full([1, 1], 0.044715, tl.float32), cube, x)
    return 0.5 * x * (1.0 + libdevice.tanh(inner))


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def add_scaled(a, b, alpha):
    return fma(tl.full([1, 1], alpha, tl.float32), b, a)


@triton.jit
def mul(a, b):
    return a * b


@triton.jit
def dropped(x, mask, scale):
    return x * mask * scale


@triton.jit
def fma(a, b, c):
    a, b = tl.broadcast(a, b)
    a, c = tl.broadcast(a, c)
    a, b = tl.broadcast(a, b)
    return tl.fma(a, b, c)


@triton.jit
def norm0(x, mean, d, w, b):
    return fma(w * (x - mean), d, b)


@triton.jit
def norm1(x, mean, d, w, b):
    return fma(x - mean, d * w, b)


@triton.jit
def norm2(x, mean, d, w, b):
    return fma(x, w * d, b - mean * (w * d))


@triton.jit
def norm3(x, mean, d, w, b):
    return fma(x, w * d, fma(-mean, w * d, b))


@triton.jit
def norm4(x, mean, d, w, b):
    return fma((x - mean) * d, w, b)


@triton.jit
def norm5(x, mean, d, w, b):
    return fma(fma(x, d, -mean * d), w, b)


@triton.jit
def norm6(x, mean, d, w, b):
    return (x - mean) * d * w


@cache
def compiled(source):
    """The kernel of a generated text, which Triton reads again by way of `linecache`."""
    name = f"<fused {hash(source) & 0xFFFFFFFF:08x}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = dict(globals())
    exec(compile(source, name, "exec"), names)
    return triton.jit(names["fused"])
