"""Host time of a memory limit's runtime: the short path of kept tensors, and the measured time that
later plans include."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from pytorch.trained import LIMIT, pair, several, step
from torch import Tensor

from oocdnn.torch.limit import host_clock, trials
from oocdnn.torch.limit.backward import Backward
from oocdnn.torch.limit.courses import ARRIVES, Planned
from oocdnn.torch.limit.entry import Entry, Held, Holder
from oocdnn.torch.limit.forward import Forward
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.recipes import Bound, Recipe
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.steps import Mode

if TYPE_CHECKING:
    from oocdnn.torch.limit.card import Card


def test_host_times_are_measured_without_a_recorder() -> None:
    """In the second and the third step of the plan before the last recording, and taken over by the
    plan that follows."""
    found = []
    card = HostCard()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        for _ in range(12):
            began = time.perf_counter()
            step(net, optimizer)
            spent, (known,) = time.perf_counter() - began, run._steps.kinds
            assert known.course is not None
            clocks, operations = known.course.clocks, known.timeline.operations
            found.append(len(clocks))
            if clocks:
                clock, last = clocks[-1], len(operations) - 1
                assert set(range(2, last)) <= set(clock.operations) <= set(range(last))
                assert 0 < sum(clock.operations.values()) + clock.runtime < spent
                clock.operations[2] = 10.0 * len(clocks)
        assert known.timeline.operations[2].host == 10.0  # of the faster step
        assert known.event_seconds >= 0.0
    card.close()
    assert found == [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0]


class _Ticking:
    """A card whose device reaches a mark only where somebody waits for it."""

    def __init__(self) -> None:
        self.made = 0
        self.waited: list[int] = []
        self.reused: list[int] = []

    def mark(self) -> int:
        self.made += 1
        return self.made

    def wait(self, mark: int) -> None:
        self.waited.append(mark)

    def reuse(self, marks: Iterable[int]) -> None:
        self.reused += marks


def test_a_host_clock_leaves_out_what_is_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations take 3 s, of which hooks that are no event take 1; events take 2, and waits for
    the device 100."""
    now, card = [0.0], _Ticking()

    def wait(mark: int) -> None:
        now[0] += 100.0
        card.waited.append(mark)

    monkeypatch.setattr(host_clock, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(card, "wait", wait)
    clock = host_clock.HostClock(cast("Card", card))
    now[0] += 50.0  # the first event, which another one than the clock's first hook was
    for event in range(2, 1001):
        now[0] += 2.0
        clock.ran(event - 1, now[0])
        now[0] += 1.0
        began = now[0]
        now[0] += 2.0
        clock.ran(event, began)
    assert clock.operations == dict.fromkeys(range(2, 1000), 3.0)
    assert clock.runtime == 2.0 * 999
    assert card.made == 1000 // 64
    assert card.waited == list(range(1, card.made - 3))  # four may be ahead
    clock.ran(1002, now[0])  # an event was missed
    assert len(clock.operations) == 998
    clock.stop()
    assert sorted(card.reused) == list(range(1, card.made + 1))


def test_hooks_of_several_threads_are_measured_one_after_the_other(card: HostCard) -> None:
    """Else the time of an operation, between two hooks, could be negative."""
    net, _, optimizer, _ = pair()
    entered, other = threading.Event(), threading.Event()

    def first(_: object) -> bool:
        entered.set()
        return other.wait(0.5)

    def second(_: object) -> None:
        other.set()

    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 5)
        net(torch.randn(8, 3, 16, 16))
        steps, found = run._steps, []
        under_way = steps._step
        assert under_way.clock is not None

        def run_first() -> None:
            found.append(steps._timed(under_way, first, None))

        threads = [threading.Thread(target=run_first)]
        threads.append(threading.Thread(target=steps._timed, args=(under_way, second, None)))
        threads[0].start()
        assert entered.wait(60)
        threads[1].start()
        for thread in threads:
            thread.join()
    assert found == [False]
    assert other.is_set()


def test_a_clock_ends_with_what_it_measures(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the step, where that differs from the plan, and where the limit is left."""
    stopped = []
    stop = host_clock.HostClock.stop

    def noted(self: host_clock.HostClock) -> None:
        stopped.append(self)
        stop(self)

    monkeypatch.setattr(host_clock.HostClock, "stop", noted)
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 6)
        assert len(stopped) == 1
        loss = net(torch.randn(8, 3, 16, 16)).sum()
        under_way = run._steps._step
        assert under_way.clock is not None
        under_way.differs()
        assert under_way.clock is None
        assert len(stopped) == 2
        loss.backward()
        run.step()
        several(net, optimizer, 1)
        net(torch.randn(8, 3, 16, 16))
        last = run._steps._step
    assert last.clock is None


def test_what_the_runtime_takes_the_host_counts(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 4)
        (known,) = run._steps.kinds
        assert known.plan is not None
        assert known.course is not None
        events = len(known.timeline.operations) - 1
        untimed = known.plan.simulation.host_before_last
        least = known.plan.simulation.host_before_last - sum(
            one.host for one in known.timeline.operations[:-1]
        )  # of copies and recipes
        measured(known.course, least + (events - 1) * 0.25)  # none after the last event
        for _ in range(2):
            known.update_host_times()
            assert not known.course.clocks  # they are taken over once
            told = known.timeline_with_runtime
            assert known.event_seconds == pytest.approx(0.25)
            hosts = [
                after.host - before.host
                for before, after in zip(known.timeline.operations, told.operations, strict=True)
            ]
            assert hosts == pytest.approx([0.0] + [0.25] * events)
        retimed = known.course.plan = known.plan.retimed(told, known.plan.links)
        assert retimed.simulation.host_before_last == pytest.approx(untimed + (events - 1) * 0.25)
        assert retimed.explain().plain == known.plan.explain().plain
        # By later steps, in which operations take the host longer.
        hosts = dict.fromkeys(range(1, events + 1), 0.5)
        measured(known.course, 99.0, hosts)
        measured(known.course, least + (events - 1) * 0.125, hosts)
        known.update_host_times()
        assert known.event_seconds == pytest.approx(0.125)
        assert [one.host for one in known.timeline.operations[1:]] == [0.5] * events
        measured(known.course, 0.0)
        known.update_host_times()
        assert known.event_seconds == 0.0


def measured(course: Planned, runtime: float, operations: dict[int, float] | None = None) -> None:
    """A step whose host times are these."""
    clock = host_clock.HostClock(course._store.card)
    clock.runtime, clock.operations = runtime, operations or {}
    course.clocks.append(clock)


def test_plans_are_made_with_the_time_of_the_runtime(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 7)  # the last recording follows
        (known,) = run._steps.kinds
        assert known.course is not None
        assert not known.measured
        measured(known.course, 100.0)
        known.course.clocks = known.course.clocks[-1:]
        several(net, optimizer, 1)
        assert known.measured
        assert known.plan is not None
        assert known.event_seconds > 0.1
        assert known.plan.seconds > 50
        assert known.plan.explain().plain < 50


def test_the_host_time_of_a_recipe_is_not_that_of_its_first_uses(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To bind and to compute one takes 1 s at first, by the clock of this test, and then 1 ms."""
    now, uses, computes, binds = [0.0], Counter[Any](), Recipe.compute, Recipe.bind
    held = []  # so that no other recipe takes the place of one that is freed

    def used(what: str, recipe: Recipe) -> None:
        held.append(recipe)
        key = what, id(recipe)
        uses[key] += 1
        now[0] += 1e-3 if uses[key] > (2 if what == "compute" else 1) else 1.0

    def compute(self: Recipe, *args: Any) -> Tensor:
        used("compute", self)  # first where it is admitted
        return computes(self, *args)

    def bind(self: Recipe, *args: Any) -> Bound | None:
        used("bind", self)
        return binds(self, *args)

    monkeypatch.setattr(Recipe, "compute", compute)
    monkeypatch.setattr(Recipe, "bind", bind)
    monkeypatch.setattr(trials, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 1)
        (known,) = run._steps.kinds
        hosts = [recipe.host for one in known.timeline.saved for recipe in one.recipes]
    assert len(hosts) > 3
    assert 1.9e-3 < min(hosts) < max(hosts) < 0.1  # of deep ones several calls


def test_the_host_time_of_another_step_is_discarded(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or of one whose steering ended midway, or in which memory was given back."""
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 4)
        (known,) = run._steps.kinds
        course = known.course
        assert course is not None
        clock = host_clock.HostClock(card)
        course.spacers.lost = True
        course.completed(clock)
        assert course.clocks == []
        course.spacers.lost = False
        with monkeypatch.context() as patch:
            patch.setattr(course.spacers, "trims", True)
            course.completed(clock)
        assert course.clocks == []
        course.completed(None)  # it was not measured
        assert course.clocks == []
        course.completed(clock)
        assert course.clocks == [clock]


def test_kept_tensors_take_the_short_path(card: HostCard, monkeypatch: pytest.MonkeyPatch) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 10)
        (known,) = run._steps.kinds
        course = known.course
        assert course is not None
        numbers = known.found.numbers
        arriving = [numbers[i] for i, code in enumerate(course.codes) if code == ARRIVES]
        idle = [number for number in arriving[1:] if course.idle(number + 1)]
        saved, read = [], []
        save, reads = Forward.try_short_path, Backward.try_short_path

        def save_noted(self: Forward, tensor: Tensor) -> Any:
            result = save(self, tensor)
            saved.append(type(result))
            return result

        def read_noted(self: Backward, held: Held) -> bool:
            read.append(reads(self, held))
            return read[-1]

        monkeypatch.setattr(Forward, "try_short_path", save_noted)
        monkeypatch.setattr(Backward, "try_short_path", read_noted)
        step(net, optimizer)
        assert run._steps.mode is Mode.FOLLOW
    assert idle
    assert saved.count(Held) >= len(idle)
    assert any(read)


def test_a_backward_pass_on_another_thread_ends_what_forward_follows(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 10)
        steps, began = run._steps, []
        torch.manual_seed(8)
        earlier = net(torch.randn(8, 3, 16, 16)).sum()
        run.step()

        def capturing() -> bool:
            under_way = steps._step
            index, codes = under_way.packs, under_way.codes
            if not began and index < len(codes) and codes[index] == ARRIVES:
                began.append(index)
                thread = threading.Thread(target=earlier.backward)
                thread.start()
                thread.join()
            return False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(card, "capturing", capturing)
            step(net, optimizer)
        assert began


def test_an_event_is_idle_where_nothing_is_late(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 4)
        (known,) = run._steps.kinds
        course = known.course
        assert course is not None
        idle = [number for number in range(len(known.timeline.operations)) if course.idle(number)]
        assert idle
        busy = {one.release for one in course.plan.schedule.movements.values()}
        assert not busy & set(idle)
        course._late.append(Entry(0, 4, torch.zeros(1), 0))
        assert not any(map(course.idle, idle))
        course._late.clear()


def test_the_short_path_sees_storages_of_another_size(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 10)
        (known,) = run._steps.kinds
        course = known.course
        assert course is not None
        assert run._steps.mode is Mode.FOLLOW
        numbers = known.found.numbers
        kept = [numbers[i] for i, code in enumerate(course.codes) if code == ARRIVES]
        number = next(one for one in kept[1:] if course.idle(one + 1))
        course._sizes[number] += 4
        step(net, optimizer)
        assert run._steps.mode is Mode.SWAP


def test_the_short_path_counts_reads_of_its_own_step_only(card: HostCard) -> None:
    """And none while the bytes of a moved tensor are to be let go."""
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 10)
        steps, own, others = run._steps, [], []

        def read(_: Tensor) -> None:
            backward, forward, under_way = steps._backward, steps._forward, steps._step
            holder = forward._holder()
            if holder is None or not under_way.course.idle(under_way.event + 1):
                return
            reading = list(backward._reading)
            backward._reading[:] = reading or [Entry(0, 4, torch.zeros(1), 0)]
            own.append(backward.try_short_path(Held(torch.ones(1), holder)))
            backward._reading.clear()
            others.append(backward.try_short_path(Held(torch.ones(1), Holder())))
            backward._reading[:] = reading

        handles = [one.register_hook(read) for one in net.parameters()]
        step(net, optimizer)
        for handle in handles:
            handle.remove()
        assert steps.mode is Mode.FOLLOW
    assert own
    assert not any(own + others)


def test_the_short_path_leaves_what_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    card = HostCard()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(net, optimizer, 10)
        found = []

        def captured(*_: object) -> None:
            under_way, forward = run._steps._step, run._steps._forward
            course = under_way.course
            if not under_way.selected or under_way.packs >= len(under_way.codes):
                return
            if under_way.codes[under_way.packs] == ARRIVES and course.idle(under_way.event + 1):
                assert isinstance(course, Planned)
                tensor = torch.empty(course._sizes[forward.count], dtype=torch.uint8)
                with monkeypatch.context() as patch:
                    patch.setattr(card, "capturing", lambda: True)
                    found.append(forward.try_short_path(tensor))

        handles = [one.register_forward_pre_hook(captured) for one in net.modules()]
        step(net, optimizer)
        for handle in handles:
            handle.remove()
        assert run._steps.mode is Mode.FOLLOW
    card.close()
    assert found
    assert found == [None] * len(found)
