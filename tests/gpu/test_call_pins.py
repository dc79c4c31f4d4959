"""Operands in pageable memory that a plan pins while its call runs.

On a machine without a GPU test_suites.py runs this file on the fake driver, which counts what is
registered.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, driver
from pinning import SHAPE, W, X, Y, checked, counter, make, never_pinned, use

PROBLEM = f"conv2d:fwd x{'x'.join(map(str, SHAPE))} w{'x'.join(map(str, W.shape))}"
NAMES = ("x", "w", "y")
CHOICES = [",".join(some) for count in range(1, 4) for some in combinations(NAMES, count)]


def apart(values: np.ndarray) -> np.ndarray:
    """A copy whose pages are its own, in memory that no array owns."""
    room = np.frombuffer(bytearray(values.nbytes + 8192), np.uint8)
    begin = -room.ctypes.data % 4096
    copy = room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


@pytest.fixture
def ctx(monkeypatch) -> Iterator[oocdnn.Context]:
    with checked(monkeypatch) as context:
        yield context


def follow(context: oocdnn.Context, pinned: str) -> None:
    context.use_plan(PROBLEM, "n1 h9 slots 2" + (f" pin {pinned}" if pinned else ""))


@pytest.mark.parametrize("pinned", ["", *CHOICES])
def test_every_way_gives_the_same(ctx, pinned):
    """And nothing is pinned when the call is over."""
    follow(ctx, pinned)
    before = counter(ctx)() if FAKE else 0
    x, w, y = apart(X), apart(W), apart(Y * 0)
    now = counter(ctx) if FAKE else lambda: before
    seen = set()
    for _ in range(2):
        y[...] = 0
        ctx.conv2d(x, w, out=y, progress=lambda *_: seen.add(now()))
        assert_equal(y, Y)
        assert now() == 0
    if FAKE:
        assert seen == {len(pinned.split(",")) if pinned else 0}


def test_the_plan_says_what_it_pins(ctx):
    follow(ctx, "y,x")
    plan = ctx.plan(PROBLEM)
    assert plan.pinned == ["x", "y"]
    assert plan.plan.endswith(" pin x,y")
    follow(ctx, "")
    assert ctx.plan(PROBLEM).pinned == []


@pytest.mark.parametrize("wrong", ["z", "x,x", "x,", "dw"])
def test_only_operands_can_be_pinned(ctx, wrong):
    with pytest.raises(oocdnn.InvalidProblem, match="names of the problem's operands"):
        follow(ctx, wrong)


def test_what_is_pinned_already_stays_so(ctx):
    follow(ctx, "x,w")
    x = oocdnn.empty(SHAPE, np.float32, pinned=True)
    x[...] = X
    now = counter(ctx)
    use(ctx, x)
    assert now() == 0


def test_another_call_meanwhile_stages_the_same_memory(ctx):
    """What is let go must not be let go under its copies."""
    x, w = apart(X), apart(W)
    follow(ctx, "x,w")
    with make() as other:
        follow(other, "x,w")
        other.conv2d(x, w, out=never_pinned())
        now = counter(ctx)
        seen = []

        def inner(_done: int, _tiles: int) -> None:
            y = never_pinned()
            other.conv2d(x, w, out=y)
            assert_equal(y, Y)
            seen.append(now())

        y = apart(Y * 0)
        ctx.conv2d(x, w, out=y, progress=inner)
        assert_equal(y, Y)
        assert set(seen) == {2}
        assert now() == 0


def test_another_calls_pins_are_no_refusal(ctx):
    """Who has met them pins again in the next call."""
    x, w, y = apart(X), apart(W), apart(Y * 0)
    follow(ctx, "x,w")
    with make() as other:
        follow(other, "x,w")
        now = counter(ctx)
        ctx.conv2d(x, w, out=y, progress=lambda *_: other.conv2d(x, w, out=never_pinned()))
        staging, seen = now(), set()
        other.conv2d(x, w, out=y, progress=lambda *_: seen.add(now() - staging))
        assert_equal(y, Y)
    assert seen == {2}


SAME = integers((3, 3, 3, 3), 1)  # y is shaped as x
SUM = oracle.forward(X, SAME, padding=1)


def same(context: oocdnn.Context, pinned: str, more: str) -> None:
    problem = f"conv2d:fwd x{'x'.join(map(str, SHAPE))} w3x3x3x3 pad1 {more}"
    context.use_plan(problem, f"n1 h9 slots 2 pin {pinned}")


def rows(room: np.ndarray, begin: int) -> np.ndarray:
    return room[begin : begin + X.size].reshape(SHAPE)


@pytest.mark.parametrize("moved", [0, 41, -41, 41 * 40 * 3])
def test_memory_of_two_operands_is_pinned_once(ctx, moved):
    """x and residual may be parts of one array, which two calls would pin twice."""
    room = apart(np.concatenate([X.ravel()] * 3).astype(np.float32))
    begin = X.size
    x, added = rows(room, begin), rows(room, begin + moved)
    same(ctx, "x,residual", "+residual")
    now = counter(ctx)
    wanted, y, seen = (SUM + added).astype(np.float32), apart(X * 0), set()
    for _ in range(2):
        ctx.conv2d(x, SAME, padding=1, residual=added, out=y, progress=lambda *_: seen.add(now()))
        assert_equal(y, wanted)
        assert seen == {1}
        assert now() == 0


@pytest.mark.parametrize("adds", ["beta1", "+residual"])
def test_what_the_output_held_is_pinned_with_it(ctx, adds):
    """Then nothing of the call is staged, and the context has no memory for that."""
    counter(ctx)
    y, x = apart(X), apart(X)
    keywords = {"residual": y} if adds == "+residual" else {"beta": 1.0}
    with make() as context:
        same(context, "x,w,y,residual" if adds == "+residual" else "x,w,y", adds)
        before, seen = driver().fake_registered(), set()
        for _ in range(2):
            y[...] = X
            context.conv2d(
                x,
                SAME,
                padding=1,
                out=y,
                progress=lambda *_: seen.add(driver().fake_registered() - before),
                **keywords,
            )
            assert_equal(y, (SUM + X).astype(np.float32))
            assert seen == {3}
    assert driver().fake_registered() == before


REGISTERING = ctypes.CFUNCTYPE(None)


@contextmanager
def registering(function) -> Iterator[None]:
    """Calls it whenever memory is to be pinned."""
    if not FAKE:
        pytest.skip("a driver tells nobody what it does")
    called = REGISTERING(function)
    driver().fake_registering(called)
    try:
        yield
    finally:
        driver().fake_registering(REGISTERING())


def test_nobody_waits_while_a_call_pins(ctx):
    """The driver takes seconds for large arrays."""
    follow(ctx, "x")
    x, y = apart(X), apart(Y * 0)
    done = []

    def others() -> None:
        with oocdnn.Context("cpu") as context:
            context.conv2d(X, W)
        done.append(True)

    def meanwhile() -> None:
        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        thread.join(20)
        done.append(not thread.is_alive())

    with registering(meanwhile):
        ctx.conv2d(x, W, out=y)
    assert set(done) == {True}
    assert_equal(y, Y)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_while_a_call_pins(ctx):
    follow(ctx, "x")
    x, y = apart(X), apart(Y * 0)
    codes = []

    def work() -> None:
        with oocdnn.Context("cpu") as context:
            assert_equal(context.conv2d(x, W), Y)

    def fork() -> None:
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(20)
        codes.append(child.exitcode)
        child.kill()

    with registering(fork):
        ctx.conv2d(x, W, out=y)
    assert set(codes) == {0}
    assert_equal(y, Y)


def test_what_the_system_does_not_pin_is_staged(ctx):
    if not FAKE:
        pytest.skip("a driver pins all that is asked for here")
    x, y = apart(X), apart(Y * 0)
    follow(ctx, "")
    ctx.conv2d(x, W, out=y)  # staging has its memory
    follow(ctx, "x,y")
    now = counter(ctx)
    driver().fake_registrable(1024)
    try:
        for _ in range(2):
            y[...] = 0
            ctx.conv2d(x, W, out=y)
            assert_equal(y, Y)
            assert now() == 0
    finally:
        driver().fake_registrable(-1)


def test_who_wants_nothing_pinned_has_nothing_pinned(ctx, monkeypatch):
    monkeypatch.setenv("OOCDNN_AUTO_PIN", "0")
    with make() as context:
        now = counter(context)
        follow(context, "x")
        seen = set()
        y = apart(Y * 0)
        context.conv2d(apart(X), W, out=y, progress=lambda *_: seen.add(now()))
        assert_equal(y, Y)
    assert seen == {0}
