"""What a plan says of itself, against the search and the prices that it rests on."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile

import oocdnn

MACHINES = {
    "even": Profile(flops={"direct/f32/fwd": 1e10}),
    "shared engines": Profile(shared_engines=True, flops={"direct/f32/fwd": 1e10}),
    "narrow wire": Profile(both_bytes_per_second=1.1e9, flops={"direct/f32/fwd": 1e12}),
    "two engines": Profile(flops={"onednn/f32/fwd": 1e10, "direct/f32/fwd": 3e10}),
}
TRACKS = ("fetch", "compute", "drain")


@st.composite
def problems(draw) -> str:
    n, c, k = (draw(st.integers(1, 6)) for _ in range(3))
    h, w = draw(st.integers(3, 24)), draw(st.integers(3, 24))
    direction = draw(st.sampled_from(("fwd", "bwd_data", "bwd_filter")))
    words = draw(st.sampled_from(("", " str2", " pad1", " pad1 beta1")))
    return f"conv2d:{direction} x{n}x{c}x{h}x{w} w{k}x{c}x3x3{words}"


def plan(problem: str, machine: Profile, budget: int, folder) -> oocdnn.Plan:
    file = folder / "profile.txt"
    file.write_text(machine.text(), encoding="utf-8")
    return oocdnn.plan_for_profile(problem, file, budget)


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=40, deadline=None)
@given(problem=problems(), budget=st.integers(12, 20))
def test_a_plan_adds_up(name, problem, budget, tmp_path_factory):
    machine = MACHINES[name]
    found = plan(problem, machine, 2**budget, tmp_path_factory.getbasetemp())
    busy = found.seconds_by_engine
    assert 0 < found.floor_seconds <= found.predicted_seconds * (1 + 1e-12)
    if machine.shared_engines:
        assert sum(busy.values()) == pytest.approx(found.predicted_seconds, rel=1e-12)
        assert found.host_bytes == 0
    else:
        assert max(busy.values()) <= found.predicted_seconds * (1 + 1e-12)
        assert found.host_bytes > 0
    assert found.booked_bytes <= found.budget_bytes == 2**budget
    assert math.prod(found.splits.values()) == found.tiles
    assert found.engine + "/f32/fwd" in machine.flops
    assert all(one["device_bytes"] <= 2**budget for one in found.runners_up)
    check_timeline(found, machine)


def check_timeline(found: oocdnn.Plan, machine: Profile) -> None:
    """Engines do one thing at a time and in order, and the whole takes what was predicted."""
    ends: dict[str, float] = defaultdict(float)
    total: dict[str, float] = defaultdict(float)
    last = 0.0
    for one in found.timeline:
        track = "any" if machine.shared_engines else one["track"]
        assert ends[track] <= one["begin"] * (1 + 1e-6) <= one["end"] * (1 + 2e-6)
        ends[track] = one["end"]
        total[one["track"]] += one["end"] - one["begin"]
        last = max(last, one["end"])
    assert last <= found.predicted_seconds * (1 + 1e-6)
    steps = {one["step"] for one in found.timeline}
    assert len(steps) == min(found.tiles, 100)
    if found.tiles <= 100:
        busy = [found.seconds_by_engine[track] for track in TRACKS]
        assert [total[track] for track in TRACKS] == pytest.approx(busy, rel=1e-5)
        if machine.shared_engines:
            assert last == pytest.approx(found.predicted_seconds, rel=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_the_plan_is_the_searchs_best(name, tmp_path):
    """The engines, and what they say of themselves, are those of the devices."""
    machine = MACHINES[name]
    text = "conv2d:fwd x4x5x32x32 w18x5x3x3 pad1"  # channels that fill no block
    found = plan(text, machine, 65536, tmp_path)
    known = {"onednn": planner.ONEDNN, "direct": planner.DIRECT}
    engines = ",".join(known[engine] for engine in known if f"{engine}/f32/fwd" in machine.flops)
    problem = planner.doors.parse(text)
    best = planner.search(problem, 65536, machine, engines=engines)
    assert found.predicted_seconds == best.ranked[0].seconds
    others = [one["predicted_seconds"] for one in found.runners_up]
    assert others == [one.seconds for one in best.ranked[1:]]
    assert found.refused == best.refused
    floors = [planner.floor_of(problem, machine, engine) for engine in engines.split(",")]
    assert found.floor_seconds == min(floors)


@pytest.mark.parametrize("budget", [1 << 18, 1 << 20])
def test_a_device_that_is_here_gives_the_same_plan(budget, tmp_path):
    """The direct engine takes its best candidate, and books its workspace besides."""
    problem, machine = "conv2d:fwd x4x8x32x32 w16x8x3x3 pad1", MACHINES["even"]
    there = plan(problem, machine, budget, tmp_path)
    options = {"engine": "direct", "profile": tmp_path / "profile.txt"}
    with oocdnn.Context("cpu", budget, **options) as context:
        here = context.plan(problem)
    assert (here.prepared, there.prepared) == (True, False)
    assert there.booked_bytes <= here.booked_bytes <= budget
    only_there = ("prepared", "booked_bytes", "host_bytes", "text")
    same = {name: getattr(here, name) for name in only_there}
    assert dataclasses.replace(there, **same) == here


def test_what_is_staged_whole_takes_whole_pages(tmp_path):
    """x and y of 16 KiB and w of 576 bytes, each in one piece."""
    machine = dataclasses.replace(MACHINES["even"], copy_seconds=1.0)
    found = plan("conv2d:fwd x1x4x32x32 w4x4x3x3 pad1", machine, 2**20, tmp_path)
    assert found.tiles == 1
    assert found.host_bytes == 16384 + 4096 + 16384


def test_of_a_guess_every_rate_is_unmeasured(tmp_path):
    text = Profile(flops={"direct/f32/fwd": 1e10}).text()
    file = tmp_path / "guess.txt"
    file.write_text(text.replace("measured = true", "measured = false"), encoding="utf-8")
    rates = [
        field.name
        for field in dataclasses.fields(Profile)
        if field.type == "float" and field.name != "flops_fallback"
    ]
    for direction in ("fwd", "bwd_filter"):
        found = oocdnn.plan_for_profile(f"conv2d:{direction} x4x8x32x32 w16x8x3x3", file, "1MiB")
        assert found.unmeasured == [*rates, f"flops direct/f32/{direction}"]
