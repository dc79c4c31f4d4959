"""Forked children compute, whatever the parent was doing."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import oracle
import pytest
from python.support import SMALL, assert_equal, integers

import oocdnn

X = integers((2, 16, 40, 40))
W = integers((16, 16, 3, 3))
EXPECTED = oracle.forward(X, W)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(work, timeout=60):
    """Runs `work` in a forked child and gives its exit code."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(timeout)
    hung = child.is_alive()
    if hung:
        child.kill()
        child.join()
    assert not hung, "the child hangs"
    return child.exitcode


def right(context=None):
    function = oocdnn.conv2d if context is None else context.conv2d
    np.testing.assert_array_equal(function(X, W), EXPECTED)


def test_the_default_context_of_a_child_is_its_own():
    parents = oocdnn.current_context()
    right()

    def work():
        assert oocdnn.current_context() is not parents
        right()

    assert in_child(work) == 0
    right()
    assert oocdnn.current_context() is parents


def test_the_parents_context_serves_the_child():
    with oocdnn.Context("cpu", SMALL) as context:
        right(context)
        assert in_child(lambda: right(context)) == 0
        right(context)


def test_a_child_may_close_and_drop_the_parents_context():
    context = oocdnn.Context("cpu", SMALL)
    right(context)

    def work():
        nonlocal context
        context.close()
        del context
        right()

    assert in_child(work) == 0
    right(context)
    context.close()


# The run time of gcc 12 leaves its allocator's locks as they are in a forked child.
@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the address sanitizer may hang where a thread allocates while another forks",
)
@pytest.mark.parametrize("own", [True, False], ids=["new context", "same context"])
def test_fork_while_another_thread_computes(own):
    stop = threading.Event()
    with oocdnn.Context("cpu", SMALL) as context:
        running = threading.Event()

        def compute():
            while not stop.is_set():
                right(context)
                running.set()

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            assert running.wait(60)
            for _ in range(5):
                assert in_child(lambda: right(None if own else context)) == 0
        finally:
            stop.set()
            thread.join()


def test_a_pool_of_forked_workers():
    right()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for y in pool.map(_convolve, range(6)):
            assert_equal(y, EXPECTED)


def _convolve(_):
    return oocdnn.conv2d(X, W)


def test_grandchildren():
    right()

    def child():
        right()
        if in_child(right) != 0:
            os._exit(3)

    assert in_child(child) == 0
