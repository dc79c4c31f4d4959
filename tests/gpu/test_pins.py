"""Arrays that are pinned because calls use them again and again.

On a machine without a GPU test_suites.py runs this file on the fake driver, which counts what is
registered.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn
from oocdnn._arrays import pins

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import driver
from pinning import SHAPE, W, X, Y, checked, counter, make, never_pinned, ordinary, use


@pytest.fixture
def ctx(monkeypatch) -> Iterator[oocdnn.Context]:
    with checked(monkeypatch) as context:
        yield context


@pytest.fixture
def pieces(ctx) -> Callable[[], int]:
    return counter(ctx)


def test_from_a_use_on_until_it_goes(ctx, pieces):
    x = X.copy()
    use(ctx, x)
    assert pieces() == 0
    for _ in range(3):
        use(ctx, x)
        assert pieces() == 1
    y = np.empty(Y.shape, np.float32)
    for _ in range(3):
        use(ctx, x, y)
    assert pieces() == 2
    del x
    assert pieces() == 1
    del y
    assert pieces() == 0


@pytest.mark.parametrize("uses", [2, 5])
def test_what_is_used_a_few_times_is_staged(ctx, pieces, monkeypatch, uses):
    monkeypatch.setattr(pins, "USES", uses)
    x = X.copy()
    for _ in range(uses):
        use(ctx, x)
        assert pieces() == 0
    use(ctx, x)
    assert pieces() == 1


def test_a_context_that_pins_nothing_keeps_what_another_pinned(ctx, pieces, monkeypatch):
    """Nobody may unpin it in the midst of its call."""
    x, seen = X.copy(), []
    use(ctx, x)
    use(ctx, x)
    monkeypatch.setenv("OOCDNN_AUTO_PIN", "0")
    with make() as context:
        use(context, X)
        before = pieces()

        def progress(done: int, _tiles: int) -> None:
            if done == 1:
                pins.release(ctx)
                seen.append(pieces())

        context.conv2d(x, W, out=never_pinned(), progress=progress)
        assert seen == [before]
        assert pieces() == before - 1


def test_a_view_is_its_owners(ctx, pieces):
    """Pinned when as much was used as there is, and as long as any view lives."""
    store = np.concatenate([X, X, X])
    for i in range(3):
        use(ctx, store[2 * i : 2 * i + 2])
        assert pieces() == 0
    view = store.reshape(6, -1)[2:4].reshape(SHAPE)
    use(ctx, view)
    assert pieces() == 1
    del store
    use(ctx, view)
    assert pieces() == 1
    del view
    assert pieces() == 0


def test_one_call_is_one_use(ctx, pieces):
    x, w = integers((2, 4, 40, 41)), np.zeros((4, 4, 1, 1), np.float32)
    ctx.conv2d(x, w, residual=x, out=x.copy())
    assert pieces() == 0
    gc.collect()
    out = x.copy()
    ctx.conv2d(x, w, residual=x, out=out)
    assert pieces() == 1
    assert_equal(out, x)


def test_gone_in_a_cycle(ctx, pieces):
    class Holder:
        pass

    holder = Holder()
    holder.x, holder.itself = X.copy(), holder
    use(ctx, holder.x)
    use(ctx, holder.x)
    assert pieces() == 1
    del holder
    gc.collect()
    assert pieces() == 0


def test_freed_and_made_again_at_its_address(ctx):
    seen = []
    for seed in range(8):
        values = integers((2, 3, 160, 512), seed)
        x = values.copy()
        seen.append(x.ctypes.data)
        for _ in range(3):
            assert_equal(ctx.conv2d(x, W), oracle.forward(values, W))
        del x
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which keeps freed memory for a while
        assert len(set(seen)) < len(seen)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_whose_memory_changes(ctx, pieces):
    x, other = X.copy(), X.copy()
    use(ctx, x)
    use(ctx, x)
    assert pieces() == 1
    values = integers(SHAPE, 7)
    x.__setstate__((1, SHAPE, x.dtype, False, values.tobytes()))
    use(ctx, other)
    assert pieces() == 0
    y = np.empty(Y.shape, np.float32)
    for i in range(3):
        ctx.conv2d(x, W, out=y)
        assert_equal(y, oracle.forward(values, W))
        assert pieces() == (1 if i else 0)  # y's; x's memory is that of the bytes


def test_an_array_is_not_resized_while_it_is_pinned(ctx, pieces):
    x = X.copy()
    use(ctx, x)
    use(ctx, x)
    with pytest.raises(ValueError, match="resize"):
        x.resize(10, refcheck=False)
    use(ctx, x)


@pytest.mark.parametrize("kind", ["read-only", "bytes", "bytearray", "map", "plain over a map"])
def test_memory_that_an_array_does_not_own(ctx, pieces, tmp_path, kind):
    if kind == "read-only":
        x = X.copy()
        x.flags.writeable = False
    elif kind == "bytes":
        x = np.frombuffer(X.tobytes(), np.float32).reshape(SHAPE)
    elif kind == "bytearray":
        x = np.frombuffer(bytearray(X.tobytes()), np.float32).reshape(SHAPE)
    else:
        X.tofile(tmp_path / "x.bin")
        x = np.memmap(tmp_path / "x.bin", np.float32, "r", shape=SHAPE)
        x = x if kind == "map" else np.asarray(x)
    for _ in range(3):
        use(ctx, x)
    assert pieces() == (kind == "read-only")


def test_small_arrays_are_staged(ctx, pieces, monkeypatch):
    monkeypatch.setattr(pins, "LEAST_BYTES", X.nbytes + 1)
    x = X.copy()
    for _ in range(3):
        use(ctx, x)
    assert pieces() == 0


def test_no_more_than_the_share(pieces):
    with make(host_cap=2 * X.nbytes + 100) as context:
        arrays = [X.copy() for _ in range(3)]
        for _ in range(3):
            for x in arrays:
                use(context, x)
        assert pieces() == 2 + 1  # one is staged, through memory of this context
        del arrays[0]
        use(context, arrays[0])
        use(context, arrays[1])
        assert pieces() == 2 + 1
    assert pieces() == 0


def test_a_driver_that_says_no(ctx, pieces):
    x = X.copy()
    driver().fake_registrable(100)
    try:
        for _ in range(3):
            use(ctx, x)
    finally:
        driver().fake_registrable(-1)
    use(ctx, x)
    assert pieces() == 0


def test_a_part_that_is_pinned_already(ctx, pieces):
    x = np.concatenate([X, X])
    with oocdnn.pin(x[:2]):
        for _ in range(4):
            use(ctx, x[:2])
            use(ctx, x[2:])
        assert pieces() == 1
    use(ctx, x[:2])
    assert pieces() == 0


def test_ends_that_are_pinned_and_a_middle_that_is_not(ctx):
    x = np.concatenate([X, X, X])
    with oocdnn.pin(x[:2]), oocdnn.pin(x[4:]):
        for _ in range(3):
            y = ctx.conv2d(x, W)
            assert_equal(y, np.concatenate([Y, Y, Y]))


def test_pin_takes_over(ctx, pieces):
    x = X.copy()
    use(ctx, x)
    use(ctx, x)
    with oocdnn.pin(x):
        use(ctx, x)
        use(ctx, x)
        assert pieces() == 1
    assert pieces() == 0
    use(ctx, x)
    use(ctx, x)
    assert pieces() == 1


def test_release_and_close(ctx, pieces):
    x = X.copy()
    y = ctx.conv2d(x, W)
    assert pieces() == 1
    with make() as context:
        use(context, x)
        use(context, x)
        assert pieces() == 3  # x, y, and what this context stages with
        context.release()
        assert pieces() == 1
        use(context, x)
        assert pieces() == 3
        ctx.release()
        assert pieces() == 2  # without what staged for ctx; y is in use
    assert pieces() == 0
    assert_equal(y, Y)


def test_turned_off(pieces, monkeypatch):
    monkeypatch.setenv("OOCDNN_AUTO_PIN", "0")
    with make() as context:
        x = X.copy()
        for _ in range(3):
            use(context, x)
        y = context.conv2d(x, W)
        assert ordinary(y)
        assert pieces() == 1  # staging's
    with oocdnn.Context("cpu") as context:
        assert context.auto_pin_bytes == 0


def test_the_cpu_pins_nothing():
    with oocdnn.Context("cpu") as context:
        assert context.auto_pin_bytes == 0
        assert ordinary(context.conv2d(X, W))


def test_threads_that_use_one_array(ctx, pieces):
    x, failures = X.copy(), []

    def work(i: int) -> None:
        try:
            for k in range(6):
                use(ctx, x)
                if i == 0 and k % 2:
                    ctx.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    use(ctx, x)
    assert pieces() == 1


def test_release_waits_for_calls_that_use_an_array(ctx, pieces):
    """Another thread asks while a call is between two tiles."""
    x, seen = X.copy(), []
    use(ctx, x)

    def progress(done: int, _tiles: int) -> None:
        if done == 1:
            pins.release(ctx)
            seen.append(pieces())

    y = never_pinned()
    ctx.conv2d(x, W, out=y, progress=progress)
    assert_equal(y, Y)
    assert seen == [1]
    assert pieces() == 0


def test_a_call_that_fails_uses_nothing_any_more(ctx, pieces):
    x = X.copy()
    use(ctx, x)

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ctx.conv2d(x, W, out=np.empty(Y.shape, np.float32), progress=stop)
    gc.collect()
    assert pieces() == 1
    pins.release(ctx)
    assert pieces() == 0


def in_child(work: Callable[[], None]) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    return child.exitcode


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_finds_nothing_pinned(ctx, pieces):
    x = X.copy()
    use(ctx, x)
    use(ctx, x)
    y = ctx.conv2d(x, W)
    assert pieces() == 2

    def work() -> None:
        assert pieces() == 0
        assert_equal(x, X)
        assert_equal(y, Y)
        y[...] = 0

    assert in_child(work) == 0
    assert pieces() == 0
    assert_equal(y, Y)
    x[...] = X  # pages that the child has left, or not
    use(ctx, x)
    assert pieces() == 1
    assert_equal(ctx.conv2d(y, np.ones((1, 4, 1, 1), np.float32)), Y.sum(1, keepdims=True))


class Elsewhere:
    """An array as another library holds it."""

    def __init__(self, array: np.ndarray) -> None:
        self.held, self.__array_interface__ = array, array.__array_interface__


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_a_call_that_uses_a_result(ctx, pieces):
    """It used to take the memory from under one that had come back as a tensor of torch's."""
    ones, total, seen = np.ones((1, 4, 1, 1), np.float32), never_pinned()[:, :1], []

    def progress(done: int, _tiles: int) -> None:
        if done == 1:
            seen.append((in_child(int), pieces()))

    for wrap in (np.asarray, Elsewhere):
        operand = np.asarray(wrap(ctx.conv2d(X, W)))
        held = pieces()
        ctx.conv2d(operand, ones, out=total, progress=progress)
        assert_equal(total, Y.sum(1, keepdims=True))
        assert seen.pop() == (0, held)
        assert pieces() < held
