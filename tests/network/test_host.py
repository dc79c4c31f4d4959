"""The host's time in steps: the device waits for what the host has not enqueued yet."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from network.networks import H100_LINK, resnet
from network.steps import HOSTED_LINK, MIB, hosted_step
from network.test_planner import best_of_all, check

from oocdnn.network.greedy import greedy
from oocdnn.network.plan import KEEP, SWAP, Choice, Policy
from oocdnn.network.planner import least_limit, plan
from oocdnn.network.schedule import Scheduler, schedule
from oocdnn.network.simulate import simulate
from oocdnn.network.solve import Model, options
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
@example(seed=16256, share=1.0, most=40)  # two tensors are kept, one after the other
@settings(max_examples=500, deadline=None)
def test_the_simulation_takes_as_long_as_the_schedule(seed: int, share: float, most: int) -> None:
    timeline, draw = hosted_step(seed, most), random.Random(seed)
    limit = int(share * timeline.peak_bytes)
    choices, made = None, schedule(timeline, [HOSTED_LINK], limit, drawn(timeline, draw))
    while made.choices != choices:  # what was not copied is kept, so that others are not copied
        choices = made.choices
        made = schedule(timeline, [HOSTED_LINK], limit, choices)
    result = simulate(timeline, [HOSTED_LINK], made)
    assert result.seconds == pytest.approx(made.seconds, rel=1e-9)
    assert result.waiting + result.late == pytest.approx(made.waiting + made.late, abs=1e-9)
    assert made.seconds >= timeline.seconds * (1 - 1e-12)


@given(seed=st.integers(0, 1 << 20), share=st.sampled_from((0.0, 0.3, 0.6, 0.9)))
@settings(max_examples=40, deadline=None)
def test_small_steps_beside_every_combination(seed: int, share: float) -> None:
    timeline = hosted_step(seed, most=4)
    least, most = least_limit(timeline), timeline.peak_bytes
    limit = least + int(share * (most - least))
    best = best_of_all(timeline, limit, HOSTED_LINK)
    if best is None:
        return
    found = plan(timeline, [HOSTED_LINK], limit)
    check(found, limit)
    assert found.seconds <= 1.1 * best + 2e-4


def enqueued(timeline: Timeline, operation: float, recipe: float) -> Timeline:
    """With these times of the host for each operation and recipe."""
    return replace(
        timeline,
        operations=tuple(replace(one, host=operation) for one in timeline.operations),
        saved=tuple(
            replace(one, recipes=tuple(replace(made, host=recipe) for made in one.recipes))
            for one in timeline.saved
        ),
    )


NETWORK = resnet((3, 8, 40, 3), 64)  # 33 ms of the device
SLOW = enqueued(NETWORK, 45e-6, 180e-6)  # 50 ms of the host
SLOW_LINK = replace(H100_LINK, host=100e-6)
LIMIT = NETWORK.peak_bytes // 2
FAR = 60.0  # seconds; what is tested takes less than one


def test_the_program_sees_the_host() -> None:
    model = Model(SLOW, SLOW_LINK)
    model.dearer({})
    model.limit(LIMIT, np.zeros(len(SLOW.operations)))
    found = model.dive(time.monotonic() + FAR, 0.25)
    made = schedule(SLOW, [SLOW_LINK], LIMIT, found.choices)
    assert SLOW.seconds < found.bound <= made.seconds <= 1.05 * found.bound


def test_the_program_leaves_a_host_alone_that_is_always_ahead() -> None:
    operations = (replace(one, host=one.seconds / 2) for one in NETWORK.operations)
    ahead = replace(NETWORK, operations=tuple(operations))
    models = [Model(timeline, H100_LINK).program for timeline in (NETWORK, ahead)]
    assert models[0].cost == models[1].cost
    assert models[0].row_low == models[1].row_low


@pytest.mark.parametrize("host", [1.0, 0.0])
def test_the_simple_rule_copies_little_where_the_host_is_not_ahead(host: float) -> None:
    """Either eight small tensors or a large one, which is read again sooner, has to go."""
    sizes = [MIB] * 8 + [8 * MIB]
    operations = [Operation(f"op{i}", MS, host=host * MS) for i in range(21)]
    operations[10] = replace(operations[10], fixed_bytes=8 * MIB)
    saved = tuple(Saved(f"t{i}", size, i, i, (20 - i,)) for i, size in enumerate(sizes))
    timeline = Timeline(tuple(operations), 10, saved)
    scheduler = Scheduler(timeline, replace(WIDE, host=0.1 * MS), 16 * MIB)
    found = greedy(timeline, scheduler, time.monotonic() + FAR)
    assert found is not None
    assert found.swapped() == ([8] if host else list(range(8)))
    assert found.late == pytest.approx(0.2 * host * MS)


def test_a_plan_bound_by_the_host_says_so() -> None:
    found = plan(SLOW, [SLOW_LINK], LIMIT)
    check(found, LIMIT)
    told = found.explain()
    parts = sum(one.seconds for one in SLOW.operations)
    parts += told.recomputing + told.waiting + told.late
    assert parts == pytest.approx(told.step)
    assert told.late > 0.01
    assert "for the host" in str(told)


def drawn(timeline: Timeline, draw: random.Random) -> list[Choice]:
    return [draw.choice([KEEP, *options(timeline, one)]) for one in timeline.saved]
