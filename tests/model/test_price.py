"""What prices hold: bytes that cross no wire, blocks of channels, bounce memory, long schedules,
the floor. test_simulation.py holds them to an independent simulation."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from geometry import core
from geometry.cases import runs
from geometry.core import Direction, DType
from hypothesis import HealthCheck, given, settings
from model import planner
from model.planner import Profile
from model.simulated import simulated

from oocdnn.perfmodel.problem import AXES

thorough = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

PROFILES = {
    "even": Profile(),
    "slow drain": Profile(drain_bytes_per_second=1e7, copy_seconds=0),
    "slow arithmetic": Profile(flops_fallback=1e7, fetch_row_bytes=0, drain_row_bytes=0),
    "narrow wire": Profile(both_bytes_per_second=3e8, run_seconds=0, flops_fallback=1e13),
    "slow inside": Profile(move_bytes_per_second=1e7),
    "shared engines": Profile(shared_engines=True),
}

RATES = ("fetch_bytes_per_second", "drain_bytes_per_second", "both_bytes_per_second")


def test_operands_on_the_device_cross_no_wire():
    problem = core.parse("conv2d:fwd x8x16x64x64 w16x16x3x3 pad1")
    tiling = core.make_tiling(problem, [1, 1, 16, 16, 1, 16, 64])
    run = (problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS))
    slow = Profile(fetch_bytes_per_second=1e3, drain_bytes_per_second=1e3)
    cost = planner.price(
        *run, slow, engines=planner.DIRECT, tiers=[planner.ON_DEVICE] * len(core.OPERANDS)
    )
    assert cost["bytes_in"] == cost["bytes_out"] == 0
    assert cost["seconds"] < 1


def test_rows_of_each_direction_have_their_price():
    """One figure went for both, though a GPU's drains lose more to far rows than its fetches do.
    By hand: planes of 64 KiB, of 128 rows each of which is cut in two."""
    problem = core.parse("conv2d:fwd x1x4x128x128 w8x4x1x1")
    tiling = core.make_tiling(problem, [1, 1, 8, 4, 1, 128, 64])
    rates = dict(zip(planner.ROWS, (10, 300, 20, 5000), strict=True))
    profile = Profile(
        fetch_bytes_per_second=1e6, drain_bytes_per_second=4e6, copy_seconds=0, **rates
    )
    run = (problem, tiling, core.default_order(problem), [2] * 7, profile)
    cost = planner.price(*run, engines=planner.DIRECT)
    x, w, y = 4 * 4 * 128 * 128, 4 * 4 * 8, 4 * 8 * 128 * 128
    planes_of_x, planes_of_y = 2 * 4, 2 * 8  # in both tiles
    fetched = x + w + planes_of_x * 127 * 10 + (planes_of_x + 1) * 300  # w is a row of its own
    drained = y + planes_of_y * 127 * 20 + planes_of_y * 5000
    assert cost["fetch_seconds"] == pytest.approx(fetched / 1e6)
    assert cost["drain_seconds"] == pytest.approx(drained / 4e6)


def test_an_engine_computes_cut_channels_in_whole_blocks():
    problem = core.parse("conv2d:fwd x1x32x64x64 w192x32x3x3 pad1")

    def compute(k: int, engine: str) -> float:
        tiling = core.make_tiling(problem, [1, 1, k, 32, 1, 64, 64])
        run = (problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS))
        cost = planner.price(*run, Profile(run_seconds=0), engines=engine)
        return cost["compute_seconds"]

    whole = compute(192, planner.DIRECT)
    assert compute(64, planner.DIRECT) == compute(24, planner.DIRECT) * 3 / 4 == whole
    assert compute(192, "direct+wide") == whole
    assert compute(64, "direct+wide") == pytest.approx(2 * whole)


def test_backward_data_is_charged_by_rows_of_dx():
    """It was charged by the rows of dy that its tiles fetch, though padded tiles compute no row
    twice. Without padding, a tile of 4 rows has those that 6 rows of dy reach: 8."""
    problem = core.parse("conv2d:bwd_data x1x16x64x64 w16x16x3x3 pad1")

    def compute(rows: int, engine: str) -> float:
        padding_as_data = "symmetric" not in engine
        tiling = core.make_tiling(problem, [1, 1, 16, 16, 1, rows, 64], padding_as_data)
        run = (problem, tiling, core.default_order(problem), [1] * 7)
        free = Profile(run_seconds=0, move_bytes_per_second=1e15)
        return planner.price(*run, free, engines=engine)["compute_seconds"]

    whole = 2 * 16 * 16 * 9 * 64 * 64 / Profile().flops_fallback
    assert compute(64, "direct+symmetric") == pytest.approx(whole)
    assert compute(4, "direct+symmetric") == pytest.approx(whole)
    beside = 68 / 64  # columns, whose padding is data too
    assert compute(4, "direct") == pytest.approx(2 * beside * whole)


def test_what_passes_through_bounce_memory_hides_behind_no_arithmetic():
    """A kernel that empties it does not run beside a convolution; the copy goes on until it is
    full."""
    problem = core.parse("conv2d:fwd x1x16x64x64 w16x16x1x1")
    tiling = core.make_tiling(problem, [1, 1, 16, 16, 1, 16, 64])  # 64 KiB in, 64 KiB out
    run = (problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS))
    busy = Profile(flops_fallback=1e9, copy_seconds=0, **planner.NO_ROWS)
    loss, loss_beside = 1.15, 1.15  # of wires behind which kernels work, and of what is beside them
    slower = dataclasses.replace(
        busy,
        flops_fallback=busy.flops_fallback / loss_beside,
        **{rate: getattr(busy, rate) / loss for rate in RATES},
    )
    plain, slow = (planner.price(*run, profile, engines="last") for profile in (busy, slower))
    for bounce, exposed in ((65536, 0), (16384, 3 * 49152), (1, 3 * 65535)):
        other = planner.price(*run, busy, engines=f"bounce={bounce},last+last")
        assert other["compute_seconds"] == pytest.approx(slow["compute_seconds"])
        least = slow["compute_seconds"] + exposed / slower.fetch_bytes_per_second
        assert other["seconds"] == pytest.approx(max(slow["seconds"], least))
        same = planner.price(*run, busy, engines=f"bounce={bounce},last")
        assert same == plain


LONG = {
    "rolling rows": ("conv2d:fwd x2x3x600x9 w4x3x3x3 pad1", [1, 1, 4, 3, 1, 1, 9]),
    "filter again for each image": ("conv2d:fwd x40x4x40x8 w4x4x3x3", [1, 1, 2, 4, 1, 3, 6]),
    "partial sums": ("conv2d:bwd_data x6x4x64x8 w9x4x3x3 pad1", [1, 1, 2, 4, 1, 2, 8]),
    "gradient of a filter": ("conv1d:bwd_filter x4x6x999 w6x6x5 pad2", [1, 1, 6, 3, 1, 1, 7]),
    "gradient of a bias": ("conv2d:bwd_bias y9x8x50x9", [1, 1, 4, 1, 1, 3, 4]),
}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("name", LONG)
def test_a_schedule_too_long_to_walk_has_exact_bytes_and_a_close_price(name, depth):
    """Each schedule and each depth with each profile."""
    text, lengths = LONG[name]
    problem = core.parse(text)
    tiling = core.make_tiling(problem, lengths)
    assert math.prod(core.counts(tiling)) > 512
    run = (problem, tiling, core.default_order(problem), [depth] * len(core.OPERANDS))
    for profile in list(PROFILES.values())[(list(LONG).index(name) + depth) % 3 :: 3]:
        cost = planner.price(*run, profile, engines=planner.DIRECT)
        outcome = simulated(*run, profile)
        assert cost["seconds"] == pytest.approx(outcome.seconds, rel=0.03, abs=0)
        for engine in ("fetch_seconds", "compute_seconds", "drain_seconds"):
            assert cost[engine] == pytest.approx(getattr(outcome, engine), rel=1e-9, abs=0)
        assert (cost["bytes_in"], cost["bytes_out"]) == (outcome.bytes_in, outcome.bytes_out)
        assert cost["steps"] == outcome.steps


@thorough
@given(run=runs())
def test_no_price_is_below_the_floor(run):
    problem, tiling, order, rings, _ = run
    whole = core.make_tiling(problem, [2**40] * 7)
    for profile in (PROFILES["even"], PROFILES["shared engines"]):
        floor = planner.floor_of(problem, profile) * (1 - 1e-9)
        assert (
            planner.price(problem, whole, order, [1] * len(core.OPERANDS), profile)["seconds"]
            >= floor
        )
        assert planner.price(problem, tiling, order, rings, profile)["seconds"] >= floor


def test_nor_where_tiles_of_fewer_channels_are_faster():
    problem = core.parse("conv1d:fwd x1x64x512 w64x64x1")
    rates = {"16 400 direct/f32/fwd": 1e10, "64 400 direct/f32/fwd": 1e8}
    profile = Profile(tiles=rates, run_seconds=0)
    tiling = core.make_tiling(problem, [1, 1, 16, 64, 1, 1, 512])
    run = (problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS), profile)
    price = planner.price(*run, engines="direct")
    assert price["seconds"] >= planner.floor_of(problem, profile, engines="direct")


def test_nor_where_tiles_leave_out_what_meets_padding_alone():
    problem = core.parse("conv2d:bwd_data x4x1x10x32 w4x1x5x3 pad7")
    profile = Profile(flops_fallback=1e14, run_seconds=0, copy_seconds=0, shared_engines=True)
    for padding_as_data in (False, True):
        whole = core.make_tiling(problem, [2**40] * 7, padding_as_data)
        run = (problem, whole, core.default_order(problem), [1] * len(core.OPERANDS), profile)
        floor = planner.floor_of(problem, profile, engines="direct")
        assert planner.price(*run, engines="direct")["seconds"] >= floor * (1 - 1e-9)


def compute_seconds(problem, profile, **lengths) -> float:
    """Of the whole on the direct engine, or of tiles of those lengths."""
    cut = [lengths.get(axis, 2**40) for axis in AXES]
    tiling = core.make_tiling(problem, cut)
    run = (problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS), profile)
    return planner.price(*run, engines=planner.DIRECT)["compute_seconds"]


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter"])
@pytest.mark.parametrize(
    ("c", "k", "groups", "few_inputs"),
    [(3, 64, 1, True), (15, 16, 1, True), (64, 3, 1, False), (3, 8, 1, False), (16, 64, 1, False),
     (1, 1, 64, False)],
)  # fmt: skip
def test_few_channels_in_have_rates_of_their_own(c, k, groups, few_inputs, direction):
    """On an H200 the model took a convolution of 3 channels to 64 for 1.9 ms, by what 16 to 16 and
    64 to 64 take; it took 0.5, and a chain's was given to a slower engine. Where groups have few
    channels on both sides, others tell more."""
    shape = f"x1x{c * groups}x64 w{k * groups}x{c}x1 grp{groups} f32"
    problem = core.parse(f"conv1d:{direction} {shape}")
    key = f"direct/f32{{}}/{direction}"
    general = {f"{size} 64 {key.format('')}": 1e8 for size in (16, 64)}
    few = {f"3 64 {key.format('+few')}": 2e9}
    whole = core.make_tiling(problem, [2**40] * len(AXES))
    run = (problem, whole, core.default_order(problem), [1] * len(core.OPERANDS))
    own = []
    for tiles in (general, general | few):
        profile = Profile(tiles=tiles, run_seconds=0, move_bytes_per_second=1e30)
        priced = planner.price(*run, profile, engines=planner.DIRECT)
        assert simulated(*run, profile).seconds == pytest.approx(priced["seconds"], rel=1e-9)
        own.append(priced["compute_seconds"])
    assert (own[1] == pytest.approx(2 * 64 * c * k * groups / 2e9)) == few_inputs
    assert (own[1] == own[0]) != few_inputs


KINDS = ("few", "sums", "sums+few")


@pytest.mark.parametrize(
    "known", [kinds for n in range(4) for kinds in itertools.combinations(KINDS, n)]
)
@pytest.mark.parametrize("finished", ["", " +relu"])
def test_what_is_nearest_of_few_inputs_and_of_sums_counts(known, finished):
    """What sums are made of is said by tiles with few inputs before it is by sums of others."""
    problem = core.parse(f"conv1d:fwd x1x3x64 w64x3x1 bf16{finished}")
    speeds = {"": 1e8, "few": 2e8, "sums": 3e8, "sums+few": 4e8}
    tiles = {
        f"3 64 direct/bf16{'+' if kind else ''}{kind}/fwd": speeds[kind] for kind in ("", *known)
    }
    ways = ("sums+few", "few", "sums", "") if finished else ("few", "")
    profile = Profile(tiles=tiles, run_seconds=0, move_bytes_per_second=1e30)
    whole = core.make_tiling(problem, [2**40] * len(AXES))
    run = (problem, whole, core.default_order(problem), [1] * len(core.OPERANDS), profile)
    priced = planner.price(*run, engines=planner.DIRECT)
    assert simulated(*run).seconds == pytest.approx(priced["seconds"], rel=1e-9)
    nearest = next(kind for kind in ways if kind in known or kind == "")
    assert priced["compute_seconds"] == pytest.approx(2 * 64 * 3 * 64 / speeds[nearest])


Y, Z = 4 * 8 * 32 * 32, 4 * 8 * 16 * 16  # bytes


@pytest.mark.parametrize(
    ("rate", "words", "bytes_"),
    [
        ("finish", "fwd {} +bias +relu", 2 * Y),
        ("finish", "fwd {} beta1", 3 * Y),
        ("pool", "fwd {} +relu +maxpool2", Y + Z),
        ("pool", "fwd {} +relu +maxpool2 +saved", Y + Z + 8 * 16 * 6),
        ("restore", "bwd_data {} +maxpool2 +clipped", Y + Z + 8 * 16 * 6),
        ("normalize", "fwd {} +prenorm", 2 * Y),
    ],
)
def test_passes_have_rates_of_their_own(rate, words, bytes_):
    """They were priced as moves inside the device, which on an H200 took twice as long as most."""
    problem = core.parse("conv2d:" + words.format("x1x8x32x32 w8x8x1x1"))
    slow, fast = (
        compute_seconds(problem, Profile(wires={f"direct/nchw/{rate}": speed}))
        for speed in (1e9, 1e30)
    )
    assert slow - fast == pytest.approx(bytes_ / 1e9)
    unmeasured = compute_seconds(problem, Profile())
    assert unmeasured - fast == pytest.approx(bytes_ / Profile().move_bytes_per_second)


@pytest.mark.parametrize(
    ("words", "lengths", "sums"),
    [
        ("fwd {} bf16", {}, False),
        ("fwd {} bf16", {"c": 8}, True),
        ("fwd {} bf16", {"k": 8, "h": 8}, False),
        ("fwd {} bf16 +relu", {}, True),
        ("bwd_data {} bf16", {"k": 8}, True),
        ("bwd_data {} bf16", {"c": 8}, False),
        ("bwd_filter {} f16", {}, False),
        ("bwd_filter {} f16", {"h": 8}, True),
        ("fwd {} f32 +relu", {}, False),
    ],
)
def test_sums_of_16_bit_tensors_have_rates_of_their_own(words, lengths, sums):
    """Engines that want such tiles in float32 took three times what their 16-bit rate says."""
    problem = core.parse("conv2d:" + words.format("x1x16x32x32 w16x16x1x1"))
    kind, direction = DType(problem.dtype).name.lower(), Direction(problem.direction).name.lower()
    free = {"run_seconds": 0, "move_bytes_per_second": 1e30}
    plain = Profile(**free, flops={f"direct/{kind}/{direction}": 1e9})
    own = plain.flops | {f"direct/{kind}+sums/{direction}": 2.5e8}
    tiles = {f"16 100 {key}": rate for key, rate in own.items()}
    wanted = (4 if sums else 1) * compute_seconds(problem, plain, **lengths)
    for known in ({"flops": own}, {"flops": plain.flops, "tiles": tiles}):
        found = compute_seconds(problem, dataclasses.replace(plain, **known), **lengths)
        assert found == pytest.approx(wanted)


def test_what_is_staged_goes_at_most_as_fast_as_staging():
    """It was priced as pinned, though two threads copy a third of what a wire carries. By hand: x
    from pageable memory, w pinned, y to a file."""
    problem = core.parse("conv2d:fwd x4x8x32x32 w8x8x1x1")
    tiling = core.make_tiling(problem, [1, 8, 8, 8, 1, 32, 32])
    run = (problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS))
    places = {0: planner.PAGEABLE, 1: planner.ON_HOST, 2: planner.IN_FILE}
    tiers = [places.get(i, planner.ON_HOST) for i in range(len(core.OPERANDS))]
    free = {"copy_seconds": 0, **planner.NO_ROWS}
    staging = {"page/fetch": 4e8, "page/drain": 1.0, "file/fetch": 1.0, "file/drain": 2e8}
    x, w = 4 * 4 * 8 * 32 * 32, 4 * 8 * 8
    for known, fetch, drain in (
        (staging, x / 4e8 + w / 1e9, x / 2e8),
        ({}, (x + w) / 1e9, x / 1e9),
    ):
        profile = Profile(**free, wires=known)
        cost = planner.price(*run, profile, engines=planner.DIRECT, tiers=tiers)
        assert cost["fetch_seconds"] == pytest.approx(fetch)
        assert cost["drain_seconds"] == pytest.approx(drain)


@pytest.mark.parametrize("both", [2e9, 5e8])
def test_threads_that_stage_both_ways_share_their_time(both):
    """On the wire 1 GB/s each way and 2 in both; the plan takes no less than its bytes by that of
    staging, of 1 GB/s each way too."""
    problem = core.parse("conv2d:fwd x64x8x32x32 w8x8x1x1")
    tiling = core.make_tiling(problem, [1, 8, 8, 8, 1, 32, 32])
    tiers = [planner.PAGEABLE] * len(core.OPERANDS)
    profile = Profile(wires={"page/fetch": 1e9, "page/drain": 1e9, "page/both": both})
    run = (problem, tiling, core.default_order(problem), [2] * len(core.OPERANDS), profile)
    cost = planner.price(*run, engines=planner.DIRECT, tiers=tiers)
    bytes_ = cost["bytes_in"] + cost["bytes_out"]
    assert bytes_ / both <= cost["seconds"] < 1.2 * bytes_ / both
