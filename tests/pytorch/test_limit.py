"""Training steps under a limit: the bits of plain PyTorch, whatever is planned."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import nn
from torch.nn import functional as F

from oocdnn.network.plan import Policy
from oocdnn.network.planner import Plan, least_limit, plan
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.steps import Mode, Steps

FAST, SLOW = Link(1e9, 1e9, 1.8e9), Link(1e6, 1e6, 1.8e6)


class Block(nn.Module):
    """Two convolutions with batch norms beside a shortcut, in place where torchvision's are."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.last = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.second(torch.relu_(self.norm(self.first(x)))))
        y += x
        return torch.relu_(y)


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Block(8),
        Block(8),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        Block(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


class Dense(nn.Module):
    """Concatenations, as in DenseNet, and a module that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Conv2d(3, 4, 3, padding=1)
        self.shared = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.end = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.begin(x)
        b = self.shared(a)
        c = self.shared(b)
        return self.end(F.gelu(torch.cat([a, b, c], 1)).mean((2, 3)))


NETS: dict[str, Callable[[], nn.Module]] = {"residual": residual, "dense": Dense}


def make(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net = NETS[name]()
    return net, torch.randn(2, 3, 16, 16), torch.randint(0, 5, (2,))


def train(
    net: nn.Module, x: torch.Tensor, target: torch.Tensor, hooks: object, steps: int
) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with hooks():  # type: ignore[operator]
            loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def planner(share: float, link: Link, made: list[Plan]) -> Callable[[Timeline], Plan]:
    def planned(timeline: Timeline, room: int, reserved: object, copying: object) -> Plan:
        del room
        least, most = least_limit(timeline), timeline.peak_bytes
        made.append(plan(timeline, [link], least + int(share * (most - least)), seconds=0.3))
        return made[-1]

    return planned


def hooks_of(steps: Steps) -> Callable[[], contextlib.AbstractContextManager[None]]:
    return lambda: torch.autograd.graph.saved_tensors_hooks(steps.pack, steps.unpack)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("share", "link"), [(0.0, FAST), (0.3, FAST), (0.3, SLOW), (1.0, FAST)])
def test_training_has_the_bits_of_plain_pytorch(
    card: HostCard, name: str, share: float, link: Link
) -> None:
    net, x, target = make(name)
    plain = copy.deepcopy(net)
    made: list[Plan] = []
    steps = Steps(card, 1 << 16, planner(share, link, made))
    expected = train(plain, x, target, contextlib.nullcontext, 6)
    assert train(net, x, target, hooks_of(steps), 6) == expected
    for theirs, ours in zip(plain.state_dict().values(), net.state_dict().values(), strict=True):
        assert torch.equal(theirs, ours)
    assert steps.mode is (Mode.KEEP if share == 1.0 else Mode.FOLLOW)
    assert made[0].fits == (share == 1.0)


def test_slow_links_have_activations_rebuilt(card: HostCard) -> None:
    net, x, target = make("residual")
    made: list[Plan] = []
    steps = Steps(card, 1 << 16, planner(0.4, SLOW, made))
    train(net, x, target, hooks_of(steps), 3)
    policies = [choice.policy for choice in made[-1].schedule.choices]
    assert Policy.REBUILD in policies


def test_a_step_that_differs_is_right(card: HostCard) -> None:
    net, x, target = make("residual")
    plain = copy.deepcopy(net)
    steps = Steps(card, 1 << 16, planner(0.2, FAST, []))
    for hooks, one in ((contextlib.nullcontext, plain), (hooks_of(steps), net)):
        train(one, x, target, hooks, 3)
        train(one, x[:1].repeat(3, 1, 1, 1), target[:1].repeat(3), hooks, 2)
        with hooks():
            one(x)  # nothing of it is asked for
        train(one, x, target, hooks, 2)
    for theirs, ours in zip(plain.state_dict().values(), net.state_dict().values(), strict=True):
        assert torch.equal(theirs, ours)


def test_a_tensor_that_is_written_after_it_was_saved_is_an_error(card: HostCard) -> None:
    card.least_bytes = 1
    steps = Steps(card, 1 << 16, lambda *_: None)
    a = torch.ones(1024, requires_grad=True).clone()
    with hooks_of(steps)():
        y = (a * a).sum()
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_backward_twice_and_of_gradients(card: HostCard) -> None:
    card.least_bytes = 1
    steps = Steps(card, 1 << 16, lambda *_: None)
    x = torch.randn(64, requires_grad=True)
    with hooks_of(steps)():
        y = (x.exp() * x).sum()
        (first,) = torch.autograd.grad(y, x, retain_graph=True)
        (again,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(again.sum(), x)
    assert torch.equal(first, again)
    torch.testing.assert_close(second, x.exp() * (x + 2))
