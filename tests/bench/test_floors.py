"""Floors, rates, ratios and summaries of studies, against figures computed by hand."""

from __future__ import annotations

import dataclasses
import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from oocdnn.bench import amounts, sgemm
from oocdnn.bench.gpu import wires as gpu_wires
from oocdnn.bench.gpu.wires import Gauge, Wires
from oocdnn.bench.measure import Call
from oocdnn.bench.studies import call_cost, floor_row, passes, planning, wires
from oocdnn.bench.studies.floor_row import Measured
from oocdnn.bench.studies.timed import Timed, total
from oocdnn.cli.problems import parse
from oocdnn.perfmodel.profile import Profile

# GB/s, so that every floor differs from the others.
WIRES = Wires(inward=40.0, outward=50.0, both=60.0)
GB = 10**9


def test_the_floors_of_wires() -> None:
    found = WIRES.floors(20 * GB, 10 * GB)
    assert found == pytest.approx({"in": 0.5, "out": 0.2, "both": 0.5})
    assert WIRES.floors(2 * GB, 10 * GB) == pytest.approx({"in": 0.05, "out": 0.2, "both": 0.2})
    assert WIRES.floors(0, 0) == {"in": 0, "out": 0, "both": 0}


@pytest.mark.parametrize(
    ("inward", "outward", "seconds"),
    [(40, 0, 1.0), (0, 50, 1.0), (30, 30, 1.0), (36, 4, 0.9), (4, 60, 1.2), (0, 0, 0.0)],
)
def test_the_least_seconds_are_those_of_the_slowest_limit(inward, outward, seconds) -> None:
    assert WIRES.seconds(inward * GB, outward * GB) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("inward", "outward", "seconds"),
    [
        (40, 0, 1.0),
        (0, 50, 1.0),
        (30, 30, 1.0),  # 30 GB/s in each direction
        (50, 30, 1.5),  # 20 GB more toward the GPU, alone at 40 GB/s
        (30, 55, 1.5),  # 25 GB more from it, alone at 50 GB/s
    ],
)
def test_directions_that_share_the_wire_evenly(inward, outward, seconds) -> None:
    assert WIRES.duplex(inward * GB, outward * GB) == pytest.approx(seconds)


def gauge(monkeypatch: pytest.MonkeyPatch, seconds: dict[frozenset[int], float]) -> Gauge:
    """A gauge on a clock of its own: the streams that copies were queued on take `seconds` in all,
    and a second longer in the first round."""
    clock, queued, rounds = [0.0], set[int](), [0]

    def call(name: str, *arguments: object) -> None:
        if name == "cuMemcpyAsync":
            queued.add(arguments[-1].value)  # type: ignore[attr-defined]
        elif name == "cuStreamSynchronize" and queued:
            clock[0] += seconds[frozenset(queued)] + (rounds[0] == 0)
            rounds[0] += 1
            queued.clear()

    monkeypatch.setattr(gpu_wires.time, "perf_counter", lambda: clock[0])
    made = object.__new__(Gauge)
    made._call, made._current = call, nullcontext  # type: ignore[assignment]
    made._own = [np.empty(gpu_wires._SIZE, np.uint8) for _ in range(2)]
    made._there = [gpu_wires.c_uint64(1), gpu_wires.c_uint64(2)]
    made._streams = [gpu_wires.c_void_p(1), gpu_wires.c_void_p(2)]
    return made


FETCH, DRAIN = 1, 2  # the streams


def test_a_rate_is_that_of_the_best_round(monkeypatch) -> None:
    copied = gpu_wires._COPIES * gpu_wires._SIZE / 1e9
    both, inward, outward = frozenset({FETCH, DRAIN}), frozenset({FETCH}), frozenset({DRAIN})
    found = gauge(monkeypatch, {both: 0.05, inward: 0.03, outward: 0.04}).rates(repeats=2)
    assert found.both == pytest.approx(2 * copied / 0.05)
    assert found.inward == pytest.approx(copied / 0.03)
    assert found.outward == pytest.approx(copied / 0.04)
    slow = gauge(monkeypatch, {both: 0.05, inward: 0.06, outward: 0.07}).rates(repeats=2)
    assert slow.inward == slow.outward == pytest.approx(slow.both / 2)


def measured(**given) -> Measured:
    """20 GB in and 10 GB out, whose wires take 0.5 s, and 0.2 s of arithmetic."""
    one = Measured("layer", "fwd", "fp32", "problem", 20 * GB, 10 * GB, 1)
    one.stats = {"compute_seconds": 0.2, "tiles": 3, "engine": "e"}
    one.seconds, one.first = [0.6, 0.5, 9.0], 2.0
    for name, value in given.items():
        setattr(one, name, value)
    floor_row.note_floors(one, WIRES)
    return one


def test_a_floor_is_the_greatest_limit() -> None:
    one = measured()
    expected = {"in": 0.5, "out": 0.2, "both": 0.5, "arithmetic": 0.2}
    assert one.floors == pytest.approx(expected)
    assert one.floor[1] == pytest.approx(0.5)
    assert one.ratio == pytest.approx(1.2)  # the median of 0.6, 0.5 and 9 over 0.5
    assert one.duplex == pytest.approx(20 / 60 + 10 / 40)
    assert one.least == pytest.approx(20 / 60 + 10 / 40)


def test_arithmetic_is_the_least_time_that_counts() -> None:
    slow = {"compute_seconds": 0.9, "tiles": 3, "engine": "e"}
    both = {"nchw": 0.8, "nhwc": 0.7, "other": "0.10 ms by winograd"}
    one = measured(stats=slow, torch_seconds=both, own_seconds={"nchw": 0.75})
    assert one.floor == ("arithmetic", 0.7)
    assert one.least == 0.7
    assert measured(stats=slow).floor == ("arithmetic", 0.9)
    assert measured(stats=slow, own_seconds={"nchw": 0.65}).floor == ("arithmetic", 0.65)
    assert floor_row.counting({"a": 1.0, "b": "none"}, {"c": 0.5}) == [1.0, 0.5]


def test_the_summary_of_floors() -> None:
    rows = [
        measured(),
        measured(seconds=[1.0], first=3.0, wrong=2),
        measured(seconds=[2.0], bytes_in=0, bytes_out=GB // 2, wrong=5),  # arithmetic: 0.2 s
    ]
    found = floor_row.summary(rows)
    assert found["time/floor median"] == pytest.approx(2.0)  # of 1.2, 2 and 10
    assert found["time/floor worst from 1 GiB on"] == pytest.approx(2.0)
    shared = 20 / 60 + 10 / 40
    assert found["time/shared wire median"] == pytest.approx(1.0 / shared)
    assert found["first call worst, s"] == 3.0
    assert found["elements that differ"] == 7
    assert math.isnan(floor_row.summary(rows[2:])["time/floor worst from 1 GiB on"])


def test_the_line_of_a_floor() -> None:
    text = floor_row.line(measured(wrong=4, difference=0.5))
    for words in ("600.00 ms", "1.200 x", "500.00 ms", "1.029 x shared", "4 DIFFER by 0.5"):
        assert words in text
    assert "DIFFER" not in floor_row.line(measured())


def test_a_row_of_a_journal_is_the_same_row() -> None:
    one = measured()
    assert floor_row.row_of(dataclasses.asdict(one)) == one


def timed(seconds: list[float], bytes_in: int = 20 * GB, bytes_out: int = 10 * GB) -> Timed:
    stats = {"tiles": 3, "engine": "e", "predicted_seconds": 0.25, "peak_device_bytes": 1 << 30}
    return Timed("call", bytes_in, bytes_out, WIRES, seconds, stats)


def test_a_timed_call() -> None:
    one = timed([0.7, 0.6, 0.1])
    assert one.floor == pytest.approx(0.5)
    assert one.ratio == pytest.approx(1.2)
    assert total([one, timed([1.0])]) == pytest.approx(1.6)
    for words in ("600.00 ms", "1.200 x", "500.00 ms", "20.000 GB in, 10.000 out", "250.00"):
        assert words in one.line()


def test_the_line_of_wires() -> None:
    one = wires.Measured("p", 1, 1, floor=0.01, seconds={"fresh": 0.025})
    one.stats = {"fresh": {}}
    text = wires.line(one)
    assert "floor   10.00 ms, fresh 25.00 (2.50x)" in text


def test_shares_of_a_copy() -> None:
    rates = {"direct/nchw/finish": 3e12, "cudnn/nhwc/pool": 1e12, "in": 5e10}
    found = passes.rows_of(Profile(wires=rates), copy=4e12)
    shares = {(row["engine"], row["pass"]): row["share"] for row in found}
    assert shares == {("cudnn", "pool"): 0.25, ("direct", "finish"): 0.75}
    assert "1.00 TB/s   25%" in passes.line(found[0])


def test_the_rate_of_a_copy_is_that_of_the_best_and_counts_both_sides(monkeypatch) -> None:
    nothing = SimpleNamespace(spoil=lambda: None, take=lambda other: None)
    watch = SimpleNamespace(turns=lambda calls, repeats: [[0.5, 0.25]], close=lambda: None)
    monkeypatch.setattr(passes, "Gpu", lambda ordinal: None)
    monkeypatch.setattr(passes, "DeviceArray", lambda *given: nothing)
    monkeypatch.setattr(passes, "Stopwatch", lambda *given, **named: watch)
    assert passes.copy_rate(0, 2) == 2 * passes.COPIED / 0.25


def test_planning_says_median_and_worst() -> None:
    text = planning.text_of("searches", [1e-6, 2e-6, 9e-6])
    assert text == "searches: 3, median 2.0 us, 95th percentile 9.0, worst 9.0"


def test_the_sides_of_a_call_are_medians(monkeypatch) -> None:
    """Begin, core and end of three calls, in seconds."""
    reached, moments = [0.0], iter([(0.0, 1.0, 3.0), (10.0, 12.0, 15.0), (20.0, 29.0, 39.0)])
    clock: list[float] = []

    def before() -> None:
        begin, core, end = next(moments)
        clock[:] = [end, begin]
        reached[0] = core

    monkeypatch.setattr(call_cost, "perf_counter", lambda: clock.pop())
    assert call_cost.timed(lambda: None, reached, before, 3) == pytest.approx((2e6, 3e6))


def test_the_rate_of_products_is_the_best(monkeypatch) -> None:
    seconds = iter([0.5, 0.25, 1.0])
    monkeypatch.setattr(sgemm, "timed", lambda call, *given: Call(next(seconds), 0.0, 0.0))
    products = sgemm.Sgemm(8, onednn=False)
    for _ in range(3):
        products.measure()
    assert products.rates == {"numpy": 2 * 8**3 / 0.25}
    assert products.best == 2 * 8**3 / 0.25


@pytest.mark.parametrize(
    ("text", "flops", "sizes", "longest"),
    [
        # y is 2x6x7x7.
        ("conv2d:fwd x2x4x9x9 w6x4x3x3", 588 * 2 * 36, 648 + 216 + 588, 36),
        ("conv2d:bwd_data x2x4x9x9 w6x4x3x3", 588 * 2 * 36, 648 + 216 + 588, 54),
        ("conv2d:bwd_filter x2x4x9x9 w6x4x3x3", 588 * 2 * 36, 648 + 216 + 588, 98),
        # Two groups: w is 6x2x3x3.
        ("conv2d:fwd x2x4x9x9 w6x2x3x3 grp2", 588 * 2 * 18, 648 + 108 + 588, 18),
        ("conv2d:bwd_data x2x4x9x9 w6x2x3x3 grp2", 588 * 2 * 18, 648 + 108 + 588, 27),
        ("conv2d:fwd x2x4x10x10 w6x4x3x3 +maxpool2", 768 * 2 * 36, 800 + 216 + 192, 36),
    ],
)
def test_amounts(text: str, flops: int, sizes: int, longest: int) -> None:
    problem = parse(text)
    assert amounts.flops(problem) == flops
    assert amounts.operand_bytes(problem) == 4 * sizes
    assert amounts.longest_sum(problem) == longest
    halves = parse(f"{text} f16")
    assert amounts.operand_bytes(halves) == 2 * sizes


def test_studies_of_torch() -> None:
    pytest.importorskip("torch")
    from oocdnn.bench.studies import chain, in_core, peers, samples

    in_core_seconds = [{"torch": 0.2, "ours": 0.1}, {"torch": 0.3, "ours": 0.4}]
    one = samples.Measured("slide", "fp32", timed([0.6]), 0, 1, in_core_seconds)
    assert one.floors["arithmetic"] == pytest.approx(0.4)
    assert one.ratio == pytest.approx(1.2)  # the wires take 0.5
    slow = samples.Measured("slide", "fp32", timed([0.6]), 0, 1, [{"torch": 0.75}])
    assert slow.ratio == pytest.approx(0.8)

    compared = chain.Compared("vgg", "fp32", 10, [timed([0.5])], [timed([1.0]), timed([0.5])])
    compared.in_core, compared.bandwidth, compared.epilogue_bytes = in_core_seconds, 1e9, GB // 10
    assert compared.arithmetic == pytest.approx(0.5)
    text = compared.lines()[0]
    for words in ("chain 50.0000 ms an image", "1.000 x 50.0000", "150.0000, 3.00 times as long"):
        assert words in text

    row = in_core.Measured("c", "fp32", "p", 0, {}, flops=10**12)
    row.torch, row.ours = in_core.Ran(0.5), in_core.Ran(0.25, 1.0)
    assert row.ratio == 0.5
    assert "ratio 0.500" in in_core.line(row)
    assert ", 4 TFLOP/s" in in_core.line(row)
    row.floors = {"in": 0.1, "arithmetic": 0.2}
    assert "1.250 x arithmetic 200.0 ms" in in_core.line(row)

    peer = peers.Row("p", 1, 1, floors={"in": 0.1, "arithmetic": 0.2}, seconds={"ours": 0.3})
    peer.wrong = {"ours": 0}
    assert "floor 200.00 ms (arithmetic); ours   300.00 ms   1.50 x" in peers.line(peer)
