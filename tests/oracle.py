"""The reference that every result is compared with: convolutions in float64, by NumPy alone.

All arrays are batched, with axes N C [D [H]] W for x and y and K C/groups [T [R]] S for w; results
are float64. The loops run over filter taps only, and each tap touches just the elements that it
reads: there is no padded copy, so a NaN or an infinity reaches exactly the outputs that read it.
Sums of integers are exact while they stay below 2**53.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
PerAxis = int | Sequence[int]
Padding = int | Sequence[int] | Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Window:
    """How the filter steps over the three spatial axes D, H, W."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @staticmethod
    def of(rank: int, stride: PerAxis, padding: Padding, dilation: PerAxis) -> Window:
        pads = [padding] * rank if isinstance(padding, int) else list(padding)
        pairs = [(pad, pad) if isinstance(pad, int | np.integer) else tuple(pad) for pad in pads]
        if len(pairs) != rank:
            raise ValueError(f"padding {padding} does not have {rank} axes")
        return Window(
            _lift(stride, rank, 1),
            _lift([before for before, _ in pairs], rank, 0),
            _lift([after for _, after in pairs], rank, 0),
            _lift(dilation, rank, 1),
        )

    def out(self, axis: int, extent: int, taps: int) -> int:
        """The output's extent on `axis` for an input of `extent` and a filter of `taps`."""
        room = extent + self.before[axis] + self.after[axis] - (taps - 1) * self.dilation[axis] - 1
        return room // self.stride[axis] + 1 if room >= 0 else 0

    def meetings(self, axis: int, extent: int, out: int, taps: int) -> Iterator[tuple]:
        """For each tap: the output rows that it serves and the input rows that they read."""
        step = self.stride[axis]
        for tap in range(taps):
            offset = tap * self.dilation[axis] - self.before[axis]
            first = max(0, -(offset // step))
            last = min(out - 1, (extent - 1 - offset) // step)
            if first <= last:
                rows = slice(first * step + offset, last * step + offset + 1, step)
                yield tap, slice(first, last + 1), rows


def _lift(values: PerAxis, rank: int, default: int) -> tuple[int, ...]:
    per_axis = [values] * rank if isinstance(values, int | np.integer) else list(values)
    if len(per_axis) != rank:
        raise ValueError(f"{values} does not have {rank} axes")
    return (default,) * (3 - rank) + tuple(int(value) for value in per_axis)


def _activations(array: Array, groups: int) -> Array:
    """N G C D H W in float64."""
    array = np.asarray(array).astype(np.float64)
    n, channels, *spatial = array.shape
    return array.reshape(n, groups, channels // groups, *_lift(spatial, len(spatial), 1))


def _filters(array: Array, groups: int, flip: bool) -> Array:
    """G K C T R S in float64, mirrored for a true convolution."""
    array = np.asarray(array).astype(np.float64)
    k, c, *taps = array.shape
    array = array.reshape(groups, k // groups, c, *_lift(taps, len(taps), 1))
    return array[..., ::-1, ::-1, ::-1] if flip else array


def _taps(window: Window, extents: Sequence[int], outs: Sequence[int], taps: Sequence[int]):
    """(tap, output index, input index) for every tap that meets anything."""
    axes = [list(window.meetings(a, extents[a], outs[a], taps[a])) for a in range(3)]
    for meeting in itertools.product(*axes):
        tap, out_rows, in_rows = zip(*meeting, strict=True)
        yield (..., *tap), (..., *out_rows), (..., *in_rows)


def _columns(array: Array) -> Array:
    return array.reshape(*array.shape[:3], -1)


def forward(x, w, *, stride=1, padding=0, dilation=1, groups=1, flip=False) -> Array:
    """y[n, k, p] = sum over c, r of x[n, c, p * stride + r * dilation - before] * w[k, c, r]."""
    rank = np.ndim(x) - 2
    window = Window.of(rank, stride, padding, dilation)
    xs, ws = _activations(x, groups), _filters(w, groups, flip)
    outs = [window.out(a, xs.shape[3 + a], ws.shape[3 + a]) for a in range(3)]
    y = np.zeros((xs.shape[0], groups, ws.shape[1], *outs))
    for tap, out_rows, in_rows in _taps(window, xs.shape[3:], outs, ws.shape[3:]):
        part = np.matmul(ws[tap], _columns(xs[in_rows]))
        y[out_rows] += part.reshape(y[out_rows].shape)
    return y.reshape(y.shape[0], -1, *outs[3 - rank :])


def backward_data(dy, w, x_shape, *, stride=1, padding=0, dilation=1, groups=1, flip=False):
    """dx: what each x contributed, given dy; also a transposed convolution of dy."""
    rank = len(x_shape) - 2
    window = Window.of(rank, stride, padding, dilation)
    dys, ws = _activations(dy, groups), _filters(w, groups, flip)
    dx = _activations(np.zeros(x_shape), groups)
    for tap, out_rows, in_rows in _taps(window, dx.shape[3:], dys.shape[3:], ws.shape[3:]):
        part = np.matmul(ws[tap].swapaxes(-1, -2), _columns(dys[out_rows]))
        dx[in_rows] += part.reshape(dx[in_rows].shape)
    return dx.reshape(x_shape)


def backward_filter(x, dy, w_shape, *, stride=1, padding=0, dilation=1, groups=1, flip=False):
    """dw, summed over the batch and all positions of dy."""
    rank = len(w_shape) - 2
    window = Window.of(rank, stride, padding, dilation)
    xs, dys = _activations(x, groups), _activations(dy, groups)
    dw = _filters(np.zeros(w_shape), groups, False)
    for tap, out_rows, in_rows in _taps(window, xs.shape[3:], dys.shape[3:], dw.shape[3:]):
        outs, ins = _columns(dys[out_rows]), _columns(xs[in_rows])
        dw[tap] = np.matmul(outs, ins.swapaxes(-1, -2)).sum(axis=0)
    return (dw[..., ::-1, ::-1, ::-1] if flip else dw).reshape(w_shape)


def backward_bias(dy) -> Array:
    """db[k] = sum of dy over the batch and all positions."""
    dys = np.asarray(dy).astype(np.float64)
    return dys.sum(axis=(0, *range(2, dys.ndim)))


def activate(v, activation: str = "identity", parameter: float = 0.0) -> Array:
    """The activation functions by name; `parameter` is the clip, elu's alpha, or the beta of swish
    and softplus."""
    v = np.asarray(v, dtype=np.float64)
    with np.errstate(over="ignore"):
        match activation:
            case "identity":
                return v
            case "relu":
                return np.maximum(v, 0.0)
            case "clip":
                return np.minimum(np.maximum(v, 0.0), parameter)
            case "elu":
                return np.where(v > 0, v, parameter * np.expm1(np.minimum(v, 0.0)))
            case "sigmoid":
                return 1.0 / (1.0 + np.exp(-v))
            case "tanh":
                return np.tanh(v)
            case "swish":
                return v / (1.0 + np.exp(-parameter * v))
            case "softplus":
                return np.logaddexp(parameter * v, 0.0) / parameter
    raise ValueError(f"no activation is called {activation!r}")


def finish(
    total,
    *,
    alpha=1.0,
    beta=0.0,
    old=None,
    scale=None,
    bias=None,
    residual=None,
    residual_alpha=1.0,
    activation="identity",
    parameter=0.0,
) -> Array:
    """What happens to a finished sum; `scale` and `bias` hold one value per channel (axis 1)."""

    def per_channel(values):
        return np.asarray(values, dtype=np.float64).reshape(1, -1, *(1,) * (np.ndim(total) - 2))

    v = alpha * np.asarray(total, dtype=np.float64)
    if scale is not None:
        v = v * per_channel(scale)
    if bias is not None:
        v = v + per_channel(bias)
    if residual is not None:
        v = v + residual_alpha * np.asarray(residual).astype(np.float64)
    if beta != 0.0:
        v = v + beta * np.asarray(old).astype(np.float64)
    return activate(v, activation, parameter)


# What a pool makes of a finished y: axes N C [D [H]] W or six, of which the last `len(window)` are
# pooled.


def pooled_extent(extent, before, after, window, stride, ceil=False) -> int:
    """The rows of z; a last window may pass the end by `ceil`, but has to begin before it."""
    room = extent + before + after - window
    rows = room // stride + 1
    more = ceil and room % stride != 0 and rows * stride < extent + before
    return max(rows + more, 0)


@dataclass(frozen=True)
class Pool:
    """Windows over the last axes. `mode`: "max", "avg" (padding counts) or "avg_inside"."""

    mode: str
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    ceil: bool = False

    def extents(self, extents: Sequence[int]) -> tuple[int, ...]:
        axes = zip(extents, self.padding, self.window, self.stride, strict=True)
        return tuple(pooled_extent(e, *pad, w, s, self.ceil) for e, pad, w, s in axes)

    def reached(self, extents: Sequence[int]) -> tuple[int, ...]:
        """The rows of y up to the last that a window reaches."""
        axes = zip(self.extents(extents), self.stride, self.padding, self.window, strict=True)
        last = [(z - 1) * s - before + w for z, s, (before, _), w in axes]
        return tuple(min(row, extent) for row, extent in zip(last, extents, strict=True))


def _places(by: Pool, extents: Sequence[int]) -> Iterator[tuple]:
    """For each place in the window: its number, the rows of y that windows have there, which of
    them there are, and whether an average counts them."""
    outs = by.extents(extents)
    for place, tap in enumerate(itertools.product(*(range(w) for w in by.window))):
        starts = [
            np.arange(o) * s - before + t
            for o, s, (before, _), t in zip(outs, by.stride, by.padding, tap, strict=True)
        ]
        there = _grid([(at >= 0) & (at < e) for at, e in zip(starts, extents, strict=True)])
        padded = [at < e + pad[1] for at, e, pad in zip(starts, extents, by.padding, strict=True)]
        rows = np.ix_(*(np.clip(at, 0, e - 1) for at, e in zip(starts, extents, strict=True)))
        yield place, rows, there, there if by.mode == "avg_inside" else _grid(padded)


def _counted(by: Pool, extents: Sequence[int]) -> Array:
    return sum(counts.astype(int) for *_, counts in _places(by, extents))


def pool(y, by: Pool) -> tuple[Array, Array]:
    """z, and the place of each winner in its window (0 of an average)."""
    y = np.asarray(y, dtype=np.float64)
    rank = len(by.window)
    outer, extents = y.shape[: y.ndim - rank], y.shape[y.ndim - rank :]
    z = np.zeros((*outer, *by.extents(extents)))
    winners = np.full(z.shape, -1)
    for place, rows, there, _ in _places(by, extents):
        values = y[(..., *rows)]
        if by.mode == "max":
            larger = (winners < 0) | (values > z) | (np.isnan(values) & ~np.isnan(z))
            z = np.where(there & larger, values, z)
            winners = np.where(there & larger, place, winners)
        else:
            z += np.where(there, values, 0.0)
    if by.mode == "max":
        return z, winners
    return z / _counted(by, extents), np.zeros(z.shape, int)


def pool_backward(dz, winners, extents: Sequence[int], by: Pool) -> Array:
    """dy, whose last axes have `extents`: a maximum's goes to the winner, an average's in equal
    shares. Winners are places in the window; others are none."""
    dz = np.asarray(dz).astype(np.float64)
    dy = np.zeros((*dz.shape[: dz.ndim - len(by.window)], *extents))
    counted = 1 if by.mode == "max" else _counted(by, extents)
    for place, rows, there, _ in _places(by, extents):
        takes = there & (winners == place) if by.mode == "max" else there
        np.add.at(dy, (..., *rows), np.where(takes, dz / counted, 0.0))
    return dy


def _grid(masks: Sequence[Array]) -> Array:
    return np.logical_and.reduce(np.meshgrid(*masks, indexing="ij"))


def alive(values, activation: str, parameter: float = 0.0) -> Array:
    """Where a gradient passes an activation whose results are `values`."""
    if activation not in ("relu", "clip"):
        return np.ones(np.shape(values), bool)
    dead = values <= 0
    return ~(dead | (values >= parameter)) if activation == "clip" else ~dead


SMOOTH = ("elu", "sigmoid", "tanh", "swish", "softplus")


def slope(sums, activation: str, parameter: float = 0.0) -> Array:
    """The derivative of a smooth activation, in float64."""
    u = np.asarray(sums, dtype=np.float64)
    match activation:
        case "elu":
            return np.where(u > 0, 1.0, parameter * np.exp(np.minimum(u, 0.0)))
        case "sigmoid":
            return activate(u, "sigmoid") * activate(-u, "sigmoid")
        case "tanh":
            return np.cosh(np.clip(u, -300.0, 300.0)) ** -2.0
        case "swish":
            v = parameter * u
            return activate(v, "sigmoid") * (1.0 + v * activate(-v, "sigmoid"))
        case "softplus":
            return activate(parameter * u, "sigmoid")
    raise ValueError(f"{activation!r} is not smooth")


def slopes(
    sums, by: Pool | None, activation: str, parameter: float = 0.0
) -> tuple[Array, Array | None]:
    """What a training pass saves of sums that a smooth activation and a pool follow: the slopes, of
    a maximum those of the winners, whose places come second."""
    sums = np.asarray(sums, dtype=np.float64)
    if by is None:
        return slope(sums, activation, parameter), None
    rows = by.reached(sums.shape[-len(by.window) :])
    if by.mode != "max":
        return slope(sums[(..., *(slice(row) for row in rows))], activation, parameter), None
    winners = pool(activate(sums, activation, parameter), by)[1]
    return slope(_at_winners(sums, winners, by), activation, parameter), winners


def _at_winners(y, winners: Array, by: Pool) -> Array:
    found = np.zeros(winners.shape)
    for place, rows, there, _ in _places(by, np.shape(y)[-len(by.window) :]):
        found = np.where(there & (winners == place), y[(..., *rows)], found)
    return found


def code_bytes(by: Pool | None) -> int:
    """Of the place of a winner behind its slope."""
    return ((int(np.prod(by.window)) - 1).bit_length() + 7) // 8 if by and by.mode == "max" else 0


def sloped(values: Array, codes: Array | None, size: int, dtype) -> Array:
    """Elements with slopes one behind the other, as bytes: `size` of them are of a code."""
    parts = [np.ascontiguousarray(values.astype(dtype))[..., None].view(np.uint8)]
    if size:
        parts.append(np.asarray(codes).astype("<u8")[..., None].view(np.uint8)[..., :size])
    elements = np.concatenate(parts, axis=-1)
    return elements.reshape(*elements.shape[:-2], -1)


def unsloped(rows: Array, size: int, dtype) -> tuple[Array, Array]:
    """The slopes in float64 and the codes of what `sloped` made."""
    width = np.dtype(dtype).itemsize
    elements = rows.reshape(*rows.shape[:-1], -1, width + size)
    values = np.ascontiguousarray(elements[..., :width]).view(dtype)[..., 0].astype(np.float64)
    places = 256 ** np.arange(size)
    return values, (elements[..., width:].astype(np.int64) * places).sum(axis=-1)


def saved(y, by: Pool | None, activation: str = "identity", parameter: float = 0.0) -> Array | None:
    """What a training pass saves of the finished y, as bytes; None: nothing. Behind a smooth
    activation it is what `sloped` makes of `slopes`."""
    clips = activation in ("relu", "clip")
    if by is not None and by.mode == "max":
        z, winners = pool(y, by)
        places = int(np.prod(by.window))
        bits = (places + clips - 1).bit_length()
        values = np.where(alive(z, activation, parameter), winners, places)
        return packed(values, bits) if bits else None
    if not clips:
        return None
    values = alive(y, activation, parameter)
    if by is not None:
        rows = by.reached(np.shape(y)[-len(by.window) :])
        values = values[(..., *(slice(row) for row in rows))]
    return packed(values.astype(int), 1)


def packed(values: Array, bits: int) -> Array:
    """Rows of numbers of so many bits, one behind the other from the lowest bit on, in bytes."""
    spread = (values[..., None] >> np.arange(bits)) & 1
    flat = spread.reshape(*values.shape[:-1], values.shape[-1] * bits)
    return np.packbits(flat.astype(np.uint8), axis=-1, bitorder="little")


def unpacked(rows: Array, bits: int, count: int) -> Array:
    """The first `count` numbers of each row that `packed` made."""
    spread = np.unpackbits(rows, axis=-1, bitorder="little")[..., : count * bits]
    spread = spread.reshape(*rows.shape[:-1], count, bits).astype(np.int64)
    return (spread << np.arange(bits)).sum(axis=-1)
