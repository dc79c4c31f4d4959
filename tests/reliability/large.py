"""Row 18: tensors of more than 2^31 elements; and arrays in files that never enter memory."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import oracle

import oocdnn
from reliability.processes import alone
from reliability.rows import Finding, Size

BF16 = ml_dtypes.bfloat16
STRIDE, TAPS = 4, 5
# 46,400^2 elements are 2^31 and 5 million more; element 2^31 lies in row 46,282.
SIDES = (464, 4640, 46_400)
# 31 channels of 412^3 are 2^31 and 20 million more.
CHANNELS, CUBE_SIDES = 31, (8, 64, 412)
BLOCK = 1_000_003  # elements after which the filling repeats; prime, so no row equals another
MOST_SECONDS, MOST_CUBE_SECONDS, MOST_BYTES = 90, 60, 12 << 30


def block(seed: int, most: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(-most, most + 1, BLOCK).astype(BF16)


def filled(shape: tuple[int, ...], seed: int, most: int = 3) -> np.ndarray:
    """Small integers in bfloat16, the same block again and again."""
    pattern = block(seed, most).view(np.uint16)
    array = np.empty(shape, BF16)
    flat = array.reshape(-1).view(np.uint16)
    for begin in range(0, flat.size, BLOCK):
        flat[begin : begin + BLOCK] = pattern[: flat.size - begin]
    return array


def bands(extent: int, marks: list[int]) -> list[tuple[int, int]]:
    """Ranges of two at the beginning, in the middle, at the end, and around each mark."""
    starts = [0, extent // 2, extent - 2, *(min(max(0, m - 1), extent - 2) for m in marks)]
    return sorted({(start, start + 2) for start in starts})


def boxes(height: int, width: int, marks: list[int]) -> list[tuple[int, int, int, int]]:
    """Whole rows and whole columns of an image."""
    rows = [(a, b, 0, width) for a, b in bands(height, marks)]
    return rows + [(0, height, a, b) for a, b in bands(width, [])]


def compare(name: str, result: np.ndarray, expected: np.ndarray) -> int:
    """The number of elements compared; all of them must be equal."""
    wrong = int(np.count_nonzero(result != expected.astype(result.dtype)))
    if wrong:
        raise AssertionError(f"{name}: {wrong} of {result.size} elements differ")
    return int(result.size)


def forward(ctx: oocdnn.Context, side: int) -> tuple[float, int]:
    x, w = filled((1, 1, side, side), 1), filled((2, 1, TAPS, TAPS), 2, 1)
    began = time.monotonic()
    y = ctx.conv2d(x, w, stride=STRIDE)
    seconds, checked = time.monotonic() - began, 0
    for a, b, c, d in boxes(*y.shape[2:], [2**31 // side // STRIDE]):
        rows = slice(a * STRIDE, (b - 1) * STRIDE + TAPS)
        columns = slice(c * STRIDE, (d - 1) * STRIDE + TAPS)
        expected = oracle.forward(x[:, :, rows, columns], w, stride=STRIDE)
        checked += compare(f"y[{a}:{b}, {c}:{d}]", y[:, :, a:b, c:d], expected)
    return seconds, checked


def reach_back(low: int, high: int, extent: int) -> tuple[int, int]:
    """The outputs that touch the inputs from `low` to `high`."""
    return max(0, -(-(low - TAPS + 1) // STRIDE)), min(extent, (high - 1) // STRIDE + 1)


def backward_data(ctx: oocdnn.Context, side: int) -> tuple[float, int]:
    out = (side - TAPS) // STRIDE + 1
    dy, w = filled((1, 2, out, out), 3), filled((2, 1, TAPS, TAPS), 4, 1)
    began = time.monotonic()
    dx = ctx.conv_backward_data(dy, w, (1, 1, side, side), stride=STRIDE)
    seconds, checked = time.monotonic() - began, 0
    for a, b, c, d in boxes(side, side, [2**31 // side]):
        (p, q), (s, t) = reach_back(a, b, out), reach_back(c, d, out)
        shape = (1, 1, max(b, (q - 1) * STRIDE + TAPS) - p * STRIDE, 0)
        shape = (*shape[:3], max(d, (t - 1) * STRIDE + TAPS) - s * STRIDE)
        # The sizes are cut so that the crop's own window ends where the crop does.
        fit = [(n - 1) * STRIDE + TAPS for n in (q - p, t - s)]
        expected = np.zeros(shape)
        expected[:, :, : fit[0], : fit[1]] = oracle.backward_data(
            dy[:, :, p:q, s:t], w, (1, 1, *fit), stride=STRIDE
        )
        a_, c_ = a - p * STRIDE, c - s * STRIDE
        expected = expected[:, :, a_ : a_ + b - a, c_ : c_ + d - c]
        checked += compare(f"dx[{a}:{b}, {c}:{d}]", dx[:, :, a:b, c:d], expected)
    return seconds, checked


def backward_filter(ctx: oocdnn.Context, side: int) -> tuple[float, int]:
    """All of the gradient, summed in blocks of rows; filter and stride are equal here."""
    out = side // STRIDE
    x, dy = filled((1, 1, side, side), 5), filled((1, 1, out, out), 6, 1)
    shape = (1, 1, STRIDE, STRIDE)
    began = time.monotonic()
    dw = ctx.conv_backward_filter(x, dy, shape, stride=STRIDE)
    seconds = time.monotonic() - began
    total = np.zeros((STRIDE, STRIDE))
    for p in range(0, out, 64):
        part = dy[0, 0, p : p + 64].astype(np.float32)
        rows = x[0, 0, p * STRIDE : (p + len(part)) * STRIDE].astype(np.float32)
        total += np.einsum("prqs,pq->rs", rows.reshape(-1, STRIDE, out, STRIDE), part)
    return seconds, compare("dw", dw[0, 0], total)


def backward_bias(ctx: oocdnn.Context, side: int) -> tuple[float, int]:
    """Two channels whose sums follow from that of the repeated block."""
    width = side * 1000 // 1414
    dy = filled((1, 2, width, width), 7)
    began = time.monotonic()
    db = ctx.conv_backward_bias(dy)
    seconds = time.monotonic() - began
    sums = np.concatenate([[0.0], np.cumsum(block(7).astype(np.float64))])

    def up_to(count: int) -> float:
        return count // BLOCK * sums[-1] + sums[count % BLOCK]

    half = width * width
    expected = np.array([up_to(half), up_to(2 * half) - up_to(half)])
    return seconds, compare("db", db, expected)


def cube(ctx: oocdnn.Context, side: int) -> tuple[float, int]:
    """Three axes forward, compared in whole planes across the first and the second of them."""
    x, w = filled((1, CHANNELS, side, side, side), 9), filled((1, CHANNELS, 3, 3, 3), 10, 1)
    began = time.monotonic()
    y = ctx.conv3d(x, w)
    seconds, checked = time.monotonic() - began, 0
    for a, b in bands(side - 2, []):
        planes = oracle.forward(x[:, :, a : b + 2], w)
        checked += compare(f"y[{a}:{b}]", y[:, :, a:b], planes)
        planes = oracle.forward(x[:, :, :, a : b + 2], w)
        checked += compare(f"y[:, {a}:{b}]", y[:, :, :, a:b], planes)
    return seconds, checked


# Each with the sides for each size of a run and the most seconds that the call may take.
CASES = {
    forward: (SIDES, MOST_SECONDS),
    backward_data: (SIDES, MOST_SECONDS),
    backward_filter: (SIDES, MOST_SECONDS),
    backward_bias: (SIDES, MOST_SECONDS),
    cube: (CUBE_SIDES, MOST_CUBE_SECONDS),
}
Case = Callable[[oocdnn.Context, int], tuple[float, int]]


def one(ready: Callable[[], None], case: Case, side: int, budget: str) -> dict[str, float]:
    with oocdnn.Context("cpu", budget, profile="none") as ctx:
        ready()
        seconds, checked = case(ctx, side)
        stats = ctx.stats
    return {"seconds of the call": seconds, "elements compared": checked, "tiles": stats.tiles}


def measure_large(size: Size) -> Finding:
    budget = ("128KiB", "4MiB", "256MiB")[size.value]
    failures, details = [], {}
    slowest, largest = 0.0, 0
    for case, (sides, most_seconds) in CASES.items():
        name, side = case.__name__, sides[size.value]
        watched = alone(one, case, side, budget, limit=900, size=size)
        if watched.error:
            failures.append(f"{name} of side {side} under {budget}: {watched.error}")
            continue
        details[name] = {**watched.value, "seconds in all": round(watched.seconds, 1)}
        details[name]["most resident GiB"] = round(watched.peak_resident / 2**30, 2)
        seconds = watched.value["seconds of the call"]
        if seconds > most_seconds:
            failures.append(f"{name} took {seconds:.0f} s")
        slowest = max(slowest, seconds)
        largest = max(largest, watched.peak_resident)
    if largest > MOST_BYTES:
        failures.append(f"{largest / 2**30:.1f} GiB at most")
    side, cube_side = SIDES[size.value], CUBE_SIDES[size.value]
    figure = (
        f"four directions on {side}x{side} bf16 ({side * side / 2**31:.3f} of 2^31 elements) and "
        f"{CHANNELS} channels of {cube_side}^3 ({CHANNELS * cube_side**3 / 2**31:.3f}) under "
        f"{budget}: {len(CASES) - len(details)} wrong, slowest call {slowest:.0f} s, largest "
        f"process {largest / 2**30:.1f} GiB"
    )
    return Finding(figure, not failures, failures, details)


def files(ready: Callable[[], None], folder: str, side: int) -> dict[str, float]:
    """x and y in files of side^2 float32 each."""
    shape = (1, 1, side, side)
    rng = np.random.default_rng(8)
    pattern = rng.integers(-3, 4, BLOCK).astype(np.float32)
    count = math.prod(shape)
    with open(Path(folder) / "x.bin", "wb") as file:
        for begin in range(0, count, BLOCK):
            file.write(pattern[: count - begin].data)
    x = np.memmap(Path(folder) / "x.bin", np.float32, "r", shape=shape)
    y = np.memmap(Path(folder) / "y.bin", np.float32, "w+", shape=shape)
    w = rng.integers(-3, 4, (1, 1, 3, 3)).astype(np.float32)
    ready()
    began = time.monotonic()
    with oocdnn.Context("cpu", "auto", profile="none") as ctx:
        ctx.conv2d(x, w, padding=1, out=y)
        stats = ctx.stats
    seconds, checked = time.monotonic() - began, 0
    for a, b, c, d in boxes(side, side, [2**30 // side]):
        top, left = max(0, a - 1), max(0, c - 1)
        crop = np.array(x[:, :, top : b + 1, left : d + 1])
        expected = oracle.forward(crop, w, padding=1)
        expected = expected[:, :, a - top : a - top + b - a, c - left : c - left + d - c]
        checked += compare(f"y[{a}:{b}, {c}:{d}]", np.array(y[:, :, a:b, c:d]), expected)
    return {
        "seconds of the call": seconds,
        "elements compared": checked,
        "tiles": stats.tiles,
        "peak device bytes": stats.peak_device_bytes,
    }


def measure_files(size: Size) -> Finding:
    side = size.of(512, 4096, 32_768)
    with tempfile.TemporaryDirectory() as folder:
        watched = alone(files, folder, side, limit=1800, size=size)
    if watched.error:
        return Finding(watched.error, False, [f"side {side}: {watched.error}"])
    growth = watched.peak_anonymous - watched.start_anonymous
    failures = [] if growth < 1 << 30 else [f"RssAnon grows by {growth} bytes"]
    seen = watched.value
    figure = (
        f"x and y of {side * side * 4 / 2**30:.3g} GiB each in files, budget auto: "
        f"{seen['elements compared']} elements of whole rows and columns equal, call "
        f"{seen['seconds of the call']:.0f} s, RssAnon grows by {growth / 2**20:.0f} MiB"
    )
    return Finding(figure, not failures, failures, seen)
