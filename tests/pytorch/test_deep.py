"""Deep recipes: the bits of forward in slices of the batch, and what they hold meanwhile."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pytorch.limit_coverage import coverage
from pytorch.limit_nets import NETS
from pytorch.modelled import ModelCard, Modelled
from pytorch.test_random_networks import Net, operations
from pytorch.test_recipes import CASES, CHANNELS, activation
from torch import Tensor, nn

from oocdnn.bench.training.counting import Counter, CountingCard
from oocdnn.network.plan import KEEP, SWAP, Choice, Policy
from oocdnn.network.planner import Plan
from oocdnn.network.schedule import schedule
from oocdnn.network.simulate import simulate
from oocdnn.network.timeline import Link, Timeline, available
from oocdnn.torch.limit import trials
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.deep import Bounds, candidates, composed
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.norms import same_bits
from oocdnn.torch.limit.steps import Mode, Steps

LINK = Link(1e9, 1e9, 1.8e9)
LIMIT = 1 << 30


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_LARGE", LIMIT)


@pytest.fixture(autouse=True)
def _images_apart() -> Iterator[None]:
    """Convolutions compute each image by itself. Of oneDNN's and NNPACK's, the batch decides on the
    kernels."""
    before = torch._C._get_mkldnn_enabled(), torch._C._get_nnpack_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_nnpack_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(before[0])
    torch._C._set_nnpack_enabled(before[1])


# Slices of one recipe.

# Axis 0 of an operand is not the batch's.
WHOLE = {
    "batch norm, float64",
    "instance norm",
    "instance norm, plain",
    "instance norm, leaky in place",
    "instance norm, relu in place",
    "max pool, 3-D",
    "average pool, 3-D",
    "adaptive average, 3-D",
    "adaptive maximum, 3-D",
    "nearest, 3-D",
    "trilinear",
    "einsum",
    "squeezed",
    "strided",
}


def sliced(case: Callable[[Tensor], Tensor], x: Tensor, slices: int) -> list[Tensor]:
    """The last tensor that is saved, computed in slices and whole; nothing where slices cannot
    be."""
    found = coverage(lambda: case(x).square())
    own = found.saved[-1].bound
    assert own is not None
    bound = composed(own, frozenset(), Bounds(), slices)
    if bound is None:
        return []
    leaves = [found.tensor(source) for source in bound.sources]
    return [recipe.compute(leaves) for recipe in (bound.recipe, own.recipe)]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8, deadline=None)
@given(
    # Vectors of the CPU divide an image: what is left over has another arithmetic.
    size=st.tuples(st.integers(2, 9), st.sampled_from((4, 8)), st.sampled_from((4, 8))),
    last=st.booleans(),
    slices=st.integers(2, 9),
)
def test_slices_of_an_operation_have_its_bits(
    name: str, size: tuple[int, int, int], last: bool, slices: int
) -> None:
    torch.manual_seed(0)  # of few values in a thousand no recipe gives the bits of some norms
    x = activation((size[0], CHANNELS, *size[1:]), torch.float32, last)
    made = sliced(lambda a: CASES[name](a.exp()), x, slices)
    assert bool(made) == (name not in WHOLE)
    if made and name not in INTEGERS:
        assert same_bits(*made)


def integers(*size: int) -> Tensor:
    return torch.randint(-8, 9, size).float().requires_grad_()


# The order of their sums may depend on the batch: sums of integers do not depend on the order.
INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution": lambda a: torch.conv2d(a, integers(5, 4, 3, 3), integers(5), padding=1),
    "convolution without bias": lambda a: torch.conv2d(a, integers(4, 1, 3, 3), groups=4),
    "transposed": lambda a: torch.conv_transpose2d(a, integers(4, 3, 2, 2), integers(3), stride=2),
    "linear": lambda a: nn.functional.linear(a, integers(3, 6), integers(3)),
    "linear without bias": lambda a: nn.functional.linear(a, integers(3, 6)),
    "baddbmm": lambda a: torch.baddbmm(integers(1, 1, 3), a[:, 0], integers(a.shape[0], 6, 3)),
    "bmm": lambda a: torch.bmm(a[:, 0], a[:, 1].transpose(1, 2)),
}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(("images", "slices"), [(2, 2), (5, 2), (8, 8), (9, 8), (9, 4)])
def test_slices_of_sums_of_integers_have_their_bits(name: str, images: int, slices: int) -> None:
    made = sliced(lambda a: INTEGERS[name](a.abs()), integers(images, 4, 5, 6), slices)
    assert made
    assert same_bits(*made)


# The choice of what is tried.

# A block as ResNet has it: tensor, bytes, what its own recipe reads.
BLOCK = {
    "y14": (2, ("x13",)),
    "x15": (2, ("y14",)),
    "y16": (8, ("x15",)),
    "z17": (8, ("y16", "z11")),
    "y9": (8, ("x8",)),
    "y10": (8, ("x4",)),
    "z11": (8, ("y9", "y10")),
    "x4": (2, ()),
    "x8": (2, ()),
    "x13": (2, ()),
}
NAMES = list(BLOCK)
READS = {
    NAMES.index(name): {NAMES.index(one): BLOCK[one][0] for one in read}
    for name, (_, read) in BLOCK.items()
    if read
}


def tried(name: str) -> list[set[str]]:
    found = candidates(NAMES.index(name), BLOCK[name][0], READS)
    return [{NAMES[number] for number in inner} for inner in found]


def test_large_inputs_that_little_computes_are_expanded_and_then_equal_ones() -> None:
    assert tried("z17") == [{"y16"}, {"y16", "z11", "y9", "y10"}]
    assert tried("z11") == [{"y9", "y10"}]
    assert tried("x15") == [{"y14"}]
    assert tried("y16") == []


# Steps.

Plans = Callable[[Timeline, int, object], Plan]


def plans(choose: Callable[[list[int], list[Choice]], Choice], made: list[Plan]) -> Plans:
    """Plans by choices: `choose` has the available recipes and all choices of a tensor."""

    def planned(timeline: Timeline, room: int, reserved: object, copying: object) -> Plan:
        choices = []
        for one in timeline.saved:
            there = available(timeline, one)
            recipes = [Choice(Policy.REBUILD, number) for number in there]
            choices.append(choose(there, [KEEP, SWAP, *recipes]) if one.movable else KEEP)
        found = schedule(timeline, [LINK], room, choices)
        simulation = simulate(timeline, [LINK], found)
        made.append(Plan(timeline, [LINK], found, simulation, room, False, 0.0, 0.0))
        return made[-1]

    return planned


def deepest(there: list[int], choices: list[Choice]) -> Choice:
    return choices[-1] if there else SWAP


def chosen(plan: Plan) -> int:
    """Deep recipes in a plan."""
    return sum(choice.recipe > 0 for choice in plan.schedule.choices)


def train(
    net: nn.Module,
    x: Tensor,
    under: Steps | None = None,
    each: Callable[[int], Any] = id,
    steps: int = 5,
) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for number in range(steps):
        each(number)
        optimizer.zero_grad()
        if under is None:
            loss = net(x).float().square().mean()
        else:
            with torch.autograd.graph.saved_tensors_hooks(under.pack, under.unpack):
                loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        if under is not None:
            under.step()
        losses.append(loss.item())
    return losses


class Bottlenecks(nn.Module):
    """Blocks as ResNet has them, of 1x1 and 3x3 convolutions that are exact on integers."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Conv2d(3, 4, 1)
        self.shortcut = nn.Conv2d(4, 16, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(inputs, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
                nn.Conv2d(4, 16, 1), nn.BatchNorm2d(16),
            )
            for inputs in (4, 16, 16)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.begin(x))
        short = self.shortcut(x)
        for block in self.blocks:
            x = short = torch.relu(block(x) + short)
        return x


def both(net: nn.Module, x: Tensor, card: Card, choose: Any = deepest) -> tuple[Steps, list[Plan]]:
    """Trains a network by deep recipes, and plainly; the bits are the same."""
    plain, made = copy.deepcopy(net), []  # type: nn.Module, list[Plan]
    steps = Steps(card, LIMIT, plans(choose, made))
    assert train(net, x, steps) == train(plain, x)
    for theirs, ours in zip(plain.state_dict().values(), net.state_dict().values(), strict=True):
        assert same_bits(theirs, ours)
    return steps, made


@pytest.mark.parametrize("batch", [2, 5, 8, 17, 24])
def test_training_has_the_bits_of_plain_pytorch(card: HostCard, batch: int) -> None:
    """A batch that slices divide, and others."""
    torch.manual_seed(0)
    steps, made = both(Bottlenecks(), torch.randn(batch, 3, 8, 8), card)
    assert steps.mode is Mode.FOLLOW
    assert chosen(made[-1]) > 3
    found = steps.kinds.latest.found.deep  # type: ignore[union-attr]
    assert {one.images for several in found.values() for one in several} == {batch}


def test_a_single_image_has_no_deep_recipes(card: HostCard) -> None:
    steps, made = both(Bottlenecks(), torch.randn(1, 3, 8, 8), card)
    assert steps.mode is Mode.FOLLOW
    assert not chosen(made[-1])


@pytest.mark.parametrize("name", ["efficientnet", "convnext", "deeplab", "unet, 2-D"])
def test_networks_have_the_bits_of_plain_pytorch(card: HostCard, name: str) -> None:
    make, shape = NETS[name]
    torch.manual_seed(0)
    steps, made = both(make(), torch.randn(3, *shape[1:]), card)
    assert steps.mode is Mode.FOLLOW
    assert chosen(made[-1])


def test_tensors_that_are_not_large_have_none(
    card: HostCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_LARGE", 32)
    _, made = both(Bottlenecks(), torch.randn(8, 3, 8, 8), card)
    assert all(len(one.recipes) < 2 for one in made[-1].timeline.saved)


def test_an_inner_tensor_that_is_computed_otherwise_is_swapped(card: HostCard) -> None:
    """Its bytes are as before: only its recipe is not the same."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1)
            self.slope = 0.1

        def forward(self, x: Tensor) -> Tensor:
            a = torch.tanh(self.first(x))
            b = nn.functional.leaky_relu(a, self.slope)
            return torch.sigmoid(torch.tanh(b * b) * 1.5).exp()

    torch.manual_seed(0)
    net, x, made = Net(), torch.randn(8, 3, 8, 8), []  # type: Net, Tensor, list[Plan]
    plain = copy.deepcopy(net)
    steps = Steps(card, LIMIT, plans(deepest, made))

    def each(which: Net) -> Callable[[int], None]:
        def before(number: int) -> None:
            which.slope = 0.2 if number == 4 else 0.1

        return before

    assert train(net, x, steps, each(net)) == train(plain, x, None, each(plain))
    assert chosen(made[-1])


class Scaled(nn.Module):
    """Two products, whose bits in slices are others on many processors, and a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1000, 1000), nn.Linear(1000, 1000)
        self.factor = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.tanh(self.first(x)))
        return torch.sigmoid(y * self.factor) * 3


def test_a_factor_that_is_zero_in_the_first_step_hides_no_bits(card: HostCard) -> None:
    torch.manual_seed(0)
    net, x, made = Scaled(), torch.randn(16, 1000), []  # type: Scaled, Tensor, list[Plan]
    plain = copy.deepcopy(net)

    def each(which: Scaled) -> Callable[[int], None]:
        def before(number: int) -> None:
            if number == 1:
                which.factor.data.fill_(0.7)

        return before

    steps = Steps(card, LIMIT, plans(deepest, made))
    assert train(net, x, steps, each(net)) == train(plain, x, None, each(plain))
    for one, other in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_forward_pass_that_is_dropped_is_held_by_nothing(card: HostCard) -> None:
    net, x, made = Bottlenecks(), torch.randn(8, 3, 8, 8), []  # type: nn.Module, Tensor, list[Plan]
    steps = Steps(card, LIMIT, plans(deepest, made))
    with torch.autograd.graph.saved_tensors_hooks(steps.pack, steps.unpack):
        for _ in range(2):  # recorded
            net(x)
            assert not steps._forward.holds
    train(net, x, steps)
    with torch.autograd.graph.saved_tensors_hooks(steps.pack, steps.unpack):
        net(x)  # as planned
        assert not steps._forward.holds


def test_what_is_on_the_way_takes_the_bytes_of_a_slice() -> None:
    torch.manual_seed(0)
    net, x, counter = Bottlenecks(), torch.randn(32, 3, 8, 8), Counter()
    for tensor in (*net.parameters(), *net.buffers(), x):
        counter.add(tensor)
    made: list[Plan] = []
    card = CountingCard(counter)
    with counter:
        train(net, x, Steps(card, LIMIT, plans(deepest, made)))
    card.close()
    for one in made[-1].timeline.saved:
        inputs = [[made[-1].timeline.saved[i].nbytes for i in r.inputs] for r in one.recipes]
        if len(inputs) == 3:  # a block's result: 32 x 16 x 8 x 8 elements
            assert one.nbytes == 1 << 17
            assert sum(inputs[1]) < sum(inputs[0])
            own, *deep = (recipe.temporary_bytes for recipe in one.recipes)
            assert max(deep) < own / 4
            return
    pytest.fail("no block's result has two deep recipes")


@pytest.mark.usefixtures("tiny")
def test_what_an_allocator_reserves_for_them_is_predicted() -> None:
    torch.manual_seed(0)
    net, x, counter = Bottlenecks(), torch.randn(9, 3, 8, 8), Modelled()
    made: list[Plan] = []
    by_choices = plans(deepest, made)

    def planned(timeline: Timeline, room: int, reserved: Any, copying: object) -> Plan:
        plan = by_choices(timeline, room, reserved, copying)
        plan.reserved = None if reserved is None else reserved(plan.schedule)
        return plan

    with counter:
        for tensor in (*net.parameters(), *net.buffers(), x):
            counter.add(tensor)
        card = ModelCard(counter)
        train(net, x, Steps(card, LIMIT, planned), steps=9)
        assert chosen(made[-1])
        assert card.taken() == made[-1].reserved
        card.close()


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(operations=operations, batch=st.integers(2, 9), seed=st.integers(0, 99))
def test_random_networks_with_random_plans(
    operations: list[tuple[str, int]], batch: int, seed: int
) -> None:
    """The bits of plain PyTorch, and no more bytes than the plan says."""
    draw = random.Random(seed)

    def any_of(there: list[int], choices: list[Choice]) -> Choice:
        return draw.choice(choices) if draw.random() < 0.4 else choices[-1]

    torch.manual_seed(0)
    counter = Counter()
    net, x = Net(operations, False), torch.randn(batch, 3, 8, 8)
    for tensor in (*net.parameters(), *net.buffers(), x):
        counter.add(tensor)
    plain, made = copy.deepcopy(net), []  # type: nn.Module, list[Plan]
    card = CountingCard(counter)

    def each(number: int) -> None:
        counter.most = 0

    with counter:
        steps = Steps(card, LIMIT, plans(any_of, made))
        losses = train(net, x, steps, each)
        peak = counter.most
    card.close()
    assert losses == train(plain, x)
    if steps.mode is Mode.FOLLOW:
        assert peak <= made[-1].peak_bytes
