"""Training within a limit on a GPU: the bits of plain PyTorch, the predicted peak, the driver's."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import operator
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn
from torch.nn import functional as F

from oocdnn.network.planner import Plan
from oocdnn.torch import memory_limit
from oocdnn.torch.limit.bits import CODES
from oocdnn.torch.limit.cuda_card import CudaCard
from oocdnn.torch.limit.entry import bytes_of
from oocdnn.torch.limit.heap.allocator import LARGE_PAGE
from oocdnn.torch.limit.squeeze import Bits, Form, Indices
from oocdnn.torch.limit.steps import Mode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]

STEPS = 16  # recorded, watched for gaps, and as planned


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Convolutions whose gradients have the same bits in every run."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before
    torch.cuda.empty_cache()


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 1, bias=False)
        self.last = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.second(F.relu(self.norm(self.first(x)), inplace=True)))
        return F.relu(y + x, inplace=True)


class Gated(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm = nn.GroupNorm(4, channels)
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.norm(self.wide(x)))
        gate = torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return x + F.dropout(y * gate, 0.1, self.training)


def network() -> nn.Module:
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    return nn.Sequential(
        *first,
        nn.MaxPool2d(3, 2, 1),
        *[Block(32) for _ in range(6)],
        *[Gated(32) for _ in range(4)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ).cuda()


def train(
    net: nn.Module,
    mixed: bool,
    last: bool,
    steps: int,
    before: Callable[[], object] = lambda: None,
) -> tuple[list[float], list[int]]:
    """Losses, and the most bytes allocated in each step. `before` is called before each step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    losses, peaks = [], []
    for number in range(steps):
        before()
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(64, 3, 128, 128, generator=generator).cuda()
        if last:
            x = x.to(memory_format=torch.channels_last)
        target = torch.randint(0, 10, (64,), generator=generator).cuda()
        torch.cuda.manual_seed(number)
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        peaks.append(torch.cuda.max_memory_allocated())
    return losses, peaks


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(("mixed", "last"), itertools.product([False, True], repeat=2))
def test_a_network_trains_within_half_of_its_bytes(mixed: bool, last: bool) -> None:
    theirs = network()
    if last:
        theirs = theirs.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    expected, plain = train(theirs, mixed, last, STEPS)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    limit = others + max(plain) * 6 // 10
    plans: list[Plan | None] = []
    with memory_limit(limit, planning=2.0) as run:
        losses, peaks = train(ours, mixed, last, STEPS, lambda: plans.append(run.plan))
        assert run._steps.mode is Mode.FOLLOW
        plan = plans[-1]  # a faster one may have taken its place after the last step
        assert plan is not None
        assert plan.peak_bytes <= limit
        reserved = torch.cuda.max_memory_reserved()
        assert others + reserved <= limit
        if plan.reserved is None:
            assert abs(peaks[-1] - plan.peak_bytes) <= plan.peak_bytes // 100
        else:  # allocated bytes include what steers the allocator
            assert abs(reserved - plan.reserved) <= max(LARGE_PAGE, plan.reserved // 100)
    assert losses == expected
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("deterministic")
def test_a_limit_with_room_leaves_the_step_alone() -> None:
    ours, theirs = network(), network()
    with memory_limit("8GiB") as run:
        losses, _ = train(ours, False, False, 4)
        assert run._steps.mode is Mode.KEEP
    assert losses == train(theirs, False, False, 4)[0]


@pytest.mark.timeout(300)
def test_a_convolution_whose_workspace_passes_the_limit_runs_in_parts() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1).cuda()
    x = torch.randn(64, 64, 224, 224, device="cuda")

    def step() -> torch.Tensor:
        layer.zero_grad()
        loss = layer(x).mean()
        loss.backward()
        return loss.detach()

    loss = step()
    gradient = layer.weight.grad.clone()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        y = layer(x)
    nbytes = y.numel() * y.element_size()
    workspace = torch.cuda.max_memory_allocated() - held - nbytes
    if workspace < nbytes // 2:
        pytest.skip(f"cuDNN takes an engine with {workspace} bytes of workspace")
    y = y.cpu()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    limit = others + held + nbytes + workspace * 6 // 10
    with memory_limit(limit, planning=1.0) as run:
        for _ in range(STEPS):
            torch.cuda.reset_peak_memory_stats()
            assert torch.equal(step(), loss)
            run.step()
        assert run.plan is not None
        assert torch.cuda.max_memory_allocated() + others <= limit
        assert {one[0] for one in run._steps.table.parts} >= {"forward"}
        with torch.no_grad():
            assert torch.equal(layer(x).cpu(), y)
    torch.testing.assert_close(layer.weight.grad, gradient)
    torch.cuda.empty_cache()
    with torch.no_grad():
        assert torch.equal(layer(x).cpu(), y)
    assert torch.cuda.max_memory_allocated() > held + nbytes + workspace // 2


SIZES = [1, 7, 8, 9, 2047, 2048, 2049, 100_003, 1 << 20]


def back(form: Form, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The smaller form of a tensor that fills its storage, and what comes back of it."""
    storage = bytes_of(x)
    small = form.squeeze(storage)
    return small, form.expand(small, storage.numel()).view(x.dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", CODES)
def test_bits_on_the_device_are_the_hosts(dtype: torch.dtype, size: int) -> None:
    """Any bytes: NaN of both signs, infinity, -0, subnormal numbers among them."""
    generator = torch.Generator().manual_seed(size)
    drawn = torch.randint(0, 256, (size * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    x = drawn.view(dtype)
    if dtype.is_floating_point:
        special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0])
        at = torch.randint(0, size, (min(size, 64),), generator=generator)
        x[at] = special.to(dtype)[torch.arange(len(at)) % len(special)]
    for device, host in zip(back(Bits(dtype), x.cuda()), back(Bits(dtype), x), strict=True):
        assert torch.equal(device.cpu(), host)


@pytest.mark.parametrize("form", [Indices(2, torch.uint16), Indices(3, torch.int32)])
def test_indices_come_back_on_the_device(form: Indices) -> None:
    most = 1 << 16 if form.dtype == torch.uint16 else (1 << 31) - 1
    x = torch.randint(0, most, (100_003,), device="cuda")
    x[:2] = torch.tensor([0, most - 1])
    assert torch.equal(back(form, x)[1], x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True])
def test_backward_reads_no_more_than_the_bits(dtype: torch.dtype, last: bool) -> None:
    x = torch.randn(2, 16, 31, 30, device="cuda").relu().to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    stand_in = torch.empty_like(x)
    stand_in.set_(back(Bits(dtype), x)[1].untyped_storage(), 0, x.size(), x.stride())
    grad = torch.randn_like(x)
    relu = torch.ops.aten.threshold_backward
    assert torch.equal(relu(grad, stand_in, 0), relu(grad, x, 0))
    window = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    y, indices = torch.ops.aten.max_pool2d_with_indices(x, *window)
    pool = torch.ops.aten.max_pool2d_with_indices_backward
    poison = torch.full_like(x, float("nan"))
    assert torch.equal(pool(y, poison, *window, indices), pool(y, x, *window, indices))


@pytest.mark.parametrize("deterministic", [False, True])
def test_workspaces_of_cublas_are_freed_and_allocated(deterministic: bool) -> None:
    card, held = (
        CudaCard(torch.device("cuda", torch.cuda.current_device())),
        torch.cuda.memory_allocated,
    )
    kept: list[torch.Tensor] = []
    before = torch.are_deterministic_algorithms_enabled()
    card.free_workspaces()  # they may be larger than those that are allocated here
    card.allocate_workspaces()
    with_workspaces = held()
    torch.use_deterministic_algorithms(deterministic)
    try:
        with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
            card.free_workspaces()
            freed = with_workspaces - held()
            card.allocate_workspaces()
    finally:
        torch.use_deterministic_algorithms(before)
    assert freed >= 2 << 20  # of this thread, and of autograd's
    assert held() <= with_workspaces
    assert deterministic or held() == with_workspaces
    assert kept == []


def test_gradients_that_make_room_for_an_optimizers_state_keep_their_values() -> None:
    found = []
    for limit in (contextlib.nullcontext(), memory_limit("4GiB")):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda()
        x = torch.randn(256, 2048, device="cuda")
        optimizer = torch.optim.Adam(net.parameters())
        with limit:
            net(x).square().mean().backward()
            gradients = [one.grad for one in net.parameters()]
            optimizer.step()
        assert all(map(operator.is_, gradients, (one.grad for one in net.parameters())))
        found.append([*gradients, *(one.detach() for one in net.parameters())])
    assert all(map(torch.equal, *found))


def test_captured_graphs_are_left_alone() -> None:
    net, x = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh()).cuda(), torch.randn(1024, 1024).cuda()
    with memory_limit("4GiB") as run:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(x).sum().backward()
            run.step()
        torch.cuda.current_stream().wait_stream(side)
        expected = [one.grad.clone() for one in net.parameters()]
        net.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(x).sum().backward()
        graph.replay()
        for one, gradient in zip(net.parameters(), expected, strict=True):
            assert torch.equal(one.grad, gradient)
        net.zero_grad()
        net(x).sum().backward()


def test_two_streams_give_the_gradients_of_one() -> None:
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (4, 64, 256, 256), device="cuda").float().requires_grad_()
    side = torch.cuda.Stream()
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    with memory_limit(total - free + (500 << 20), planning=1.0) as run:
        for _ in range(8):
            x.grad = None
            y = (2 * x).square().square()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = (3 * x).square()
            torch.cuda.current_stream().wait_stream(side)
            (y.square() + z).sum().backward()
            run.step()
            assert torch.equal(x.grad, 8 * 2**8 * x.detach() ** 7 + 18 * x.detach())
