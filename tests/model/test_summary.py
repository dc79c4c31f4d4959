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
    assert 0 < found.floor_compute_seconds <= found.floor_seconds * (1 + 1e-12)
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


def slowest(machine: Profile) -> float:
    """How much longer a copy takes beside one in the other direction."""
    if machine.shared_engines:
        return 1.0
    single = machine.fetch_bytes_per_second + machine.drain_bytes_per_second
    return max(single / machine.both_bytes_per_second, 1.0)


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
        for track in TRACKS:
            alone = found.seconds_by_engine[track]
            longest = alone if track == "compute" else alone * slowest(machine)
            assert alone * (1 - 1e-5) <= total[track] <= longest * (1 + 1e-5)
    if machine.shared_engines:  # whatever is left out in the middle
        assert last == pytest.approx(found.predicted_seconds, rel=1e-5)


@pytest.mark.parametrize("name", MACHINES)
def test_the_plan_is_the_searchs_best(name, tmp_path):
    """The engines, and what they say of themselves, are those of the devices."""
    machine = MACHINES[name]
    text = "conv2d:fwd x4x5x32x32 w18x5x3x3 pad1"  # channels that fill no block
    found = plan(text, machine, 65536, tmp_path)
    known = {"onednn": planner.ONEDNN, "direct": planner.DIRECT}
    engines = ",".join(known[engine] for engine in known if f"{engine}/f32/fwd" in machine.flops)
    problem = planner.core.parse(text)
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
    there = plan(problem, staging(machine), budget, tmp_path)
    options = {"engine": "direct", "profile": tmp_path / "profile.txt"}
    with oocdnn.Context("cpu", budget, **options) as context:
        here = context.plan(problem)
    assert (here.prepared, there.prepared) == (True, False)
    assert there.booked_bytes <= here.booked_bytes <= budget
    only_there = ("prepared", "booked_bytes", "host_bytes", "search_seconds", "text")
    same = {name: getattr(here, name) for name in only_there}
    assert dataclasses.replace(there, **same) == here


def test_what_is_staged_whole_takes_whole_pages(tmp_path):
    """x and y of 16 KiB and w of 576 bytes, each in one piece."""
    machine = dataclasses.replace(MACHINES["even"], copy_seconds=1.0)
    found = plan("conv2d:fwd x1x4x32x32 w4x4x3x3 pad1", machine, 2**20, tmp_path)
    assert found.tiles == 1
    assert found.host_bytes == 16384 + 4096 + 16384


ONCE = {"direct/f32/fwd/prepare": 0.25, "page/pin": 1e9}
PREPARING, PINNING = "preparing the engine", "pinning the operands"


@pytest.mark.parametrize("known", [{}, *({key: rate} for key, rate in ONCE.items()), ONCE])
def test_what_goes_before_calls_is_said_where_it_is_known(known, tmp_path):
    """And the plan is the one that it would be without."""
    problem = "conv2d:fwd x4x8x32x32 w16x8x3x3 pad1"
    without = plan(problem, MACHINES["even"], 2**16, tmp_path)
    assert (without.prepare_seconds, without.pin_seconds) == (None, None)
    machine = dataclasses.replace(MACHINES["even"], once=known)
    found = plan(problem, machine, 2**16, tmp_path)
    shapes = 2 if " taper " in found.plan else 1
    preparing = shapes * 0.25 if "direct/f32/fwd/prepare" in known else None
    pinning = found.data_bytes / 1e9 if "page/pin" in known else None
    assert found.prepare_seconds == preparing
    assert found.pin_seconds == (None if pinning is None else pytest.approx(pinning))
    assert (PREPARING in found.text, PINNING in found.text) == (bool(preparing), bool(pinning))
    said = ("prepare_seconds", "pin_seconds", "search_seconds", "text")
    same = {name: getattr(found, name) for name in said}
    assert dataclasses.replace(without, **same) == found


@pytest.mark.parametrize(
    ("words", "elements"),
    [
        ("", 2048 + 144 + 2048),
        (" x@pin y@file", 144),
        (" x@pin w@dev", 2048),
        (" x@pin w@pin beta1", 2048),  # what y held before is there too
        (" x@pin w@pin y@pin", 0),
    ],
)
def test_what_may_be_pinned_is_in_pageable_memory(words, elements, tmp_path):
    machine = dataclasses.replace(MACHINES["even"], once=ONCE)
    found = plan("conv2d:fwd x2x4x16x16 w4x4x3x3 pad1" + words, machine, 2**20, tmp_path)
    assert found.pin_seconds == pytest.approx(4 * elements / 1e9)
    assert (PINNING in found.text) == (elements > 0)


@pytest.mark.parametrize(
    ("also", "seconds"),
    [
        ("", 1.0),
        (" +dw", 1.25),
        (" +db", 5.0),  # by the engine of which it is known, as the other refuses it
        (" +dw +db", 5.25),
    ],
)
def test_short_tiles_and_gradients_that_come_along_are_prepared_too(also, seconds, tmp_path):
    first = {"onednn/f32/bwd_data/prepare": 1.0, "onednn/f32/bwd_filter/prepare": 0.25}
    machine = Profile(once={**first, "direct/f32/bwd_bias/prepare": 4.0})
    problem, file = "conv2d:bwd_data x8x8x32x32 w8x8x3x3 pad1" + also, tmp_path / "profile.txt"
    file.write_text(machine.text(), encoding="utf-8")
    with oocdnn.Context("cpu", "1MiB", profile=file) as context:
        engine = context.plan(problem).engine.split()[0].split("/")[0]
        if "onednn" not in engine:
            pytest.skip("oneDNN is not here")
        for taper, shapes in (("", 1), (" taper n1", 2)):
            priced = context.price(problem, f"onednn n2 slots 2{taper}")
            assert priced.prepare_seconds == shapes * seconds
        priced = context.price(problem, "direct n2 slots 2")
        assert priced.prepare_seconds is None, "of dx by this engine nothing is known"


PLAIN = [
    field.name
    for field in dataclasses.fields(Profile)
    if field.type == "float" and field.name != "flops_fallback"
]


STAGING = {f"page/{rate}": 1e30 for rate in ("fetch", "drain", "both")}


def staging(machine: Profile) -> Profile:
    """It keeps up with any wire, and that is known."""
    marks = {f"wire {name}": "measured" for name in STAGING}
    return dataclasses.replace(machine, wires=machine.wires | STAGING, marks=machine.marks | marks)


def unmeasured(machine: Profile, folder, problem: str = "conv2d:fwd x4x8x32x32 w16x8x3x3"):
    found = plan(problem, staging(machine), 2**16, folder)
    line = f"not measured: {', '.join(found.unmeasured)}\n"
    assert (line in found.text) == bool(found.unmeasured)
    return set(found.unmeasured)


def guess(**rates) -> Profile:
    """A machine whose wires, arithmetic and copies limit the plan about alike."""
    return Profile(measured=False, flops={"direct/f32/fwd": 1e10}, **rates)


def test_a_guess_names_what_its_price_leans_on(tmp_path):
    """Of the wires, the arithmetic and what pieces cost, but not what the busiest hides."""
    found = unmeasured(guess(), tmp_path)
    assert {"fetch_bytes_per_second", "copy_seconds", "run_seconds"} <= found
    assert found <= {*PLAIN, "flops direct/f32/fwd"}
    assert "step_seconds" not in found


@pytest.mark.parametrize(("share", "leant_on"), [(0.3, False), (0.7, True)])
def test_what_would_be_the_limit_at_twice_the_time_is_leant_on(share, leant_on, tmp_path):
    """The host's enqueuing, which takes this share of a plan that it goes on beside."""
    problem = "conv2d:fwd x4x8x32x32 w16x8x3x3"
    machine = dataclasses.replace(MACHINES["even"], step_seconds=0.0)
    quick = plan(problem, machine, 2**16, tmp_path)
    step = share * quick.predicted_seconds / quick.tiles
    marks = {"step_seconds": "unmeasured"}
    slower = dataclasses.replace(machine, step_seconds=step, marks=marks)
    assert plan(problem, slower, 2**16, tmp_path).plan == quick.plan
    assert unmeasured(slower, tmp_path) == ({"step_seconds"} if leant_on else set())


def test_what_is_measured_is_not_named(tmp_path):
    assert not unmeasured(MACHINES["even"], tmp_path)
    everything = unmeasured(guess(), tmp_path)
    for name in everything:
        marks = {name: "samples 5 spread 0.01"}
        assert unmeasured(guess(marks=marks), tmp_path) == everything - {name}


def test_a_rate_of_another_kind_is_an_assumption(tmp_path):
    machine = Profile(flops={"direct/f32/fwd": 1e10})
    problem = "conv2d:bwd_filter x4x8x32x32 w16x8x3x3"
    assert unmeasured(machine, tmp_path, problem) == {"flops direct/f32/bwd_filter"}


def test_a_pass_that_was_not_measured_is_an_assumption(tmp_path):
    problem = "conv2d:fwd x4x8x32x32 w16x8x3x3 +relu"
    machine = Profile(flops={"direct/f32/fwd": 1e10})
    assert unmeasured(machine, tmp_path, problem) == {"wire direct/nchw/finish"}
    known = dataclasses.replace(machine, wires={"direct/nchw/finish": 1e10})
    assert not unmeasured(known, tmp_path, problem)


def test_sums_that_were_not_measured_are_an_assumption(tmp_path):
    problem = "conv2d:fwd x4x8x32x32 w16x8x3x3 bf16 +relu"
    tiles = {"8 1000 direct/bf16/fwd": 1e10}
    passes = {"direct/nchw/finish": 1e10}
    machine = Profile(flops={"direct/bf16/fwd": 1e10}, tiles=tiles, wires=passes)
    assert unmeasured(machine, tmp_path, problem) == {"flops direct/bf16+sums/fwd"}
    known = dataclasses.replace(machine, flops=machine.flops | {"direct/bf16+sums/fwd": 1e10})
    assert not unmeasured(known, tmp_path, problem)


@pytest.mark.parametrize("words", ["", " x@page y@file", " x@pin w@pin y@pin"])
def test_staging_that_was_not_measured_is_an_assumption(words, tmp_path):
    machine = Profile(flops={"direct/f32/fwd": 1e12})
    found = plan("conv2d:fwd x4x8x32x32 w16x8x3x3" + words, machine, 2**16, tmp_path).unmeasured
    page = {"wire page/fetch"} if "x@pin" not in words else set()
    drain = {"": {"wire page/drain"}, " x@page y@file": {"wire file/drain"}}.get(words, set())
    assert page | drain <= set(found) <= page | drain | {"wire page/both"}


def test_an_engines_own_wires_stand_in_for_all(tmp_path):
    """What nothing falls back to is not leant on."""
    own = {f"direct/nchw/{rate}": 1e9 for rate in ("fetch", "drain", "both")}
    found = unmeasured(guess(wires=own), tmp_path)
    assert "wire direct/nchw/fetch" in found
    assert not any(name.endswith("_bytes_per_second") and name[0] in "fdb" for name in found)


def test_only_tiles_that_lie_around_are_leant_on(tmp_path):
    sizes = [(8, 16), (8, 10**9), (4096, 10**9)]
    tiles = {f"{channels} {outputs} direct/f32/fwd": 1e8 for channels, outputs in sizes}
    machine = Profile(flops={"direct/f32/fwd": 1e8}, tiles=tiles)
    far = "tile 4096 1000000000 direct/f32/fwd"
    marks = {f"tile {tile}": "unmeasured" for tile in tiles}
    found = unmeasured(dataclasses.replace(machine, marks=marks), tmp_path)
    assert found
    assert found <= marks.keys() - {far}
    marks = {far: "unmeasured", "flops direct/f32/fwd": "unmeasured"}
    assert not unmeasured(dataclasses.replace(machine, marks=marks), tmp_path)


@settings(max_examples=50, deadline=None)
@given(
    problem=problems(),
    budget=st.integers(12, 20),
    known=st.sets(st.sampled_from(PLAIN)),
    step=st.floats(-6, -4),
)
def test_to_lean_on_a_rate_is_to_change_with_it(problem, budget, known, step, tmp_path_factory):
    """Against prices of the plan, which is the search's best, with other rates. The host is busy
    for about as long as the rest, or for less."""
    flops = {f"direct/f32/{way}": 1e10 for way in ("fwd", "bwd_data", "bwd_filter")}
    passes = dict.fromkeys(("direct/nchw/finish", "direct/nchw/pool"), 1e10)
    machine = Profile(step_seconds=10**step, flops=flops, wires=passes)
    parsed = planner.core.parse(problem)
    best = planner.search(parsed, 2**budget, machine, engines=planner.DIRECT).ranked[0]
    times = [key for key in best.cost if key.endswith("seconds")]

    def changes(name: str, factor: float) -> bool:
        other = dataclasses.replace(machine, **{name: getattr(machine, name) * factor})
        priced = planner.price(
            parsed, best.tiling, best.order, best.depths, other, engines=planner.DIRECT
        )
        return any(abs(priced[key] - best.cost[key]) > 1e-9 * best.cost[key] for key in times)

    marked = dict.fromkeys(set(PLAIN) - known, "unmeasured")
    folder = tmp_path_factory.getbasetemp()
    known_staging = staging(dataclasses.replace(machine, marks=marked))
    found = plan(problem, known_staging, 2**budget, folder)
    leant_on = [name for name in marked if changes(name, 0.5) or changes(name, 2.0)]
    assert sorted(found.unmeasured) == sorted(leant_on)
