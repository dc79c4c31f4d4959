"""Wires while other GPUs of the host are busy too: what is left of them, and who says so."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.planner import Profile

import oocdnn
from oocdnn.perfmodel.profile import UNMEASURED

RATES = ("fetch", "drain", "both")
PROBLEM = "conv2d:fwd x4x16x40x40 w16x16x3x3 pad1 f32"
PINNED = " x@pin w@pin y@pin"
BUDGET = 2**17
PLAIN = Profile(flops={"direct/f32/fwd": 1e12}, measured=True)
SPEEDS = st.floats(1e8, 1e11)


def plan(profile: Profile, folder, problem: str = PROBLEM, **options) -> oocdnn.Plan:
    file = folder / "profile.txt"
    file.write_text(profile.text(), encoding="utf-8")
    return oocdnn.plan_for_profile(problem, file, BUDGET, **options)


def beside(others: int, share: float, profile: Profile = PLAIN) -> dict[str, float]:
    """What so many others leave, where that is the same share of each rate."""
    alone = {rate: getattr(profile, f"{rate}_bytes_per_second") for rate in RATES}
    return {f"beside/{others}/{rate}": value * share for rate, value in alone.items()}


def scaled(profile: Profile, shares: dict[str, float]) -> Profile:
    """A machine whose wires are slower by that."""
    plain = {
        f"{rate}_bytes_per_second": getattr(profile, f"{rate}_bytes_per_second") * share
        for rate, share in shares.items()
    }
    wires = {
        key: value * shares.get(key.rsplit("/", 1)[1], 1.0) if key.count("/") == 2 else value
        for key, value in profile.wires.items()
        if not key.startswith("beside/")
    }
    return dataclasses.replace(profile, **plain, wires=wires)


@st.composite
def machines(draw) -> tuple[Profile, int, dict[str, float]]:
    """With what others leave of each rate: of three numbers of others some, in any order."""
    profile = dataclasses.replace(
        PLAIN, **{f"{rate}_bytes_per_second": draw(SPEEDS) for rate in RATES}
    )
    wires = {f"direct/nchw/{rate}": draw(SPEEDS) for rate in RATES if draw(st.booleans())}
    wires |= {"page/both": draw(SPEEDS)} if draw(st.booleans()) else {}
    asked, shares = draw(st.integers(0, 4)), dict.fromkeys(RATES, 1.0)
    for rate in RATES:
        for others in sorted(draw(st.sets(st.integers(1, 3)))):
            alone = getattr(profile, f"{rate}_bytes_per_second")
            wires[f"beside/{others}/{rate}"] = found = alone * draw(st.floats(0.1, 1.2))
            if others <= asked:
                shares[rate] = min(found / alone, 1.0)
    return dataclasses.replace(profile, wires=wires), asked, shares


@settings(max_examples=60, deadline=None)
@given(machines())
def test_prices_are_those_of_slower_wires(tmp_path_factory, drawn):
    profile, busy, shares = drawn
    folder, slower = tmp_path_factory.getbasetemp(), scaled(profile, shares)
    found, wanted = plan(profile, folder, busy_gpus=busy), plan(slower, folder)
    assert found.plan == wanted.plan
    assert found.predicted_seconds == pytest.approx(wanted.predicted_seconds, rel=1e-9)
    assert found.seconds_by_engine == pytest.approx(wanted.seconds_by_engine, rel=1e-9)
    mine = dataclasses.replace(profile, busy_gpus=busy)
    for engine in ("direct", "other"):
        wire, other = (dataclasses.asdict(one.wire(engine, False)) for one in (mine, slower))
        assert wire == pytest.approx(other, rel=1e-12)
    assert mine.text() == profile.text(), "what is kept is as it was measured, alone"


def test_half_a_wire_takes_twice_as_long(tmp_path):
    profile = dataclasses.replace(PLAIN, wires=beside(1, 0.5), copy_seconds=0.0)
    alone, both = plan(profile, tmp_path), plan(profile, tmp_path, busy_gpus=1)
    assert alone.predicted_seconds < both.predicted_seconds < 2 * alone.predicted_seconds
    whole = {"budget": 2**30}
    file = tmp_path / "profile.txt"
    fetch, slow = (
        oocdnn.plan_for_profile(PROBLEM, file, **whole, busy_gpus=n).seconds_by_engine["fetch"]
        for n in (0, 1)
    )
    assert slow == pytest.approx(2 * fetch)


@pytest.mark.parametrize("busy", [0, 1, 2, 5])
def test_what_was_not_measured_beside_as_many_is_said(tmp_path, busy):
    profile = dataclasses.replace(PLAIN, wires=beside(1, 0.5) | beside(3, 0.25))
    found = plan(profile, tmp_path, PROBLEM + PINNED, busy_gpus=busy)
    assert bool(found.unmeasured) == (busy in (2, 5))
    assert set(found.unmeasured) <= {f"wire beside/{busy}/{rate}" for rate in RATES}
    nearest = plan(profile, tmp_path, PROBLEM + PINNED, busy_gpus={2: 1, 5: 3}.get(busy, busy))
    assert found.predicted_seconds == nearest.predicted_seconds
    assert nearest.unmeasured == []


def test_a_machine_that_was_not_measured_so_is_as_alone(tmp_path):
    found, alone = (plan(PLAIN, tmp_path, PROBLEM + PINNED, busy_gpus=busy) for busy in (3, 0))
    assert found.predicted_seconds == alone.predicted_seconds
    assert any(name.startswith("wire beside/3/") for name in found.unmeasured)
    assert alone.unmeasured == []


def test_an_estimate_is_no_measurement(tmp_path):
    marks = {f"wire {key}": UNMEASURED for key in beside(1, 0.5)}
    profile = dataclasses.replace(PLAIN, wires=beside(1, 0.5), marks=marks)
    found = plan(profile, tmp_path, PROBLEM + PINNED, busy_gpus=1)
    assert found.unmeasured
    assert set(found.unmeasured) <= marks.keys()


def test_the_variable_says_it_too(tmp_path, monkeypatch):
    profile = dataclasses.replace(PLAIN, wires=beside(1, 0.5))
    alone, beside_one = (plan(profile, tmp_path, busy_gpus=busy) for busy in (0, 1))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # of this machine's programs
    assert plan(profile, tmp_path).predicted_seconds == alone.predicted_seconds
    monkeypatch.setenv("OOCDNN_BUSY_GPUS", "1")
    assert plan(profile, tmp_path).predicted_seconds == beside_one.predicted_seconds
    assert plan(profile, tmp_path, busy_gpus=0).predicted_seconds == alone.predicted_seconds


@pytest.mark.parametrize("busy", [-1, 64, 10**12, 0.5, "all", ""])
def test_what_is_no_number_of_gpus_is_refused(tmp_path, busy):
    with pytest.raises(oocdnn.InvalidProblem, match="busy GPUs: write how many other GPUs"):
        plan(PLAIN, tmp_path, busy_gpus=busy)
