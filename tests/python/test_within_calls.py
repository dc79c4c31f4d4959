"""Contexts in a progress callback, and in a signal handler that runs in one."""

from __future__ import annotations

import signal
import threading

import numpy as np
import oracle
import pytest
from python.support import SMALL, assert_equal, integers

import oocdnn
from oocdnn import workspace
from oocdnn._calls import stack

X, W = integers((2, 16, 40, 40)), integers((16, 16, 3, 3))
DY = integers((2, 16, 38, 38))
EXPECTED = oracle.forward(X, W)
PROBLEM = "conv2d:fwd x2x16x40x40 w16x16x3x3"
LINK = oocdnn.Link(W)

NEED_THE_CONTEXT = {
    "oocdnn_run": [
        lambda ctx: ctx.conv2d(X, W),
        lambda ctx: oocdnn.conv2d(X, W),  # on the innermost context of the thread
        lambda ctx: ctx.conv_backward_filter(X, DY, W.shape),
    ],
    "oocdnn_run_chain": [lambda ctx: ctx.conv_chain(X, [LINK, LINK])],
    "oocdnn_run_chain_backward": [
        lambda ctx: ctx.conv_chain_backward(np.ones((2, 16, 36, 36), "f4"), X, [LINK, LINK])
    ],
    "oocdnn_plan": [lambda ctx: ctx.plan(PROBLEM)],
    "oocdnn_price": [lambda ctx: ctx.price(PROBLEM, "n1")],
    "oocdnn_use_plan": [lambda ctx: ctx.use_plan(PROBLEM, "n1")],
    "oocdnn_candidates": [lambda ctx: ctx.candidates(PROBLEM)],
    "oocdnn_refine": [lambda ctx: ctx.refine(PROBLEM, [1.0])],
    "oocdnn_calibrate": [lambda ctx: ctx.calibrate()],
    "oocdnn_measure_parts": [lambda ctx: ctx.measure_parts(PROBLEM)],
    "oocdnn_release": [lambda ctx: ctx.release()],
    "oocdnn_take_trace": [lambda ctx: ctx.take_trace()],
}


def first(work):
    """A progress function that does `work(done)` once, when the first tile is behind it."""
    results = []

    def progress(done, tiles):
        if done == 1:
            results.append(work(done))

    progress.results = results
    return progress


def text_of_refusal(work, ctx):
    with pytest.raises(oocdnn.DeviceError) as refusal:
        work(ctx)
    return str(refusal.value)


@pytest.mark.parametrize("function", NEED_THE_CONTEXT)
def test_the_callbacks_own_context_is_refused(function):
    with oocdnn.Context("cpu", SMALL, trace=True) as ctx:
        for work in NEED_THE_CONTEXT[function]:
            progress = first(lambda _, work=work: text_of_refusal(work, ctx))
            assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
            (text,) = progress.results
            assert function in text
            assert "called from the context's own progress callback" in text
            assert "use another context" in text
        assert_equal(ctx.conv2d(X, W), EXPECTED)


def test_the_default_context_is_refused_in_its_callback():
    ctx = oocdnn.current_context()
    progress = first(lambda _: text_of_refusal(lambda _: oocdnn.conv2d(X, W), ctx))
    heard = []
    oocdnn.conv2d(X, W, progress=lambda done, tiles: heard.append(progress(1, tiles)))
    assert progress.results
    assert all("oocdnn_run" in text for text in progress.results)
    assert_equal(oocdnn.conv2d(X, W), EXPECTED)


def test_chains_refuse_their_context_too():
    with oocdnn.Context("cpu", "1MiB") as ctx:
        links = [LINK, LINK]
        expected = ctx.conv_chain(X, links)
        for call in (
            lambda progress: ctx.conv_chain(X, links, progress=progress),
            lambda progress: ctx.conv_chain_backward(
                np.ones_like(expected), X, links, progress=progress
            ),
        ):
            texts = []
            call(
                lambda *_, texts=texts: texts.append(
                    text_of_refusal(lambda c: c.plan(PROBLEM), ctx)
                )
            )
            assert texts
            assert all("oocdnn_plan" in text for text in texts)
        assert_equal(ctx.conv_chain(X, links), expected)


def test_what_is_harmless_answers():
    with oocdnn.Context("cpu", SMALL) as ctx:

        def work(done):
            assert ctx.stats.tiles == done
            assert ctx.device == "cpu"
            assert "version" in ctx.info()
            assert ctx.check_reports() == []
            assert oocdnn.empty((3, 4)).shape == (3, 4)
            with oocdnn.pin(np.zeros(8)):
                pass
            choices = [workspace.MicroBatch(1, 1.0, 0)]
            return workspace.divide_batch(choices, 4, 0).seconds

        progress = first(work)
        assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
        assert progress.results == [4.0]


def test_another_context_works():
    with oocdnn.Context("cpu", SMALL) as ctx, oocdnn.Context("cpu", SMALL) as other:

        def work(_):
            nested = first(lambda _: text_of_refusal(lambda c: c.plan(PROBLEM), ctx))
            y = other.conv2d(X, W, progress=nested)
            assert nested.results  # the outer context is refused there as well
            assert other.plan(PROBLEM).tiles > 1
            return y

        progress = first(work)
        assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
        assert_equal(progress.results[0], EXPECTED)


def test_closing_in_the_callback_takes_effect_at_the_end_of_the_call():
    ctx = oocdnn.Context("cpu", SMALL)
    progress = first(lambda _: ctx.close())
    assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
    assert progress.results == [None]
    assert ctx.closed
    with pytest.raises(oocdnn.DeviceError, match="closed"):
        ctx.conv2d(X, W)


def test_what_a_callback_does_not_catch_ends_the_call():
    with oocdnn.Context("cpu", SMALL) as ctx:
        with pytest.raises(oocdnn.DeviceError, match="oocdnn_plan was called"):
            ctx.conv2d(X, W, progress=lambda *_: ctx.plan(PROBLEM))
        assert_equal(ctx.conv2d(X, W), EXPECTED)


def test_ctrl_c_ends_the_call_whose_callback_was_refused():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with oocdnn.Context("cpu", SMALL) as ctx:

            def work(_):
                assert "oocdnn_run" in text_of_refusal(lambda c: c.conv2d(X, W), ctx)
                signal.raise_signal(signal.SIGINT)

            with pytest.raises(KeyboardInterrupt):
                ctx.conv2d(X, W, progress=first(work))
            assert ctx.stats.tiles == 1
            assert_equal(ctx.conv2d(X, W), EXPECTED)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_waits_for_its_turn():
    with oocdnn.Context("cpu", SMALL) as ctx:
        results = []

        def work(_):
            thread = threading.Thread(target=lambda: results.append(ctx.conv2d(X, W)))
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
            assert not results
            return thread

        progress = first(work)
        assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
        progress.results[0].join()
        assert_equal(results[0], EXPECTED)


@pytest.fixture
def on_signal():
    """Has SIGUSR1 do something, in the main thread, where the tests run."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda work: signal.signal(signal.SIGUSR1, lambda *_: work())
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_within_a_call_is_refused(on_signal):
    with oocdnn.Context("cpu", SMALL) as ctx:
        texts = []
        on_signal(lambda: texts.append(text_of_refusal(lambda c: c.conv2d(X, W), ctx)))
        progress = first(lambda _: signal.raise_signal(signal.SIGUSR1))
        assert_equal(ctx.conv2d(X, W, progress=progress), EXPECTED)
        assert len(texts) == 1
        assert "signal handler" in texts[0]


def test_a_signal_handler_may_need_the_default_context_half_made(on_signal, monkeypatch):
    monkeypatch.setattr(stack, "_default", None)
    make, results = oocdnn.Context, []

    def interrupted():
        if not results:
            results.append(None)
            signal.raise_signal(signal.SIGUSR1)
        return make("cpu", SMALL)

    monkeypatch.setattr(stack, "_factory", interrupted)
    on_signal(lambda: results.append(oocdnn.conv2d(X, W)))
    assert_equal(oocdnn.conv2d(X, W), EXPECTED)
    assert_equal(results[1], EXPECTED)
    oocdnn.current_context().close()


def test_a_signal_handler_may_come_while_memory_is_taken_for_a_result(on_signal):
    with oocdnn.Context("cpu", SMALL) as ctx:
        results = ctx.results
        results._limit = 1 << 30  # as where a device gains from pinned memory
        allocate, within = results._allocate, []

        def interrupted(size):
            if not within:
                signal.raise_signal(signal.SIGUSR1)
            return allocate(size)

        results._allocate = interrupted
        on_signal(lambda: within.append(results.empty((2 << 20,), np.dtype("f4"))))
        outer = results.empty((2 << 20,), np.dtype("f4"))
        assert outer.nbytes == within[0].nbytes == 8 << 20
        assert not np.shares_memory(outer, within[0])


def test_a_text_outlives_the_same_call_in_a_signal_handler(monkeypatch):
    """The handler runs between the call and the copy of its text."""
    from oocdnn._core import native

    with oocdnn.Context("cpu", SMALL) as ctx:
        expected, read = ctx.plan(PROBLEM), native._text
        longer = "conv2d:fwd x2x16x41x41 w16x16x3x3 pad1x1 +bias +relu"

        def interrupted(pointer):
            monkeypatch.setattr(native, "_text", read)
            for _ in range(3):
                ctx.plan(longer)
            return read(pointer)

        monkeypatch.setattr(native, "_text", interrupted)
        assert ctx.plan(PROBLEM) == expected
