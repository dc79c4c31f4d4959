"""What holds over many calls: device memory stands still, streams are kept apart, memory is reused.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes import CDLL, byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import partial
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn
from oocdnn._core import loading

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, DeviceArray, InContext, call, driver, free_bytes

BUDGET = 1 << 20
CALLS = 60 if FAKE else 1000
MOVES = {"padding": 1}


@pytest.fixture
def ctx() -> Iterator[oocdnn.Context]:
    try:
        context = oocdnn.Context("cuda", BUDGET)
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context


def pinned(values: np.ndarray) -> np.ndarray:
    copy = oocdnn.empty(values.shape, values.dtype)
    copy[...] = values
    return copy


def calls_on(ctx: oocdnn.Context, place: Callable, dtype: type) -> list[Callable[[], object]]:
    """One call in every direction, and one with an epilogue: in one tile and in several."""
    made = []
    for n in (1, 9):
        x, w = integers((n, 8, 40, 41), 1, dtype), integers((12, 8, 3, 3), 2, dtype)
        y, bias = oracle.forward(x, w, **MOVES).astype(dtype), integers((12,), 3, dtype)
        a, b, c, d = place(x), place(w), place(y), place(bias)
        out, dx, dw = place(y), place(x), place(w)
        shape, moves = x.shape, MOVES
        made += [
            partial(ctx.conv2d, a, b, out=out, **moves),
            partial(ctx.conv2d, a, b, d, out=out, activation="relu", **moves),
            partial(ctx.conv_backward_data, c, b, shape, out=dx, **moves),
            partial(ctx.conv_backward_filter, a, c, w.shape, out=dw, **moves),
        ]
    return made


@pytest.mark.skipif(not FAKE, reason="the driver does not count time stamps")
def test_few_pieces_are_timed(ctx):
    """Time stamps hold busy copy engines up; busy times come from a sample."""
    x, w = integers((64, 8, 40, 41), 1, np.float32), integers((12, 8, 3, 3), 2, np.float32)
    y = oocdnn.empty((64, 12, 40, 41), np.float32)
    stamps = c_int.in_dll(driver(), "ooc_fake_time_stamps")
    ctx.conv2d(pinned(x), pinned(w), out=y, **MOVES)
    before = stamps.value
    ctx.conv2d(pinned(x), pinned(w), out=y, **MOVES)
    tiles, taken = ctx.stats.tiles, stamps.value - before
    assert tiles >= 12
    assert 0 < taken <= 3 * 2 * (3 + tiles / 15) + 2
    assert min(ctx.stats.fetch_seconds, ctx.stats.compute_seconds, ctx.stats.drain_seconds) > 0


def test_the_core_says_what_it_holds(ctx):
    """To the library that keeps a limit on a program, which takes what else the card holds for the
    program's."""
    ask = CDLL(str(loading.library_path())).oocdnn_device_bytes
    ask.restype = c_int64
    ctx.release()
    before = ask(0), free_bytes()
    assert (ask(-1), ask(64)) == (0, 0)
    ctx.conv2d(pinned(integers((64, 8, 40, 41), 1, np.float32)), np.ones((12, 8, 3, 3), np.float32))
    call_and_wait(ctx)
    assert ask(0) - before[0] >= ctx.stats.peak_device_bytes > 0
    if FAKE:  # a real driver rounds, and has more to load
        assert ask(0) - before[0] == before[1] - free_bytes()
    ctx.release()
    assert ask(0) == before[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_device_memory_stands_still(ctx, dtype):
    """Arrays on the device, in pinned memory and in pageable memory take turns."""
    places = (DeviceArray, pinned, np.array)
    work = [one for place in places for one in calls_on(ctx, place, dtype)]
    for _ in range(3):
        for one in work:
            one()
    call_and_wait(ctx)
    before, allocated = free_bytes(), 0
    for i in range(CALLS):
        work[i % len(work)]()
        allocated += ctx.stats.device_allocations + ctx.stats.prepared
    call_and_wait(ctx)
    assert free_bytes() == before
    assert allocated == 0
    assert ctx.stats.peak_device_bytes <= BUDGET


def call_and_wait(ctx: oocdnn.Context) -> None:
    """A call on host memory returns when it is done, and it comes after all before it."""
    ctx.conv2d(integers((1, 2, 5, 5)), integers((2, 2, 1, 1)))


class SideStream:
    """A stream of the driver's own; `flags` 1: it does not wait for the legacy default stream."""

    def __init__(self, flags: int) -> None:
        self.handle = c_void_p()
        with InContext():
            call("cuStreamCreateWithPriority", byref(self.handle), flags, 0)

    def close(self) -> None:
        with InContext():
            call("cuStreamDestroy_v2", self.handle)


class Delay:
    """Copies inside the device that keep a stream busy for some milliseconds."""

    def __init__(self, size: int = 64 << 20) -> None:
        self.size, self.memory = size, c_uint64()
        with InContext():
            call("cuMemAlloc_v2", byref(self.memory), c_size_t(2 * size))

    def put(self, stream: int, count: int = 200) -> None:
        for _ in range(count):
            to, source = c_uint64(self.memory.value + self.size), self.memory
            call("cuMemcpyAsync", to, source, c_size_t(self.size), c_void_p(stream))

    def close(self) -> None:
        with InContext():
            call("cuMemFree_v2", self.memory)


@pytest.fixture
def delay(ctx) -> Iterator[Delay]:
    made = Delay(1 << 10 if FAKE else 64 << 20)
    yield made
    made.close()


@pytest.mark.parametrize("stream", ["0", "1", "2", "side", "side that waits"])
@pytest.mark.parametrize("budget", [64 << 10, 64 << 20], ids=["tiles", "in place"])
def test_the_streams_order_holds(ctx, delay, stream, budget):
    """x is written, late, on the stream just before the call, and y read on it just after."""
    side = SideStream(1 if stream == "side" else 0) if stream.startswith("side") else None
    number = int(side.handle.value or 0) if side is not None else int(stream)
    x, w = integers((2, 8, 40, 41)), integers((8, 8, 3, 3))
    reference = oracle.forward(x, w)
    source, result = pinned(x), pinned(np.zeros(reference.shape, np.float32))
    b, out = DeviceArray(w), DeviceArray(np.zeros(reference.shape, np.float32))
    with oocdnn.Context("cuda", budget) as context:
        for _ in range(3):
            a = DeviceArray(np.full(x.shape, np.nan, np.float32))
            context.conv2d(a, b, out=out, stream=number)  # plans, and leaves NaN
            result[...] = 0
            with InContext():
                delay.put(number)
                copy(a.pointer.value, source.ctypes.data, x.nbytes, number)
            context.conv2d(a, b, out=out, stream=number)
            with InContext():
                copy(result.ctypes.data, out.pointer.value, result.nbytes, number)
                call("cuStreamSynchronize", c_void_p(number))
            assert_equal(result, reference)
    if side is not None:
        side.close()


def copy(to: int, source: int, size: int, stream: int) -> None:
    call("cuMemcpyAsync", c_uint64(to), c_uint64(source), c_size_t(size), c_void_p(stream))


@pytest.mark.parametrize("place", [np.array, DeviceArray], ids=["host", "device"])
def test_memory_that_is_freed_and_made_again_at_its_address(ctx, place):
    w, seen, rows = integers((4, 3, 3, 3)), [], 160 if FAKE else 512
    for seed in range(12):
        values = integers((2, 3, rows, 512), seed)
        x = place(values)
        seen.append(x.ctypes.data if isinstance(x, np.ndarray) else x.pointer.value)
        assert_equal(np.asarray(ctx.conv2d(x, w, out=np.zeros((2, 4, rows - 2, 510), np.float32))),
                     oracle.forward(values, w))  # fmt: skip
        del x
        gc.collect()
    if len(set(seen)) == len(seen):
        pytest.skip("no address came twice")


@pytest.mark.parametrize("kind", ["flag", "bytes", "map", "copy on write"])
def test_memory_that_cannot_be_written(ctx, tmp_path, kind):
    values, w = integers((2, 3, 128, 128)), integers((4, 3, 3, 3))
    values.tofile(tmp_path / "x.bin")
    if kind == "flag":
        x = values.copy()
        x.flags.writeable = False
    elif kind == "bytes":
        x = np.frombuffer(values.tobytes(), np.float32).reshape(values.shape)
    else:
        mode = "r" if kind == "map" else "c"
        x = np.memmap(tmp_path / "x.bin", np.float32, mode, shape=values.shape)
    for view in (x, np.asarray(x)):  # a plain array over a map says nothing of its file
        for _ in range(3):
            assert_equal(ctx.conv2d(view, w), oracle.forward(values, w))


SCRIPT = """
import sys, types
{before}
import numpy as np, oocdnn
x, w = np.ones((1, 2, 9, 9), np.float32), np.ones((3, 2, 3, 3), np.float32)
with oocdnn.Context("cpu", "1MiB") as ctx:
    assert (ctx.conv2d(x, w) == 18).all()
{after}
"""
IMPORTS = {
    "without CuPy": ("sys.modules['cupy'] = None", ""),
    "CuPy and no driver": (
        "import cupy",
        "assert ctx.device == 'cpu'\n"
        "try: oocdnn.Context('cuda', '1MiB')\n"
        "except oocdnn.Unsupported: pass\n"
        "else: raise SystemExit('a GPU was found')",
    ),
    "both": (
        "import cupy",
        "with oocdnn.Context('cuda', '1MiB') as ctx:\n"
        "    y = ctx.conv2d(cupy.asarray(x), cupy.asarray(w))\n"
        "assert isinstance(y, cupy.ndarray) and (y == 18).all()",
    ),
}


@pytest.mark.parametrize("which", IMPORTS)
def test_imports(which):
    before, after = IMPORTS[which]
    environment = dict(os.environ)
    if which != "without CuPy":
        pytest.importorskip("cupy", reason="CuPy is not installed")
    if which == "CuPy and no driver":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before, after=after)],
        env=environment, cwd="/",  # the installed package, not the tree
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
