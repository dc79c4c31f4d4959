"""Plans whose steering is found beside the steps of another plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from pytorch.modelled import ModelCard
from pytorch.steered import MIB, limited, stepwise

from oocdnn.network.plan import Schedule
from oocdnn.network.planner import Plan, Reserved, planned
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit import planning
from oocdnn.torch.limit.heap import reservation
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
    assert not one.runs
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
                plan.faster = inner(timeline, room - room // 8, None, copying)
            return plan

        run._steps.planning._planner = planner
        yield made


def train_until(ready: Callable[[], object], step: Callable[[], None]) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end
        step()


@pytest.mark.parametrize("is_faster", [True, False])
def test_another_plan_takes_the_place_of_a_slower_one(
    monkeypatch: pytest.MonkeyPatch, given: Limited, is_faster: bool
) -> None:
    monkeypatch.setattr(planning, "_is_less", lambda *_: is_faster)
    run, kind, card, step = given
    train_until(lambda: kind.slower, step)
    slower, course = kind.slower, kind.course
    assert slower is not course
    assert run.settled
    assert run.searching
    train_until(lambda: not run.searching, step)
    assert kind.slower is None
    assert kind.course is (course if is_faster else slower)
    assert kind.plan is kind.course.plan
    for _ in range(3):
        step()
        assert card.taken() <= kind.plan.reserved


def test_a_plan_whose_steering_is_lost_gives_its_place_back(given: Limited) -> None:
    _, kind, card, step = given
    train_until(lambda: kind.slower, step)
    course = kind.course
    course.spacers.lost = True
    step()
    assert kind.slower is None
    assert kind.course is not course
    step()
    assert card.taken() <= kind.plan.reserved


def test_a_plan_that_passes_the_limit_gives_its_place_back(given: Limited) -> None:
    run, kind, card, step = given
    train_until(lambda: kind.slower, step)
    course = kind.course
    address = card.take(run.limit)
    step()
    card.give(address)
    assert kind.slower is None
    assert kind.course is not course


def test_leaving_the_limit_ends_the_search(monkeypatch: pytest.MonkeyPatch, given: Limited) -> None:
    monkeypatch.setattr(reservation.Reservation, "searched", searched_endlessly)
    run, _, _, step = given
    train_until(lambda: run._steps.planning._search, step)
    one = run._steps.planning._search
    assert one is not None
    assert one.runs
    run._steps.close()
    assert not one.runs
    assert not run.searching


def searched_endlessly(self: Reservation, schedule: Schedule, seconds: float) -> int:
    """A search that ends only with what its progress function raises."""
    while self.progress is not None:
        self.progress(0, 0)
        time.sleep(0.001)
    return self._allocations.step(schedule).reserved(self.heap)


def test_a_search_begins_anew_beside_other_memory(given: Limited) -> None:
    run, kind, card, step = given
    planning = run._steps.planning
    train_until(lambda: planning._search, step)
    first = planning._search
    address = card.take(1 << 20)  # outlives the steps
    train_until(lambda: planning._search not in (None, first), step)
    assert kind.slower is None
    assert kind.searches == 2
    card.give(address)


def test_the_blocks_of_a_heap_in_use_are_in_order() -> None:
    _, _, heap = stepwise([])
    assert [one.size for one in heap.used] == [20 * MIB]
