"""Predicted against measured: what is run, what is written, and the sums."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from oocdnn.perfmodel import cases, validate
from oocdnn.perfmodel.__main__ import main
from oocdnn.perfmodel.cases import Case
from oocdnn.perfmodel.validate import Measured, Regret

SMALL = [
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 f32", "64KiB"),
    Case("conv2d:bwd_filter x4x8x24x24 w8x8x3x3 pad1 f32 nhwc", "64KiB"),
    Case("conv2d:fwd x4x8x24x24 w8x8x3x3 pad1 f32", "16KiB"),
]


def measured(predicted: float, seconds: float, bound: str = "fetch") -> Measured:
    return Measured("p", "1MiB", "plan", "e", bound, predicted, seconds, seconds, 1, 110, 100, 0.5)


def test_cases_are_many_different_and_come_again():
    for device, most in (("cuda:0", 150), ("cpu", 100)):
        found = cases.cases(device, most)
        assert len(set(found)) == len(found) == most
        assert found == cases.cases(device, most) != cases.cases(device, most, seed=1)


def test_every_case_is_measured_and_some_beside_other_plans(tmp_path, monkeypatch):
    monkeypatch.setattr(validate, "cases", lambda device, count, seed: SMALL)
    out = tmp_path / "found.json"
    options = ["validate", "--device", "cpu", "--regret", "2", "--plans", "3", "--repeats", "1"]
    monkeypatch.setenv("OOCDNN_PROFILE", "none")
    done = CliRunner().invoke(main, [*options, "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert sorted((one["problem"], one["budget"]) for one in found["cases"]) == sorted(
        (case.problem, case.budget) for case in SMALL
    )
    for one in found["cases"]:
        assert one["seconds"] > 0
        assert one["whole_seconds"] >= one["seconds"]
        assert 0 < one["booked_bytes"] == one["peak_bytes"] <= 65536
    assert {one["problem"] for one in found["regrets"]} == {case.problem for case in SMALL[:2]}
    for one in found["regrets"]:
        assert len(set(one["plans"])) == len(one["plans"]) == len(one["seconds"]) > 3
    assert "regret: worst" in done.output


def test_the_summary():
    found = validate.summary(
        [measured(1.1, 1.0), measured(0.8, 1.0, "compute"), measured(1.0, 1.0)],
        [
            Regret("p", "1MiB", ["a", "b"], [1, 1], [1.0, 1.0]),
            Regret("p", "1MiB", ["a", "b"], [1, 1], [1.2, 1.0]),
        ],
    )
    assert found["all: |error| median"] == pytest.approx(0.1)
    assert found["all: |error| 95th percentile"] == pytest.approx(0.2)
    assert found["bound by arithmetic: cases"] == 1
    assert found["bytes: |error| worst"] == pytest.approx(0.1)
    assert found["regret: share within 5 %"] == 0.5
    assert found["regret: worst"] == pytest.approx(1.2)
