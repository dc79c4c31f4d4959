"""The backend of torch.compile that plans a step within a limit, on the CPU: what it computes, what
it saves, and what it refuses."""

from __future__ import annotations

import copy
import gc
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.compile_fx import view_to_reshape
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.utils import run_and_get_code
from torch._inductor.virtualized import V
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.plan import KEEP, SWAP, Movement, Policy, Schedule, needs
from oocdnn.network.planner import Plan, least_limit, plan
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.compiled import arrange, copies, partition, plans
from oocdnn.torch.compiled.backend import oocdnn
from oocdnn.torch.compiled.partition import Partitioner
from oocdnn.torch.compiled.room import room_of
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.slabs import Slabs

FAST, SLOW = Link(1e12, 1e12, 2e12, 0.0), Link(1e6, 1e6, 1e6)
ROOMY = 1 << 50
CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.both = nn.LayerNorm(channels), nn.Linear(channels, 3 * channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.both(self.norm(x)).chunk(3, -1)
        return self.mlp(F.scaled_dot_product_attention(q, k, v) + x)


NETS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "residual": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), Block(8), Block(8), nn.MaxPool2d(2), Block(8),
            nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 64, 5),
        ),
        torch.randn(4, 3, 16, 16),
    ),
    "plain": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(True), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
        ),
        torch.randn(4, 3, 16, 16),
    ),
    "up": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.GroupNorm(2, 8), nn.ConvTranspose2d(8, 8, 2, 2),
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 4, 1),
        ),
        torch.randn(4, 3, 16, 16),
    ),
    "attention": lambda: (
        nn.Sequential(Attention(16), Attention(16), nn.Linear(16, 3)), torch.randn(4, 32, 16)
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Callable[[Link], None]:
    def use(link: Link) -> None:
        monkeypatch.setattr(room_of(CPU), "links", [link])

    return use


def made(name: str, last: bool = False) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    net, x = NETS[name]()
    if last and x.ndim == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return net.double(), x.double()


def within(net: Any, limit: int, **more: Any) -> Any:
    options = {"memory_limit": limit, "planning": 1.0, **more}
    return torch.compile(net, backend=oocdnn, options=options)


def step(call: Any, x: Tensor) -> float:
    torch.manual_seed(3)
    loss = call(x).square().mean()
    loss.backward()
    return loss.item()


def gradients(net: nn.Module) -> list[Tensor]:
    return [one.grad for one in net.parameters()]


def first_plan(net: nn.Module, x: Tensor) -> Plan:
    """Of a step that fits."""
    step(within(copy.deepcopy(net), ROOMY), x)
    torch._dynamo.reset()
    plan = plans()[-1]
    assert plan.fits
    return plan


def limit_at(plan: Plan, share: float) -> int:
    """That share of the way from the least limit to what holds everything."""
    least = least_limit(plan.timeline)
    return int(least + share * (plan.timeline.peak_bytes - least))


@pytest.mark.parametrize(
    ("link", "share", "last"), [(FAST, 0.0, True), (SLOW, 0.5, False)], ids=["fast", "slow"]
)
def test_steps_are_those_of_inductor(
    link: Link, share: float, last: bool, wire: Callable[[Link], None]
) -> None:
    """A fast wire has values swapped, a slow one has them computed again."""
    wire(link)
    net, x = made("residual", last)
    limit = limit_at(first_plan(net, x), share)
    other = copy.deepcopy(net)
    expected = [step(torch.compile(other), x) for _ in range(3)]
    call = within(net, limit)
    assert [step(call, x) for _ in range(3)] == pytest.approx(expected, rel=1e-12)
    for ours, theirs in zip(gradients(net), gradients(other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    plan = plans()[-1]
    assert plan.peak_bytes <= limit < plan.timeline.peak_bytes
    choices = {choice.policy for choice in plan.schedule.choices}
    assert (Policy.SWAP if link is FAST else Policy.REBUILD) in choices


def test_what_is_planned_is_what_inductor_allocates(wire: Callable[[Link], None]) -> None:
    wire(FAST)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Block(8) for _ in range(8)))
    x = torch.randn(8, 3, 32, 32)
    everything = first_plan(net, x)
    found = []
    for limit in (ROOMY, limit_at(everything, 0.0)):
        torch._dynamo.reset()
        call = within(copy.deepcopy(net), limit)
        step(call, x)
        found.append((plans()[-1].peak_bytes, peak(lambda call=call: step(call, x))))
    (planned, measured), (planned_less, measured_less) = found
    assert planned_less < 0.6 * planned
    assert measured == pytest.approx(planned, rel=0.15)
    assert measured_less == pytest.approx(planned_less, rel=0.3)


def test_copies_stand_among_kernels_where_the_plan_has_them(
    wire: Callable[[Link], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Convolutions that precede a copy in the graph precede it in Inductor's order."""
    wire(Link(1e9, 1e9, 2e9, 0.0))  # a copy takes as long as several kernels
    aten = torch.ops.aten
    convolutions = aten.convolution.default, aten.convolution_backward.default
    orders: list[dict[str, set[str]]] = []

    def recorded(nodes: list[Any], arrange: Any = arrange._arranged) -> list[Any]:
        made = arrange(nodes)
        in_graph = list(V.graph.module.graph.nodes)
        in_order = [n for node in made if node.is_extern() for n in origins(node)]
        orders.extend(copies_before(one) for one in (in_graph, in_order))
        return made

    origins = arrange._origins

    def copies_before(nodes: list[Any]) -> dict[str, set[str]]:
        """For each convolution."""
        found, left = {}, set()
        for node in nodes:
            if node.target in convolutions:
                found.setdefault(node.name, set(left))
            elif node.target in copies.OPERATORS:
                left.add(node.name)
        return found

    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Block(8) for _ in range(8)))
    x = torch.randn(8, 3, 32, 32)
    limit = limit_at(first_plan(net, x), 0.3)
    monkeypatch.setattr(arrange, "_arranged", recorded)
    step(within(net, limit), x)
    forward, in_forward, backward, in_backward = orders
    assert (forward, backward) == (in_forward, in_backward)
    assert len(forward) == len(backward) == 17
    for order in (forward, backward):  # where one that forward began ends too
        *_, last = order.values()
        assert any(name.startswith("finish_swap_out") for name in last)


def peak(call: Callable[[], object]) -> int:
    """Most bytes that the CPU's allocator has given away during a call."""
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


class Left:
    """A copy away, after which what it was of is overwritten."""

    def __init__(self, copy: Any, source: Tensor) -> None:
        self._copy, self._source = copy, source

    def done(self) -> bool:
        return bool(self._copy.done())

    def wait(self) -> None:
        self._copy.wait()
        self._source.fill_(torch.nan)


class Overwriting(HostCard):
    def copy_out(self, source: Tensor, target: Any) -> Any:
        return Left(super().copy_out(source, target), source)


class Summed(nn.Module):
    """Backward adds an expanded gradient in the kernel that reads a swapped value."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(64, 64) / 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        empty = x[:0]
        for weight in self.weights:
            x, empty = (torch.sin(F.linear(one, weight)) for one in (x, empty))
        return torch.cat([x, empty, x.sum(0, keepdim=True).expand(3, -1)])


def test_merged_loops_read_swapped_values_when_they_are_there(
    wire: Callable[[Link], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire(FAST)
    card = Overwriting(rate=2e6)  # copies are on their way for long
    monkeypatch.setitem(copies._cards, CPU, card)
    monkeypatch.setitem(copies._slabs, CPU, Slabs(card))
    torch.manual_seed(0)
    net, x = Summed().double(), torch.randn(32, 64, dtype=torch.float64)
    other = copy.deepcopy(net)

    def swaps(timeline: Timeline, links: list[Link], limit: int, seconds: float) -> Plan:
        """All that can be, as late as can be."""
        choices = [SWAP if one.movable else KEEP for one in timeline.saved]
        moves = {
            index: Movement(timeline.forward, need, need)
            for index, need in enumerate(needs(timeline, choices))
            if choices[index] is SWAP
        }
        made = plan(timeline, links, limit, seconds=seconds)
        return replace(made, schedule=Schedule(choices, moves))

    monkeypatch.setattr(partition, "plan", swaps)
    step(within(net, ROOMY), x)
    step(other, x)
    assert plans()[-1].schedule.swapped()
    card.close()
    for ours, theirs in zip(gradients(net), gradients(other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_host_memory_is_given_back(wire: Callable[[Link], None]) -> None:
    """After backward, and without one."""
    wire(FAST)
    net, x = made("residual")
    call = within(net, limit_at(first_plan(net, x), 0.0))
    slabs = copies._slabs[CPU]
    gc.collect()
    before = slabs._in_use
    step(call, x)
    assert slabs._in_use == before
    loss = call(x).sum()
    assert slabs._in_use > before
    del loss
    gc.collect()
    assert slabs._in_use == before


def test_a_graph_may_be_gone_through_twice(wire: Callable[[Link], None]) -> None:
    wire(FAST)
    net, x = made("plain")
    call = within(net, limit_at(first_plan(net, x), 0.0))
    with torch._functorch.config.patch(donated_buffer=False):
        loss = call(x).sum()
        loss.backward(retain_graph=True)
        once = [one.clone() for one in gradients(net)]
        loss.backward()
    for twice, one in zip(gradients(net), once, strict=True):
        assert torch.equal(twice, 2 * one)


def test_programs_with_graph_breaks_and_several_shapes(
    wire: Callable[[Link], None], recwarn: pytest.WarningsRecorder
) -> None:
    wire(FAST)
    net, x = made("plain")

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([net[:3], net[3:]])

        def forward(self, x: Tensor) -> Tensor:
            x = self.parts[0](x)
            torch._dynamo.graph_break()
            return self.parts[1](x)

    broken = Broken()
    other = copy.deepcopy(broken)
    call, before = within(broken, ROOMY), len(plans())
    for batch in (x, x[:3], x[:2]):
        assert step(call, batch) == pytest.approx(step(other, batch), rel=1e-12)
    for ours, theirs in zip(gradients(broken), gradients(other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert len(plans()) >= min(before + 4, 64)  # two graphs, for a size and for any
    assert not [one for one in recwarn if "SymInt" in str(one.message)]  # sizes in graphs


def test_mixed_precision(wire: Callable[[Link], None]) -> None:
    wire(FAST)
    net, x = made("residual")
    net, x = net.float(), x.float()

    def mixed(call: Any) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return call(x)

        return run

    step(mixed(within(copy.deepcopy(net), ROOMY)), x)
    limit = limit_at(plans()[-1], 0.0)
    torch._dynamo.reset()
    other = copy.deepcopy(net)
    assert step(mixed(within(net, limit)), x) == step(mixed(torch.compile(other)), x)
    assert any(one.policy is Policy.SWAP for one in plans()[-1].schedule.choices)
    for ours, theirs in zip(gradients(net), gradients(other), strict=True):
        assert (ours - theirs).norm() <= 0.05 * theirs.norm() + 1e-3  # what is saved is rounded


def test_checkpoints_of_the_program_stay(wire: Callable[[Link], None]) -> None:
    """What the program has computed again is not saved, and what it has saved is."""
    wire(SLOW)
    net, x = made("residual")

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        del args, kwargs
        save = op == torch.ops.aten.convolution.default
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    def run(x: Tensor) -> Tensor:
        return checkpoint(
            net, x, use_reentrant=False,
            context_fn=partial(create_selective_checkpoint_contexts, policy),
        )  # fmt: skip

    net = net.eval()  # dropout is the same
    expected = step(net, x)
    theirs = [one.clone() for one in gradients(net)]
    net.zero_grad()
    assert step(within(run, ROOMY), x) == pytest.approx(expected, rel=1e-12)
    for ours, one in zip(gradients(net), theirs, strict=True):
        torch.testing.assert_close(ours, one, rtol=1e-9, atol=1e-12)
    saved = [one.name for one in plans()[-1].timeline.saved]
    assert any(name.startswith("convolution") for name in saved)
    assert not any(name.startswith("relu") for name in saved)


def test_inference_has_nothing_to_plan() -> None:
    net, x = made("plain")
    before = len(plans())
    with torch.no_grad():
        torch.testing.assert_close(within(net, 1)(x), net(x))
    assert len(plans()) == before


def failure(call: Callable[[], object]) -> BaseException:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as error:
        call()
    return error.value.inner_exception


def test_a_step_that_does_not_fit_says_what_would() -> None:
    net, x = made("plain")
    needed = least_limit(first_plan(net, x).timeline)
    call = within(net, needed - 1)
    for _ in range(2):  # what was refused does not count as compiled
        error = failure(lambda: step(call, x))
        assert isinstance(error, OutOfMemory)
    assert error.least == needed
    assert f"raise it to {needed}" in str(error)
    torch._dynamo.reset()
    step(within(net, error.least), x)


def test_later_graphs_pass_the_limit_rather_than_fail(caplog: pytest.LogCaptureFixture) -> None:
    small, large = nn.Conv2d(3, 2, 1), nn.Sequential(nn.Conv2d(2, 32, 3), nn.Conv2d(32, 32, 3))

    def run(x: Tensor) -> Tensor:
        x = small(x).sin()
        torch._dynamo.graph_break()
        return large(x).sin()

    x = torch.randn(2, 3, 16, 16)
    step(within(run, ROOMY), x)
    first, second = (least_limit(plan.timeline) for plan in plans()[-2:])
    assert first < second
    torch._dynamo.reset()
    step(within(run, second - 1), x)
    assert "the program has compiled graphs before, after graph breaks" in caplog.text
    assert f"the limit of {second - 1} is passed" in caplog.text
    assert f"a graph needs {second} bytes" in caplog.text


def test_dynamic_sizes_stay_and_are_named() -> None:
    net, x = made("plain")
    error = failure(
        lambda: torch.compile(
            net, backend=oocdnn, options={"memory_limit": 1 << 16}, dynamic=True
        )(x)
    )  # fmt: skip
    assert "tensors with dynamic sizes stay on the device: compile with dynamic=False" in str(error)


# Without Inductor: what is planned is run node by node.


def by_nodes(partition: Any) -> Any:
    def as_it_is(graph: Any, _: Any) -> Any:
        view_to_reshape(graph)  # as Inductor does, which chooses the memory order of values
        graph.recompile()
        return make_boxed_func(graph)

    return aot_autograd(
        fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=partition,
        decompositions=select_decomp_table(), keep_inference_input_mutations=True,
    )  # fmt: skip


def compared(net: nn.Module, x: Tensor, share: float) -> Plan:
    """Steps by nodes have the gradients of eager ones, and what they leave in buffers."""
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    step(torch.compile(copy.deepcopy(net), backend=by_nodes(Partitioner(ROOMY, 1.0))), x)
    limit = limit_at(plans()[-1], share)
    torch._dynamo.reset()
    call = torch.compile(ours, backend=by_nodes(Partitioner(limit, 1.0)))
    for _ in range(2):
        assert step(call, x) == pytest.approx(step(theirs, x), rel=1e-12)
    for one, other in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0.0)
    return plans()[-1]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("share", [0.6, 0.3, 0.0])
@pytest.mark.parametrize("link", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("name", NETS)
def test_plans_change_nothing_that_is_computed(
    name: str, link: Link, share: float, last: bool, wire: Callable[[Link], None]
) -> None:
    wire(link)
    net, x = made(name, last)
    kept = [layer for layer in net if not isinstance(layer, nn.Dropout)]  # drawn in another order
    plan = compared(nn.Sequential(*kept), x, share)
    assert plan.peak_bytes < plan.timeline.peak_bytes
    moved = {choice.policy for choice in plan.schedule.choices} - {Policy.KEEP}
    assert moved
    assert link is SLOW or moved == {Policy.SWAP}


class Mixed(nn.Module):
    """A convolution's result is read as an image and as a matrix."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.LayerNorm(channels)
        self.first, self.last = nn.Linear(channels, 64), nn.Linear(64, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.last(F.gelu(self.first(y)))
        return x + y.permute(0, 3, 1, 2)


@pytest.mark.parametrize("link", [FAST, SLOW], ids=["fast", "slow"])
def test_what_is_handed_to_backward_has_the_order_that_inductor_computes_in(
    link: Link, wire: Callable[[Link], None]
) -> None:
    wire(link)
    torch.manual_seed(0)
    net, x = nn.Sequential(*(Mixed(32) for _ in range(3))), torch.randn(4, 32, 8, 8)
    step(within(copy.deepcopy(net), ROOMY), x)
    limit = limit_at(plans()[-1], 0.3)
    torch._dynamo.reset()
    _, (_, backward) = run_and_get_code(lambda: step(within(net, limit), x))
    form = r"assert_size_stride\((?!tangents)\w+, \(([\d, ]+)\), \(([\d, ]+)\)"
    given = re.findall(form, backward)
    orders = {size: {order for one, order in given if one == size} for size, _ in given}
    assert orders["4, 32, 8, 8"] == {"2048, 1, 256, 32"}
    assert "8192, " in orders  # the input as it is
    assert {order for size, order in given if size.startswith("4, 8, 8, ")} <= {
        "2048, 256, 32, 1",  # swapped operands of matrix products
        "4096, 512, 64, 1",
        "64, 8, 1, 1",  # statistics
        "64, 1, 8, 8",
    }
    assert "256, 64" in orders or link is FAST  # kept ones, as matrices


class Moving(nn.Module):
    """Forward overwrites a buffer that it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 8)
        self.register_buffer("bias", torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.exp(torch.sin(F.linear(x, self.weight, self.bias)))
        self.bias.mul_(1.5)
        return x


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_what_reads_an_overwritten_buffer_is_not_computed_again(
    share: float, wire: Callable[[Link], None]
) -> None:
    wire(SLOW)
    torch.manual_seed(0)
    compared(Moving().double(), torch.randn(64, 16, dtype=torch.float64), share)


@torch.library.custom_op("oocdnn_tests::noise", mutates_args=())
def noise(x: Tensor) -> Tensor:
    noise_runs.append(1)
    return torch.rand_like(x)


noise.register_fake(torch.empty_like)
noise_runs: list[int] = []


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 8)


class Noisy(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            y = F.linear(x, self.weight)
            x = torch.sin(y) * noise(y.detach())
        return x


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_what_a_custom_operation_computes_is_saved(
    share: float, wire: Callable[[Link], None]
) -> None:
    wire(SLOW)
    torch.manual_seed(0)
    compared(Noisy().double(), torch.randn(64, 16, dtype=torch.float64), share)
    noise_runs.clear()
    torch._dynamo.reset()
    step(torch.compile(Noisy(), backend=by_nodes(Partitioner(1 << 30, 1.0))), torch.randn(64, 16))
    assert len(noise_runs) == 4


class Complex(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.exp(1j * torch.sin(F.linear(x, self.weight))))


class Item(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(F.linear(x, self.weight))
        return torch.exp(y) * y.sum().item()


class Masked(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight)
        return torch.sin(y[y > 0]).sin()


@pytest.mark.parametrize("kind", [Complex, Item, Masked])
def test_odd_graphs_are_planned(
    kind: type[nn.Module], wire: Callable[[Link], None], caplog: pytest.LogCaptureFixture
) -> None:
    wire(SLOW)
    torch.manual_seed(0)
    dynamic = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(dynamic):
        compared(kind().double(), torch.randn(64, 16, dtype=torch.float64), 1.0)
    assert "without a plan" not in caplog.text


def test_hooks_that_copy_what_is_saved_are_named(wire: Callable[[Link], None]) -> None:
    wire(FAST)
    net, x = made("plain")
    call = within(net, limit_at(first_plan(net, x), 0.0))
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda one: one):
        loss = call(x).sum()
    with pytest.raises(RuntimeError, match="hooks for saved tensors that copy what they are given"):
        loss.backward()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, 'needs a limit: options={"memory_limit": "16GiB"}'),
        ({"memory_limit": 0}, "memory_limit is 0; it must be positive"),
        ({"memory_limit": "a lot"}, "memory_limit is 'a lot'"),
        ({"memory_limit": 1 << 30, "planning": 0}, "planning is 0; it must be positive seconds"),
        ({"memory_limit": 1 << 30, "planning": True}, "planning is True; it must be positive"),
        ({"memory_limit": 1 << 30, "triton.cudagraphs": True}, "CUDA graphs cannot hold"),
    ],
)
def test_bad_options_are_named(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OOCDNN_LIMIT", raising=False)
    net, x = made("plain")
    error = failure(lambda: torch.compile(net, backend=oocdnn, options=options)(x))
    assert isinstance(error, InvalidProblem)
    assert words in str(error)


class Own(nn.Module):
    """A class of the program's, which Dynamo compiles inside of DistributedDataParallel."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_distributed_training_needs_one_graph(wire: Callable[[Link], None]) -> None:
    from torch.nn.parallel import DistributedDataParallel

    wire(FAST)
    net, x = made("plain")
    limit = limit_at(first_plan(net, x), 0.0)
    other = copy.deepcopy(net)
    error = failure(lambda: step(within(DistributedDataParallel(Own(net)), limit), x))
    assert isinstance(error, InvalidProblem)
    assert "torch._dynamo.config.optimize_ddp = False" in str(error)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(optimize_ddp=False):
        step(within(DistributedDataParallel(Own(net)), limit), x)
    step(other, x)
    for ours, theirs in zip(gradients(net), gradients(other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert any(one.policy is Policy.SWAP for one in plans()[-1].schedule.choices)


def test_options_of_nobody_are_refused_and_those_of_inductor_are_taken() -> None:
    net, x = made("plain")
    error = failure(lambda: within(net, ROOMY, memory_limmit=1)(x))
    assert "memory_limmit" in str(error)
    torch._dynamo.reset()
    torch.testing.assert_close(within(net, ROOMY, epilogue_fusion=False)(x), net(x))


def test_the_limit_of_a_run_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOCDNN_LIMIT", str(1 << 30))
    monkeypatch.setenv("OOCDNN_BUDGET", str(1 << 26))
    net, x = made("plain")
    step(torch.compile(net, backend=oocdnn), x)
    assert plans()[-1].limit == (1 << 30) - (1 << 26)


def test_what_cannot_be_planned_is_compiled_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from oocdnn.torch.compiled import joint

    def fails(*_: Any) -> None:
        raise RuntimeError("a graph of tomorrow's")

    monkeypatch.setattr(joint.Joint, "mark", fails)
    net, x = made("residual")
    other = copy.deepcopy(net)
    assert step(within(net, ROOMY), x) == step(torch.compile(other), x)
    assert "a graph is compiled without a plan: RuntimeError: a graph of tomorrow's" in caplog.text


def test_the_backend_has_a_name() -> None:
    (entry,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="oocdnn")
    assert entry.load() is oocdnn
