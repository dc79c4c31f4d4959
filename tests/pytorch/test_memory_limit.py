"""`memory_limit` as a program uses it, on the CPU's tensors as a device's."""

from __future__ import annotations

import copy
import gc
import random
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from pytorch.trained import LIMIT, block, network, pair, several, step
from torch import Tensor, nn

from oocdnn.errors import DeviceError, InvalidProblem, OutOfMemory
from oocdnn.network.planner import least_limit
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit import parts
from oocdnn.torch.limit.card import Copy
from oocdnn.torch.limit.collector import collector
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.overrides import overrides
from oocdnn.torch.limit.record import Record, Recorder
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.steps import Mode
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.table import Table


def test_steps_end_with_the_optimizers(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        assert run.plan is None
        losses = [step(ours, mine) for _ in range(6)]
        assert run.plan is not None
        assert run.plan.peak_bytes <= LIMIT
        assert not run.plan.fits
        assert run._steps.steps == 6
        assert run._steps.mode is Mode.FOLLOW
    assert losses == [step(theirs, plain) for _ in range(6)]


def test_a_plan_is_final_after_the_measured_steps(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        assert not run.settled
        for number in range(10):
            step(net, optimizer)
            assert run.settled == (number == 9)
        final = run.plan
        several(net, optimizer, 3)
        assert run.plan is final
    with memory_limit("1GiB", card=card, planning=0.2) as run:
        several(net, optimizer, 3)
        assert run.settled


def test_text_names_the_limit_and_a_limit_with_room_changes_nothing(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()
    with memory_limit("1GiB", card=card, planning=0.2) as run:
        losses = [step(ours, mine) for _ in range(4)]
        assert run.plan is not None
        assert run.plan.fits
        assert run._steps.mode is Mode.KEEP
    assert losses == [step(theirs, plain) for _ in range(4)]


def test_two_kinds_of_steps_have_a_plan_each(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()
    order = [8, 7, 8, 7, 7, 8, 7]
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        losses = [step(ours, mine, batch) for batch in order]
        assert len(run.timelines) == 2
        assert run._steps.mode is Mode.FOLLOW
    assert losses == [step(theirs, plain, batch) for batch in order]


def deeper() -> nn.Module:
    """Begins as `network` does."""
    return nn.Sequential(*network()[:-3], *block(8), *block(8), nn.Flatten(), nn.LazyLinear(5))


@pytest.mark.parametrize("turns", ["ab", "aaab", "abb"])
def test_networks_that_begin_alike_take_turns(card: HostCard, turns: str) -> None:
    made = [network(), deeper()]
    for net in made:
        net(torch.ones(2, 3, 16, 16))  # makes its lazy layers
    plain = copy.deepcopy(made)
    mine, theirs = (
        [torch.optim.SGD(n.parameters(), lr=0.1) for n in some] for some in (made, plain)
    )
    order = ["ab".index(turn) for turn in turns]
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        for _ in range(14):
            for which in order:
                step(made[which], mine[which])
        sizes = set()
        for which in order:
            step(made[which], mine[which])
            assert run._steps.mode is Mode.FOLLOW
            assert run.plan is not None
            sizes.add(len(run.plan.timeline.saved))
        assert len(sizes) == 2
    for _ in range(15):
        for which in order:
            step(plain[which], theirs[which])
    for a, b in zip(made, plain, strict=True):
        for one, other in zip(a.parameters(), b.parameters(), strict=True):
            assert torch.equal(one, other)


def test_steps_at_random_are_recorded_a_few_times(card: HostCard) -> None:
    """Networks of one to five blocks, as dropped layers make them, in no order."""
    made = [
        nn.Sequential(*block(3), *n * block(8), nn.Flatten(), nn.LazyLinear(5)) for n in range(5)
    ]
    for net in made:
        net(torch.ones(2, 3, 16, 16))
    some = [torch.optim.SGD(net.parameters(), lr=0.1) for net in made]
    draw = random.Random(0)
    with memory_limit(LIMIT, card=card, planning=0.05) as run:
        recorded = []
        for _ in range(120):
            which = draw.randrange(5)
            step(made[which], some[which])
            recorded.append(run._steps.mode is Mode.RECORD)
        assert sum(recorded) <= 7
        assert not any(recorded[80:])


def test_the_history_of_allocations_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that ran once only does not have all steps from there on watched."""
    card = HostCard()
    watched = []
    monkeypatch.setattr(card, "watch", lambda: bool(watched.append(True)))
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.05):
        several(net, optimizer, 8)
        step(net, optimizer, 6)
        several(net, optimizer, 8)
        watched.clear()
        several(net, optimizer, 4)
        assert not watched
    card.close()


def test_a_further_kind_without_a_plan_is_swapped_and_others_follow() -> None:
    class Peaks(HostCard):
        most = 0

        def peak(self) -> int:
            return self.most

    card = Peaks()
    made = [network(), deeper()]
    made[1](torch.ones(2, 3, 16, 16))  # makes its lazy layers
    plain = copy.deepcopy(made)
    mine, theirs = (
        [torch.optim.SGD(n.parameters(), lr=0.1) for n in some] for some in (made, plain)
    )
    modes = []

    def turns(run: memory_limit) -> None:
        for _ in range(12):
            for which, most in ((0, 0), (1, LIMIT + 1)):
                card.most = most
                step(made[which], mine[which])
                modes.append(run._steps.mode)

    with memory_limit(LIMIT, card=card, planning=0.05) as run:
        with pytest.warns(UserWarning, match="steps of one kind are swapped from here on"):
            turns(run)
        assert modes[-4:] == [Mode.FOLLOW, Mode.SWAP] * 2
    card.close()
    for _ in range(12):
        for which in (0, 1):
            step(plain[which], theirs[which])
    for a, b in zip(made, plain, strict=True):
        for one, other in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)  # convolutions in parts


def test_a_step_that_fits_says_nothing_of_a_larger_one_that_begins_alike(card: HostCard) -> None:
    small = nn.Sequential(*block(3), nn.Flatten(), nn.Linear(8 * 256, 5))
    large = network()
    some = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (small, large)]
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        several(small, some[0], 3)
        assert run._steps.mode is Mode.KEEP
        step(large, some[1])
        assert run._steps.mode is Mode.SWAP
        for _ in range(12):
            step(small, some[0])
            step(large, some[1])
        assert run._steps.mode is Mode.FOLLOW
        step(small, some[0])
        assert run._steps.mode is Mode.KEEP


def test_forward_without_backward_ends_a_step_that_is_kept(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit("1GiB", card=card, planning=0.1) as run:
        for _ in range(6):
            net(torch.ones(8, 3, 16, 16)).sum().item()
            step(net, optimizer)
            assert run._steps.steps < 4 or run._steps.mode is Mode.KEEP
        assert len(run.timelines) == 1


def test_forward_without_backward_ends_a_planned_step(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        for _ in range(9):
            net(torch.ones(8, 3, 16, 16)).sum().item()
            step(net, optimizer)
        assert run._steps.mode is Mode.FOLLOW
        assert len(run.timelines) == 1


def test_evaluation_accumulation_and_exceptions_in_between(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()

    def program(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        losses = [step(net, optimizer) for _ in range(3)]
        net.eval()
        with torch.no_grad():
            losses.append(net(torch.ones(8, 3, 16, 16)).sum().item())
        net.train()
        losses.append(step(net, optimizer))
        half = net[:4](torch.ones(8, 3, 16, 16))  # as an exception leaves it
        losses.append(step(net, optimizer))
        del half
        optimizer.zero_grad()
        for _ in range(3):  # micro-batches
            loss = net(torch.ones(8, 3, 16, 16)).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        first = net(torch.ones(8, 3, 16, 16)).sum()
        second = net(torch.zeros(8, 3, 16, 16)).square().sum()
        optimizer.zero_grad()
        second.backward()
        first.backward()
        optimizer.step()
        return [*losses, step(net, optimizer)]

    with memory_limit(LIMIT, card=card, planning=0.2):
        losses = program(ours, mine)
    assert losses == program(theirs, plain)
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_functional_transforms_run_within_a_limit(card: HostCard) -> None:
    def cubed(x: torch.Tensor) -> torch.Tensor:
        return (x**3).sum()

    x = torch.arange(5.0)
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        assert torch.equal(torch.func.grad(cubed)(x), 3 * x**2)
        assert torch.equal(torch.func.vmap(torch.func.grad(cubed))(x[:, None])[:, 0], 3 * x**2)
        with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
            pass
        net, _, optimizer, _ = pair()
        step(net, optimizer)
        assert run._steps.steps == 1
    with (
        pytest.raises(RuntimeError, match="not here"),
        torch.autograd.graph.disable_saved_tensors_hooks("not here"),
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass


def test_hooks_within_a_limit_are_left_where_they_are(card: HostCard) -> None:
    x = torch.arange(5.0)
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        with (
            torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
            pytest.raises(RuntimeError, match="saved tensor hooks"),
        ):
            torch.func.grad(lambda a: a.square().sum())(x)
        net, _, optimizer, _ = pair()
        step(net, optimizer)
        assert run._steps.steps == 1


def test_nothing_of_pytorch_stays_changed(card: HostCard) -> None:
    names = ("_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable")
    before = [getattr(torch._C._autograd, name) for name in names]
    with memory_limit(LIMIT, card=card), memory_limit(2 * LIMIT, card=card):
        assert torch.equal(torch.func.grad(torch.sum)(torch.ones(3)), torch.ones(3))
    assert [getattr(torch._C._autograd, name) for name in names] == before


def test_the_collectors_first_threshold_is_higher_within_a_limit(card: HostCard) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(500, 9, 8)
        with memory_limit(LIMIT, card=card):
            assert gc.get_threshold()[:2] == (4000, 9)
            with memory_limit(2 * LIMIT, card=card):
                assert gc.get_threshold()[:2] == (4000, 9)
        assert gc.get_threshold()[:2] == (500, 9)
        with memory_limit(LIMIT, card=card):
            gc.set_threshold(100, 9, 8)
        assert gc.get_threshold()[:2] == (100, 9)  # the program's own
        gc.set_threshold(1 << 30, 9, 8)
        with memory_limit(LIMIT, card=card):
            assert gc.get_threshold()[:2] == ((1 << 31) - 1, 9)
        gc.set_threshold(0, 9, 8)
        with memory_limit(LIMIT, card=card):
            assert gc.get_threshold()[:2] == (0, 9)
    finally:
        gc.set_threshold(*before)


def test_the_collectors_first_threshold_counts_what_steps_save(card: HostCard) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(500, 9, 8)
        with memory_limit(LIMIT, card=card):
            for saved, threshold in ((100, 4400), (50, 4400), (200, 4800)):
                collector.expects(saved)
                assert gc.get_threshold()[0] == threshold
            gc.set_threshold(100, 9, 8)
            collector.expects(300)
            assert gc.get_threshold()[0] == 100  # the program's own
        collector.expects(400)
        assert gc.get_threshold()[0] == 100
        with memory_limit(LIMIT, card=card):
            assert gc.get_threshold()[0] == 800
            net, _, optimizer, _ = pair()
            step(net, optimizer)
            assert gc.get_threshold()[0] > 800
        assert gc.get_threshold()[0] == 100
    finally:
        gc.set_threshold(*before)


def test_compiled_networks_train_within_a_limit(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()
    with memory_limit(2 * LIMIT, card=card, planning=0.2) as run:  # saved by one operation
        compiled = torch.compile(ours, backend="aot_eager")
        losses = [step(compiled, mine) for _ in range(6)]
        assert run._steps.steps == 6
    compiled = torch.compile(theirs, backend="aot_eager")
    assert losses == [step(compiled, plain) for _ in range(6)]


def test_another_thread_is_not_limited(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.2) as run:
        thread = threading.Thread(target=step, args=(net, optimizer))
        thread.start()
        thread.join()
        assert run._steps.steps == 0
        assert run.timelines == []


def test_backward_after_the_end_of_the_limit(card: HostCard) -> None:
    ours, theirs, _, _ = pair()
    x = torch.ones(8, 3, 16, 16)
    with memory_limit(LIMIT, card=card, planning=0.2):
        loss = ours(x).sum()
    loss.backward()
    theirs(x).sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_a_limit_that_is_too_small_says_what_suffices(card: HostCard) -> None:
    net, _, optimizer, _ = pair()
    run = memory_limit(100_000, card=card, planning=0.2)
    with run, pytest.raises(OutOfMemory, match="100000") as caught:
        several(net, optimizer, 8)  # the first ones are recorded again, with smaller parts
    assert caught.value.least == least_limit(run.timelines[0])


@pytest.mark.parametrize("limit", [0, -1, "12 apples", "", 1.5, None, True])
def test_limits_that_are_none_are_refused(card: HostCard, limit: object) -> None:
    with pytest.raises(InvalidProblem, match="limit is"):
        memory_limit(limit, card=card)  # type: ignore[arg-type]


def test_a_limit_in_use_is_not_entered_again(card: HostCard) -> None:
    run = memory_limit(LIMIT, card=card)
    with run, pytest.raises(InvalidProblem, match="in use"), run:
        pass
    with run:
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(DeviceError, match="needs a GPU"):
        memory_limit("1GiB")


def test_a_convolution_beyond_the_limit_runs_backward_in_parts(card: HostCard) -> None:
    class Counting(HostCard):
        """Says that operations use more than any limit, and less each time."""

        most = 1 << 40

        def peak(self) -> int:
            self.most -= 1 << 20
            return self.most

    counting = Counting()
    ours, theirs, mine, plain = pair()
    with memory_limit(1 << 20, card=counting, planning=0.2) as run:
        with pytest.raises(OutOfMemory):
            several(ours, mine, 8)
        assert max(run._steps.kinds.latest.division.parts.values()) == parts.MOST
    counting.close()
    for _ in range(run._steps.steps + 1):
        step(theirs, plain)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_what_operations_recipes_and_copies_take_the_host_is_measured(card: HostCard) -> None:
    recorder = Recorder(card, Store(card), False, Table("cpu", overrides.count))
    entry = Entry(0, 64, None, 0)
    recorder.recipe(entry, (), "rebuild", 1.0, 1.25, 0.125, 0)
    recorder.recipe(entry, (), "rebuild", 1.0, 1.25, 0.5, 0)
    known = recorder._recipes(entry)
    assert [(one.seconds, one.host) for one in known] == [(0.25, 0.125), (0.25, 0.5)]

    recorder.begin()
    time.sleep(0.01)
    recorder.stop(None)
    recorder.go()
    (first, second), sure = recorder.operations()
    assert 0.01 <= first.host <= first.seconds
    waited = Timeline((replace(first, host=0.001), replace(second, host=1e6)), 1)
    recorder.before = Record(waited, sure)
    again, _ = recorder.operations()  # the least of both
    assert again[0].host == 0.001
    assert again[1].host < 1e6

    class Late(HostCard):
        delay = 0.01

        def copy_in(self, source: Tensor, target: Tensor) -> Copy:
            time.sleep(self.delay)
            return super().copy_in(source, target)

    late = Late()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=late, planning=0.1) as run:
        assert run.links[0].host >= 0.005  # of a copy: half of those of both ways
        late.delay = 0.1
        step(net, optimizer)
        assert run.plan.links[0].host >= 0.05  # as in the recorded step
    late.close()


def test_the_time_of_an_operation_has_no_wait_for_the_host_in_it() -> None:
    class Device(HostCard):
        """Its host is ahead, or not, and its operations take one second more each time."""

        ahead, busied, waited, marks = False, [], 0, 0

        def reached(self, mark: float) -> bool:
            return not self.ahead

        def wait(self, mark: float) -> None:
            self.waited += 1

        def busy(self, seconds: float) -> None:
            self.busied.append(seconds)

        def seconds(self, begin: float, end: float) -> float:
            self.marks += 1
            return float(self.marks)

    device = Device()

    def recorded(ahead: bool, before: Record | None = None) -> Record:
        device.ahead, device.busied = ahead, []
        recorder = Recorder(device, Store(device), False, Table("cpu", overrides.count))
        recorder.before = before
        recorder.begin()
        recorder.stop(None)
        recorder.go()
        operations, sure = recorder.operations()
        return Record(Timeline(operations, 1), sure)

    def seconds(record: Record) -> list[float]:
        return [one.seconds for one in record.timeline.operations]

    first = recorded(False)
    assert seconds(first) == [1.0, 2.0]
    assert first.sure == (False, False)
    assert device.busied == pytest.approx([3e-4, 3e-4])  # what the host takes is not known
    least = recorded(False, first)
    assert seconds(least) == [1.0, 2.0]
    assert least.sure == (False, False)
    known = recorded(True, least)
    assert device.busied == [1.5 * one.host for one in least.timeline.operations]
    assert seconds(known) == [5.0, 6.0]
    assert known.sure == (True, True)
    again = recorded(False, known)
    assert device.busied == []  # all is known
    assert seconds(again) == [5.0, 6.0]
    assert again.sure == (True, True)

    device.ahead, device.busied = True, []
    recorder = Recorder(device, Store(device), False, Table("cpu", overrides.count))
    recorder.begin()
    for _ in range(100):
        recorder.stop(None)
        recorder.go()
    assert len(device.busied) == 8  # the device is far enough behind
    assert device.waited == 100 - 64  # and no further: a full queue holds the host up
    device.close()


class Resident(HostCard):
    """Counts what the limit's own entries have on the device."""

    run: memory_limit | None = None

    def used(self) -> int:
        return 0 if self.run is None else self.run._steps._store.resident


def test_what_a_program_holds_does_not_hold_up_copies() -> None:
    """Copied tensors that nobody holds are given up although others before them are held."""
    card = Resident(least_bytes=1 << 8)
    weight, w = torch.randn(16, 16, requires_grad=True), torch.randn(1000, requires_grad=True)
    with memory_limit(200_000, card=card, planning=0.05) as run:
        card.run = run
        h, x, held, resident = torch.randn(4, 16), torch.randn(1000), [], []
        for _ in range(400):
            h = torch.tanh(h @ weight)
            held.append(h)
        for _ in range(200):
            x = torch.sin(x * w)
            resident.append(card.used())
        assert max(resident) <= 200_000
        (x.sum() + sum(one.sum() for one in held)).backward()
    card.close()


class Gaps(HostCard):
    """Takes more from the driver than tensors need, by a share of the latest plan's peak."""

    run: memory_limit | None = None
    share = 0.0

    def taken(self) -> int:
        assert self.run is not None
        assert self.run.plan is not None
        return int((1 + self.share) * self.run.plan.peak_bytes)


def test_plans_leave_room_for_the_gaps_of_the_allocator() -> None:
    card = Gaps()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        card.run, card.share = run, 0.05
        several(net, optimizer, 16)
        assert run.plan is not None
        assert 1.05 * run.plan.peak_bytes <= LIMIT
        assert run._steps.mode is Mode.FOLLOW
    card.close()


def test_the_second_step_of_a_plan_is_looked_at_too() -> None:
    """It begins with what the first leaves in the allocator."""

    class Later(Gaps):
        looks = 0

        def taken(self) -> int:
            self.looks += 1
            return LIMIT + (1 << 14) if self.looks == 2 else super().taken()

    card = Later()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        card.run = run
        several(net, optimizer, 9)
        first = run.plan
        step(net, optimizer)
        assert (card.looks, run.settled) == (2, False)
        assert run.plan is not first
        several(net, optimizer, 2)
        assert (card.looks, run.settled) == (4, True)
    card.close()


def test_gaps_are_said_once_where_a_warning_is_an_error() -> None:
    card = Gaps()
    ours, _, mine, _ = pair()

    def raises() -> bool:
        try:
            step(ours, mine)
        except UserWarning:
            return True
        return False

    with memory_limit(LIMIT, card=card, planning=0.1) as run, warnings.catch_warnings():
        warnings.simplefilter("error")
        card.run, card.share = run, 5.0
        assert sum(raises() for _ in range(20)) == 1
        assert run.settled
    card.close()


def test_gaps_that_no_plan_avoids_are_said_once() -> None:
    card = Gaps()
    ours, theirs, mine, plain = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        card.run, card.share = run, 5.0
        with pytest.warns(UserWarning, match="leaves gaps between tensors") as found:
            several(ours, mine, 16)
        said = [one for one in found if "leaves gaps" in str(one.message)]
        assert [Path(one.filename).name for one in said] == ["trained.py"]  # the program's line
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            several(ours, mine, 2)
    several(theirs, plain, 18)
    card.close()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_steps_that_differ_say_nothing_of_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the driver counts."""
    card = Gaps()
    net, _, optimizer, _ = pair()
    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        card.run = run
        several(net, optimizer, 8)
        (known,) = run._steps.kinds
        assert known.measured
        monkeypatch.setattr(run._steps.planning, "_divides", lambda *_: True)
        card.share = 5.0
        for _ in range(2):
            loss = net(torch.ones(8, 3, 16, 16)).sum()
            torch.autograd.grad(loss, list(net.parameters())[-1])
            run.step()
            assert known.gaps.tried == 0
        assert list(run._steps.kinds) == [known]
    card.close()


def test_a_kind_that_was_recorded_by_chance_is_recorded_anew(card: HostCard) -> None:
    ours, theirs, mine, plain = pair()
    x = torch.ones(8, 3, 16, 16)

    def unusual(net: nn.Module) -> None:
        loss = net(x).sum() + net[0](x).sum()
        loss.backward()

    with memory_limit(LIMIT, card=card, planning=0.1) as run:
        unusual(ours)
        run.step()
        several(ours, mine, 4)
        assert run._steps.mode is Mode.RECORD
        several(ours, mine, 2)
        assert run._steps.mode is Mode.FOLLOW
        forgotten = ours(x)  # a forward pass without backward
        del forgotten
        several(ours, mine, 2)
        assert run._steps.mode is Mode.FOLLOW
    unusual(theirs)
    several(theirs, plain, 6)
    theirs(x)
    several(theirs, plain, 2)
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(a, b)
