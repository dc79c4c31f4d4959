"""`oocdnn.torch` where tensors lie on a GPU, in host memory, pinned or not, in any mix of these.

Integers, and torch in float64 on the CPU as the reference, so that all comparisons are for
equality. The suites under tests/pytorch run on a GPU too; here is what they cannot do without one.
"""

from __future__ import annotations

import itertools

import pytest

import oocdnn

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from pytorch.nets import UNet, train
from torch import nn

import oocdnn.torch
from oocdnn._calls import stack
from oocdnn.torch import _operators

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
CASES = {
    "conv2d": Case(2, False, (3, 8, 60, 61), (12, 4, 3, 3), 12, {"padding": 1, "groups": 2}),
    "conv_transpose2d": Case(2, True, (3, 8, 30, 31), (8, 6, 2, 2), 6, {"stride": 2}),
    "conv3d": Case(3, False, (1, 6, 12, 20, 20), (8, 6, 3, 3, 3), 8, {"padding": "same"}),
}


@pytest.fixture
def ctx(request, monkeypatch):
    """The default context is refused: autograd's threads must find this one."""
    budget = getattr(request, "param", "256KiB")

    def refuse() -> oocdnn.Context:
        raise AssertionError("the default context is used")

    monkeypatch.setattr(stack, "_default_context", refuse)
    with oocdnn.Context("cuda", budget, wrap="check") as context:
        yield context
        torch.cuda.synchronize()
        assert context.check_reports() == []


roomy = pytest.mark.parametrize("ctx", ["64MiB"], indirect=True)


def ours(tensor):
    return oocdnn.torch.empty(tensor.shape, tensor.dtype).copy_(tensor)


PLACES = {
    "pageable": torch.Tensor.clone,
    "pinned": torch.Tensor.pin_memory,
    "ours": ours,
    "cuda": torch.Tensor.cuda,
}


def put(place: str, tensor: torch.Tensor) -> torch.Tensor:
    return PLACES[place](tensor.detach()).requires_grad_()


def reference(case: Case) -> list[torch.Tensor]:
    operands = case.as_float64().operands()
    y = case.torchs(*operands)
    return [y.detach(), *torch.autograd.grad(y, operands, case.filled(tuple(y.shape), 3).double())]


@pytest.mark.parametrize("places", list(itertools.product(PLACES, repeat=2)), ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_any_mix_of_places(ctx, name, places):
    case = CASES[name]
    x, w, b = (
        put(place, one) for place, one in zip((*places, places[1]), case.operands(), strict=True)
    )
    y = case.ours(x, w, b)
    dy = case.filled(tuple(y.shape), 3).to(y.device)
    found = [y.detach(), *torch.autograd.grad(y, (x, w, b), dy)]
    assert [one.device for one in found] == [x.device, x.device, w.device, b.device]
    for result, expected in zip(found, reference(case), strict=True):
        assert torch.equal(result.double().cpu(), expected)
    assert ctx.stats.peak_device_bytes <= 256 << 10


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_result_goes_where_it_is_said_to(ctx, place, device, dtype):
    case = CASES["conv2d"]
    x, w, b = (put(place, one.to(dtype)) for one in case.operands())
    x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    y = oocdnn.torch.conv2d(x, w, b, **case.keywords, device=device)
    assert y.device.type == device
    assert y.is_contiguous(memory_format=torch.channels_last)
    y.backward(case.filled(tuple(y.shape), 3).to(y))
    found = [y.detach(), x.grad, w.grad, b.grad]
    for result, expected, like in zip(found, reference(case), (y, x, w, b), strict=True):
        assert result.device == like.device
        assert torch.equal(result.cpu(), expected.to(dtype))


def mixtures():
    host, gpu = torch.device("cpu"), torch.device("cuda", 0)
    return list(itertools.product((host, gpu), repeat=3))


@pytest.mark.parametrize("devices", mixtures(), ids=str)
def test_opcheck(ctx, devices):
    case = Case(2, False, (), (), None, {}, torch.float64)
    x, w = (
        case.filled(shape, i).to(device).requires_grad_()
        for i, (shape, device) in enumerate(
            zip(((2, 4, 5, 6), (6, 4, 3, 3)), devices, strict=False)
        )
    )
    how = ([1, 1], [1, 1], [1, 1], [1, 1], 1)
    checks = torch.library.opcheck(_operators.conv, (x, w, None, *how, devices[2]))
    assert set(checks.values()) == {"SUCCESS"}


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_computed_in_the_context_of_the_call(ctx, compiled):
    """By a thread of autograd's; the fixture refuses another context."""
    layer = nn.Conv2d(4, 4, 3, padding=1).double().cuda()
    oocdnn.torch.take(layer)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    call = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    x = torch.randn(2, 4, 64, 64, dtype=torch.float64, device="cuda", requires_grad=True)
    call(x).square().sum().backward()
    oocdnn.torch.give_back(layer)
    expected = torch.autograd.grad(model(x).square().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    torch.compiler.reset()


def test_streams(ctx):
    """A result on the GPU is ordered after its operands on torch's current stream."""
    w = torch.eye(4, device="cuda").reshape(4, 4, 1, 1)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for value in range(20):
            x = torch.full((4, 4, 512, 512), float(value), device="cuda")
            y = oocdnn.torch.conv2d(x, w)
            x.fill_(-1)
            assert y.eq(value).all()


def test_pools_are_pinned(ctx):
    with oocdnn.torch.host_pool() as pool:
        large, small = pool.empty(2 << 20), pool.empty(5)
        assert large.is_pinned()
        assert not small.is_pinned()
        assert oocdnn.torch.empty(5).is_pinned()
        place = large.data_ptr()
        del large
        again = pool.empty(2 << 20)
        assert again.data_ptr() == place
        assert again.is_pinned()
    assert again.zero_().sum() == 0


@roomy
def test_a_unet_on_the_gpu_trains_to_the_losses_of_plain_torch(ctx):
    torch.manual_seed(0)
    plain = UNet().double().cuda()
    state = {name: value.clone() for name, value in plain.state_dict().items()}
    expected = train(plain, 20)
    model = UNet().double().cuda()
    oocdnn.torch.take(model)
    model.load_state_dict(state)
    assert train(model, 20) == pytest.approx(expected, rel=1e-9)


@roomy
def test_a_unet_in_host_memory_computes_on_the_gpu(ctx):
    torch.manual_seed(0)
    model = UNet().double()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = train(model, 5)
    model.load_state_dict(state)
    oocdnn.torch.take(model)
    assert train(model, 5) == pytest.approx(expected, rel=1e-9)
    assert ctx.stats.bytes_h2d > 0
