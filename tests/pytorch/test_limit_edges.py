"""Unusual tensors, versions and courses of programs within a limit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import nn

from oocdnn.torch.limit.card import Copy
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.store import Store


def conjugates() -> torch.Tensor:
    x = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)
    y = 2 * x
    (x * y.conj()).abs().sum().backward()
    return x.grad


def negatives() -> torch.Tensor:
    x = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)
    y = 2 * x
    (x.real * y.conj().imag).sum().backward()
    return x.grad


def nested() -> torch.Tensor:
    rows = torch.randn(70, 40, requires_grad=True)
    x = torch.nested.as_nested_tensor([rows[:40], rows[40:]])
    torch.nested.to_padded_tensor((2 * x) * x, 0.0).sum().backward()
    return rows.grad


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("program", [conjugates, negatives, nested])
def test_tensors_of_which_a_storage_tells_too_little(
    card: HostCard, program: Callable[[], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    expected = program()
    with memory_limit(1 << 18, card=card, planning=0.1) as run:
        for _ in range(3):
            torch.manual_seed(0)
            assert torch.equal(program(), expected)
            run.step()


def test_a_recorded_step_leaves_the_device_where_more_than_half_of_the_limit_is_in_use() -> None:
    class Resident(HostCard):
        """Parameters take more than any limit; counts what leaves."""

        left = 0

        def copy_out(self, source: torch.Tensor, target: torch.Tensor) -> Copy:
            self.left += target.nbytes
            return super().copy_out(source, target)

    card = Resident()
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
    with memory_limit(1 << 20, card=card, planning=0.1):
        before = card.left  # of the link's measurement
        loss = net(torch.randn(100, 64)).sum()
        assert card.left - before == 5 * 100 * 64 * 4
        loss.backward()
    card.close()


def test_memory_that_is_used_again_holds_another_tensor(card: HostCard) -> None:
    """Its former tensor left the device in forward, and came back elsewhere."""
    memory = bytearray(4096)
    with memory_limit(1 << 20, card=card, planning=0.1) as run:
        steps = run._steps
        first = steps.pack(torch.frombuffer(memory, dtype=torch.float32).fill_(1.0))
        assert steps._store.drop(first.entry)
        steps._step.values.storage(first.entry)
        second = steps.pack(torch.frombuffer(memory, dtype=torch.float32).fill_(2.0))
        assert second.entry is not first.entry
        assert steps.unpack(first).eq(1.0).all()
        assert steps.unpack(second).eq(2.0).all()


def test_host_memory_does_not_grow_with_the_number_of_batch_sizes() -> None:
    class Counting(HostCard):
        bytes = most = 0

        def slab(self, nbytes: int) -> torch.Tensor:
            slab = super().slab(nbytes)
            self.bytes += nbytes
            self.most = max(self.most, self.bytes)
            weakref.finalize(slab, self.freed, nbytes)
            return slab

        def freed(self, nbytes: int) -> None:
            self.bytes -= nbytes

    def step(batch: int) -> None:
        net(torch.randn(batch, 64)).sum().backward()
        run.step()

    card = Counting()
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
    with memory_limit(1 << 18, card=card, planning=0.01) as run:
        step(99)
        first = card.most
        for batch in range(100, 120):
            step(batch)
        assert 0 < card.most <= 3 * first
    card.close()


def test_the_same_tensors_again_take_no_new_host_memory() -> None:
    class Counting(HostCard):
        slabs = 0

        def slab(self, nbytes: int) -> torch.Tensor:
            self.slabs += 1
            return super().slab(nbytes)

    def step(*sizes: int) -> None:
        entries = [Entry(i, size, card.empty(size), 0) for i, size in enumerate(sizes)]
        for entry in entries:
            store.hold(entry)
            store.leave(entry)
        for entry in reversed(entries):  # as in backward
            store.gone(entry)

    card = Counting()
    store = Store(card)
    step(3000, 3000, 3000, 2000)
    assert card.slabs == 4
    for _ in range(5):
        step(3000, 2000, 2000, 2000)
        assert card.slabs == 6  # two of 3000 are given up
    card.close()


def test_a_copy_back_has_ended_before_its_bytes_are_given_up() -> None:
    card = HostCard(rate=1e5)
    store, entry = Store(card), Entry(0, 8192, torch.arange(1024), 0)
    store.hold(entry)
    assert store.leave(entry)
    assert store.drop(entry)
    store.come(entry)
    back = entry.coming
    assert store.drop(entry)
    assert back.done()
    assert entry.coming is None
    card.close()


def test_a_storage_that_the_program_resized_stays() -> None:
    card = HostCard()
    store, memory = Store(card), torch.arange(1024)
    entry = Entry(0, 8192, memory.detach(), 0)
    store.hold(entry)
    memory.untyped_storage().resize_(0)
    assert not store.leave(entry)
    assert store.copies == 0
    assert not entry.comes_back
    card.close()


def test_versions_that_tell_less(card: HostCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.4 has no `torch.OutOfMemoryError`, and does not tell what a node saves."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.randn(4, 3, 16, 16)).square().mean().backward()
            optimizer.step()
        return list(net.parameters())

    expected = trained()
    monkeypatch.delattr(torch, "OutOfMemoryError")
    monkeypatch.delattr(torch._C._autograd.SavedTensor, "data")
    with memory_limit(60_000, card=card, planning=0.1):
        got = trained()
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_functional_transforms_in_versions_that_do_not_tell_the_hooks(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch before 2.8."""
    monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks")
    x = torch.randn(64, 64)
    with memory_limit(1 << 20, card=card, planning=0.1) as run:
        assert torch.equal(torch.func.grad(lambda x: x.square().sum())(x), 2 * x)
        y = torch.randn(64, 64, requires_grad=True)
        (2 * y).square().sum().backward()
        run.step()
        assert run.timelines  # the hooks are there again


def test_captured_graphs_are_left_alone() -> None:
    class Capturing(HostCard):
        captures = False

        def capturing(self) -> bool:
            return self.captures

        def trim(self) -> None:
            assert not self.captures

    card = Capturing()
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    with memory_limit("1GiB", card=card, planning=0.1) as run:
        for _ in range(3):
            net(torch.randn(100, 64)).sum().backward()
            card.captures = True
            net(torch.randn(90, 64)).sum().backward()
            card.captures = False
            run.step()
        assert run._steps.steps == 3
        assert len(run.timelines) == 1
    card.close()


def test_what_another_stream_works_on_stays() -> None:
    class Streams(HostCard):
        current = compute = 0

        def begin(self) -> None:
            self.compute = self.current

        def holds(self, tensor: torch.Tensor) -> bool:
            return self.current == self.compute

    card = Streams()
    with memory_limit(1 << 20, card=card, planning=0.1) as run:
        x = torch.randint(-4, 5, (64, 64)).float().requires_grad_()
        y = (2 * x).square()
        card.current = 1
        z = (3 * x).square()
        assert run._steps._forward.count == 1
        (y + z).sum().backward()
        run.step()
        (3 * x).square().sum().backward()  # a step of that stream
        run.step()
        assert len(run.timelines) == 1
        assert run._steps.kinds.latest.recorded == 2
    assert torch.equal(x.grad, 8 * x + 18 * x + 18 * x)
    card.close()


class Failing(HostCard):
    """Runs out of memory at a copy."""

    copies = -1

    def copy_out(self, source: torch.Tensor, target: torch.Tensor) -> Copy:
        self.copies -= 1
        if self.copies == 0:
            raise torch.cuda.OutOfMemoryError
        return super().copy_out(source, target)


def test_a_forward_that_fails_is_no_part_of_the_next_step() -> None:
    card = Failing()
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    with memory_limit(1 << 20, card=card, planning=0.1) as run:
        card.copies = 2
        with pytest.raises(torch.cuda.OutOfMemoryError):
            net(torch.randn(100, 64))
        net(torch.randn(90, 64)).sum().backward()
        run.step()
        assert [one.nbytes for one in run.timelines[0].saved] == 3 * [90 * 64 * 4]
    card.close()


def test_a_step_whose_backward_fails_is_not_planned(card: HostCard) -> None:
    class Fails(torch.autograd.Function):
        fails = True

        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):  # type: ignore[no-untyped-def]
            if Fails.fails:
                raise torch.cuda.OutOfMemoryError
            return gradient

    first, last = nn.Sequential(nn.Linear(64, 64), nn.Tanh()), nn.Sequential(nn.Linear(64, 64))
    with memory_limit(1 << 20, card=card, planning=0.1) as run:
        with pytest.raises(torch.cuda.OutOfMemoryError):
            last(Fails.apply(first(torch.randn(100, 64)))).square().sum().backward()
        Fails.fails = False
        for _ in range(3):
            last(Fails.apply(first(torch.randn(100, 64)))).square().sum().backward()
            run.step()
        assert all(saved.movable for saved in run.timelines[0].saved)
        assert run._steps.kinds.latest.recorded >= 2


class Logging(nn.Module):
    """Looks at a tensor, without a use in backward, and writes it in place before or after another
    one is computed from it."""

    def __init__(self, *, early: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(6))
        self.early = early

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block(torch.relu(self.layers[0](x)))
        for layer in self.layers[2:]:
            x = torch.tanh(layer(x))
        return x

    def block(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers[1](x)
        self.log = y.square().mean()
        if self.early:
            y += x
            return torch.relu(y)
        z = torch.relu(y + x)
        y += 1
        return z


@pytest.mark.parametrize("early", [True, False])
def test_a_tensor_that_backward_does_not_read_may_be_written(*, early: bool) -> None:
    """A recipe that reads it would raise."""

    def trained() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = Logging(early=early)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.randn(8, 8, 16, 16)).mean().backward()
            optimizer.step()
        return list(net.parameters())

    expected, card = trained(), HostCard(rate=2e7)
    with memory_limit(6 * 8 * 8 * 16 * 16 * 4, card=card, planning=0.1):
        got = trained()
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)
    card.close()


def test_parameters_are_not_held_after_the_limit(card: HostCard) -> None:
    """Although the last step, which followed a plan, did not end."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])
    with memory_limit(4 * 64 * 64 * 4, card=card, planning=0.1) as run:
        for last in (False, False, True):
            net(torch.randn(64, 64)).sum().backward()
            if not last:
                run.step()
    parameters = [weakref.ref(one) for one in net.parameters()]
    del net
    gc.collect()
    assert not any(one() is not None for one in parameters)


def test_a_context_that_cannot_begin_leaves_nothing_changed() -> None:
    """PyTorch refuses hooks within `disable_saved_tensors_hooks`."""
    run = memory_limit(1 << 20, card=HostCard(), planning=0.1)
    before = gc.get_threshold(), torch.autograd.grad
    with (
        torch.autograd.graph.disable_saved_tensors_hooks("none here"),
        pytest.raises(RuntimeError, match="none here"),
    ):
        run.__enter__()
    assert (gc.get_threshold(), torch.autograd.grad) == before
    x = torch.ones(4, requires_grad=True)
    with run:  # as if nothing had been
        (x * x).sum().backward()
    assert x.grad is not None
    assert (gc.get_threshold(), torch.autograd.grad) == before
