"""Steering of PyTorch's allocator, in simulation and in whole steps with a model of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch.modelled import ModelCard, Modelled
from pytorch.steered import MIB, Net, far, limited, stepwise
from torch import nn
from torch.nn import functional as F

from oocdnn.errors import OutOfMemory
from oocdnn.network import reserving
from oocdnn.network.plan import Schedule
from oocdnn.network.planner import least_limit
from oocdnn.network.timeline import Operation, Timeline
from oocdnn.torch.limit import low_memory
from oocdnn.torch.limit import spacers as spacers_module
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.heap import allocator, reservation
from oocdnn.torch.limit.heap.allocations import Item
from oocdnn.torch.limit.heap.allocator import Allocator, Extent, Heap
from oocdnn.torch.limit.heap.reading import Log, Note, read, templates
from oocdnn.torch.limit.heap.reservation import Reservation
from oocdnn.torch.limit.heap.steering import Steering, steer, trims
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.low_memory import LowMemory
from oocdnn.torch.limit.optimizers import state_bytes
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.spacers import Spacers, probed_act_seconds, probed_trim_seconds

KIB = 1 << 10
PAGE = 20 * MIB


def test_what_is_in_use_far_behind_the_range_stays_there() -> None:
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(3, 2), (1, 0), (4, 100)], [(4, 0), (2, 0), (3, 0)]
    )
    heap = far(heap, 1000, (4, False), (8, True), (8, False))
    allocations = replace(
        allocations, persistent=allocations.persistent | {heap.extents[1].address + 4 * MIB}
    )
    natural = allocations.step(schedule).reserved(heap)
    found = steer(allocations.step(schedule), heap, 180 * MIB, time.monotonic() + 10)
    assert natural > 180 * MIB
    assert found is not None
    assert found.reserved <= 180 * MIB
    assert steer(allocations.step(schedule), heap, 140 * MIB, time.monotonic() + 1) is None


def test_holes_keep_what_stays_apart_from_what_goes() -> None:
    # Number 2 would lie behind 1, so that 3 does not fit where 1 was.
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)]
    )
    natural = allocations.step(schedule).reserved(heap)
    found = steer(allocations.step(schedule), heap, 140 * MIB, time.monotonic() + 10)
    assert natural == 180 * MIB
    assert found is not None
    assert found.reserved == 140 * MIB
    # One spacer serves: the host takes and gives back as little as it can.
    behind = heap.extents[0].address + (20 + 40) * MIB  # the parameter and number 1
    assert found.acts == {("run", 2): ((behind, 60 * MIB),), ("run", 3): ((behind, 0),)}


def test_the_time_of_acts_is_at_their_positions() -> None:
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)]
    )
    reservation = Reservation(allocations, heap, 140 * MIB, 10.0, act=0.25)
    assert reservation(schedule) == 140 * MIB
    assert reservation.acting(schedule) == {2: 0.25, 3: 0.25}
    alone = Reservation(allocations, heap, 180 * MIB, 10.0, act=0.25)
    assert alone(schedule) == 180 * MIB
    assert alone.acting(schedule) == {}


def test_what_is_not_mapped_between_pages_far_behind_is_not_free() -> None:
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)]
    )
    heap = far(heap, 1000, (4, False), (8, True), (8, False))
    heap = far(heap, 1050, (12, False), (4, True), (4, False))  # 30 MiB are between them
    used = {one.address + one.blocks[0][0] for one in heap.extents[1:]}
    allocations = replace(allocations, persistent=allocations.persistent | used)
    natural = allocations.step(schedule).reserved(heap)
    found = steer(allocations.step(schedule), heap, 180 * MIB, time.monotonic() + 10)
    assert natural == 220 * MIB
    assert found is not None
    assert found.reserved == 180 * MIB


def test_equal_numbers_give_equal_steering() -> None:
    allocations, schedule, heap = stepwise(
        [], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0)]
    )
    found = [
        steer(allocations.step(schedule), heap, 140 * MIB, time.monotonic() + 10, number)
        for number in (3, 3)
    ]
    assert found[0] is not None
    assert found[0] == found[1]


def test_what_is_there_at_the_same_time_is_the_least_limit() -> None:
    allocations, schedule, heap = stepwise([], [(1, 40)], [(2, 60)], [(1, 0), (2, 0)])
    end = time.monotonic() + 10
    assert steer(allocations.step(schedule), heap, 120 * MIB - 1, end) is None
    assert steer(allocations.step(schedule), heap, 120 * MIB, end) is not None


def test_what_an_earlier_step_left_may_be_gone() -> None:
    allocations, schedule, heap = stepwise(
        [(9, 0)], [(1, 40)], [(2, 20)], [(1, 0), (3, 100)], [(3, 0), (2, 0), (9, 40)]
    )
    allocations = replace(allocations, carried=((9, 40 * MIB),))
    found = steer(allocations.step(schedule), heap, 140 * MIB, time.monotonic() + 10)
    assert found is not None
    assert found.reserved == 140 * MIB


# Number 3 does not fit where 1 was. In the second step 1 is where 3 was in the first one.
GAP: tuple[list[Item], ...] = ([], [(1, 40)], [(2, 20), (1, 0)], [(3, 100)], [(3, 0), (2, 0)])


def test_a_trim_gives_back_what_is_not_in_use_at_its_point() -> None:
    allocations, schedule, heap = stepwise(*GAP)
    step = allocations.step(schedule)
    assert step.reserved(heap) == 180 * MIB
    assert trims(step, heap, 180 * MIB) == Steering(0, {}, 180 * MIB)
    for limit in (180 * MIB - 1, 140 * MIB):
        assert trims(step, heap, limit) == Steering(0, {}, 140 * MIB, {("run", 3): 100 * MIB})
    assert trims(step, heap, 140 * MIB - 1) is None
    elsewhere = replace(heap, elsewhere=7)
    assert trims(step, elsewhere, 140 * MIB + 6) is None
    found = trims(step, elsewhere, 140 * MIB + 7)
    assert found is not None
    assert found.reserved == 140 * MIB + 7


@pytest.mark.parametrize(("count", "serves"), [(20, True), (100, False)])
def test_a_step_that_needs_too_many_trims_has_none(count: int, serves: bool) -> None:
    """Segments of a fixed size, of which none holds the next request."""
    sizes = [40 + 2 * number for number in range(count)]
    operations = [[(number, size), (number, 0)] for number, size in enumerate(sizes)]
    allocations, schedule, heap = stepwise([], *operations)
    fixed = Heap(heap.extents, expandable=False)
    found = trims(allocations.step(schedule), fixed, (20 + sizes[-1] * 6 // 5) * MIB)
    assert (found is not None) == serves
    if found is not None:
        assert 1 < len(found.trims) < count


def test_the_time_of_trims_is_at_their_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    allocations, schedule, heap = stepwise(*GAP)
    monkeypatch.setattr(reservation, "steer", lambda *_: None)
    found = Reservation(allocations, heap, 140 * MIB, 0.0, act=0.25, trim=0.5 / MIB)
    assert found(schedule) == 180 * MIB
    assert found.stalls(schedule) == {}
    assert found.trimmed(schedule) == 140 * MIB
    assert found.stalls(schedule) == {3: 50.0}
    assert found.acting(schedule) == {}
    steering = found.steering(schedule)
    assert steering is not None
    assert steering.trims == {("run", 3): 100 * MIB}
    none = Reservation(allocations, heap, 139 * MIB, 0.0)
    assert none(schedule) == 180 * MIB
    assert none.trimmed(schedule) is None
    assert none.steering(schedule) is None


SIZES = st.lists(st.integers(2, 40), min_size=4, max_size=24)


def played(
    operations: Sequence[Sequence[Item]], trimmed: Steering
) -> tuple[int, dict[tuple[str, int], int]]:
    """Most bytes reserved where the operations run six times in an allocator that is trimmed so,
    and most bytes that each trim gives back."""
    allocator = Allocator(expandable=True)
    allocator.allocate(20 * MIB)
    most, live, given = 0, {}, dict.fromkeys(trimmed.trims, 0)
    for _ in range(6):
        for position, items in enumerate(operations):
            point = "run", position
            if point in given:
                before = allocator.reserved
                allocator.trim()
                given[point] = max(given[point], before - allocator.reserved)
            for number, size in items:
                if size:
                    live[number] = allocator.allocate(size * MIB)
                else:
                    allocator.free(live.pop(number))
                most = max(most, allocator.reserved)
    return most, given


@given(sizes=SIZES, order=st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_steering_keeps_to_its_limit_or_is_none(sizes: list[int], order) -> None:  # type: ignore[no-untyped-def]
    operations: list[list[Item]] = [[]]
    live: list[int] = []
    for number, size in enumerate(sizes):
        operations.append([(number, size)])
        live.append(number)
        if order.random() < 0.5:
            operations[-1].append((live.pop(order.randrange(len(live))), 0))
    operations.append([(number, 0) for number in live])
    allocations, schedule, heap = stepwise(*operations)
    natural = allocations.step(schedule).reserved(heap)
    for limit in range(natural, 0, -PAGE):
        trimmed = trims(allocations.step(schedule), heap, limit)
        if trimmed is not None:
            assert trimmed.reserved <= limit
            assert (trimmed.reserved, trimmed.trims) == played(operations, trimmed)
        found = steer(allocations.step(schedule), heap, limit, time.monotonic() + 0.2)
        if found is None:
            break
        assert found.reserved <= limit
        assert set(found.acts) <= {group.point for group in allocations.step(schedule).groups}


def test_a_history_is_read_and_gives_itself_again() -> None:
    timeline = Timeline((Operation("a", 1.0), Operation("b", 1.0)), 0)
    notes = [Note(1000, 257), Note(1000, 258)]
    entries = [
        (False, 10, 4096),  # of the step before
        (True, 20, 8192),
        *[(True, 1000, 257), (False, 1000, 257)],
        (True, 30, 512),  # the runtime's
        *[(True, 1000, 258), (False, 1000, 258)],
        (False, 30, 512),
        (True, 40, 4096),
        (False, 20, 8192),
    ]
    found = read(Log(entries, Heap((), expandable=True)), notes, timeline)
    assert found is not None
    assert found.operations == (((0, 0), (1, 8192)), ((0, 4096), (1, 0)))
    assert found.carried == ((0, 4096),)
    assert found.step(Schedule([])).groups == (
        (None, (), ((0, 0), (1, 8192))),
        (("run", 1), (), ((0, 4096), (1, 0))),
    )
    assert read(Log(entries, Heap((), expandable=True)), notes[:1], timeline) is None


def test_a_template_leaves_out_what_stays() -> None:
    begin, end = Note(1, 257), Note(1, 258, 7, 40)
    entries = [
        *[(True, 1, 257), (False, 1, 257)],
        (True, 10, 4096),  # a tensor that came back
        (True, 20, 8192),
        (True, 40, 2048),
        (False, 20, 8192),
        *[(True, 1, 258), (False, 1, 258)],
    ]
    log = Log(entries, Heap((), expandable=True))
    made = ((2, 8192), (0, 2048), (2, 0))
    assert list(templates(log, [(begin, end)])) == [made]
    assert list(templates(log, [(begin, Note(1, 258, 7, 41))])) == [None]
    assert list(templates(log, [(end, begin), (begin, end)])) == [None, made]


def test_templates_of_equal_notes_are_those_in_their_order() -> None:
    begin, end = Note(1, 257), Note(1, 258, 7, 40)
    entries = [
        part
        for nbytes in (2048, 4096)
        for part in (
            *[(True, 1, 257), (False, 1, 257)],
            *[(True, 40, nbytes), (True, 1, 258)],
            *[(False, 1, 258), (False, 40, nbytes)],
        )
    ]
    log = Log(entries, Heap((), expandable=True))
    assert list(templates(log, [(begin, end)] * 3)) == [((0, 2048),), ((0, 4096),), None]


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
@pytest.mark.usefixtures("tiny")
def test_steps_reserve_what_was_predicted(share: float) -> None:
    with limited(share, 40 * KIB) as (run, kind, card, step):
        for _ in range(10):
            known = kind.allocations is not None
            step()
            assert not known or card.taken() <= run.limit
        plan = run.plan
        assert plan is not None
        assert kind.allocations is not None
        assert plan.reserved is not None
        assert card.taken() == plan.reserved
        assert plan.peak_bytes <= plan.reserved


def test_what_steering_cannot_help_is_trimmed_in_the_midst_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allocator, "_RULES", allocator.HeapRules(512, KIB, KIB))
    monkeypatch.setattr(reservation, "steer", lambda *_: None)
    monkeypatch.setattr(reserving, "_parts", lambda *_: [0.04])  # what a further plan leaves
    with limited(0.5, 8 * KIB) as (run, kind, card, step):
        for _ in range(10):
            known = kind.allocations is not None
            step()
            assert not known or card.taken() <= run.limit
        plan = run.plan
        assert plan is not None
        assert plan.reserved == card.taken()
        assert kind.course.spacers._trims
        assert not kind.course.spacers.used


def test_a_plan_that_keeps_everything_is_trimmed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_RULES", allocator.HeapRules(512, KIB, KIB))
    monkeypatch.setattr(reservation, "steer", lambda *_: None)
    monkeypatch.setattr(reserving, "_parts", lambda *_: [])
    with limited(1.0, 48 * KIB) as (run, kind, card, step):
        for _ in range(10):
            known = kind.allocations is not None
            step()
            assert not known or card.taken() <= run.limit
        assert kind.plan.fits
        assert kind.course.spacers.trims
        assert not kind.keeps
        assert run.settled


@pytest.mark.usefixtures("tiny")
def test_memory_is_mapped_again_beside_what_a_step_left() -> None:
    """Where memory is given back in the midst of training, a step is not steered; the next ones
    are, from what it left."""
    with limited(0.5) as (run, kind, card, step):
        while not run.settled:
            step()
        for _ in range(3):
            card.trim()
            step()
            assert not kind.course.spacers.lost
            step()
            assert kind.lost == 0
            assert card.taken() <= run.limit


@pytest.mark.usefixtures("tiny")
def test_a_plan_is_steered_anew_after_a_step_that_was_not_steered() -> None:
    with limited(0.5) as (run, kind, card, step):
        while not run.settled:
            step()

        def losing() -> Spacers:
            before = kind.course.spacers
            before.lost = True
            step()
            return before

        for _ in range(3):
            assert losing() is not kind.course.spacers
            assert not kind.course.spacers.lost
            assert kind.lost == 1
            step()
            assert kind.lost == 0
            assert card.taken() <= run.limit
        for number in range(1, 5):
            assert losing() is not kind.course.spacers
            assert kind.lost == number
        assert losing() is kind.course.spacers  # that takes long, and did not help
        step()
        assert kind.course.spacers.lost


@pytest.mark.usefixtures("tiny")
def test_what_an_earlier_step_left_is_computed_without_an_act() -> None:
    with limited(0.5) as (_, kind, _, step):
        while kind.course is None:
            step()
        course, points = kind.course, []
        course.spacers.at = points.append
        earlier, entry = (Entry(0, MIB, None, 0) for _ in range(2))
        course.begin({0: entry})
        course.computes(earlier)
        assert points == []
        course.computes(entry)
        assert points == [("compute", 0)]


@pytest.mark.usefixtures("tiny")
def test_steering_that_serves_stays_where_no_other_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with limited(0.5) as (run, kind, card, step):
        while kind.course is None or not kind.course.spacers.used or not kind.course.runs:
            step()
        spacers, plan = kind.course.spacers, kind.plan
        monkeypatch.setattr(reservation, "steer", lambda *_: None)
        monkeypatch.setattr(reservation, "trims", lambda *_: None)
        monkeypatch.setattr(reserving, "_parts", lambda *_: [])  # no plan that needs none
        run._steps.planning.replan(kind)
        assert kind.course.spacers is spacers
        assert kind.plan is kind.course.plan
        assert kind.plan.schedule is plan.schedule
        for _ in range(8):
            step()
            assert not kind.course.spacers.lost
            assert card.taken() <= run.limit


class Elsewhere(HostCard):
    """Has other addresses than expected from some allocation on."""

    def __init__(self, right: int) -> None:
        super().__init__()
        self.right, self.trims = right, 0
        self.taken_now: list[int] = []

    def take(self, nbytes: int) -> int:
        self.right -= 1
        self.taken_now.append(nbytes if self.right >= 0 else nbytes + 1)
        return self.taken_now[-1]

    def give(self, address: int) -> None:
        self.taken_now.remove(address)

    def trim(self) -> None:
        self.trims += 1


@given(right=st.integers(0, 8))
def test_spacers_are_given_back_whatever_the_allocator_does(right: int) -> None:
    card = Elsewhere(right)
    acts = {
        ("run", 1): ((100, 100), (200, 200), (100, 0)),
        ("run", 2): ((300, 300), (200, 0)),
        ("run", 3): ((400, 400),),
    }
    spacers = Spacers(card, Steering(50, acts, 0))
    assert card.taken_now == []
    for _ in range(3):
        spacers.at(("run", 1))
        assert card.taken_now in ([200], [])
        spacers.at(("fetch", 1))
        assert card.taken_now in ([200], [])
        spacers.at(("run", 2))
        assert card.taken_now in ([300], [])
        spacers.at(("run", 3))
        spacers.ends()
        assert card.taken_now == []
    assert card.trims == 0
    assert spacers.lost == (card.right < 0)
    card.close()


def test_what_an_act_takes_the_host_is_measured() -> None:
    class Slow(Elsewhere):
        def take(self, nbytes: int) -> int:
            time.sleep(1e-3)
            return super().take(nbytes)

    card = Slow(1 << 30)
    assert probed_act_seconds(card) >= 5e-4
    assert card.taken_now == []
    acts = {("run", 1): tuple((n, n) for n in range(1, 51)), ("run", 2): ((1, 0),)}
    spacers = Spacers(card, Steering(50, acts, 0))
    for number in range(3):
        assert (spacers.act_seconds is None) == (number < 2)  # few acts tell nothing
        spacers.at(("run", 1))
        spacers.at(("run", 2))
        spacers.ends()
    assert spacers.act_seconds >= 0.9e-3
    card.close()
    assert probed_trim_seconds(card, 1 << 30) >= 1e-3 / (240 * MIB)
    assert probed_trim_seconds(card, 30 * MIB) >= 1e-3 / PAGE
    assert probed_trim_seconds(card, 19 * MIB) == spacers_module._TRIM_SECONDS
    assert card.taken_now == []
    nothing = HostCard()
    assert probed_act_seconds(nothing) == 0.0
    assert probed_trim_seconds(nothing, 1 << 30) == spacers_module._TRIM_SECONDS
    nothing.close()


def test_the_trial_of_a_trim_takes_what_the_allocator_leaves() -> None:
    model = Modelled()
    card = ModelCard(model)
    for _ in range(2):
        card.take(30 * MIB)
        card.give(card.take(50 * MIB))
    held = model.allocator.reserved
    card.trim()
    room = model.allocator.reserved + 2 * PAGE
    assert room < held
    assert probed_trim_seconds(card, room) > 0.0
    assert card.taken() <= room
    card.close()


def test_nothing_is_trimmed_outside_of_steps() -> None:
    class Counting(HostCard):
        released = 0

        def release(self) -> None:
            self.released += 1

    card = Counting()
    spacers = Spacers(card, Steering(0, {}, 0, {("run", 1): MIB}))
    assert spacers.trims
    assert not spacers.used
    for end in (spacers.ends, spacers.stop):
        spacers.at(("run", 1))
        before = card.released
        spacers.begins()
        spacers.at(("run", 1))
        assert card.released == before + 1
        end()
        spacers.at(("run", 1))
        assert card.released == before + 1
    card.close()


def test_a_point_at_which_the_runtime_did_not_act_ends_the_steering_of_the_step() -> None:
    card = Elsewhere(1 << 30)
    acts = {("fetch", 1): ((100, 100),), ("run", 1): ((200, 200),), ("run", 2): ((100, 0),)}
    spacers = Spacers(card, Steering(50, acts, 0))
    spacers.at(("run", 1))
    assert card.taken_now == [200]
    spacers.at(("run", 2))  # gives back what was not taken
    assert card.taken_now == []
    spacers.at(("fetch", 1))
    assert card.taken_now == []
    spacers.ends()
    assert spacers.lost
    spacers.restore()
    spacers.at(("fetch", 1))
    assert card.taken_now == [100]
    spacers.ends()
    card.close()


@pytest.mark.parametrize("dropped", [False, True])
def test_a_step_that_is_left_holds_nothing(dropped: bool) -> None:
    """By the program, which leaves the limit or drops the results."""
    net, x, target = Net(), torch.randn(2, 1, 32, 32), torch.randint(0, 3, (2, 32, 32))
    card = Elsewhere(1 << 30)
    with memory_limit(1 << 40, card=card, planning=0.1) as run:
        F.cross_entropy(net(x), target).backward()
        run.step()
        timeline = run.timelines[0]
    limit = (least_limit(timeline) + timeline.peak_bytes) // 2
    with memory_limit(limit, card=card, planning=0.1) as run:
        for _ in range(5):
            F.cross_entropy(net(x), target).backward()
            run.step()
        (kind,) = run._steps.kinds
        assert kind.course is not None
        acts = {("run", n): ((n, n),) for n in range(1, len(timeline.operations))}
        kind.course.spacers = Spacers(card, Steering(0, acts, 0))
        loss = F.cross_entropy(net(x), target)
        assert card.taken_now == list(range(1, timeline.forward))
        if dropped:
            del loss
            loss = F.cross_entropy(net(x[:1]), target[:1])
            assert card.taken_now == []
    assert card.taken_now == []
    loss.backward()
    assert card.taken_now == []
    card.close()


def test_an_optimizer_that_fails_in_the_first_step_leaves_nothing_taken() -> None:
    class Partly(Elsewhere):
        """A page of its allocator is in use in part."""

        def heap(self) -> Heap:
            return Heap((Extent(0, False, True, ((MIB, True), (19 * MIB, False))),), True)

    net, x, target = Net(), torch.randn(2, 1, 32, 32), torch.randint(0, 3, (2, 32, 32))
    optimizer, card = torch.optim.LBFGS(net.parameters()), Partly(1 << 30)
    with memory_limit(1 << 40, card=card, planning=0.1):
        F.cross_entropy(net(x), target).backward()
        with pytest.raises(TypeError):
            optimizer.step()  # without its closure
        assert card.taken_now
        F.cross_entropy(net(x), target).backward()
        assert card.taken_now == []
    card.close()


@pytest.mark.usefixtures("tiny")
def test_what_optimizers_keep_lies_together() -> None:
    torch.manual_seed(0)
    sizes = [1024, 64, 128, 96, 3]
    layers = [nn.Linear(one, other) for one, other in itertools.pairwise(sizes)]
    net = nn.Sequential(*(part for one in layers for part in (one, nn.GELU())))
    x, target = torch.randn(16, 1024), torch.randint(0, 3, (16,))
    optimizer, counter = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9), Modelled()
    with counter:
        for tensor in (x, target, *net.parameters()):
            counter.add(tensor)
        card = ModelCard(counter)
        with memory_limit(1 << 40, card=card, planning=0.1):
            F.cross_entropy(net(x), target).backward()
            large = sum(one.weight.nbytes for one in layers)
            assert state_bytes(torch.device("cpu"), large=True) == large
            optimizer.step()
        assert state_bytes(torch.device("cpu")) == 0
        states = [optimizer.state[one.weight]["momentum_buffer"] for one in layers]
        places = sorted((card.address(one), one.nbytes) for one in states)
        end = max(card.address(one.weight) + one.weight.nbytes for one in layers)
        assert end <= places[0][0] < end + 20 * KIB  # a page
        assert places[-1][0] + places[-1][1] - places[0][0] <= large + 512 * len(places)
    card.close()


def test_gradients_make_room_for_what_optimizers_keep() -> None:
    """They keep their values; those whose memory others use keep their place, too."""
    lacks = [True, False]  # memory, for the second that comes back
    moved: set[int] = set()

    class Short(ModelCard):
        def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
            if nbytes and lacks and lacks.pop():
                raise torch.OutOfMemoryError
            moved.add(storage._cdata)
            super().resize(storage, nbytes)

    model = Modelled()
    with model:
        parameters = [nn.Parameter(torch.zeros(1024, 1024)) for _ in range(4)]
        flat = torch.rand(2, 1024, 1024)
        tall = torch.empty_strided((1024, 1024), (1, 1024)).uniform_()
        gradients = [*flat, tall, torch.rand(1024, 1024)]
        for one, gradient in zip(parameters, gradients, strict=True):
            one.grad = gradient
        optimizer = torch.optim.Adam(parameters)
        card, values = Short(model), [one.clone() for one in gradients]
        places = [one.data_ptr() for one in flat]
        before = card.held()
        memory = LowMemory(card)
        memory.open()
        assert lacks == []
        assert card.held() == before
        assert all(
            one.grad is gradient for one, gradient in zip(parameters, gradients, strict=True)
        )
        assert all(map(torch.equal, gradients, values))
        assert moved == {one.untyped_storage()._cdata for one in gradients[2:]}
        assert places == [one.data_ptr() for one in flat]
        del optimizer
    card.close()


def test_libraries_without_workspaces_are_left_alone() -> None:
    class Libraries(ModelCard):
        def allocate_workspaces(self) -> None:
            raise AssertionError("cuBLAS would load its kernels")

    card = Libraries(Modelled())
    card.give(card.take(400 * MIB))
    low = LowMemory(card)
    low.open()
    low.give()
    card.close()


@pytest.mark.parametrize("fails", ["heap", "free_workspaces", "take", "copy", ""])
def test_what_fails_while_memory_is_made_low_leaves_the_gradients(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only gradients that cannot come back are an error."""
    model = Modelled()
    with model:
        parameter = nn.Parameter(torch.zeros(1024, 1024))
        parameter.grad = torch.rand(1024, 1024)
        value, optimizer = parameter.grad.clone(), torch.optim.Adam([parameter])
        card = ModelCard(model)

        def fail(*_: object) -> NoReturn:
            raise RuntimeError("it fails")

        def lack(storage: torch.UntypedStorage, nbytes: int) -> None:
            if nbytes:
                raise torch.OutOfMemoryError
            ModelCard.resize(card, storage, nbytes)

        low = LowMemory(card)
        if fails == "copy":
            monkeypatch.setattr(low_memory, "_in_host_memory", fail)
        elif fails:
            monkeypatch.setattr(card, fails, fail)
        else:
            monkeypatch.setattr(card, "resize", lack)
            with pytest.raises(OutOfMemory, match="1 gradients of 4194304 bytes"):
                low.open()
        if fails:
            low.open()
            assert torch.equal(parameter.grad, value)
        low.give()
        del optimizer
    card.close()


def test_workspaces_leave_the_midst_of_what_is_free() -> None:
    class Libraries(ModelCard):
        """Libraries hold one workspace."""

        workspace = 0

        def free_workspaces(self) -> bool:
            if self.workspace:
                self.give(self.workspace)
            return bool(self.workspace)

        def allocate_workspaces(self) -> None:
            self.workspace = self.take(32 * MIB)

    model = Modelled()
    card = Libraries(model)
    parameter, tensor = card.take(30 * MIB), card.take(400 * MIB)
    card.allocate_workspaces()
    before, end = card.workspace, model.allocator.reserved
    card.give(tensor)
    low = LowMemory(card)
    low.open()
    assert parameter < card.workspace < parameter + 3 * PAGE < before
    assert before in model._taken  # until the step ends, whatever uses the workspace as it was
    low.give()
    card.trim()
    assert model.allocator.reserved == 4 * PAGE < end
    card.close()


def test_nothing_is_steered_without_expandable_segments() -> None:
    allocations, schedule, heap = stepwise([(1, 40)], [(1, 0)])
    fixed = Heap(heap.extents, expandable=False)
    assert steer(allocations.step(schedule), fixed, 1 << 40, time.monotonic() + 1) is None
