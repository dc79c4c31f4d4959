"""Smaller forms of saved storages: what comes back, who may read it, the bits of whole steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from oocdnn.network.plan import KEEP, SQUEEZE
from oocdnn.network.planner import Plan
from oocdnn.network.schedule import schedule
from oocdnn.network.simulate import simulate
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit.bits import CODES
from oocdnn.torch.limit.entry import Kept, bytes_of
from oocdnn.torch.limit.host_card import HostCard
from oocdnn.torch.limit.squeeze import Bits, Indices, form_of
from oocdnn.torch.limit.steps import Mode, Steps

LINK = Link(1e9, 1e9, 1.8e9)
STEPS = 6
FLOATS = [dtype for dtype in CODES if dtype.is_floating_point]
SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 6e-8]


def back(form: Bits | Indices, x: torch.Tensor) -> torch.Tensor:
    """What comes back of a tensor that fills its storage."""
    storage = bytes_of(x)
    small = form.squeeze(storage)
    assert bytes_of(small).numel() == form.nbytes(storage.numel())
    return form.expand(small, storage.numel()).view(x.dtype).view(x.shape)


@pytest.mark.parametrize("dtype", CODES)
@given(data=st.data())
@settings(deadline=None)
def test_bits_are_those_of_a_comparison(dtype: torch.dtype, data: Any) -> None:
    count = data.draw(st.integers(1, 70)) * dtype.itemsize
    drawn = data.draw(st.binary(min_size=count, max_size=count))
    x = torch.frombuffer(bytearray(drawn), dtype=torch.uint8).view(dtype)
    expected = (x.to(torch.uint8) if dtype == torch.bool else x) <= 0
    assert torch.equal(back(Bits(dtype), x), expected.logical_not().to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_pass_by_the_bits_as_by_the_values(dtype: torch.dtype) -> None:
    x = torch.tensor([*SPECIAL, *(-one for one in SPECIAL)], dtype=dtype)
    grad = torch.arange(1, len(x) + 1, dtype=dtype)
    for values in (x, x.relu()):
        expected = torch.ops.aten.threshold_backward(grad, values, 0)
        stand_in = back(Bits(dtype), values)
        assert torch.equal(torch.ops.aten.threshold_backward(grad, stand_in, 0), expected)


@pytest.mark.parametrize("form", [Indices(2, torch.uint16), Indices(3, torch.int32)])
def test_indices_come_back(form: Indices) -> None:
    most = (1 << 16) - 1 if form.dtype == torch.uint16 else (1 << 31) - 1
    x = torch.tensor([0, 1, 1 << 15, (1 << 15) - 1, most, most - 1, 7])
    assert torch.equal(back(form, x), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("axes", [2, 3])
def test_pools_do_not_read_their_inputs_values(dtype: torch.dtype, last: bool, axes: int) -> None:
    x = torch.randn(2, 3, *[6] * axes).to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last if axes == 2 else torch.channels_last_3d)
    name = f"max_pool{axes}d_with_indices"
    forward, backward = (getattr(torch.ops.aten, name + end) for end in ("", "_backward"))
    window = ([3] * axes, [2] * axes, [1] * axes, [1] * axes, False)
    y, indices = forward(x, *window)
    grad = torch.randn(y.shape).to(dtype)
    poison = torch.full_like(x, float("nan"))
    assert torch.equal(
        backward(grad, poison, *window, indices), backward(grad, x, *window, indices)
    )


# Whole steps, with a plan that squeezes what can be squeezed, and keeps the rest.


def squeezing(made: list[Plan]) -> Callable[[Timeline, int], Plan]:
    def planned(timeline: Timeline, room: int, reserved: object, copying: object) -> Plan:
        choices = [KEEP if saved.squeeze is None else SQUEEZE for saved in timeline.saved]
        found = schedule(timeline, [LINK], room, choices)
        simulation = simulate(timeline, [LINK], found)
        made.append(Plan(timeline, [LINK], found, simulation, room, False, 0.0, 0.0))
        return made[-1]

    return planned


def block(inputs: int, outputs: int, *, inplace: bool = True) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=inplace)]


def vgg() -> nn.Module:
    first = [*block(3, 8), *block(8, 8), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *block(8, 16, inplace=False), nn.MaxPool2d(3, 2))


class Unet(nn.Module):
    """The results before pools go to a concatenation too, which does not read them in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Sequential(*block(3, 8)), nn.Sequential(*block(8, 8))
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        return self.last(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))


class Masks(nn.Module):
    """As dropout on a GPU, which saves its mask as bool, and a mask of the input's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.native_dropout(self.conv(x), 0.4, True)[0]
        return y.masked_fill(y.detach() > 1.0, 0.5)


class Forked(nn.Module):
    """One result of a ReLU that a convolution reads too, and one that only pools read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*block(3, 8))
        self.second = nn.Sequential(*block(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        z = self.second(y)
        return F.max_pool2d(y, 2) + F.max_pool2d(z, 2) + F.max_pool2d(z, 2, 2)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[int]]] = {
    # how many times smaller each squeezed storage is, in the order of the step
    "vgg": (vgg, (4, 3, 16, 16), [32, 4, 32, 4]),
    "unet": (Unet, (4, 3, 16, 16), [32, 4, 32]),
    "masks": (Masks, (4, 3, 16, 16), [8, 8]),
    "forked": (Forked, (4, 3, 16, 16), [32, 4, 4, 4]),
    "pool": (
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 8, 3)),
        (4, 3, 16, 16),
        [4],
    ),
    "volume": (
        lambda: nn.Sequential(nn.Conv3d(3, 8, 1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 8, 1)),
        (2, 3, 8, 8, 8),
        [32, 4],
    ),
    "unbatched volume": (  # places in planes of more elements than two of its axes have
        lambda: nn.Sequential(nn.Conv3d(3, 2, 1), nn.MaxPool3d((1, 2, 2))),
        (3, 2, 192, 192),
        [],
    ),
}


@pytest.fixture
def without_onednn(name: str) -> Iterator[None]:
    """PyTorch's gradients of unbatched bf16 volumes by oneDNN crash on processors with AMX."""
    if name != "unbatched volume":
        yield
        return
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(True)


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_steps_have_the_bits_of_plain_pytorch(
    card: HostCard, name: str, dtype: torch.dtype
) -> None:
    make, shape, times = NETS[name]
    torch.manual_seed(0)
    net = make().to(dtype)
    made: list[Plan] = []
    steps = Steps(card, 1 << 30, squeezing(made))
    hooks = torch.autograd.graph.saved_tensors_hooks(steps.pack, steps.unpack)

    def gradients(number: int) -> list[torch.Tensor]:
        torch.manual_seed(number)
        x = torch.randn(shape).to(dtype)
        return list(torch.autograd.grad(net(x).square().mean(), list(net.parameters())))

    for number in range(STEPS):
        with hooks:
            ours = gradients(number)
        steps.step()
        for a, b in zip(ours, gradients(number), strict=True):
            assert torch.equal(a, b)
    assert steps.mode is Mode.FOLLOW
    squeezed = [one for one in made[-1].timeline.saved if one.squeeze is not None]
    wide = dtype.itemsize / 4
    found = [round(one.nbytes / one.squeeze.nbytes) for one in squeezed]
    assert found == [int(one * wide) if one == 32 else one for one in times]


class Other(torch.autograd.Function):
    """Saves what a pool does, and reads its values."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y, indices = F.max_pool2d(x, 2, return_indices=True)
        ctx.save_for_backward(x, indices)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        x, _ = ctx.saved_tensors
        return x * grad.sum()


@pytest.mark.parametrize("first", [False, True])
def test_another_reader_than_recorded_is_an_error(card: HostCard, first: bool) -> None:
    """Whether it reads before or after one that the smaller form serves."""
    pool: Callable[..., torch.Tensor] = F.max_pool2d
    steps = Steps(card, 1 << 30, squeezing([]))
    hooks = torch.autograd.graph.saved_tensors_hooks(steps.pack, steps.unpack)
    conv = nn.Conv2d(3, 8, 3)

    def step(*pools: Callable[..., torch.Tensor]) -> torch.Tensor:
        y = conv(torch.randn(4, 3, 16, 16)).relu()
        with hooks:
            y = conv(torch.randn(4, 3, 16, 16)).relu()
            return sum(one(y, 2).sum() for one in pools)

    for _ in range(3):
        step(pool, pool).backward()
        steps.step()
    assert steps.mode is Mode.FOLLOW

    def other(x: torch.Tensor, window: int) -> torch.Tensor:
        return Other.apply(x)

    loss = step(pool, other) if first else step(other, pool)
    with pytest.raises(RuntimeError, match="reads otherwise what is left in a smaller form"):
        loss.backward()


@pytest.mark.parametrize(
    ("rows", "dtype"), [(255, torch.uint16), (256, torch.uint16), (257, torch.int32)]
)
def test_indices_have_as_many_bits_as_their_plane_needs(rows: int, dtype: torch.dtype) -> None:
    x = torch.zeros(1, 1, rows, 256)
    x[0, 0, -1, -1] = 1.0
    _, indices = F.max_pool2d(x, 2, 1, return_indices=True)
    form = form_of(indices, [Kept(x)])
    assert form == Indices(2, dtype)
    assert torch.equal(back(form, indices), indices)
