"""Predicted against measured: what is run, what is written, and the sums."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

from oocdnn.cli.problems import parse
from oocdnn.perfmodel import cases, profiles, validate
from oocdnn.perfmodel.__main__ import main
from oocdnn.perfmodel.cases import Case
from oocdnn.perfmodel.runs import PinnedPool
from oocdnn.perfmodel.validation import Measured, Regret, groups, summary
from oocdnn.plans import plan_for_profile

SMALL = [
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 f32", "64KiB"),
    Case("conv2d:bwd_filter x4x8x24x24 w8x8x3x3 pad1 f32 nhwc", "64KiB"),
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 f32", "16KiB"),
]
OPTIONS = ["validate", "--device", "cpu", "--plans", "3", "--repeats", "1"]


def measured(
    predicted: float, seconds: float, bound: str = "fetch", placement: str = "host"
) -> Measured:
    return Measured(
        "p", "1MiB", placement, "plan", "e", bound, predicted, seconds, seconds, 1, 110, 100, 0.5
    )


@pytest.mark.parametrize(("device", "most"), [("cuda:0", 180), ("cpu", 100)])
def test_cases_are_many_different_and_come_again(device, most):
    found = cases.cases(device, most)
    assert len(set(found)) == len(found) == most
    assert found == cases.cases(device, most) != cases.cases(device, most, seed=1)
    assert found[:10] == cases.cases(device, 10)


def test_cases_are_of_all_kinds():
    found = cases.cases("cuda:0", 180)
    counts = dict.fromkeys(("host", "mixed", "device"), 0)
    for case in found:
        counts[case.placement] += 1
    assert counts == {"host": 90, "mixed": 60, "device": 30}
    assert {case.budget for case in found} == set(cases.BUDGETS)
    assert {parse(case.problem).direction for case in found} == {"fwd", "bwd_data", "bwd_filter"}
    words = {word for case in found for word in case.problem.split()}
    assert words.issuperset(cases.TYPES)
    assert words.issuperset({"nhwc", "ndhwc", "x@dev", "y@dev", "dy@dev", "dx@dev", "dw@dev"})


def test_at_least_50_cases_are_bound_by_the_arithmetic_of_an_h200():
    """Of those with operands in host memory by the shipped profile, which knows no others; where
    nothing crosses a wire nothing else bounds."""
    file, bound = profiles.find("h200"), 0
    for case in cases.cases("cuda:0", 180):
        if case.placement == "host":
            busy = plan_for_profile(case.problem, file, case.budget).seconds_by_engine
            bound += max(busy, key=lambda engine: busy[engine]) == "compute"
        bound += case.placement == "device"
    assert bound >= 50


def run(*options: str) -> str:
    done = CliRunner().invoke(main, [*OPTIONS, *options])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.output


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(validate, "cases", lambda device, count, seed: SMALL[:count])
    monkeypatch.setenv("OOCDNN_PROFILE", "none")


def test_every_case_is_measured_and_some_beside_other_plans(small, tmp_path):
    out = tmp_path / "found.json"
    text = run("--cases", "3", "--regret", "2", "--out", str(out))
    found = json.loads(out.read_text(encoding="utf-8"))["lists"]
    assert [(one["problem"], one["budget"]) for one in found["cases"]] == [
        (case.problem, case.budget) for case in SMALL
    ]
    for one in found["cases"]:
        assert one["seconds"] > 0
        assert one["whole_seconds"] >= one["seconds"]
        assert 0 < one["booked_bytes"] == one["peak_bytes"] <= 65536
    assert [one["problem"] for one in found["regrets"]] == [case.problem for case in SMALL[:2]]
    for one in found["regrets"]:
        assert len(set(one["plans"])) == len(one["plans"]) == len(one["seconds"]) > 3
        assert all(seconds > 0 for seconds in one["seconds"])
    assert " of 2 within 5%; worst: regret" in text


def test_the_parts_run_apart_and_go_on(small, tmp_path):
    out = tmp_path / "found.json"

    def lists(*options: str) -> tuple[list, list]:
        run(*options, "--out", str(out))
        found = json.loads(out.read_text(encoding="utf-8"))["lists"]
        return found["cases"], found["regrets"]

    none, regrets = lists("--cases", "0", "--regret", "1")
    assert (len(none), len(regrets)) == (0, 1)
    assert lists("--cases", "3", "--regret", "0", "--resume", "--seconds", "0") == ([], regrets)
    first, same = lists("--cases", "2", "--regret", "0", "--resume")
    assert (len(first), same) == (2, regrets)
    more, both = lists("--cases", "3", "--regret", "2", "--resume")
    assert more[:2] == first
    assert both[:1] == regrets
    assert (len(more), len(both)) == (3, 2)
    document = json.loads(out.read_text(encoding="utf-8"))
    assert len(document["runs"]) == 3  # one of the four added nothing
    assert document["summary"]["all: cases"] == 3


def test_results_of_another_command_are_not_gone_on_with(small, tmp_path):
    out = tmp_path / "found.json"
    out.write_text(json.dumps({"command": "python -m other", "runs": [], "lists": {}}))
    done = CliRunner().invoke(main, [*OPTIONS, "--out", str(out), "--resume"])
    assert done.exit_code != 0
    assert "python -m other" in done.output


def test_a_pool_fills_what_grows_and_keeps_the_rest():
    pool = PinnedPool(0)
    first = [pool((2, 3), "float32") for _ in range(3)]
    first[0][...] = 7.0
    pool.begin()
    again = [pool((2, 3), "float32"), pool((2, 2), "float32"), pool((40, 3), "float32")]
    assert again[0].ctypes.data == first[0].ctypes.data
    assert again[1].ctypes.data == first[1].ctypes.data
    assert (again[1].reshape(-1) == first[1].reshape(-1)[:4]).all()
    assert again[2].size == 120
    assert (again[2].reshape(-1)[:6] == first[2].reshape(-1)).all()
    assert math.isfinite(float(again[2].sum()))
    assert len({array.ctypes.data for array in again}) == 3


def test_the_summary():
    some = [
        measured(1.1, 1.0),
        measured(0.8, 1.0, "compute", "device"),
        measured(1.0, 1.0, placement="mixed"),
    ]
    found = summary(
        some,
        [
            Regret("p", "1MiB", "host", ["a", "b"], [1, 1], [1.0, 1.0]),
            Regret("p", "1MiB", "host", ["a", "b"], [1, 1], [1.2, 1.0]),
        ],
    )
    assert found["all: |error| median"] == pytest.approx(0.1)
    assert found["all: |error| 95th percentile"] == pytest.approx(0.2)
    assert found["bound by arithmetic: cases"] == 1
    assert found["bound by arithmetic: |error| median"] == pytest.approx(0.2)
    assert found["bound by wires: |error| worst"] == pytest.approx(0.1)
    assert found["operands: mixed: |error| median"] == 0
    assert [len(group) for group in groups(some).values()] == [3, 1, 2, 1, 1, 1]
    assert found["bytes: |error| worst"] == pytest.approx(0.1)
    assert found["regret: share within 5 %"] == 0.5
    assert found["regret: worst"] == pytest.approx(1.2)


def test_nothing_measured_has_an_empty_summary():
    assert summary([], []) == {}


def test_the_report_is_written_beside(small, tmp_path):
    folder = tmp_path / "report"
    run("--cases", "1", "--regret", "1", "--report", str(folder))
    names = {file.name for file in folder.iterdir()}
    assert names == {"table.txt", "predicted.svg", "errors.svg", "regret.svg"}
    assert SMALL[0].problem in (folder / "table.txt").read_text(encoding="utf-8")


def test_a_regret_ends_in_time(small, monkeypatch, tmp_path):
    monkeypatch.setattr(validate, "PATIENCE", 0.0)
    out = tmp_path / "found.json"
    run("--cases", "0", "--regret", "1", "--out", str(out))
    (one,) = json.loads(out.read_text(encoding="utf-8"))["lists"]["regrets"]
    assert len(one["plans"]) == 1


class Clock:
    """Stands for a timer and a context: each plan takes the next of its own list of seconds."""

    def __init__(self, **seconds: list[float]) -> None:
        self.left, self.plan, self.asked = seconds, "a", []

    def use_plan(self, problem: str, plan: str) -> None:
        self.plan = plan

    def __call__(self, context: object, call: object, repeats: int, in_core: bool) -> tuple:
        self.asked.append(self.plan)
        times = self.left[self.plan]
        return (times.pop(0) if len(times) > 1 else times[0], 0.0)


@pytest.mark.parametrize(
    ("seconds", "ratio", "best"),
    [
        # b was fast by chance, once; c is as fast as it looks, and a is not.
        ({"a": [1.0], "b": [0.5, 0.5, 1.2], "c": [0.9]}, 1.0 / 0.9, "c"),
        ({"a": [1.0], "b": [0.5, 0.5, 1.2]}, 1.0, "a"),
        ({"a": [3.0, 3.0, 0.8], "b": [1.0]}, 1.0, "a"),
        ({"a": [0.4], "b": [0.5], "c": [9.0]}, 1.0, "a"),
    ],
)
def test_what_was_fast_by_chance_does_not_count(seconds, ratio, best):
    clock = Clock(**{name: list(times) for name, times in seconds.items()})
    rivals = validate.Rivals(clock, clock, SMALL[0], lambda: None, repeats=3)
    for name in seconds:
        rivals.measure(name, 1.0, given=name == "a")
    rivals.finals()
    assert rivals.found.ratio == pytest.approx(ratio)
    assert rivals.found.best == best
    if "c" in seconds and seconds["c"] == [9.0]:
        assert clock.asked.count("c") == 1  # far slower: once is enough
