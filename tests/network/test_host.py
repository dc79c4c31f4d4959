"""The host's time in steps: the device waits for what the host has not enqueued yet."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from network.steps import HOSTED_LINK, MIB, hosted_step

from oocdnn.network.plan import KEEP, SWAP, Choice, Policy
from oocdnn.network.schedule import schedule
from oocdnn.network.simulate import simulate
from oocdnn.network.solve import options
from oocdnn.network.timeline import Link, Operation, Recipe, Saved, Timeline

MS = 1e-3
REBUILT = Choice(Policy.REBUILD, 0)
WIDE = Link(to_host=1e15, from_host=1e15, both=2e15, latency=0.0)  # copies take no time


def step(times: list[tuple[float, float]]) -> Timeline:
    """Of four operations with these milliseconds of the device and of the host; the two saved
    tensors are read at the end, where the second can be rebuilt from the first in 0.02 ms, for
    which the host needs 0.18 ms."""
    operations = tuple(
        Operation(f"op{i}", MS * seconds, host=MS * host) for i, (seconds, host) in enumerate(times)
    )
    recipe = Recipe((0,), 0.02 * MS, host=0.18 * MS)
    saved = (Saved("x", MIB, 0, 0, (3,)), Saved("y", MIB, 1, 1, (3,), recipes=(recipe,)))
    return Timeline(operations, 2, saved)


def added(times: list[tuple[float, float]], choices: list[Choice], link: Link = WIDE) -> float:
    """Milliseconds by which the choices make the step longer; the simulation's as well."""
    timeline = step(times)
    made = schedule(timeline, [link], 1 << 40, choices)
    assert made.choices == choices
    assert simulate(timeline, [link], made).seconds == pytest.approx(made.seconds, rel=1e-12)
    plain = sum(one.seconds for one in timeline.operations)
    parts = plain + made.waiting + made.recomputing + made.late
    assert parts == pytest.approx(made.seconds, rel=1e-12)
    return (made.seconds - timeline.seconds) / MS


def test_a_step_takes_as_long_as_the_later_of_device_and_host() -> None:
    # The device has run op0 and op1 at 3, op2 at 7 when the host has enqueued it, and op3 at 8.
    timeline = step([(1, 0), (2, 1), (1, 6), (1, 0)])
    assert timeline.starts == pytest.approx([0, MS, 3 * MS, 7 * MS, 8 * MS])
    assert timeline.spare == pytest.approx([0, 0, 0, 0, MS])  # the host ends at 7
    made = schedule(timeline, [WIDE], 1 << 40, [KEEP, KEEP])
    assert (made.seconds, made.late) == pytest.approx((8 * MS, 3 * MS))


def test_a_rebuild_costs_the_time_of_the_host_where_that_is_not_ahead() -> None:
    bound_by_host = [(0.5, 1.0)] * 4
    assert added(bound_by_host, [KEEP, REBUILT]) == pytest.approx(0.18)
    bound_by_device = [(1.0, 0.1)] * 4
    assert added(bound_by_device, [KEEP, REBUILT]) == pytest.approx(0.02)


def test_the_lead_of_the_host_is_used_up() -> None:
    # The host is 0.1 ms ahead before the last operation; then both take equally long.
    lead = [(1.0, 0.95), (1.0, 0.95), (1.0, 1.0), (1.0, 1.0)]
    assert added(lead, [KEEP, REBUILT]) == pytest.approx(0.08)
    # What it loses early it has lost later: the copies away come first.
    copies = replace(WIDE, host=0.03 * MS)
    assert added(lead, [SWAP, KEEP], copies) == pytest.approx(0.0, abs=1e-6)
    assert added(lead, [SWAP, REBUILT], copies) == pytest.approx(0.14)


def test_copies_begin_when_the_host_has_enqueued_them() -> None:
    copies = replace(WIDE, host=0.5 * MS)
    assert added([(1.0, 0.1)] * 4, [SWAP, KEEP], copies) == pytest.approx(0.0, abs=1e-6)
    bound_by_host = [(0.1, 1.0)] * 4
    assert added(bound_by_host, [SWAP, KEEP], copies) == pytest.approx(1.0)
    timeline = step(bound_by_host)
    made = schedule(timeline, [copies], 1 << 40, [SWAP, KEEP])
    begins = [begin for _, _, begin, _ in simulate(timeline, [copies], made).copies]
    assert begins == pytest.approx([1.5 * MS, 3 * MS])  # behind op0, before op2


def test_what_the_step_takes_longer_is_known_beforehand() -> None:
    assert step([(0.5, 1.0)] * 4).added(3, 0.02 * MS, 0.18 * MS) == pytest.approx(0.18 * MS)
    assert step([(1.0, 0.1)] * 4).added(3, 0.02 * MS, 0.18 * MS) == pytest.approx(0.02 * MS)
    lead = [(1.0, 0.95), (1.0, 0.95), (1.0, 1.0), (1.0, 1.0)]
    assert step(lead).added(3, 0.02 * MS, 0.18 * MS) == pytest.approx(0.08 * MS)


@given(seed=st.integers(0, 1 << 30), share=st.floats(0.0, 1.1), most=st.sampled_from((4, 12, 40)))
@settings(max_examples=500, deadline=None)
def test_the_simulation_takes_as_long_as_the_schedule(seed: int, share: float, most: int) -> None:
    timeline, draw = hosted_step(seed, most), random.Random(seed)
    limit = int(share * timeline.peak_bytes)
    made = schedule(timeline, [HOSTED_LINK], limit, drawn(timeline, draw))
    made = schedule(timeline, [HOSTED_LINK], limit, made.choices)  # what was not copied is kept
    result = simulate(timeline, [HOSTED_LINK], made)
    assert result.seconds == pytest.approx(made.seconds, rel=1e-9)
    assert result.waiting + result.late == pytest.approx(made.waiting + made.late, abs=1e-9)
    assert made.seconds >= timeline.seconds * (1 - 1e-12)


def drawn(timeline: Timeline, draw: random.Random) -> list[Choice]:
    return [draw.choice([KEEP, *options(timeline, one)]) for one in timeline.saved]
