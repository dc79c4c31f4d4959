"""Steps with a convolution that alone passes the limit: it runs in parts, and the rest whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import nn

from oocdnn.bench.training.counting import Counter, CountingCard
from oocdnn.errors import OutOfMemory
from oocdnn.network.timeline import Operation, Saved, Timeline
from oocdnn.torch.limit import in_place, parts
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.steps import Mode
from oocdnn.torch.limit.table import Signature

BATCH, WIDE = 8, 16
SAMPLE = 4 * WIDE * 16 * 16  # bytes of the widest activation


class Workspace:
    """A device whose convolutions use twice the bytes of their input beside it, forward and
    backward, as cuDNN's do. Notes their batches."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counter = Counter()
        self.seen: list[int] = []
        self.card = CountingCard(self.counter)
        for name, x in (("_FORWARD", 0), ("_BACKWARD", 1)):
            patch.setattr(parts, name, _Own(getattr(parts, name), x, self))
        made = parts._whole

        def counted(*given: Any) -> torch.Tensor:
            whole = made(*given)
            self.counter.add(whole)
            return whole

        patch.setattr(parts, "_whole", counted)

    def run(self, x: torch.Tensor, results: Any) -> None:
        self.seen.append(x.size(0))
        for one in results if isinstance(results, tuple) else (results,):
            if one is not None:
                self.counter.add(one)
        more = 2 * x.numel() * x.element_size()
        self.counter.most = max(self.counter.most, self.counter.live() + more)


class _Own:
    def __init__(self, own: Any, x: int, device: Workspace) -> None:
        self._own, self._x, self._device = own, x, device

    def redispatch(self, keys: Any, *given: Any) -> Any:
        results = self._own.redispatch(keys, *given)
        self._device.run(given[self._x], results)
        return results


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    made = Workspace(monkeypatch)
    yield made
    made.card.close()


def network() -> nn.Sequential:
    """One wide convolution among narrow ones, on integers."""
    net = nn.Sequential(
        nn.Conv2d(1, WIDE, 1),
        nn.ReLU(),
        nn.Hardtanh(),
        nn.Conv2d(WIDE, WIDE, 3, padding=1),
        nn.ReLU(),
        nn.Hardtanh(),
        nn.MaxPool2d(4),
        nn.Conv2d(WIDE, 4, 3, padding=1),
        nn.Flatten(),
        nn.Linear(64, 1),
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.size()))
    return net


def step(net: nn.Module, batch: int = BATCH) -> torch.Tensor:
    """One step's loss; gradients stay exact in float32."""
    torch.manual_seed(batch)
    net.zero_grad()
    loss = net(torch.randint(-1, 2, (batch, 1, 16, 16)).float()).sum()
    loss.backward()
    return loss.detach()


def gradients(net: nn.Module) -> list[torch.Tensor]:
    return [one.grad.clone() for one in net.parameters() if one.grad is not None]


def replaced() -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key("aten::convolution", "CPU"))


def trained(device: Workspace, net: nn.Module, run: memory_limit, steps: int) -> int:
    """Most bytes of the last step."""
    for _ in range(steps):
        device.seen.clear()
        device.counter.most = device.counter.live()
        step(net)
        run.step()
    return device.counter.most


def test_a_convolution_beyond_the_limit_runs_in_parts(device: Workspace) -> None:
    net, plain = network(), network()
    expected = step(plain)
    for parameter in net.parameters():
        device.counter.add(parameter)
    # The wide convolution needs four activations in forward: x, y and its workspace.
    limit = 31 * BATCH * SAMPLE // 8
    with device.counter, memory_limit(limit, card=device.card, planning=0.2) as run:
        most = trained(device, net, run, 10)
        assert run._steps.mode is Mode.FOLLOW
        assert run.plan is not None
        assert most == run.plan.peak_bytes <= limit
        assert min(device.seen) < BATCH
        assert BATCH in device.seen  # others run whole
        assert replaced()
        assert torch.equal(step(net), expected)
        with torch.no_grad():
            device.seen.clear()
            net(torch.zeros(BATCH, 1, 16, 16))
            assert len(device.seen) > 3  # as in training
            device.seen.clear()
            net(torch.zeros(BATCH - 1, 1, 16, 16))
            assert device.seen == 3 * [BATCH - 1]
    assert not replaced()
    for one, other in zip(gradients(net), gradients(plain), strict=True):
        assert torch.equal(one, other)


def test_each_kind_of_step_has_parts_of_its_own(device: Workspace) -> None:
    net = network()
    for parameter in net.parameters():
        device.counter.add(parameter)
    limit = 31 * BATCH * SAMPLE // 8
    with device.counter, memory_limit(limit, card=device.card, planning=0.1) as run:
        for batch in (BATCH, 4) * 8:
            device.seen.clear()
            step(net, batch)
            run.step()
        assert device.seen == 6 * [4]
        assert run._steps.mode is Mode.KEEP
        trained(device, net, run, 1)
        assert run._steps.mode is Mode.FOLLOW
        assert min(device.seen) < BATCH


def test_kernels_are_pytorchs_own_where_all_fits_and_after_an_exception(
    device: Workspace,
) -> None:
    net = network()
    with device.counter, memory_limit("1GiB", card=device.card, planning=0.1) as run:
        trained(device, net, run, 1)
        assert replaced()  # while recording
        trained(device, net, run, 1)
        assert not replaced()
    with (
        device.counter,
        pytest.raises(OutOfMemory),
        memory_limit(BATCH * SAMPLE, card=device.card, planning=0.1) as run,
    ):
        trained(device, net, run, 8)
    assert not replaced()


def failing(device: Workspace, most: int) -> Callable[[torch.Tensor, Any], None]:
    run = device.run

    def checked(x: torch.Tensor, results: Any) -> None:
        run(x, results)
        if x.numel() * x.element_size() > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    return checked


def test_a_step_that_the_device_cannot_hold_trains_in_parts(
    device: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, plain = network(), network()
    expected = step(plain)
    monkeypatch.setattr(device, "run", failing(device, BATCH * SAMPLE // 4))
    with device.counter, memory_limit("1GiB", card=device.card, planning=0.1) as run:
        trained(device, net, run, 1)
        assert max(device.seen) == BATCH
        parted = device.seen.count(BATCH)
        trained(device, net, run, 5)
        assert device.seen.count(BATCH) < parted  # nothing is tried again
        assert run._steps.mode is Mode.KEEP
        assert torch.equal(step(net), expected)
    for one, other in zip(gradients(net), gradients(plain), strict=True):
        assert torch.equal(one, other)


class Gradients(HostCard):
    """Counts the bytes that one kind of gradients takes, beside what is saved.

    Args:
        name: Of the operation.
        own: PyTorch's kernel, called with the tensors in front.
        place: Number of the tensor that the gradient can be written in place of.
        more: Gradients that it takes with its own, where that is a new tensor and in place.
    """

    def __init__(self, own: Any, place: int, more: tuple[int, int]) -> None:
        super().__init__()
        self._own, self._place, self._more = own, place, more
        self._most = 0
        self.over: list[bool] = []
        self.run: memory_limit | None = None

    def redispatch(self, keys: Any, *given: Any, grad_input: torch.Tensor) -> None:
        over = grad_input is given[self._place]
        self._own.redispatch(keys, *given, grad_input=grad_input)
        if self.run is not None and grad_input.numel() == BATCH * SAMPLE // 4:
            self.over.append(over)
            self._most = self.held() + self._more[over] * grad_input.nbytes

    def held(self) -> int:
        return 0 if self.run is None else self.run._steps._store.resident

    def peak(self) -> int:
        most, self._most = max(self._most, self.held()), 0
        return most


@pytest.mark.parametrize("pools", [False, True])
def test_a_gradient_beyond_the_limit_is_written_in_place(
    pools: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pools:  # without the values of its input, and with as much of a workspace
        device = Gradients(in_place._POOLING, 1, (2, 2))
        monkeypatch.setattr(in_place, "_POOLING", device)
    else:
        device = Gradients(in_place._OPERATIONS["threshold_backward"], 0, (2, 1))
        monkeypatch.setitem(in_place._OPERATIONS, "threshold_backward", device)
    net, plain = network(), network()
    if pools:  # of what the ReLU in front reads too
        net[5], plain[5] = nn.Identity(), nn.Identity()
    expected = step(plain)
    limit = 11 * BATCH * SAMPLE // 4  # less than a saved tensor and two gradients of its size
    with memory_limit(limit, card=device, planning=0.2) as device.run:
        for _ in range(8):
            device.over.clear()
            step(net)
            device.run.step()
        assert device.over == ([True] if pools else [True, True])
        assert device.run._steps.mode is Mode.FOLLOW
        assert device.run.plan is not None
        assert device.run.plan.peak_bytes <= limit
        assert torch.equal(step(net), expected)
        device.run = None
    device.close()
    for one, other in zip(gradients(net), gradients(plain), strict=True):
        assert torch.equal(one, other)


def timeline(most: int, held: int = 0) -> Timeline:
    """Two operations, the second of `most` bytes of its own beside `held` ones that stay."""
    saved = (Saved("", held, 0, 0, (1,), movable=False),)
    return Timeline((Operation("", 0.0, 10), Operation("", 0.0, most)), 1, saved)


def ran(position: int) -> list[Signature]:
    return [("small",), ("large",)][position : position + 1]


def test_parts_are_doubled_until_the_operation_fits() -> None:
    division = Division()
    assert division.divides(timeline(100), 40, ran)
    assert division.parts == {("large",): 2}
    assert division.divides(timeline(60), 40, ran)
    assert division.parts == {("large",): 4}
    assert not division.divides(timeline(40), 40, ran)
    assert division.parts == {("large",): 4}


def test_what_runs_in_place_is_not_doubled_again() -> None:
    signature = ("threshold_backward", 0)
    division = Division()
    for most in (100, 80, 60):
        division.divides(timeline(most), 50, lambda position: [signature][1 - position :])
        assert division.parts == {signature: 2}


def test_parts_that_do_not_help_are_taken_back() -> None:
    division = Division()
    assert division.divides(timeline(100), 40, ran)
    assert division.divides(timeline(60), 40, ran)
    assert division.divides(timeline(60), 40, ran)
    assert division.divides(timeline(60), 40, ran)
    assert division.parts == {("large",): 2}
    assert not division.divides(timeline(60), 40, ran)


def test_parts_with_a_larger_workspace_are_doubled_once_more() -> None:
    """As where an algorithm is taken that the workspace of more images ruled out."""
    division = Division()
    for most, count in ((100, 2), (60, 4), (70, 8), (50, 16)):
        assert division.divides(timeline(most), 40, ran)
        assert division.parts == {("large",): count}
    assert not division.divides(timeline(40), 40, ran)
    assert division.parts == {("large",): 16}


def test_parts_are_doubled_while_a_larger_workspace_shrinks() -> None:
    division = Division()
    for most, count in ((100, 2), (45, 4), (70, 8), (55, 16), (47, 32)):
        assert division.divides(timeline(most), 40, ran)
        assert division.parts == {("large",): count}
    assert not division.divides(timeline(39), 40, ran)
    assert division.parts == {("large",): 32}


def test_what_lasts_does_not_count_against_parts() -> None:
    """As the state of an optimizer, which the first recorded step does not have."""
    division = Division()
    assert division.divides(timeline(100), 60, ran)
    more = Timeline((Operation("", 0.0, 40), Operation("", 0.0, 110)), 1, timeline(0).saved)
    assert division.divides(more, 60, ran)
    assert division.parts == {("large",): 4}


def test_what_no_parts_can_help_is_recorded_twice_and_stays_whole() -> None:
    division = Division()
    assert division.divides(timeline(100, held=50), 40, ran)
    assert not division.divides(timeline(99, held=50), 40, ran)
    assert not division.parts


def two(forward: int, backward: int) -> Timeline:
    """An operation of forward and one of backward, with so many bytes."""
    operations = (Operation("", 0.0, forward), Operation("", 0.0, backward))
    return Timeline(operations, 1, (Saved("", 1, 0, 0, (1,)),))


def test_what_leaves_little_to_gaps_is_divided_first() -> None:
    division = Division()
    assert division.continues(two(140, 155), 160, 90, ran)
    assert division.parts == {("large",): 2}
    division = Division()
    assert division.continues(two(155, 155), 160, 90, ran)
    assert division.parts == {("small",): 2, ("large",): 2}


def test_more_parts_of_forward_come_before_those_of_backward() -> None:
    division = Division()
    assert division.continues(two(90, 100), 160, 80, ran)
    assert division.parts == {("small",): 2}
    assert division.continues(two(45, 100), 160, 80, ran)
    assert division.parts == {("small",): 2, ("large",): 2}
    assert not division.continues(two(45, 50), 160, 80, ran)
    assert not division.divides(two(45, 50), 160, ran)


def test_plans_that_pass_the_limit_by_gaps_lead_to_parts(
    device: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver counts an eighth more than the tensors."""
    net, plain = network(), network()
    expected = step(plain)
    for parameter in net.parameters():
        device.counter.add(parameter)
    limit = 35 * BATCH * SAMPLE // 8
    monkeypatch.setattr(device.card, "taken", lambda: device.counter.most * 9 // 8)
    with device.counter, memory_limit(limit, card=device.card, planning=0.1) as run:
        most = trained(device, net, run, 30)
        assert run._steps.mode is Mode.FOLLOW
        assert most * 9 // 8 <= limit
        assert min(device.seen) < BATCH
        assert torch.equal(step(net), expected)
    for one, other in zip(gradients(net), gradients(plain), strict=True):
        assert torch.equal(one, other)
