"""The planner of training steps: limits held, choices near the best of all, simulation agrees."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from network.networks import H100_LINK, resnet, unet, vgg16
from network.steps import LINK, MIB, chain_of, random_step

import oocdnn
from oocdnn.network import planner, reserving, search
from oocdnn.network.alike import alike
from oocdnn.network.greedy import fitted, greedy
from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Policy, Schedule
from oocdnn.network.planner import Plan, curve, least_limit, plan
from oocdnn.network.polish import polished
from oocdnn.network.reserving import Reserving
from oocdnn.network.schedule import Scheduler, schedule
from oocdnn.network.search import Problem
from oocdnn.network.simulate import simulate
from oocdnn.network.solve import options
from oocdnn.network.timeline import Link, Operation, Recipe, Saved, Squeeze, Timeline


def all_choices(timeline: Timeline) -> list[list[Choice]]:
    """Every combination of policies."""
    each = []
    for one in timeline.saved:
        options = [KEEP]
        if one.movable:
            options.append(SWAP)
            if one.squeeze is not None:
                options.append(SQUEEZE)
            options += [
                Choice(Policy.REBUILD, number)
                for number, recipe in enumerate(one.recipes)
                if all(timeline.saved[i].last_use >= one.first_use for i in recipe.inputs)
            ]
        each.append(options)
    return [list(found) for found in itertools.product(*each)]


def best_of_all(timeline: Timeline, limit: int, link: Link = LINK) -> float | None:
    """Seconds of the fastest combination whose positions fit; None where none does."""
    best = None
    for choices in all_choices(timeline):
        made = schedule(timeline, [link], limit, choices)
        if made.peak_bytes <= limit and (best is None or made.seconds < best):
            best = made.seconds
    return best


def check(found: Plan, limit: int) -> None:
    assert found.peak_bytes <= limit
    assert found.schedule.peak_bytes == found.peak_bytes, "the simulation counts as the scheduler"
    assert found.seconds >= found.timeline.seconds
    for index, movement in found.schedule.movements.items():
        one = found.timeline.saved[index]
        assert one.movable
        assert one.last_forward_use < movement.release <= movement.fetch <= movement.need
        assert movement.need <= one.first_use
    assert not partly_read(found.timeline, found.schedule.choices)


def partly_read(timeline: Timeline, choices: list[Choice]) -> bool:
    """Whether a recipe would read a smaller form that recipes cannot."""
    read = {
        source
        for one, choice in zip(timeline.saved, choices, strict=True)
        if choice.policy is Policy.REBUILD
        for source in one.recipes[choice.recipe].inputs
    }
    forms = [(i, timeline.saved[i].squeeze) for i in read if choices[i] == SQUEEZE]
    return any(form is not None and not form.whole for _, form in forms)


@pytest.mark.parametrize("share", [0.8, 0.5, 0.3])
def test_chains_are_planned_near_the_bound(share: float) -> None:
    sizes, seconds = [64 * MIB >> (k // 4) for k in range(16)], [1e-3] * 16
    timeline = chain_of(sizes, seconds, recipes=True, fixed=8 * MIB)
    limit = int(share * timeline.peak_bytes)
    found = plan(timeline, [LINK], limit)
    check(found, limit)
    assert found.seconds <= 1.05 * found.bound


def test_a_step_that_fits_is_left_alone() -> None:
    timeline = chain_of([MIB] * 4, [1e-3] * 4, recipes=True)
    found = plan(timeline, [LINK], timeline.peak_bytes)
    assert found.fits
    assert found.seconds == timeline.seconds
    assert not found.schedule.movements


def test_what_no_plan_holds_names_the_least_limit() -> None:
    timeline = chain_of([MIB] * 4, [1e-3] * 4, recipes=False, fixed=3 * MIB)
    least = least_limit(timeline)
    with pytest.raises(oocdnn.OutOfMemory) as caught:
        plan(timeline, [LINK], least - 1)
    assert caught.value.least == least
    check(plan(timeline, [LINK], least), least)


@given(seed=st.integers(0, 1 << 20), share=st.sampled_from((0.0, 0.3, 0.6, 0.9)))
@settings(max_examples=40, deadline=None)
def test_small_steps_beside_every_combination(seed: int, share: float) -> None:
    timeline = random_step(seed, most=4)
    least, most = least_limit(timeline), timeline.peak_bytes
    limit = least + int(share * (most - least))
    best = best_of_all(timeline, limit)
    if best is None:
        return
    found = plan(timeline, [LINK], limit)
    check(found, limit)
    assert found.seconds <= 1.1 * best + 2e-4


@given(seed=st.integers(0, 1 << 20), share=st.floats(0.2, 1.0))
@settings(max_examples=300, deadline=None)
def test_any_choices_have_the_simulated_peak(seed: int, share: float) -> None:
    timeline, draw = random_step(seed, most=12), random.Random(seed)
    choices = [draw.choice([KEEP, *options(timeline, one)]) for one in timeline.saved]
    made = schedule(timeline, [LINK], int(share * timeline.peak_bytes), choices)
    assert simulate(timeline, [LINK], made).peak_bytes == made.peak_bytes
    assert not partly_read(timeline, made.choices)


@given(seed=st.integers(0, 1 << 20))
@settings(max_examples=300, deadline=None)
def test_the_least_limit_is_held(seed: int) -> None:
    timeline = random_step(seed, most=12)
    least = least_limit(timeline)
    everything = [SWAP if one.movable else KEEP for one in timeline.saved]
    assert schedule(timeline, [LINK], least, everything).peak_bytes <= least


@pytest.mark.parametrize(
    ("timeline", "share"),
    [(resnet((3, 4, 6, 3), 256), 0.45), (vgg16(128), 0.9), (unet(1, 96), 0.7)],
    ids=["resnet50", "vgg16", "unet"],
)
def test_networks_are_planned_within_the_limit(timeline: Timeline, share: float) -> None:
    limit = int(share * timeline.peak_bytes)
    found = plan(timeline, [H100_LINK], limit, seconds=1.5)
    check(found, limit)
    assert found.bound <= found.seconds < 1.5 * timeline.seconds
    told = found.explain()
    assert [row.policy for row in told.rows] == [choice.policy for choice in found.schedule.choices]
    assert sum(told.nbytes.values()) == sum(one.nbytes for one in timeline.saved)
    assert all(row.name in str(told) for row in told.rows)


def test_a_plan_for_less_is_searched_for_anew_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for more may lead nowhere."""
    timeline = resnet((3, 4, 6, 3), 64)
    swapped = [SWAP if one.movable and one.nbytes else KEEP for one in timeline.saved]
    less = int(0.4 * timeline.peak_bytes)
    moved = list(schedule(timeline, [H100_LINK], less, swapped).choices)
    starts: list[list[Choice]] = []

    def searched(scheduler: Scheduler, start: Schedule, *given: float) -> Schedule:
        starts.append(list(start.choices))
        return polished(scheduler, start, *given)

    monkeypatch.setattr(search, "polished", searched)
    step, more = Problem(timeline, [H100_LINK]), int(0.6 * timeline.peak_bytes)
    first = planner._within(step, more, time.monotonic() + 2.0)
    starts.clear()
    second = planner._within(step, less, time.monotonic() + 2.0, first)
    assert starts[0] == moved
    assert second.peak_bytes <= less
    starts.clear()
    planner._within(step, less, time.monotonic() + 2.0, second)
    assert starts[0] != moved  # it fits, and is gone on from


@pytest.mark.parametrize("seed", range(20))
def test_choices_are_fitted_by_swapping_more(seed: int) -> None:
    draw = random.Random(seed)
    timeline = chain_of([draw.randint(1, 9) * MIB for _ in range(12)], [1e-3] * 12, recipes=True)
    least = least_limit(timeline)
    limit = least + int(draw.random() * (timeline.peak_bytes - least))
    scheduler = Scheduler(timeline, LINK, limit)
    ways = [
        [Choice(Policy.REBUILD, 0), KEEP, SWAP] if one.recipes else [KEEP] for one in timeline.saved
    ]
    made = scheduler.run([draw.choice(some) for some in ways])
    found = fitted(timeline, scheduler, made.choices)
    assert found is not None
    assert found.peak_bytes <= limit
    changed = [a.policy for a, b in zip(made.choices, found.choices, strict=True) if a != b]
    assert set(changed) <= {Policy.KEEP}
    assert bool(changed) == (made.peak_bytes > limit)


def test_a_short_search_for_less_begins_with_what_the_plan_for_more_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeline = resnet((3, 4, 120, 3), 8)
    least, most = least_limit(timeline), timeline.peak_bytes
    problem, limit = Problem(timeline, [H100_LINK]), least + (most - least) // 4
    first = planner._within(problem, limit, time.monotonic() + 2.0)
    less = int(0.998 * limit)
    expected = fitted(timeline, Scheduler(timeline, H100_LINK, less), first.schedule.choices)
    starts: list[list[Choice]] = []

    def searched(scheduler: Scheduler, start: Schedule, *given: float) -> Schedule:
        starts.append(list(start.choices))
        return start

    monkeypatch.setattr(search, "polished", searched)
    found = planner._within(problem, less, time.monotonic() + 0.05, first)
    assert expected is not None
    assert starts[0] == expected.choices == found.schedule.choices
    # From what does not lead there, by the simple rule.
    swapped = [SWAP if one.movable and one.nbytes else KEEP for one in timeline.saved]
    monkeypatch.setattr(search, "fitted", lambda *_: None)
    found = planner._within(problem, less, time.monotonic() + 4.0, first)
    moved = schedule(timeline, [H100_LINK], less, swapped)
    assert found.seconds < moved.seconds


def test_the_simple_rule_has_a_fair_plan_in_no_time() -> None:
    timeline = resnet((3, 8, 36, 3), 256)
    least, most = least_limit(timeline), timeline.peak_bytes
    scheduler = Scheduler(timeline, H100_LINK, least + (most - least) // 20)
    swapped = [SWAP if one.movable and one.nbytes else KEEP for one in timeline.saved]
    made = greedy(timeline, scheduler, 0.0)
    assert made is not None
    assert made.seconds < 0.75 * scheduler.run(swapped).seconds


def test_a_schedule_at_other_times_of_copies() -> None:
    timeline = chain_of([MIB] * 12, [1e-3] * 12, recipes=False)
    found = plan(timeline, [LINK], int(0.6 * timeline.peak_bytes), seconds=0.3)
    slower = [replace(link, host=1e-2) for link in found.links]
    again = found.retimed(timeline, slower)
    assert again.links == slower
    assert again.schedule is found.schedule
    assert again.seconds > found.seconds


class Gaps:
    """An allocator that reserves so many bytes besides. The host acts at position 1."""

    def __init__(self, nbytes: int, host: float = 0.0) -> None:
        self._nbytes, self._host = nbytes, host

    def __call__(self, schedule: Schedule) -> int:
        return schedule.peak_bytes + self._nbytes

    def searched(self, schedule: Schedule, seconds: float) -> int:
        return self(schedule)

    def trimmed(self, schedule: Schedule) -> None:
        return None

    def acting(self, schedule: Schedule) -> dict[int, float]:
        return {1: self._host} if self._host else {}

    def stalls(self, schedule: Schedule) -> dict[int, float]:
        return {}


class Answers:
    """Bytes and the host's seconds, for one schedule after the other."""

    def __init__(self, *answers: tuple[int, dict[int, float]]) -> None:
        self._answers, self.told = answers, 0

    def __call__(self, schedule: Schedule) -> int:
        self.told += 1
        return self._answers[self.told - 1][0]

    def searched(self, schedule: Schedule, seconds: float) -> int:
        raise NotImplementedError

    def trimmed(self, schedule: Schedule) -> None:
        return None

    def acting(self, schedule: Schedule) -> dict[int, float]:
        return self._answers[self.told - 1][1]

    def stalls(self, schedule: Schedule) -> dict[int, float]:
        return {}


@pytest.mark.parametrize(
    ("host", "others", "told"),
    [
        (1.0, [(0, {})], 2),
        (1.0, [(1, {}), (0, {})], 3),  # the first of the others does not fit
        (1.0, [(0, {1: 0.5}), (0, {})], 3),
        (1e-9, [(0, {})], 1),  # no other is faster
    ],
)
def test_plans_that_leave_the_allocator_alone_are_taken_where_they_are_faster(
    host: float, others: list[tuple[int, dict[int, float]]], told: int
) -> None:
    timeline = chain_of([MIB] * 12, [1e-5] * 12, recipes=True)
    limit = int(0.7 * timeline.peak_bytes)
    made = planner._within(Problem(timeline, [LINK]), limit, time.monotonic() + 0.2)

    def within(room: int, end: float, start: Plan | None) -> Plan:
        return replace(made)

    answers = Answers((limit, {1: host}), *((limit + more, acting) for more, acting in others))
    found = Reserving(within, answers, least_limit(timeline), limit, 60.0).run()
    assert answers.told == told
    assert found.reserved == limit
    assert found.acting == ({} if told > 1 else {1: host})


def test_the_host_acts_in_a_plans_seconds() -> None:
    timeline = chain_of([MIB] * 12, [1e-3] * 12, recipes=True)
    limit = int(0.7 * timeline.peak_bytes)
    steered = plan(timeline, [LINK], limit, seconds=0.5, reserved=Gaps(0, host=1.0))
    assert steered.seconds >= 1.0
    assert steered.retimed(timeline, steered.links).seconds == steered.seconds


def test_plans_leave_what_an_allocator_reserves_besides() -> None:
    timeline = chain_of([MIB] * 12, [1e-3] * 12, recipes=True)
    limit = int(0.7 * timeline.peak_bytes)
    found = plan(timeline, [LINK], limit, seconds=0.5, reserved=Gaps(MIB))
    assert found.reserved == found.peak_bytes + MIB
    assert found.reserved <= limit == found.limit
    assert "reserved" in str(found.explain())
    least = plan(timeline, [LINK], limit, seconds=0.5, reserved=Gaps(limit))
    assert least.reserved == limit + least.peak_bytes


class Rooms:
    """A plan that takes 1 s within at least so many bytes, else 2 s, and an allocator that keeps to
    them up to `most` bytes, and beyond only where it is looked at for longer, for `tries` times.
    """

    def __init__(self, made: Plan, fast: int, most: int, tries: int | None) -> None:
        self._made, self._fast, self._most, self._tries = made, fast, most, tries
        self.rooms: list[int] = []

    def within(self, room: int, end: float, start: Plan | None) -> Plan:
        self.rooms.append(room)
        seconds = 1.0 if room >= self._fast else 2.0
        made = replace(self._made.simulation, seconds=seconds, peak_bytes=room)
        return replace(self._made, simulation=made, limit=room, schedule=object())  # type: ignore[arg-type]

    def __call__(self, schedule: Schedule) -> int:
        room = self.rooms[-1]
        return room if room <= self._most else LIMIT + 1

    def searched(self, schedule: Schedule, seconds: float) -> int:
        time.sleep(seconds * 0.6)
        if self._tries is None:
            return LIMIT + 1
        self._tries -= 1
        return LIMIT if self._tries == 0 else LIMIT + 1

    def trimmed(self, schedule: Schedule) -> None:
        return None

    def acting(self, schedule: Schedule) -> dict[int, float]:
        return {}

    def stalls(self, schedule: Schedule) -> dict[int, float]:
        return {}


LIMIT, LEAST = 1000, 900


def made_plan() -> Plan:
    """A plan that moves something."""
    timeline = chain_of([MIB] * 4, [1e-3] * 4, recipes=True)
    limit = int(0.8 * timeline.peak_bytes)
    return planner._within(Problem(timeline, [LINK]), limit, time.monotonic() + 0.1)


@pytest.mark.parametrize(
    ("most", "tries", "seconds"),
    [
        (955, None, 1.0),  # between a plan that fits and a fast one there is one that is both
        (930, 1, 1.0),
        (930, 2, 1.0),
        (930, None, 2.0),
        (0, 1, 2.0),  # no plan fits at first: that of the fewest bytes
    ],
)
def test_fast_plans_that_nearly_fit_are_looked_at_for_longer(
    most: int, tries: int | None, seconds: float
) -> None:
    rooms = Rooms(made_plan(), 945, most, tries)
    found = Reserving(rooms.within, rooms, LEAST, LIMIT, 0.4).run()
    assert found.seconds == seconds
    assert found.reserved is not None
    assert found.reserved <= LIMIT


@pytest.mark.parametrize(
    ("most", "faster"),
    [
        (930, True),  # the fast plan does not fit, in vain
        (955, False),  # it fits
    ],
)
def test_a_faster_plan_that_does_not_fit_is_told(most: int, faster: bool) -> None:
    rooms = Rooms(made_plan(), 945, most, None)
    found = Reserving(rooms.within, rooms, LEAST, LIMIT, 0.4).run()
    assert found.limit == LIMIT
    if not faster:
        assert (found.seconds, found.faster) == (1.0, None)
        return
    assert found.seconds == 2.0
    assert found.faster is not None
    assert (found.faster.seconds, found.faster.limit) == (1.0, LIMIT)
    assert found.faster.planning == found.planning


@pytest.mark.parametrize(
    ("plans", "chosen"),
    [
        ([(1.0, 9), (1.05, 7), (1.2, 5)], (1.05, 7)),
        ([(1.2, 5), (2.0, 4), (1.1, 6)], (1.2, 5)),
        ([(3.0, 1)], (3.0, 1)),
    ],
)
def test_of_about_equally_fast_plans_the_smallest_is_looked_at(
    plans: list[tuple[float, int]], chosen: tuple[float, int]
) -> None:
    some = [SimpleNamespace(seconds=seconds, peak_bytes=nbytes) for seconds, nbytes in plans]
    found = reserving._fastest(some)  # type: ignore[arg-type]
    assert (found.seconds, found.peak_bytes) == chosen


def test_a_fast_plan_that_steering_slows_down_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_plan()
    rooms = Rooms(made, 945, 905, 1)
    slow = replace(made, simulation=replace(made.simulation, seconds=2.5), reserved=LIMIT)

    def reserving(plan: Plan, reserved: Rooms, seconds: float | None = None) -> Plan:
        if seconds is not None:
            return slow
        return replace(plan, reserved=reserved(plan.schedule))

    monkeypatch.setattr(Plan, "reserving", reserving)
    assert Reserving(rooms.within, rooms, LEAST, LIMIT, 0.4).run().seconds == 2.0


def test_of_plans_that_fit_with_trims_the_fastest_is_taken_where_none_fits_without() -> None:
    class Trimmed(Gaps):
        """Trims serve for plans of at most so many bytes, and take the device's time."""

        def __init__(self, most: int, seconds: float) -> None:
            super().__init__(1 << 40)
            self._most, self._seconds = most, seconds
            self.trims = False
            self.serving: list[Schedule] = []

        def __call__(self, schedule: Schedule) -> int:
            if schedule.peak_bytes <= self._most:
                self.serving.append(schedule)
            return super().__call__(schedule)

        def trimmed(self, schedule: Schedule) -> int | None:
            self.trims = schedule.peak_bytes <= self._most
            return schedule.peak_bytes if self.trims else None

        def stalls(self, schedule: Schedule) -> dict[int, float]:
            return {1: self._seconds} if self.trims else {}

    timeline = chain_of([64 * MIB] * 12, [1e-3] * 12, recipes=False)
    limit = int(0.7 * timeline.peak_bytes)
    most = limit - 64 * MIB
    trimmed = Trimmed(most, 1e-3)
    found = plan(timeline, [LINK], limit, seconds=0.5, reserved=trimmed)
    assert found.peak_bytes <= most
    assert len(trimmed.serving) > 1
    delayed = timeline.delayed({}, {1: 1e-3})
    times = [simulate(delayed, [LINK], one).seconds for one in trimmed.serving]
    assert found.seconds <= min(times) + 1e-9 < max(times)
    assert found.reserved == found.peak_bytes
    assert found.stalls == {1: 1e-3}
    assert found.retimed(timeline, found.links).seconds == found.seconds
    none = plan(timeline, [LINK], limit, seconds=0.5, reserved=Trimmed(0, 1e-3))
    assert none.reserved == (1 << 40) + none.peak_bytes
    assert none.stalls == {}


def test_a_curve_ends_with_the_step_itself() -> None:
    timeline = chain_of([MIB] * 8, [1e-3] * 8, recipes=True)
    points = curve(timeline, [LINK], seconds=1.0)
    assert points[0][0] == least_limit(timeline)
    assert points[-1] == (timeline.peak_bytes, timeline.seconds)
    assert all(seconds is not None for _, seconds in points)
    assert curve(timeline, [LINK], [least_limit(timeline) - 1]) == [(points[0][0] - 1, None)]


def test_equal_blocks_are_decided_together() -> None:
    timeline = resnet((3, 4, 120, 3), 8)
    same = alike(timeline)
    assert len(set(same.decided)) < len(same.decided) / 2
    assert len(set(same.checked)) < len(same.checked) / 2
    for index, other in enumerate(same.decided):
        assert timeline.saved[index].nbytes == timeline.saved[other].nbytes
        assert same.decided[other] == other
    for position, other in enumerate(same.checked):
        assert same.checked[other] == other
        names = [timeline.operations[i].name.split()[0] for i in (position, other)]
        assert names[0] == names[1]


def test_a_recipe_runs_before_the_operation_takes_its_workspace() -> None:
    """The recipe's temporary bytes and the workspace, both 3 MiB, are not there at once."""
    operations = [
        Operation("make", 1e-3),
        Operation("wide", 1e-3),
        Operation("back", 1e-3, 3 * MIB, 0),
        Operation("end", 1e-3),
    ]
    made = (Recipe((0,), 1e-5, 3 * MIB),)
    saved = (
        Saved("x", MIB, 0, 0, (3,)),
        Saved("y", MIB, 0, 0, (2,), recipes=made),
        Saved("z", 4 * MIB, 1, 1, (2,), movable=False),
    )
    timeline = Timeline(tuple(operations), 2, saved)
    choices = [KEEP, Choice(Policy.REBUILD, 0), KEEP]
    found = schedule(timeline, [LINK], 16 * MIB, choices)
    assert found.bytes_at[2] == 9 * MIB
    check(plan(timeline, [LINK], 9 * MIB), 9 * MIB)


def test_of_a_form_and_a_recipe_that_cannot_read_it_the_better_is_taken() -> None:
    """y in bits, 8 times smaller, or z from y: to have both is not possible."""
    operations = [Operation(f"op{i}", 1e-4) for i in range(6)]

    def step(whole: bool) -> Timeline:
        form = Squeeze(2 * MIB, 1e-5, whole=whole)
        y = Saved("y", 64 * MIB, 0, 1, (5,), squeeze=form)
        z = Saved("z", 16 * MIB, 1, 2, (4,), recipes=(Recipe((0,), 1e-5),))
        return Timeline(tuple(operations), 3, (y, z, Saved("w", 16 * MIB, 2, 2, (3,))))

    limit = 82 * MIB  # beside what an operation reads, no more than the bits
    apart, together = (plan(step(whole), [LINK], limit) for whole in (False, True))
    for found in (apart, together):
        check(found, limit)
        assert found.choice(0) == SQUEEZE
    assert apart.choice(1).policy is not Policy.REBUILD
