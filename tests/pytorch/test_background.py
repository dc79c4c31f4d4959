"""Plans whose steering is found beside the steps of another plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from pytorch.modelled import ModelCard
from pytorch.steered import MIB, far, limited, stepwise

from oocdnn.network.plan import Schedule
from oocdnn.network.plan_file import PlanFile
from oocdnn.network.planner import Plan, Reserved, planned
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit import faster, planning
from oocdnn.torch.limit.heap import reservation
from oocdnn.torch.limit.heap.allocator import Extent
from oocdnn.torch.limit.heap.background import BackgroundSearch
from oocdnn.torch.limit.heap.reservation import Reservation
from oocdnn.torch.limit.heap.steering import Steering
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.step_kinds import Known

KIB = 1 << 10
PATIENCE = 60.0  # seconds for a search that is expected to end

Limited = tuple[memory_limit, Known, ModelCard, Callable[[], None]]


def search(limit: int, seconds: float = PATIENCE) -> BackgroundSearch:
    """For a step that needs 140 MiB, and takes 180 where nothing is steered."""
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)]
    )
    links = [Link(1e9, 1e9, 1e9)]
    plan = planned(allocations.timeline, links, 1 << 40, schedule.choices)
    assert plan is not None
    return BackgroundSearch(plan, Reservation(allocations, heap, limit, 0.0), seconds)


def awaited(one: BackgroundSearch) -> None:
    end = time.monotonic() + PATIENCE
    while one.runs:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_search_finds_what_the_schedule_needs() -> None:
    one = search(140 * MIB)
    awaited(one)
    assert one.found is not None
    assert one.found.reserved == 140 * MIB
    assert one.reservation.steering(one.found.schedule) is not None


def test_a_search_ends_where_there_is_nothing_to_find() -> None:
    one = search(140 * MIB - 1)
    awaited(one)
    assert one.found is None


def endless(*given: object) -> Steering | None:
    """A search that ends only with what its progress function raises."""
    progress = given[-1]
    if not callable(progress):
        return None
    while True:
        progress(0, 0)
        time.sleep(0.001)


def test_a_search_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservation, "steer", endless)
    one = search(140 * MIB)
    assert one.runs
    one.stop()
    awaited(one)
    assert one.found is None
    one.stop()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tiny: None) -> Iterator[Limited]:
    """Training whose plans have another one that leaves more, and is taken for faster."""
    monkeypatch.setattr(planning, "is_faster", lambda *_: True)
    with limited(0.5, 40 * KIB) as made:
        run = made[0]
        run._plans._seconds = 0.1
        inner = run._steps.planning._planner

        def planner(
            timeline: Timeline, room: int, reserved: Reserved | None, copying: float | None
        ) -> Plan | None:
            plan = inner(timeline, room, reserved, copying)
            if plan is not None and reserved is not None:
                other = inner(timeline, room - room // 8, None, copying)
                assert other is not None
                plan.faster = replace(other, limit=room)
            return plan

        run._steps.planning._planner = planner
        yield made


def train_until(ready: Callable[[], object], step: Callable[[], None]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end
        step()


def test_the_slower_plan_is_timed_without_the_search(given: Limited) -> None:
    run, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    course, measured, beside = kind.course, run._steps._time, [True]

    def time_of_step(known: Known | None, plain: bool) -> None:
        measured(known, plain)
        if beside[-1]:
            course.seconds.append(1e9)
        beside.append(kind.faster.timed_from is None)  # of the next step

    run._steps._time = time_of_step
    train_until(lambda: kind.faster.slower, step)
    assert kind.faster.slower is course
    assert len(course.seconds) == faster._COMPARED
    assert 1e9 not in course.seconds


@pytest.mark.parametrize("ends", [True, False])
def test_a_search_waits_for_the_measured_steps_of_another_kind(given: Limited, ends: bool) -> None:
    """For a few steps only: the other kind may have ended."""
    run, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    assert kind.faster.search is not None
    awaited(kind.faster.search)
    plans, other = run._steps.planning._faster_plans, replace(kind, faster=faster.Faster())
    other.faster.plan = kind.faster.search.plan
    for _ in range(faster._WAITS):
        plans.look(other)
        assert other.faster.search is None
    if ends:
        other.faster.waits = 0
        train_until(lambda: not kind.faster.measures, step)
    plans.look(other)
    assert other.faster.search is not None
    other.faster.stop()


def test_times_beside_the_search_are_left_out_where_a_step_is_not_looked_at(given: Limited) -> None:
    """Its steering ended midway."""
    _, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    course = kind.course
    train_until(lambda: kind.faster.timed_from, step)
    course.seconds.extend([1e9] * faster._COMPARED)
    course.runs += 1  # as by a step whose steering was lost
    train_until(lambda: kind.faster.slower, step)
    assert kind.faster.slower is course
    assert 1e9 not in course.seconds


def test_the_slower_plan_is_followed_where_a_warning_is_an_error(given: Limited) -> None:
    run, kind, _, step = given
    train_until(lambda: kind.faster.slower, step)
    course = kind.course
    course.spacers.lost = True

    def keep(plan: Plan) -> None:
        raise UserWarning("plans are not kept")

    run._steps.planning._faster_plans._keep = keep
    with pytest.raises(UserWarning, match="not kept"):
        step()
    assert kind.course is not course


def test_a_plan_is_taken_where_the_slower_one_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, given: Limited
) -> None:
    run, kind, _, step = given
    monkeypatch.setattr(run._steps, "_time", lambda *_: None)
    train_until(lambda: kind.faster.timed_from, step)
    course = kind.course
    train_until(lambda: kind.faster.slower, step)
    assert course.runs == kind.faster.timed_from + faster._RUNS


def kept(run: memory_limit) -> list[Plan]:
    """The plans that go to the file of plans from here on."""
    plans: list[Plan] = []
    run._steps.planning._faster_plans._keep = plans.append
    return plans


def test_the_file_has_the_plan_whose_faster_one_is_searched_for_in_vain(
    given: Limited, tmp_path: Path
) -> None:
    run, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    course = kind.course
    awaited(kind.faster.search)
    kind.faster.search.found = None
    run._plans._file = PlanFile(tmp_path / "plans.json")
    train_until(lambda: kind.faster.search is None, step)
    assert kind.course is course
    again = PlanFile(tmp_path / "plans.json").find(kind.timeline, run.links, run.limit)
    assert again is not None
    assert again.schedule.choices == course.plan.schedule.choices


@pytest.mark.parametrize("is_longer", [True, False])
def test_another_plan_takes_the_place_of_a_slower_one(
    monkeypatch: pytest.MonkeyPatch, given: Limited, is_longer: bool
) -> None:
    monkeypatch.setattr(faster, "_is_longer", lambda *_: is_longer)
    run, kind, card, step = given
    train_until(lambda: kind.faster.slower, step)
    course, slower = kind.course, kind.faster.slower
    plans = kept(run)
    assert slower is not course
    assert run.settled
    assert kind.plan.limit == run.limit
    keeps = slower.plan.reserved <= run._steps.planning.following.room(kind)
    plan = slower.plan
    train_until(lambda: kind.faster.slower is None, step)
    assert (kind.course is course) == (not is_longer or not keeps)
    assert plans == ([] if kind.course is course else [plan])
    assert kind.plan is kind.course.plan
    for _ in range(3):
        step()
        assert card.taken() <= kind.plan.reserved


def test_a_plan_that_is_no_faster_stays_where_the_other_passes_the_limit(
    monkeypatch: pytest.MonkeyPatch, given: Limited
) -> None:
    monkeypatch.setattr(faster, "_is_longer", lambda *_: True)
    _, kind, _, step = given
    train_until(lambda: kind.faster.slower, step)
    course = kind.course
    kind.faster.slower.plan.reserved = 1 << 40
    train_until(lambda: kind.faster.slower is None, step)
    assert kind.course is course


def test_a_plan_stays_whose_steps_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, given: Limited
) -> None:
    """As where kinds of steps alternate."""
    run, kind, _, step = given
    train_until(lambda: kind.faster.slower, step)
    course = kind.course
    monkeypatch.setattr(run._steps, "_time", lambda *_: None)
    train_until(lambda: kind.faster.slower is None, step)
    assert not course.seconds
    assert kind.course is course


@pytest.mark.parametrize("lost", [True, False])
def test_a_plan_that_does_not_serve_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch, given: Limited, lost: bool
) -> None:
    """Its steering ended midway, or the driver counts more than the limit."""
    run, kind, card, step = given
    train_until(lambda: kind.faster.slower, step)
    course, slower, plans = kind.course, kind.faster.slower.plan, kept(run)
    course.spacers.lost = lost
    monkeypatch.setattr(card, "taken", lambda: 0 if lost else run.limit + 1)
    step()
    assert kind.faster.slower is None
    assert kind.course is not course
    assert plans == [slower]


def test_planning_anew_ends_the_comparison(given: Limited) -> None:
    run, kind, _, step = given
    train_until(lambda: kind.faster.slower, step)
    run._steps.planning.replan(kind)
    assert kind.faster.slower is None
    assert kind.faster.search is None


def searched_endlessly(self: Reservation, schedule: Schedule, seconds: float) -> int:
    """A search that ends only with what its progress function raises."""
    endless(self.progress)
    return self._allocations.step(schedule).reserved(self.heap)


def test_leaving_the_limit_ends_the_search(monkeypatch: pytest.MonkeyPatch, given: Limited) -> None:
    monkeypatch.setattr(reservation.Reservation, "searched", searched_endlessly)
    run, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    one, plans = kind.faster.search, kept(run)
    assert one.runs
    assert run.searching
    run._steps.close()
    awaited(one)
    assert kind.faster.search is None
    assert kind.faster.plan is one.plan
    assert kind.faster.searches == 0
    assert plans == []


def test_a_plan_that_was_found_is_there_after_the_limit_was_left(given: Limited) -> None:
    run, kind, _, step = given
    train_until(lambda: kind.faster.search, step)
    awaited(kind.faster.search)
    run._steps.close()
    train_until(lambda: kind.faster.slower, step)
    assert kind.faster.searches == 1


def test_a_search_begins_anew_beside_other_memory(given: Limited) -> None:
    _, kind, card, step = given
    train_until(lambda: kind.faster.search, step)
    first = kind.faster.search
    address = card.take(1 << 20)  # outlives the steps
    train_until(lambda: kind.faster.search not in (None, first), step)
    assert kind.faster.slower is None
    assert kind.faster.searches == 2
    card.give(address)


def test_searches_are_few(given: Limited) -> None:
    run, kind, _, step = given
    kind.faster.searches = faster._SEARCHES
    train_until(lambda: run.settled, step)
    step()
    assert not run.searching
    assert kind.faster.slower is None


def test_heaps_are_alike_with_the_same_large_blocks() -> None:
    _, _, heap = stepwise([])
    other = replace(heap, extents=(*heap.extents, Extent(1 << 50, True, True, ((512, True),))))
    assert heap.is_like(other)
    assert not heap.is_like(replace(heap, elsewhere=1))
    assert not heap.is_like(far(heap, 1000, (20, True)))
    assert heap.is_like(far(heap, 1000, (20, False)))
