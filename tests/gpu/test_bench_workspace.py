"""The benchmarks of divided batches, on the fake driver, with a fake cuDNN whose best engine wants
workspace for every sample, and whose others sleep for each."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from gpu.suite import FAKE_CUDNN, FAKE_DRIVER, run_suite

import oocdnn
from oocdnn.bench.cases import Case
from oocdnn.bench.gpu.clock import Stopwatch
from oocdnn.bench.gpu.memory import DeviceArray, Gpu
from oocdnn.bench.studies import (
    divided as divided,
)
from oocdnn.bench.studies import (
    shares as shares,
)
from oocdnn.bench.studies import (
    workspace as workspace,
)
from oocdnn.bench.studies.divided import Bench, Side, kernels
from oocdnn.bench.studies.workspace import Comparison

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE

SAMPLE = 64 << 10  # bytes of workspace
HUNGRY = "e20"
SLEEP = 0.004  # seconds of any other engine for a sample, at least
FORWARD = "conv2d:fwd x16x4x8x8 w4x4x3x3 pad1 f32"
CASES = [
    Case("alexnet", name, problem, 1, times)
    for name, problem, times in (
        ("conv1", FORWARD, 1),
        ("conv1", FORWARD.replace("fwd", "bwd_filter"), 1),
        ("conv2", FORWARD.replace("fwd", "bwd_data"), 2),
    )
]

inside = pytest.mark.skipif(not FAKE, reason="runs in the suite below")


@pytest.mark.skipif(FAKE or not FAKE_CUDNN.exists(), reason=f"{FAKE_CUDNN} is not there")
@pytest.mark.timeout(600)
def test_benchmarks_of_workspace(tmp_path: Path) -> None:
    run_suite(
        tmp_path,
        "gpu/test_bench_workspace.py",
        libraries=(FAKE_DRIVER, FAKE_CUDNN),
        OOCDNN_CUDNN_LIBRARY=str(FAKE_CUDNN),
        OOC_FAKE_HUNGRY=str(SAMPLE),
    )


@pytest.fixture
def bench():
    with Bench("cuda:0", "64MiB", "cudnn-nchw", ballast=4096) as made:
        yield made


@inside
def test_both_sides_of_a_kernel(bench):
    for case in CASES:
        kernel = Comparison(bench, case, "fp32", repeats=2)
        limits = [size * SAMPLE for size in (20, 16, 4)]
        most, enough, little = (kernel.row(limit) for limit in limits)
        for row, limit in zip((most, enough, little), limits, strict=True):
            assert row.limit == limit
            assert row.wrong == 0
            assert row.undivided.parts == 1
            assert len(row.undivided.seconds) == len(row.divided.seconds) == 2
            assert row.undivided.bytes <= row.limit
            assert row.divided.bytes <= row.limit
            assert HUNGRY in row.divided.engine
        # There is room for the whole under both, so nothing was measured again.
        assert (most.like, enough.like) == (20 * SAMPLE, 20 * SAMPLE)
        assert HUNGRY in most.undivided.engine
        assert little.like == 4 * SAMPLE
        assert HUNGRY not in little.undivided.engine
        assert min(little.undivided.seconds) >= 16 * SLEEP  # and so the clock sees the work
        assert little.divided.samples <= 4
        assert little.divided.parts * little.divided.samples >= 16


@inside
def test_a_limit_that_leaves_no_engine_is_shown(bench, monkeypatch):
    refusal = "no engine within the limit"
    monkeypatch.setattr(divided, "prescribe", lambda *_: refusal)
    row = Comparison(bench, CASES[0], "fp32", repeats=1).row(4 * SAMPLE)
    assert row.undivided.failed == refusal
    assert row.divided.seconds
    assert row.wrong is None
    assert refusal in workspace.line(row)
    (found,) = workspace.summary([row])
    assert found["no undivided engine"] == found["kernels"] == 1
    assert "mean" not in found


@inside
def test_results_that_differ_are_seen(bench):
    """The comparison itself: of what two sides left, one element is another."""
    kernel = bench.kernel(FORWARD)
    first, second = kernel.results
    for out in (first, second):
        kernel.call(bench.free, out)()
    bench.gpu.synchronize()
    assert first.differing(second) == 0
    block = oocdnn.empty(1, np.float32)
    block[0] = 1e9
    bench.gpu.copy(second.address + second.nbytes - 4, block.ctypes.data, 4)
    assert first.differing(second) == 1
    second.spoil()
    assert first.differing(second) == math.prod(first.shape)


@inside
@pytest.mark.parametrize("count", [1, 7, 1_000_003, 2_500_000])
def test_integers_fill_an_array_of_any_size(bench, count):
    array = DeviceArray(bench.gpu, (count,), np.float32).integers(2, seed=1)
    here = oocdnn.empty(count, np.float32)
    bench.gpu.copy(here.ctypes.data, array.address, array.nbytes)
    bench.gpu.synchronize()
    assert set(np.unique(here)) <= {-2, -1, 0, 1, 2}
    if count > 1000:
        assert set(np.unique(here[-1000:])) == {-2, -1, 0, 1, 2}


@inside
def test_calls_take_turns_and_the_first_does_not_count():
    watch, seen = Stopwatch(Gpu(), 4096), list[str]()
    times = watch.turns([lambda: seen.append("a"), lambda: seen.append("b")], 3)
    watch.close()
    assert [len(one) for one in times] == [3, 3]
    assert "".join(seen).endswith("ababab")
    assert seen.count("a") == seen.count("b") > 3


@inside
def test_the_command_writes_rows_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(workspace, "kernels", lambda *_: CASES)
    monkeypatch.setattr(workspace, "MIB", SAMPLE)
    out = tmp_path / "found.json"
    options = ["--set", "alexnet", "--math", "fp32", "--repeats", "1", "--budget", "64MiB"]
    options += ["--limit", "4", "--limit", "16", "--out", str(out)]

    def run(*more: str) -> list[dict]:
        done = CliRunner().invoke(workspace.command, [*options, *more])
        assert done.exit_code == 0, done.output + repr(done.exception)
        found = json.loads(out.read_text(encoding="utf-8"))
        return found["lists"]["rows"], found["summary"], done.output

    rows, _, _ = run("--only", "conv1")
    assert len(rows) == 4
    again = CliRunner().invoke(workspace.command, options)
    assert again.exit_code != 0
    assert "--resume" in again.output
    more, summary, text = run("--resume")
    assert more[:4] == rows
    assert [row["layer"] for row in more] == ["conv1"] * 4 + ["conv2"] * 2
    assert [one["limit"] for one in summary] == [4 * SAMPLE, 16 * SAMPLE]
    for one in summary:
        group = [row for row in more if row["limit"] == one["limit"]]
        sums = [row["times"] * row["divided"]["seconds"][0] for row in group]
        assert one["divided seconds"] == pytest.approx(sum(sums))
        assert one["elements that differ"] == 0
        assert "whole" in one
    assert "µ-cuDNN 1.63 on a P100" in text
    nothing, _, _ = run("--resume")
    assert nothing == more


@inside
def test_one_workspace_beside_equal_shares(tmp_path, monkeypatch):
    monkeypatch.setattr(shares, "kernels", lambda *_: CASES)
    monkeypatch.setattr(shares, "MIB", SAMPLE)
    out = tmp_path / "found.json"
    options = ["--set", "vgg16", "--repeats", "1", "--budget", "64MiB", "--out", str(out)]
    done = CliRunner().invoke(shares.command, [*options, "--each", "0.5", "--each", "16"])
    assert done.exit_code == 0, done.output + repr(done.exception)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert {one["problem"] for one in found["lists"]["measured"]} == {c.problem for c in CASES}
    assert all(one["wrong"] == 0 for one in found["lists"]["called"])
    half_equal, half_shared, all_equal, all_shared = found["totals"]
    assert half_equal["total"] == 2 * SAMPLE  # of four kernels, one of them twice
    for one in found["totals"]:
        assert one["bytes"] <= one["total"]
        assert one["seconds"] > 0
    assert half_shared["predicted"] <= half_equal["predicted"]
    assert all_shared["predicted"] == pytest.approx(all_equal["predicted"])
    # Half of a sample's workspace for each kernel is of use to nobody, one for two of them is.
    assert half_equal["bytes"] < SAMPLE <= half_shared["bytes"]
    assert "16 MiB a kernel" in done.output


def test_a_total_that_is_too_little_says_so():
    way = shares.Way(1.0, 100, 1)
    one = shares.Measured("vgg16", "a", 2, "p", "tf32", [way], 0.0)
    (equal, shared) = shares.totals([one], [50], [])
    assert "100" in equal.failed
    assert shared.failed
    (text,) = shares.lines([equal, shared])
    assert equal.failed in text
    json.dumps([dataclasses.asdict(equal)], allow_nan=False)


def test_a_total_is_that_of_calls_only_where_all_were_made():
    ways = [shares.Way(1.0, 100, 1), shares.Way(2.0, 10, 4)]
    some = [shares.Measured("vgg16", "a", n, f"p{n}", "tf32", ways, 0.0) for n in (1, 2)]

    def call(problem: str, share: int, seconds: float) -> shares.Called:
        return shares.Called(problem, share, seconds, "e", 1, share, 0, 0.0)

    called = [call("p1", 10, 2.5), call("p2", 10, 2.25), call("p2", 100, 1.0)]
    equal, shared = shares.totals(some, [40], called)
    # In equal shares 100 bytes are too many for any; of 120 in all they are there for one.
    assert (equal.predicted, equal.seconds, equal.bytes) == (6.0, 2.5 + 2 * 2.25, 30)
    assert (shared.predicted, shared.bytes) == (5.0, 120)
    assert shared.seconds in (None, 2.5 + 2.25 + 1.0)  # which one is left to the division
    assert shares.totals(some, [40], called[1:]).__next__().seconds is None
    assert "not called" in next(shares.lines(list(shares.totals(some, [40], []))))
    assert shares.wanted(some, [1000]) == {"p1": [100], "p2": [100]}


def test_a_layer_is_the_sum_of_its_directions():
    def row(layer: str, limit: int, undivided: list[float], divided: list[float]):
        sides = (Side(seconds) for seconds in (undivided, divided))
        return workspace.Row("deepbench", layer, 1, "p", "fp32", limit, *sides, limit, 0)

    rows = [row("a", 2, [3.0], [1.0]), row("a", 2, [1.0], [1.0]), row("a", 1, [], [1.0])]
    rows += [row("b", 1, [1.0], [2.0])]
    found = workspace.layer_speedups(rows)
    assert found == {("deepbench", "fp32", "a"): {2: 2.0}, ("deepbench", "fp32", "b"): {1: 0.5}}
    few, many = workspace.summary(rows)
    assert (few["layers"], few["mean of layers"], few["no undivided engine"]) == (1, 0.5, 1)
    assert (many["layers"], many["mean of layers"], many["mean"]) == (1, 2.0, 2.0)
    assert "2.000 x" in workspace.layer_line(("a",), {2: 2.0})
    assert workspace.layer_line(("a",), {}).endswith("no engine")


def test_what_is_not_divided_is_one_call():
    def speedup(**other) -> float:
        one = Side([2.0], "cudnn-nchw e1", 1, 8, 64)
        other_side = dataclasses.replace(one, **other)
        row = workspace.Row("s", "l", 1, "p", "fp32", 64, one, other_side, 64)
        row.join()
        return row.speedup

    assert speedup(seconds=[1.0]) == 1.0
    assert speedup(seconds=[1.0], parts=2, samples=4) == 2.0
    assert speedup(seconds=[1.0], engine="cudnn-nchw e2") == 2.0


def test_a_network_is_whole_only_with_all_its_kernels():
    side = Side([1.0], "e", 1, 4, 0)
    cases = kernels("alexnet", "tf32")
    assert len(cases) == 14  # five layers, the first without its data gradient
    half = dataclasses.replace(side, seconds=[0.5, 0.4, 0.9])
    rows = [
        workspace.Row(c.set, c.layer, c.times, c.problem, "tf32", 1, side, half, 1, 0)
        for c in cases
    ]
    (found,) = workspace.summary(rows)
    assert found["whole"] == found["mean"] == found["best"] == pytest.approx(2.0)
    assert "whole" not in workspace.summary(rows[1:])[0]
    assert len(kernels("deepbench", "fp32")) > 200
    convolutions = {"alexnet": 5, "resnet18": 20, "resnet50": 53, "vgg16": 13}
    for name, count in convolutions.items():
        assert sum(case.times for case in kernels(name, "tf32")) == 3 * count - 1
    other = kernels("deepbench", "fp32", 256)
    assert all(" x256x" in case.problem and case.set == "deepbench n256" for case in other)
