"""Convolution of what is upsampled, in one pass over x.

Where each element of x stands for a block of equal ones (nearest upsampling by whole factors), a
filter meets the same element with several taps. Their sums are the taps of a transposed convolution
of x itself, whose stride is the factors: so what is upsampled is nowhere, not even on the device,
and the arithmetic is less, in 3-D with a factor of 2 and taps of 3 by 27 / 8.
"""

import itertools
from typing import Any, SupportsIndex

import numpy as np

from oocdnn import functions
from oocdnn._arrays.allocation import allocating
from oocdnn._calls import call_geometry, windows
from oocdnn._calls.operation import ActivationSpec, MathName, ModeName, mode_of
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core.cdefs import Mode
from oocdnn._core.native import Progress
from oocdnn.arrays import view
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.normalization import Prologue, Sums

_TRANSPOSED = {
    1: functions.conv_transpose1d,
    2: functions.conv_transpose2d,
    3: functions.conv_transpose3d,
}


def conv_upsample(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    factor: PerAxis = 2,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: SupportsIndex = 1,
    mode: ModeName = "cross_correlation",
    activation: ActivationSpec = None,
    scale: Any = None,
    residual: Any = None,
    residual_alpha: float = 1.0,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
    prologue: Prologue | None = None,
    sums: Sums | None = None,
) -> Any:
    """conv(upsample(x), w), with stride 1, where upsample repeats each element `factor` times along
    each spatial axis (an integer, or one per axis).

    x: [N, C, [D, [H,]] W]; w: [K, C/groups, ...], a NumPy or CuPy array; b: [K] or None. Returns y:
    [N, K, ...] of the sizes that the convolution of what is upsampled has. The other keywords are
    those of `oocdnn.functions`; `prologue` and padding are as if x were upsampled behind the one
    and before the other. Sums of taps are made in float32 at least and rounded to w's type once,
    so that in 16-bit types results differ from those of w itself by about the rounding of w.
    """
    shape = view("x", x).shape
    rank = call_geometry.data_rank(shape)
    weights, module = view("w", w), _module_of(w)
    count = windows.integer("groups", groups, 1)
    if len(weights.shape) != len(shape):
        raise InvalidProblem(f"w has {len(weights.shape)} axes, and x {len(shape)}")
    if 0 in weights.shape:
        raise InvalidProblem(f"w has no elements (shape {weights.shape}); each axis needs some")
    if weights.shape[0] % count != 0:
        raise InvalidProblem(f"{count} groups do not divide the {weights.shape[0]} filters of w")
    factors = windows.per_axis("factor", factor, rank, 1)
    window = windows.make(rank, weights.shape[2:], 1, padding, dilation)
    if mode_of(mode) == Mode.CONVOLUTION:
        w = w[(slice(None), slice(None), *[slice(None, None, -1)] * rank)]
    folded = _folded(
        module, _transposed(w, count), factors, window.dilation, window.before, window.after
    )
    pads = [
        (max((taps - 1) * gap - before, 0), max((taps - 1) * gap - after, 0))
        for taps, gap, before, after in zip(
            weights.shape[2:], window.dilation, window.before, window.after, strict=True
        )
    ]
    return _TRANSPOSED[rank](
        x, folded, b, stride=factors, padding=pads, groups=count, activation=activation,
        scale=scale, residual=residual, residual_alpha=residual_alpha, out=out, alpha=alpha,
        beta=beta, math=math, stream=stream, progress=progress, workspace=workspace,
        prologue=prologue, sums=sums,
    )  # fmt: skip


def _transposed(w: Any, groups: int) -> Any:
    """[K, C/groups, ...] as [C, K/groups, ...]."""
    k, c, *taps = w.shape
    return w.reshape(groups, k // groups, c, *taps).swapaxes(1, 2).reshape(-1, k // groups, *taps)


def _folded(
    module: Any,
    w: Any,
    factors: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> Any:
    """The taps of the transposed convolution: tap r of w meets the `factor` elements of a block
    from -r * dilation on. Padding beyond the reach is zeros around them."""
    reach = [(taps - 1) * gap for taps, gap in zip(w.shape[2:], dilation, strict=True)]
    lead = [max(pad - r, 0) for pad, r in zip(before, reach, strict=True)]
    trail = [max(pad - r, 0) for pad, r in zip(after, reach, strict=True)]
    extents = [
        first + r + f + last for first, r, f, last in zip(lead, reach, factors, trail, strict=True)
    ]
    shape = (*w.shape[:2], *extents)
    kind = np.dtype(np.float64 if w.dtype == np.float64 else np.float32)
    with allocating(shape, kind.itemsize):
        folded = module.zeros(shape, kind)
    for taps in itertools.product(*map(range, w.shape[2:])):
        block = tuple(
            slice(first + r - tap * gap, first + r - tap * gap + f)
            for first, r, tap, gap, f in zip(lead, reach, taps, dilation, factors, strict=True)
        )
        tap_of_all = w[(slice(None), slice(None), *taps)]
        folded[(slice(None), slice(None), *block)] += tap_of_all[(..., *[None] * len(taps))]
    return folded.astype(w.dtype)


def _module_of(w: Any) -> Any:
    if isinstance(w, np.ndarray):
        return np
    if type(w).__module__.split(".")[0] == "cupy":
        return w.__array_namespace__()
    raise Unsupported(f"w is a {type(w).__name__}, whose taps are not added; pass a NumPy array")
