"""Programs as people write them, within a limit: the bits of plain PyTorch, whatever they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.steps import Mode

Tensors = list[torch.Tensor]
STEPS = 6


def images(number: int) -> torch.Tensor:
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(number))


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def network() -> nn.Sequential:
    return nn.Sequential(block(3, 8), block(8, 8), nn.MaxPool2d(2), block(8, 8), block(8, 8))


def after(*nets: nn.Module) -> Tensors:
    return [value.clone() for net in nets for value in net.state_dict().values()]


def with_checkpoints(reentrant: bool) -> Callable[[], Tensors]:
    def program() -> Tensors:
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for number in range(STEPS):
            x = images(number).requires_grad_()
            y = checkpoint(net[:2], x, use_reentrant=reentrant)
            loss = checkpoint(net[2:], y, use_reentrant=reentrant).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return after(net)

    return program


def nested_checkpoint() -> Tensors:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(net[1], net[0](x), use_reentrant=False)

    for number in range(STEPS):
        y = checkpoint(inner, images(number), use_reentrant=False)
        optimizer.zero_grad()
        net[2:](y).square().mean().backward()
        optimizer.step()
    return after(net)


def mixed_precision() -> Tensors:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    for number in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(images(number)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return after(net)


def adversaries() -> Tensors:
    maker, judge = network(), network()
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (maker, judge)]
    for number in range(STEPS):
        made = maker(images(number))[:, :3].repeat_interleave(2, 2).repeat_interleave(2, 3)
        optimizers[1].zero_grad()
        (judge(made.detach()).mean() - judge(images(number + 100)).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        judge(made).mean().neg().backward()
        optimizers[0].step()
    return after(maker, judge)


def two_losses_and_a_kept_graph() -> Tensors:
    net = network()
    head = nn.Conv2d(8, 2, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    for number in range(STEPS):
        middle = net[:3](images(number))
        end = net[3:](middle)
        optimizer.zero_grad()
        head(middle).square().mean().backward(retain_graph=True)
        end.square().mean().backward()
        optimizer.step()
    return after(net, head)


def gradient_penalty() -> Tensors:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(STEPS):
        x = images(number).requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        (slope.square().mean() + net(x).square().mean()).backward()
        optimizer.step()
    return after(net)


def shared_and_tied() -> Tensors:
    net = network()
    net[4] = net[3]
    first = nn.Conv2d(3, 8, 3, padding=1)
    second = nn.Conv2d(8, 8, 3, padding=1)
    third = nn.Conv2d(8, 8, 3, padding=1)
    third.weight = second.weight
    optimizer = torch.optim.SGD(
        [*net.parameters(), *first.parameters(), *second.parameters()], lr=0.1
    )
    for number in range(STEPS):
        x = images(number)
        optimizer.zero_grad()
        (net(x).square().mean() + third(second(first(x)).relu()).square().mean()).backward()
        optimizer.step()
    return after(net, first, second)


class Scaled(torch.autograd.Function):
    """Saves tensors by both ways that there are."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, factor)
        ctx.held = x.square()
        return ctx.held * factor

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, factor = ctx.saved_tensors
        return 2 * x * factor * gradient, (ctx.held * gradient).sum()


def functions_of_its_own() -> Tensors:
    net = network()
    factor = nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([*net.parameters(), factor], lr=0.1)
    for number in range(STEPS):
        optimizer.zero_grad()
        Scaled.apply(net[:2](images(number)), factor).mean().backward()
        net(images(number)).mean().backward()
        optimizer.step()
    return [*after(net), factor.detach().clone()]


def stochastic_depth() -> Tensors:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(2 * STEPS):
        y = net[:3](images(number))
        if number % 3:
            y = y + net[3](y)
        optimizer.zero_grad()
        net[4](F.dropout(y, 0.3)).square().mean().backward()
        optimizer.step()
    return after(net)


def results_are_dropped() -> Tensors:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(STEPS):
        loss = net(images(number)).square().mean()
        if number % 2:
            del loss  # without backward
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return after(net)


def trained(step: Callable[[nn.Sequential, torch.optim.Optimizer, int], object]) -> Tensors:
    """A network after steps that are written as `step` is."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for number in range(STEPS):
        step(net, optimizer, number)
    return after(net)


def loss_of(net: nn.Module, number: int) -> torch.Tensor:
    loss: torch.Tensor = net(images(number)).square().mean()
    return loss


def line_search() -> Tensors:
    net = network()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    for number in range(3):

        def closure(number: int = number) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, number)
            loss.backward()
            return loss

        optimizer.step(closure)
    return after(net)


def accumulation() -> Tensors:
    def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        for part in range(3):
            (loss_of(net, 10 * number + part) / 3).backward()
        optimizer.step()

    return trained(step)


def evaluation() -> Tensors:
    def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        loss_of(net, number).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            loss_of(net, 100)
        loss_of(net, 101)  # with gradients that nobody asks for
        net.train()

    return trained(step)


def frozen_and_thawed() -> Tensors:
    def step(net: nn.Sequential, optimizer: torch.optim.Optimizer, number: int) -> None:
        net[0].requires_grad_(number % 2 == 0)
        optimizer.zero_grad()
        loss_of(net, number).backward()
        optimizer.step()

    return trained(step)


def interrupted() -> Tensors:
    def step(net: nn.Sequential, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        if number in (1, 4):
            try:
                net[:2](images(number))
                raise KeyError(number)
            except KeyError:
                return
        y = net(images(number))
        if number == 3:
            y.register_hook(lambda gradient: gradient / 0 if number < 0 else None)
        y.square().mean().backward()
        optimizer.step()

    return trained(step)


def failing_backward() -> Tensors:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            raise ValueError("as it was to be")

    def step(net: nn.Sequential, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        y = net[:2](images(number))
        y = net[2:](Fails.apply(y) if number in (1, 4) else y)
        try:
            y.square().mean().backward()
        except ValueError:
            return
        optimizer.step()

    return trained(step)


def two_optimizers() -> Tensors:
    net = network()
    halves = [torch.optim.SGD(part.parameters(), lr=0.05) for part in (net[:2], net[2:])]
    for number in range(STEPS):
        net.zero_grad()
        loss_of(net, number).backward()
        for half in halves if number % 3 else halves[:1]:
            half.step()
    return after(net)


def averaged() -> Tensors:
    net = network()
    mean = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for number in range(STEPS):
        optimizer.zero_grad()
        loss_of(net, number).backward()
        optimizer.step()
        mean.update_parameters(net)
        with torch.no_grad():
            loss_of(mean, 100 + number)
    return after(net, mean)


def transformed() -> Tensors:
    head = nn.Linear(8, 1)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        loss_of(net, number).backward()
        parameters = dict(head.named_parameters())

        def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
            rows = images(number).flatten(1)[:, :8]
            return torch.func.functional_call(head, parameters, (rows,)).square().mean()

        for name, gradient in torch.func.grad(loss)(parameters).items():
            parameters[name].grad = gradient
        with torch.no_grad():
            for parameter in head.parameters():
                parameter -= 0.1 * parameter.grad
        optimizer.step()

    return [*trained(step), *after(head)]


def by_threads() -> Tensors:
    """Steps run on threads of a pool, one at a time."""
    with ThreadPoolExecutor(2) as pool:

        def step(net: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
            def run() -> None:
                optimizer.zero_grad()
                loss_of(net, number).backward()
                optimizer.step()

            pool.submit(run).result()

        return trained(step)


def by_a_generator() -> Tensors:
    def losses(net: nn.Module) -> Iterator[torch.Tensor]:
        for number in range(STEPS):
            yield loss_of(net, number)

    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for loss in losses(net):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return after(net)


def watched_gradients() -> Tensors:
    """Hooks that keep, scale and replace gradients; they count too."""
    kept: Tensors = []

    def step(net: nn.Sequential, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        x = net[:2](images(number))
        x.retain_grad()
        x.register_hook(lambda gradient: gradient * 0.5)
        x.register_hook(kept.append)
        net[2:](x).square().mean().backward()
        optimizer.step()
        kept.append(x.grad)

    return [*trained(step), *kept]


PROGRAMS: dict[str, Callable[[], Tensors]] = {
    "checkpoint": with_checkpoints(False),
    "reentrant checkpoint": with_checkpoints(True),
    "nested checkpoint": nested_checkpoint,
    "mixed precision": mixed_precision,
    "adversaries": adversaries,
    "two losses": two_losses_and_a_kept_graph,
    "gradient penalty": gradient_penalty,
    "shared and tied": shared_and_tied,
    "own functions": functions_of_its_own,
    "stochastic depth": stochastic_depth,
    "dropped results": results_are_dropped,
    "line search": line_search,
    "accumulation": accumulation,
    "evaluation": evaluation,
    "frozen and thawed": frozen_and_thawed,
    "interrupted": interrupted,
    "failing backward": failing_backward,
    "two optimizers": two_optimizers,
    "averaged": averaged,
    "transformed": transformed,
    "threads": by_threads,
    "generator": by_a_generator,
    "watched gradients": watched_gradients,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("limit", [200_000, 400_000])
def test_programs_have_the_bits_of_plain_pytorch(card: HostCard, name: str, limit: int) -> None:
    torch.manual_seed(0)
    expected = PROGRAMS[name]()
    torch.manual_seed(0)
    with memory_limit(limit, card=card, planning=0.1):
        got = PROGRAMS[name]()
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_what_backward_saves_begins_no_step(card: HostCard) -> None:
    with memory_limit("1GiB", card=card, planning=0.1) as run:
        with_checkpoints(True)()
        assert run._steps.mode is Mode.KEEP
        assert run._steps.steps == STEPS
        assert len(run.timelines) == 1
