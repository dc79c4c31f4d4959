"""The first calls of a process, by threads at once and beside forks."""

from __future__ import annotations

import subprocess
import sys

PROLOGUE = """
import threading
import numpy as np, oocdnn
from oocdnn._core import native
x, w, out = (np.ones(shape, "f4") for shape in ((1, 2, 5, 5), (2, 2, 3, 3), (1, 2, 3, 3)))
"""

AT_ONCE = """
ready, failures = threading.Barrier(4), []

def work():
    ready.wait()
    try:
        with oocdnn.Context("cpu", engine="direct") as context:
            assert (context.conv2d(x, w) == 18).all()
    except BaseException as error:
        failures.append(error)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
"""

# A child that is forked while a thread is in such a call has cffi's lock for ever.
LOOKS_AT_NOTHING_NEW = """
import sys
class Refusing:
    def __enter__(self):
        raise AssertionError("cffi looks at something new")
    def __exit__(self, *_):
        pass

native._library()
native._ffi()._lock = Refusing()
for math in ("fp32", "tf32"):
    with oocdnn.Context("cpu", "1MiB", engine="direct", math=math) as context:
        for _ in range(3):
            context.conv2d(x, w)
            context.conv2d(x, w, out=out, progress=lambda done, tiles: None)
            context.conv_backward_data(out, w, x.shape)
            z, saved = context.conv_bias_act_pool(x, w, activation="tanh", save_for_backward=True)
            context.conv_bias_act_pool_backward(z, saved, x, w)
        assert context.stats.tiles
        try:
            context.conv2d(x, w, workspace=0)
        except oocdnn.Unsupported:
            pass
        context.results.empty((1 << 20,), np.dtype("f4"))
        context.release()
assert "numpy.ma" not in sys.modules, "a first call imports it"
"""


def run(text: str) -> None:
    command = [sys.executable, "-c", PROLOGUE + text]
    done = subprocess.run(
        command,
        cwd="/",  # the installed package, not the tree
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_threads_make_the_first_contexts_at_once():
    """Each made types of its own, which the library of another did not take."""
    run(AT_ONCE)


def test_what_calls_need_of_other_libraries_is_there_before_them():
    run(LOOKS_AT_NOTHING_NEW)
