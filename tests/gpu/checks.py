"""What a device must get right, each check over random cases against NumPy in float64.

Fillings are small integers, so the threshold is 0. Every check is a function of a rig and a random
generator that does one case and raises AssertionError with a line that repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from core import (
    BACKWARD_BIAS,
    BACKWARD_DATA,
    BACKWARD_FILTER,
    BF16,
    BIAS,
    F32,
    F64,
    FORWARD,
    NAMES,
    NHWC,
    SIZES,
    UNSUPPORTED,
    CoreError,
    Finish,
    Op,
    Rig,
    Transfer,
    View,
    W,
    X,
    Y,
    _six,
    _three,
    dense,
    layout,
    load,
    store,
)

Rng = np.random.Generator
PLAIN = ((1, 3), (1, 3), (1, 6), (1, 3), (1, 6), (100, 300))  # extents of wide tensors
GUARD = 64  # elements around every array that nobody may touch
DIRECTIONS = ("forward", "backward_data", "backward_filter", "backward_bias")


def integers(rng: Rng, shape: Any) -> np.ndarray:
    return rng.integers(-8, 9, size=shape).astype(np.float64)


def strides_of(rng: Rng, shape: tuple[int, ...]) -> tuple[list[int], int, int]:
    """Random strides, elements spanned, and the place of element 0: permuted, gapped, mirrored."""
    order = rng.permutation(6) if rng.random() < 0.5 else np.arange(6)
    if rng.random() < 0.3:
        order = np.array(NHWC)
    wide = [extent + (int(rng.integers(0, 4)) if rng.random() < 0.2 else 0) for extent in shape]
    stride = dense(wide, [int(d) for d in order])
    for d in range(6):
        if rng.random() < 0.1:
            stride[d] = -stride[d]
    low = sum(min(0, s * (e - 1)) for s, e in zip(stride, shape, strict=True))
    high = sum(max(0, s * (e - 1)) for s, e in zip(stride, shape, strict=True))
    return stride, high - low + 1, -low


def offsets(shape: tuple[int, ...], stride: list[int], first: int) -> np.ndarray:
    grid = np.indices(shape, sparse=True)
    return first + sum(g * s for g, s in zip(grid, stride, strict=True))


def random_box(rng: Rng, shape: tuple[int, ...]) -> dict[str, list[int]]:
    """A box that may reach past the tensor, what of it is valid, and the part of the tile."""
    box: dict[str, list[int]] = {name: [] for name in ("origin", "extent", "vb", "ve", "tb", "te")}
    for size in shape:
        before, after = (int(v) for v in rng.integers(0, 3, 2)) if rng.random() < 0.4 else (0, 0)
        begin = int(rng.integers(0, size)) if rng.random() < 0.4 else 0
        end = int(rng.integers(begin, size)) + 1 if rng.random() < 0.4 else size
        extent = before + end - begin + after
        cut = rng.random() < 0.2
        tb = int(rng.integers(0, extent)) if cut else 0
        te = int(rng.integers(tb, extent)) + 1 if cut else extent
        for name, value in zip(box, (begin - before, extent, begin, end, tb, te), strict=True):
            box[name].append(value)
    return box


@dataclass
class TransferCase:
    """A tensor's shape and place in memory, a box of it, and the order of the tile."""

    shape: tuple[int, ...]
    types: tuple[int, int]
    stride: list[int]
    span: int
    first: int
    box: dict[str, list[int]]
    order: tuple[int, ...]


def random_transfer(rng: Rng) -> TransferCase:
    types = tuple(int(t) for t in rng.integers(0, 4, 2))
    if rng.random() < 0.4:
        types = (types[1], types[1])
    if rng.random() < 0.3:  # what a tile loop mostly does: dense arrays, wide rows, cut or whole
        shape = tuple(int(rng.integers(low, high)) for low, high in PLAIN)
        box = random_box(rng, shape)
        for name, value in zip(box, (0, shape[5], 0, shape[5], 0, shape[5]), strict=True):
            box[name][5] = value
        order = (0, 1, 2, 3, 4, 5)
        return TransferCase(shape, types, dense(shape), int(np.prod(shape)), 0, box, order)
    if rng.random() < 0.3:  # rows that all begin alike, and tiles between the places to begin at
        shape = tuple(int(rng.integers(1, limit + 1)) for limit in (2, 2, 40, 1, 6))
        shape = (*shape, 8 * int(rng.integers(1, 30)))
        box = random_box(rng, shape)
        return TransferCase(shape, types, dense(shape), int(np.prod(shape)), 0, box, NHWC)
    top = (4, 3, 40, 2, 9, 40) if rng.random() < 0.7 else (2, 2, 200, 1, 30, 70)
    shape = tuple(int(rng.integers(1, limit + 1)) for limit in top)
    order = NHWC if rng.random() < 0.4 else (0, 1, 2, 3, 4, 5)
    return TransferCase(shape, types, *strides_of(rng, shape), random_box(rng, shape), order)


def transfer_check(rig: Rig, rng: Rng) -> str:
    """Fetch and drain of a random box between random strides, dtypes and layouts."""
    case = random_transfer(rng)
    shape, stride, box, order = case.shape, case.stride, case.box, case.order
    view_type, tile_type = case.types
    span, first = case.span, case.first
    extent = tuple(box["extent"])
    lay = layout(tile_type, extent, order)
    note = (
        f"{NAMES[view_type]}->{NAMES[tile_type]} shape={shape} stride={stride} box={box} {order=}"
    )

    keep = len(rig.blocks)
    source = rig.array(span + 2 * GUARD, view_type)
    source.view(np.uint8)[:] = 0x5A
    place = offsets(shape, stride, GUARD + first)
    values = integers(rng, shape)
    source[place] = store(values, view_type)
    tile = rig.memory(int(lay.bytes) + 512, host=False)
    rig.fill(tile, int(lay.bytes) + 512, 0x3B)
    # The tile's guard and the parts that are not asked for are seen through a drain of bytes.
    view = View(source.ctypes.data + (GUARD + first) * SIZES[view_type], view_type, _six(*stride))
    boxes = [_six(*box[name]) for name in ("origin", "extent", "vb", "ve", "tb", "te")]
    transfer = Transfer(view, lay, X, *boxes, tile)
    rig.copy("fetch", transfer)
    raw = raw_bytes(rig, tile, int(lay.bytes) + 512)

    wanted = np.full(int(lay.bytes) // SIZES[tile_type], 0, dtype=np.dtype(f"u{SIZES[tile_type]}"))
    wanted.view(np.uint8)[:] = 0x3B
    at = offsets(extent, dense(extent, order), 0)
    window = tuple(slice(b, e) for b, e in zip(box["tb"], box["te"], strict=True))
    padded = np.zeros(extent)
    inner = tuple(
        slice(b - o, e - o) for o, b, e in zip(box["origin"], box["vb"], box["ve"], strict=True)
    )
    outer = tuple(slice(b, e) for b, e in zip(box["vb"], box["ve"], strict=True))
    padded[inner] = values[outer]
    wanted[at[window]] = store(padded[window], tile_type).view(wanted.dtype)
    assert np.array_equal(raw[: int(lay.bytes)].view(wanted.dtype), wanted), "fetch " + note
    assert (raw[int(lay.bytes) :] == 0x3B).all(), "a fetch wrote behind the tile: " + note

    target = rig.array(span + 2 * GUARD, view_type)
    target.view(np.uint8)[:] = 0x5A
    expected = target.copy()
    transfer.view.data = target.ctypes.data + (GUARD + first) * SIZES[view_type]
    rig.copy("drain", transfer)
    rig.synchronize()
    chosen = np.zeros(shape, dtype=bool)
    low = [max(v, o + t) for v, o, t in zip(box["vb"], box["origin"], box["tb"], strict=True)]
    high = [min(v, o + t) for v, o, t in zip(box["ve"], box["origin"], box["te"], strict=True)]
    if all(b < e for b, e in zip(low, high, strict=True)):
        chosen[tuple(slice(b, e) for b, e in zip(low, high, strict=True))] = True
    expected[place[chosen]] = store(values, view_type)[chosen]
    assert np.array_equal(target.view(np.uint8), expected.view(np.uint8)), "drain " + note
    method = rig.method("fetch", transfer).split()[0]
    rig.release(keep)
    return method


def raw_bytes(rig: Rig, memory: int, size: int) -> np.ndarray:
    """Device memory as it is; in halves, so that no conversion touches it."""
    lay = layout(2, (1, 1, 1, 1, 1, size // 2))
    flat = rig.array(size // 2, 2)
    rig.copy("drain", rig.whole(lay, memory, View(flat.ctypes.data, 2, lay.stride)))
    rig.synchronize()
    return flat.view(np.uint8).copy()


def move_check(rig: Rig, rng: Rng) -> str:
    shape = tuple(int(rng.integers(1, limit + 1)) for limit in (3, 2, 20, 2, 8, 30))
    dtype = int(rng.integers(0, 4))
    lay = layout(dtype, shape, NHWC if rng.random() < 0.5 else (0, 1, 2, 3, 4, 5))
    keep = len(rig.blocks)
    source, target = integers(rng, shape), integers(rng, shape)
    from_tile, to_tile = rig.upload(source, lay), rig.upload(target, lay)
    extent = tuple(int(rng.integers(1, size + 1)) for size in shape)
    begin = tuple(int(rng.integers(0, size - e + 1)) for size, e in zip(shape, extent, strict=True))
    to = tuple(int(rng.integers(0, size - e + 1)) for size, e in zip(shape, extent, strict=True))
    rig.move(lay, from_tile, to_tile, begin, to, extent)
    where = tuple(slice(t, t + e) for t, e in zip(to, extent, strict=True))
    taken = tuple(slice(b, b + e) for b, e in zip(begin, extent, strict=True))
    target[where] = source[taken]
    seen = rig.download(lay, to_tile)
    assert np.array_equal(seen, target), f"move {NAMES[dtype]} {shape=} {begin=} {to=} {extent=}"
    rig.release(keep)
    return NAMES[dtype]


def activate(which: int, p: float, v: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (
            v,
            np.where(v < 0, 0, v),
            np.minimum(np.maximum(v, 0), p),
            np.where(v > 0, v, p * np.expm1(v)),
            1 / (1 + np.exp(-v)),
            np.tanh(v),
            v / (1 + np.exp(-p * v)),
        )[which]


def finish_check(rig: Rig, rng: Rng) -> str:
    shape = tuple(int(rng.integers(1, limit + 1)) for limit in (3, 3, 12, 2, 6, 20))
    dtype, which = int(rng.integers(0, 4)), int(rng.integers(0, 7))
    wide = F64 if dtype == F64 else F32
    lay = layout(dtype, shape, NHWC if rng.random() < 0.5 else (0, 1, 2, 3, 4, 5))
    keep = len(rig.blocks)
    tensors = {name: integers(rng, shape) for name in ("out", "old", "residual")}
    channels = {name: integers(rng, (1, *shape[1:3], 1, 1, 1)) for name in ("bias", "scale")}
    used = {name: rng.random() < 0.5 for name in ("old", "residual", "bias", "scale")}
    tensors["old"][rng.random(shape) < 0.1] = np.nan
    alpha, beta = float(rng.integers(-2, 3)), float(rng.integers(1, 3)) if used["old"] else 0.0
    factor = float(rng.integers(-2, 3))
    parameter = 3.0 if which == 2 else 0.5
    tiles = {name: rig.upload(value, lay) for name, value in tensors.items()}
    dense_channels = layout(wide, (1, *shape[1:3], 1, 1, 1))
    tiles |= {name: rig.upload(value, dense_channels) for name, value in channels.items()}
    args = Finish(tiles["out"], lay, tiles["old"])  # old is there, and unread where beta is 0
    for name in ("residual", "bias", "scale"):
        setattr(args, name, tiles[name] if used[name] else None)
    args.alpha, args.beta, args.residual_alpha, args.parameter = alpha, beta, factor, parameter
    args.operand, args.activation = Y, which
    rig.finish(args)
    v = alpha * tensors["out"]
    if used["scale"]:
        v = v * channels["scale"]
    if used["bias"]:
        v = v + channels["bias"]
    if used["residual"]:
        v = v + factor * tensors["residual"]
    if used["old"]:
        v = v + beta * tensors["old"]
    with np.errstate(invalid="ignore"):
        wanted = activate(which, parameter, v)
    seen = rig.download(lay, tiles["out"])
    note = f"finish {NAMES[dtype]} {shape=} {used=} {alpha=} {beta=} {factor=} activation={which}"
    assert np.array_equal(np.isnan(seen), np.isnan(wanted)), note
    if which <= 2:
        wanted = load(store(wanted, dtype), dtype)
        assert np.array_equal(seen, wanted, equal_nan=True), note
    else:
        tolerance = {F64: 1e-13, F32: 2e-6, BF16: 2**-8}.get(dtype, 2**-10)
        assert np.allclose(seen, wanted, rtol=tolerance, atol=tolerance, equal_nan=True), note
    rig.release(keep)
    return f"activation {which}"


def convolve(op: Op, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The output of direction op.direction, from x, w or y in their six dimensions."""
    pads = tuple((0, 0) if d < 3 else (op.pad[d - 3],) * 2 for d in range(6))
    x = np.pad(x, pads)
    out = np.zeros(
        {FORWARD: y.shape, BACKWARD_DATA: x.shape, BACKWARD_FILTER: w.shape}[op.direction]
    )
    for tap in np.ndindex(*op.filter):
        part = tuple(
            slice(
                t * op.dilation[d],
                t * op.dilation[d] + op.stride[d] * (op.out[d] - 1) + 1,
                op.stride[d],
            )
            for d, t in enumerate(tap)
        )
        reads = (slice(None),) * 3 + part
        weights = w[(..., *tap)]
        if op.direction == FORWARD:
            out += np.einsum("ngcdhw,gkc->ngkdhw", x[reads], weights)
        elif op.direction == BACKWARD_DATA:
            out[reads] += np.einsum("ngkdhw,gkc->ngcdhw", y, weights)
        else:
            out[(..., *tap)] = np.einsum("ngcdhw,ngkdhw->gkc", x[reads], y)
    if op.direction == BACKWARD_DATA:
        out = out[tuple(slice(b, size - a) for (b, a), size in zip(pads, out.shape, strict=True))]
    return out


def random_op(rng: Rng, direction: int, *, padded: bool = False) -> Op:
    op = Op()
    op.direction, op.n = direction, int(rng.integers(1, 4))
    op.g, op.k, op.c = (
        (int(rng.integers(1, 20)), 1, 1)
        if rng.random() < 0.2
        else (int(rng.integers(1, 4)), int(rng.integers(1, 20)), int(rng.integers(1, 10)))
    )
    op.dtype = int(rng.integers(0, 4))
    op.out_dtype = F64 if op.dtype == F64 else F32
    op.accumulates = int(rng.random() < 0.5)
    op.math = int(rng.random() < 0.5)
    if not op.accumulates and rng.random() < 0.5:
        op.out_dtype = op.dtype
    for d in range(3):
        deep = d > 0 or rng.random() < 0.3
        op.filter[d] = int(rng.integers(1, 4)) if deep else 1
        op.stride[d] = int(rng.integers(1, 4))
        op.dilation[d] = int(rng.integers(1, 3))
        op.out[d] = int(rng.integers(1, 9)) if deep else 1
        reach = (op.filter[d] - 1) * op.dilation[d] + 1
        op.inp[d] = (op.out[d] - 1) * op.stride[d] + reach
        if padded and op.inp[d] > 2 and rng.random() < 0.5:
            op.pad[d] = int(rng.integers(1, 2 if op.inp[d] < 5 else 3))
            op.inp[d] -= 2 * op.pad[d]
    # Rows that no tap reads: fewer than the stride, so that the output's extent stays.
    for d in range(3):
        op.inp[d] += int(rng.integers(0, op.stride[d]))
    return op


def long_op(rng: Rng, direction: int) -> Op:
    """A convolution whose sums have several blocks, or several groups of blocks."""
    op = random_op(rng, direction)
    out = [int(rng.integers(1, 4)) for _ in range(3)]
    filters, reduced = [1, 1, 1], 1
    if direction == BACKWARD_FILTER:
        flat = [[1, 1, 700], [1, 29, 31], [5, 11, 13], [1, 7, 9], [1, 547, 1], [1, 270, 400]]
        out = flat[int(rng.integers(0, len(flat)))]
        op.n = 9 if out[1] == 7 else op.n
        op.k, op.c = min(op.k, 5), min(op.c, 3)
        filters = [int(rng.integers(1, 3)) for _ in range(3)]
        if out[1] == 270:  # more blocks than a thread block has threads
            op.n, op.g, op.k, op.c = 1, 1, 1, 1
        elif rng.random() < 0.3:  # more filter elements than get a thread block each
            op.k, op.c, filters = 17, 9, [1, 2, 4]
    else:
        taps = [[1, 1, 1], [1, 3, 3], [3, 5, 7], [1, 1, 179], [2, 2, 47], [1, 15, 13]]
        filters = taps[int(rng.integers(0, len(taps)))]
        depthwise = op.g > 1 and op.k == op.c == 1
        terms = int(rng.choice([100, 1000, 5000]))
        op.n, op.k, op.c = 1, min(op.k, 2), min(op.c, 2)
        if not depthwise and rng.random() < 0.2:
            terms, filters, out, op.g = 70_000, [1, 1, 1], [1, 1, 1], 1
        reduced = 1 if depthwise else -(-terms // int(np.prod(filters)))
        if direction == FORWARD:
            op.c, op.k = reduced, min(op.k, 9)
        else:
            op.k, op.c = reduced, min(op.c, 9)
    for d in range(3):
        op.filter[d], op.out[d] = filters[d], out[d]
        reach = (op.filter[d] - 1) * op.dilation[d] + 1
        op.inp[d] = (op.out[d] - 1) * op.stride[d] + reach
    return op


def op_text(op: Op) -> str:
    lists = {
        name: list(getattr(op, name))
        for name in ("inp", "filter", "out", "pad", "stride", "dilation")
    }
    kind = f"{NAMES[op.dtype]}{'/tf32' * op.math} to {NAMES[op.out_dtype]}"
    return f"{DIRECTIONS[op.direction]} {kind} n={op.n} g={op.g} k={op.k} c={op.c} {lists}"


OUTPUT = {FORWARD: Y, BACKWARD_DATA: X, BACKWARD_FILTER: W, BACKWARD_BIAS: BIAS}


def shapes_of(op: Op) -> dict[int, tuple[int, ...]]:
    return {
        X: (op.n, op.g, op.c, *op.inp),
        W: (op.g, op.k, op.c, *op.filter),
        Y: (op.n, op.g, op.k, *op.out),
        BIAS: (1, op.g, op.k, 1, 1, 1),
    }


def run_twice(
    rig: Rig, op: Op, values: dict[int, np.ndarray], engine: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """The output of a convolution, the same after it was added to itself, and its tile's type."""
    keep = len(rig.blocks)
    output = OUTPUT[op.direction]
    executable, layouts, workspace = rig.prepare(op, engine)
    reads = (Y,) if op.direction == BACKWARD_BIAS else tuple(o for o in (X, W, Y) if o != output)
    tiles = [0, 0, 0, 0]
    for operand in reads:
        assert tuple(layouts[operand].shape) == values[operand].shape
        tiles[operand] = rig.upload(values[operand], layouts[operand])
    tiles[output] = rig.memory(int(layouts[output].bytes), host=False)
    rig.fill(tiles[output], int(layouts[output].bytes), 0xFF)  # NaN: must not be read
    scratch = rig.memory(workspace, host=False) if workspace > 0 else 0
    rig.run(executable, tiles, scratch, False)
    once = rig.download(layouts[output], tiles[output])
    twice = 2 * once
    if op.accumulates:
        rig.run(executable, tiles, scratch, True)
        twice = rig.download(layouts[output], tiles[output])
    rig.release(keep)
    return once, twice, int(layouts[output].dtype)


def engine_check(rig: Rig, rng: Rng, direction: int, engine: str) -> str:
    """A random convolution of integers, mostly run twice, the second time adding."""
    op = random_op(rng, direction, padded=engine != "direct")
    values = {operand: integers(rng, shape) for operand, shape in shapes_of(op).items()}
    try:
        once, twice, dtype = run_twice(rig, op, values, engine)
    except CoreError as error:
        if engine != "direct" and error.code == UNSUPPORTED:
            return "refused"
        raise
    if direction == BACKWARD_BIAS:
        wanted = values[Y].sum(axis=(0, 3, 4, 5), keepdims=True)
    else:
        wanted = convolve(op, values[X], values[W], values[Y])
    wanted = load(store(wanted, dtype), dtype)
    what = f"{rig.taken} {op_text(op)}"
    assert np.array_equal(once, wanted), what
    assert np.array_equal(twice, 2 * wanted), "accumulating: " + what
    return NAMES[op.dtype]


def bits_check(rig: Rig, other: Rig, rng: Rng, direction: int) -> str:
    """Two devices whose direct engines add in the same order give the same bits."""
    long = direction != BACKWARD_BIAS and rng.random() < 0.3
    op = long_op(rng, direction) if long else random_op(rng, direction)
    values = {}
    for operand, shape in shapes_of(op).items():
        values[operand] = load(store(rng.standard_normal(shape), op.dtype), op.dtype)
    both = (run_twice(device, op, values, "direct")[:2] for device in (rig, other))
    for seen, wanted in zip(*both, strict=True):
        assert np.array_equal(seen, wanted), "other bits: " + op_text(op)
    return NAMES[op.dtype]


def sized_op(direction: int, n: int, c: int, k: int, size: int, taps: int, dtype: int = F32) -> Op:
    """A plain 2-D problem without padding."""
    op = Op()
    op.direction, op.n, op.g, op.k, op.c, op.dtype = direction, n, 1, k, c, dtype
    op.out_dtype = F64 if dtype == F64 else F32
    op.inp, op.filter = _three(1, size, size), _three(1, taps, taps)
    op.out = _three(1, size - taps + 1, size - taps + 1)
    op.stride = op.dilation = _three(1, 1, 1)
    return op
