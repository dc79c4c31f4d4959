"""Ctrl-C ends a long call between tiles, and the context goes on working."""

from __future__ import annotations

import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import oracle
import pytest
from python.support import SMALL, assert_equal, integers

import oocdnn

LONG = """
import signal, sys, time
import numpy as np, oocdnn
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
x, w = np.ones((1, 64, 1024, 1024), np.float32), np.ones((64, 64, 3, 3), np.float32)
with oocdnn.Context("cpu", "256KiB", engine="reference", threads=1) as ctx:
    ctx.plan("conv2d:fwd x1x64x1024x1024 w64x64x3x3")
    def started(done, tiles):
        if done == 1:
            print("running", flush=True)
    began = time.process_time()
    try:
        ctx.conv2d(x, w, progress={progress})
    except KeyboardInterrupt:
        print("interrupted", time.process_time() - began < 10, flush=True)
    y = ctx.conv2d(x[:, :, :16, :16], w)
    assert (y == 64 * 9).all()
    print("usable", flush=True)
"""


def start(progress: str) -> subprocess.Popen[str]:
    script = LONG.replace("{progress}", progress)
    if progress == "None":
        script = script.replace("    began", '    print("running", flush=True)\n    began')
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd="/",  # the installed package, not the tree
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# 4,294,967,296 tiles of memory that is never touched.
MANY_TILES = """
import mmap
import numpy as np, oocdnn
def memory():
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    bytes = mmap.mmap(-1, 4 * 32 * 512**3, flags)
    return np.frombuffer(bytes, np.float32).reshape(1, 32, 512, 512, 512)
def stop(done, tiles):
    raise KeyboardInterrupt(tiles)
with oocdnn.Context("cpu", "1KiB", profile="none", threads=1) as ctx:
    try:
        ctx.conv_backward_filter(memory(), memory(), (32, 32, 3, 3, 3), padding=1, progress=stop)
    except KeyboardInterrupt as ended:
        print(ended)
"""


def test_a_call_of_very_many_tiles_begins_at_once() -> None:
    """Nothing walks through all tiles before the first: that took minutes, deaf to Ctrl-C."""
    done = subprocess.run(
        [sys.executable, "-c", MANY_TILES],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert int(done.stdout) > 10**9, done.stderr


@pytest.mark.parametrize("progress", ["None", "started"])
def test_ctrl_c(progress):
    with start(progress) as child:
        assert child.stdout.readline() == "running\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        # Within ten seconds of the processor; the whole call takes minutes.
        assert child.stdout.readline() == "interrupted True\n", child.stderr.read()
        out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == ("usable\n", 0), err


def test_what_progress_raises_ends_the_call(ctx):
    class Enough(Exception):
        pass

    def progress(done, tiles):
        raise Enough(f"after {done} of {tiles}")

    x, w = integers((2, 16, 40, 40)), integers((16, 16, 3, 3))
    with pytest.raises(Enough, match=r"after \d+ of \d+"):
        ctx.conv2d(x, w, progress=progress)
    assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))


def test_a_call_within_progress_is_possible_on_another_context(ctx):
    x, w = integers((2, 16, 40, 40)), integers((16, 16, 3, 3))
    results = []

    def progress(done, tiles):
        if not results:
            with oocdnn.Context("cpu") as other:
                results.append(other.conv2d(x, w))

    assert_equal(ctx.conv2d(x, w, progress=progress), oracle.forward(x, w))
    assert_equal(results[0], oracle.forward(x, w))


def test_calls_at_once_hear_their_own_progress():
    x, w = integers((2, 16, 40, 40)), integers((16, 16, 3, 3))
    expected = oracle.forward(x, w)

    def work(number):
        heard = []
        with oocdnn.Context("cpu", SMALL, threads=1) as context:
            for _ in range(5):
                y = context.conv2d(x, w, progress=lambda *_: heard.append(threading.get_ident()))
                assert_equal(y, expected)
        return set(heard) == {threading.get_ident()}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_nothing_of_a_call_is_kept(ctx):
    class Enough(Exception):
        pass

    class Progress:
        def __call__(self, done, tiles):
            if self.raises:
                raise Enough

    x, w = integers((2, 16, 40, 40)), integers((16, 16, 3, 3))
    for raises in (False, True):
        progress = Progress()
        progress.raises = raises
        gone = weakref.ref(progress)
        with pytest.raises(Enough) if raises else contextlib.nullcontext():
            ctx.conv2d(x, w, progress=progress)
        del progress
        gc.collect()
        assert gone() is None
