"""Contexts: which one is used, what they tell, how they end, and threads that share one."""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest
from python.support import SMALL, assert_equal, integers

import oocdnn
from oocdnn._core import cdefs, native
from oocdnn.context import Stats

X = integers((2, 16, 40, 40))
W = integers((16, 16, 3, 3))
EXPECTED = oracle.forward(X, W)
PROBLEM = "conv2d:fwd x2x16x40x40 w16x16x3x3"


def test_functions_use_the_innermost_context_of_the_thread():
    with oocdnn.Context("cpu", "1MiB") as outer:
        with oocdnn.Context("cpu", SMALL) as inner:
            assert oocdnn.current_context() is inner
            with outer:
                assert oocdnn.current_context() is outer
            assert oocdnn.current_context() is inner
            oocdnn.conv2d(X, W)
            assert inner.stats.tiles > 1
            assert outer.stats.tiles == 0
        assert oocdnn.current_context() is outer
    assert oocdnn.current_context() is not outer


def test_another_thread_does_not_see_the_block():
    with oocdnn.Context("cpu", SMALL) as context, ThreadPoolExecutor(1) as pool:
        assert pool.submit(oocdnn.current_context).result() is not context


def test_one_default_context_per_process():
    with ThreadPoolExecutor(4) as pool:
        found = {id(f.result()) for f in [pool.submit(oocdnn.current_context) for _ in range(16)]}
    assert found == {id(oocdnn.current_context())}
    assert_equal(oocdnn.conv2d(X, W), EXPECTED)


def test_a_closed_default_context_is_replaced():
    first = oocdnn.current_context()
    first.close()
    assert oocdnn.current_context() is not first
    assert_equal(oocdnn.conv2d(X, W), EXPECTED)


def test_methods_are_the_functions():
    with oocdnn.Context("cpu", SMALL) as context:
        other = oocdnn.Context("cpu", "1GiB")
        with other:
            assert_equal(context.conv2d(X, W), EXPECTED)
            assert context.stats.tiles > 1
            assert other.stats.tiles == 0
    for name in oocdnn.__all__:
        if name.startswith("conv"):
            method, function = getattr(context, name), getattr(oocdnn, name)
            assert method.__doc__ == function.__doc__
            assert inspect.signature(method) == inspect.signature(function)


def test_a_method_that_fails_leaves_the_stack_as_it_was(ctx):
    with oocdnn.Context("cpu") as other, pytest.raises(oocdnn.InvalidProblem):
        other.conv2d(X, W, groups=3)
    assert oocdnn.current_context() is ctx


def test_stats_of_a_call(ctx):
    assert ctx.stats == Stats(split=ctx.stats.split)
    ctx.conv2d(X, W)
    stats = ctx.stats
    assert stats.tiles > 1
    assert 0 < stats.peak_device_bytes <= stats.budget_bytes == 256 * 1024
    assert stats.bytes_h2d >= X.nbytes + W.nbytes
    assert stats.bytes_d2h == EXPECTED.size * 4
    assert stats.seconds > 0
    assert stats.planning_seconds > 0
    assert stats.engine
    ctx.conv2d(X, W)
    assert (ctx.stats.device_allocations, ctx.stats.prepared) == (0, 0)


def test_all_plans_of_a_large_network_are_kept():
    """300 problems, again and again in the same order."""
    with oocdnn.Context("cpu", "64KiB") as ctx:
        for _ in range(2):
            prepared = 0
            for width in range(8, 308):
                ctx.conv1d(np.ones((1, 1, width), "f4"), np.ones((1, 1, 3), "f4"))
                prepared += ctx.stats.prepared
        assert prepared == 0


def test_python_and_c_have_the_same_fields():
    fields = {name for name, _ in native._ffi().typeof("oocdnn_stats").fields}
    assert set(Stats.__dataclass_fields__) == fields


def test_plan_foretells_the_call(ctx):
    plan = ctx.plan(PROBLEM)
    ctx.conv2d(X, W)
    stats = ctx.stats
    assert plan.tiles == stats.tiles
    assert plan.splits == stats.split
    assert plan.booked_bytes == stats.peak_device_bytes
    assert plan.predicted_seconds == stats.predicted_seconds
    assert plan.prepared
    assert (plan.host_bytes == 0) == (ctx.device == "cpu")  # which reaches all memory
    assert (plan.bytes_h2d, plan.bytes_d2h) == (stats.bytes_h2d, stats.bytes_d2h)
    assert plan.data_bytes == X.nbytes + W.nbytes + EXPECTED.size * 4
    assert plan.engine == stats.engine
    assert "chosen" in plan.explain()


def test_release_gives_the_memory_back_until_the_next_call(ctx):
    ctx.conv2d(X, W)
    most = ctx.stats.peak_device_bytes
    ctx.release()
    ctx.conv2d(X[:1, :, :10], W)
    assert ctx.stats.device_allocations > 0
    assert ctx.stats.peak_device_bytes < most


def test_a_closed_context_says_so_and_keeps_its_stats():
    context = oocdnn.Context("cpu", SMALL)
    context.conv2d(X, W)
    context.close()
    context.close()
    assert context.closed
    assert context.stats.tiles > 1
    with pytest.raises(oocdnn.DeviceError, match="closed"):
        context.conv2d(X, W)


def test_leaving_the_outermost_block_closes():
    context = oocdnn.Context("cpu", SMALL)
    with context:
        with context:
            pass
        assert_equal(oocdnn.conv2d(X, W), EXPECTED)
    assert context.closed


def test_contexts_that_are_dropped_are_destroyed():
    def threads():
        return threading.active_count(), len(native._living)

    gc.collect()
    before = threads()
    for _ in range(3):
        oocdnn.Context("cpu", SMALL).conv2d(X, W)
    gc.collect()
    assert threads() == before


def test_threads_share_a_context(ctx):
    inputs = [integers((2, 16, 30 + i, 40), i) for i in range(8)]
    expected = [oracle.forward(x, W) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for y, reference in zip(
                pool.map(lambda x: ctx.conv2d(x, W), inputs), expected, strict=True
            ):
                assert_equal(y, reference)


def test_threads_with_contexts_of_their_own():
    def work(i):
        with oocdnn.Context("cpu", (i + 1) * 256 * 1024):
            return oocdnn.conv2d(X, W)

    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(work, range(8)):
            assert_equal(y, EXPECTED)


def test_closing_while_another_thread_calls():
    context = oocdnn.Context("cpu", SMALL, engine="reference")
    inside = threading.Event()

    def call():
        return context.conv2d(X, W, progress=lambda done, tiles: inside.set())

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        inside.wait(30)
        context.close()
        assert_equal(result.result(), EXPECTED)


def test_the_last_of_several_calls_destroys_a_closed_context():
    native = oocdnn.Context("cpu", SMALL)._native
    with native:
        with native:
            native.close()
        assert native._end.alive  # the first call is still in it
    assert not native._end.alive


def test_errors_of_two_threads_do_not_mix(ctx):
    def fail(i):
        with pytest.raises(oocdnn.InvalidProblem) as caught:
            ctx.plan(f"conv2d:fwd nonsense{i}")
        return f"nonsense{i}" in str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fail, range(200)))


def test_progress_is_told(ctx):
    told = []
    ctx.conv2d(X, W, progress=lambda done, tiles: told.append((done, tiles)))
    tiles = ctx.stats.tiles
    assert told
    assert {total for _, total in told} == {tiles}
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_trace_is_taken_once():
    with oocdnn.Context("cpu", SMALL, trace=True) as context:
        context.conv2d(X, W)
        events = json.loads(context.take_trace())["traceEvents"]
        kinds = {event["name"].split()[0] for event in events if event["ph"] == "X"}
        assert {"fetch", "drain"} <= kinds
        left = json.loads(context.take_trace())["traceEvents"]
        assert not [event for event in left if event["ph"] == "X"]


def test_checked_device_has_nothing_to_say():
    with oocdnn.Context("cpu", SMALL, wrap="check") as context:
        assert_equal(context.conv2d(X, W), EXPECTED)
        context.release()
        assert context.check_reports() == []


def test_options_win_over_variables(monkeypatch):
    monkeypatch.setenv("OOCDNN_BUDGET", "1MiB")
    monkeypatch.setenv("OOCDNN_ENGINE", "reference")
    with oocdnn.Context("cpu") as context:
        plan = context.plan(PROBLEM)
        assert (plan.budget_bytes, plan.engine) == (2**20, "reference")
    with oocdnn.Context("cpu", "2MiB", engine="direct") as context:
        plan = context.plan(PROBLEM)
        assert (plan.budget_bytes, plan.engine) == (2**21, "direct")


@pytest.mark.parametrize(("budget", "bytes_"), [("1.5MiB", 1572864), (2**20, 2**20)])
def test_budgets(budget, bytes_):
    with oocdnn.Context("cpu", budget) as context:
        assert context.plan(PROBLEM).budget_bytes == bytes_


@pytest.mark.parametrize("budget", [192, 320, 1000, 4000])
def test_what_is_planned_for_a_tiny_budget_runs(budget):
    x, w = integers((1, 1, 6, 6)), integers((1, 1, 3, 3))
    with oocdnn.Context("cpu", budget, profile="none") as context:
        booked = context.plan("conv2d:fwd x1x1x6x6 w1x1x3x3").booked_bytes
        assert_equal(context.conv2d(x, w), oracle.forward(x, w))
        assert context.stats.peak_device_bytes == booked <= budget


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        ("THREADS", "all", "a number from 0 to 1024"),
        ("THREADS", "-1", "a number from 0 to 1024"),
        ("LINK", "25GB/s", "a number from 0 to 100000"),
        ("AUTO_PIN", "yes", "a number from 0 to 1"),
    ],
)
def test_variables_that_say_nothing_are_refused(name, value, values, monkeypatch):
    monkeypatch.setenv(f"OOCDNN_{name}", value)
    with pytest.raises(oocdnn.InvalidProblem, match=f"OOCDNN_{name} is '{value}': write {values}"):
        oocdnn.Context("cpu")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ({"OOCDNN_LOG": "loud"}, "OOCDNN_LOG is 'loud', not one of error, warn, info, debug"),
        (
            {"OOCDNN_LOG": "loud", "OOCDNN_LOG_FILE": "."},  # the first line says what LOG is
            "OOCDNN_LOG_FILE: . cannot be written to: Is a directory",
        ),
        ({"OOCDNN_TRACE": "."}, "the trace cannot be written to ."),
    ],
)
def test_what_cannot_be_logged_or_traced_is_said(variable, said, tmp_path):
    """Calls go on."""
    program = """
import oocdnn
with oocdnn.Context("cpu") as context:
    print(context.plan("conv1d:fwd x1x1x9 w1x1x3").tiles)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variable,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert f"oocdnn: {said}" in done.stderr


def test_numpy_numbers_are_numbers():
    with oocdnn.Context("cpu", np.int64(2**20)) as context:
        y = context.conv2d(X, W, stride=np.int32(2), groups=np.uint8(1), alpha=np.float32(1))
    assert_equal(y, oracle.forward(X, W, stride=2))


def test_info_names_engines_and_properties(ctx):
    info = json.loads(ctx.info())
    assert info["version"] == cdefs.VERSION
    engines = {engine["name"]: engine for engine in info["engines"]}
    assert engines["direct"]["invariant"]
    assert {backend["name"] for backend in info["backends"]} >= {"cpu", "cuda"}


def test_the_default_context_writes_its_timeline_at_exit(tmp_path, monkeypatch):
    monkeypatch.setenv("OOCDNN_TRACE", str(tmp_path / "t.json"))
    program = "import numpy, oocdnn; oocdnn.conv1d(numpy.ones((1, 2, 9)), numpy.ones((3, 2, 3)))"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
