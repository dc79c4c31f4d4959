"""What is measured of a device that says itself how long its copies and runs take."""

from __future__ import annotations

import pytest
from geometry import core
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile

GB = 1e9
ROW_NS = st.floats(10, 500)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from((10, 25, 50)), ROW_NS, ROW_NS), min_size=2, max_size=2))
def test_rows_are_measured_in_each_direction(ways):
    """Both directions had the figure of the one that takes longer. A far row costs no less than a
    near one."""
    fetch, drain = ((rate * GB, near, far) for rate, near, far in ways)
    profile = planner.measured_copies(fetch, drain)
    for name, (rate, near, far) in (("fetch", fetch), ("drain", drain)):
        assert getattr(profile, f"{name}_bytes_per_second") == pytest.approx(rate, rel=1e-3)
        measured = getattr(profile, f"{name}_row_bytes"), getattr(profile, f"far_{name}_row_bytes")
        wanted = near * 1e-9 * rate, max(near, far) * 1e-9 * rate
        assert measured == pytest.approx(wanted, rel=0.03)


def test_no_tile_is_said_to_be_more_than_twice_as_fast_as_it_was_seen():
    """On an H200 a run cost 27 us, timed on another tile, and those of 30 us were said to do their
    arithmetic in a quarter of that: 2e15 operations per second, twice what the device can do."""
    fixed = 27e-6

    def run_seconds(outputs: int) -> float:
        return 5e-6 + outputs / 1.5e11

    problem = core.parse("conv2d:fwd x1x64x8x8 w64x64x3x3 pad1")
    profile = Profile(run_seconds=fixed)
    found = planner.measured_tiles(problem, profile, lambda _, y: run_seconds(y // 4))
    brief = 0
    for name, rate in found.tiles.items():
        channels, outputs = map(int, name.split()[:2])
        run, operations = run_seconds(outputs), 2 * 9 * channels * outputs
        assert rate <= 2 * operations / run * (1 + 1e-4)
        if run > 2 * fixed:
            assert rate == pytest.approx(operations / (run - fixed), rel=1e-3)
        brief += run < 2 * fixed
    assert 0 < brief < len(found.tiles)


def test_passes_over_tiles_are_measured_for_each_engine():
    """A finishing pass of 2 us, one with a pool of 3, one that restores of 4, one that normalises
    of 5, over tiles of 280 rows, as a device that is the host has them."""
    profile = planner.measured_copies((25 * GB, 10, 10), (25 * GB, 10, 10))
    tile = 4 * 64 * 112 * 280
    made = tile // 4 + 64 * 140 * (56 * 3 // 8)  # z and the winners, of 3 bits
    wanted = {
        "finish": 2 * tile / 2e-6, "pool": (tile + made) / 3e-6,
        "restore": (tile + made) / 4e-6, "normalize": 2 * tile / 5e-6,
    }  # fmt: skip
    for name, rate in wanted.items():
        found = [value for key, value in profile.wires.items() if key.endswith(f"/{name}")]
        assert len(found) >= 2, "the caller's memory has two orders"
        assert found == pytest.approx([rate] * len(found), rel=1e-4)


@pytest.mark.parametrize(
    ("c", "k", "of"), [(3, 64, 3), (1, 16, 3), (8, 64, 8), (15, 512, 8), (64, 8, 0), (1, 15, 0)]
)
def test_few_channels_in_are_measured_where_somebody_has_them(c, k, of):
    """Of a device that is slow with x of few channels. What was measured before is not again."""

    def run_seconds(x: int, y: int) -> float:
        return y * (2e-12 if 2 * x < y else 1e-12)

    usual = core.parse("conv2d:fwd x1x64x8x8 w64x64x3x3")
    before = planner.measured_tiles(usual, Profile(run_seconds=0), run_seconds)
    problem = core.parse(f"conv2d:fwd x1x{c}x8x8 w{k}x{c}x3x3 pad1")
    found = planner.measured_tiles(problem, before, run_seconds)
    added = {name: rate for name, rate in found.tiles.items() if name not in before.tiles}
    assert before.tiles.items() <= found.tiles.items()
    assert {name.split()[0] for name in added} == ({str(of)} if of else set())
    for name, rate in added.items():
        _, outputs, key = name.split()
        assert key.split("/")[1] == "f32+few"
        seconds = run_seconds(0, 4 * int(outputs))
        assert rate == pytest.approx(18 * of * int(outputs) / seconds, rel=1e-3)
    assert planner.measured_tiles(problem, found, lambda x, y: 1.0).tiles == found.tiles


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("fwd {} f32 +relu", {"f32"}),
        ("fwd {} bf16", {"bf16"}),
        ("fwd {} bf16 +relu", {"bf16+sums"}),
        ("bwd_filter {} f16", {"f16", "f16+sums"}),
    ],
)
def test_sums_are_measured_where_plans_come_to_have_them(words, kinds):
    """Of a device that takes as long as y's tile has bytes: sums have twice as many."""
    problem = core.parse("conv2d:" + words.format("x1x64x8x8 w64x64x3x3 pad1"))
    found = planner.measured_tiles(problem, Profile(run_seconds=0), lambda x, y: 1e-3 + y * 1e-9)
    assert {key.split("/")[1] for key in found.flops} == kinds
    assert {key.split("/")[1] for key in found.tiles} == kinds
    rates = {kind: {} for kind in kinds}
    for key, rate in found.tiles.items():
        size, _, name = key.rpartition(" ")
        rates[name.split("/")[1]][size] = rate
    if "fwd" in words:
        for size, rate in rates[kinds.pop()].items():
            channels, outputs = map(int, size.split())
            seconds = 1e-3 + outputs * (2 if words.endswith("bf16") else 4) * 1e-9
            assert rate == pytest.approx(18 * channels * outputs / seconds, rel=1e-3)
