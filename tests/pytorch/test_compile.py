"""torch.compile takes the operators as they are, without a break in the graph."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from pytorch.nets import UNet
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import forward_ad

import oocdnn.torch

pytestmark = [pytest.mark.usefixtures("ctx"), pytest.mark.timeout(600)]
NAMES = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    yield
    torch.compiler.reset()


def operands(name: str, batch: int) -> list[torch.Tensor]:
    case = Case(int(name[-2]), False, (), (), None, {}, torch.float64, channels_last=True)
    shapes = (batch, 4, *(7,) * case.rank), (4, 2, *(3,) * case.rank), (4,)
    return [case.filled(shape, i).requires_grad_() for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("name", NAMES)
def test_functions(name):
    convolve = getattr(oocdnn.torch, name)

    def step(x, w, b):
        keywords = {"padding": 1} if "transpose" in name else {"padding": "same"}
        return torch.relu(convolve(x * 2, w, b, groups=2, **keywords)).square()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for batch in (1, 2, 3):
        tensors = operands(name, batch)
        expected, found = step(*tensors), compiled(*tensors)
        assert torch.equal(found, expected)
        gradients = (torch.autograd.grad(y.sum(), tensors) for y in (expected, found))
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose3d"])
def test_sizes_that_change_are_compiled_once(name):
    convolve, counted = getattr(oocdnn.torch, name), CompileCounterWithBackend("aot_eager")

    def step(x, w):
        return convolve(x, w, stride=2, groups=2)

    compiled = torch.compile(step, fullgraph=True, backend=counted, dynamic=True)
    for batch in (5, 6, 7):  # no other size of these tensors
        x, w, _ = operands(name, batch)
        x = torch.cat([x] * batch, -1)
        assert torch.equal(compiled(x, w), step(x, w))
    assert counted.frame_count == 1


def tangent(convolve, x, w):
    return torch.func.jvp(lambda *both: convolve(*both).square(), (x, w), (x, w))


def tangent_of_gradient(convolve, x, w):
    gradient = torch.func.grad(lambda w: convolve(x, w).square().sum())
    return torch.func.jvp(gradient, (w,), (w,))


def each_sample(convolve, x, w):
    return torch.func.vmap(lambda one: convolve(one[None], w))(x)


@pytest.mark.parametrize("transform", [tangent, tangent_of_gradient, each_sample])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d"])
def test_transforms(name, transform):
    x, w, _ = (one.detach() for one in operands(name, 2))
    compiled = torch.compile(transform, fullgraph=True, backend="aot_eager")
    ours, torchs = getattr(oocdnn.torch, name), getattr(nn.functional, name)
    with torch.no_grad():
        w = torch.cat([w, w], 1) if name == "conv2d" else w
    found, expected = compiled(ours, x, w), transform(torchs, x, w)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_tangents_from_outside():
    x, w, _ = (one.detach() for one in operands("conv_transpose2d", 2))
    compiled = torch.compile(oocdnn.torch.conv_transpose2d, backend="aot_eager")
    with forward_ad.dual_level():
        y = compiled(forward_ad.make_dual(x, x + 1), w)
        found = forward_ad.unpack_dual(y).tangent
    assert torch.equal(found, nn.functional.conv_transpose2d(x + 1, w))


def assert_compiles(model: nn.Module, x: torch.Tensor, backend: str) -> None:
    """To the same results and gradients, without a break."""
    oocdnn.torch.take(model)
    results = []
    for call in (model, torch.compile(model, fullgraph=True, backend=backend)):
        model.zero_grad()
        y = call(x)
        y.square().sum().backward()
        results.append([y.detach(), *(parameter.grad for parameter in model.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_taken_unet():
    model = UNet().double()
    assert_compiles(model, torch.randn(1, 1, 8, 8, 8, dtype=torch.float64), "aot_eager")


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_code_that_is_generated():
    """What lies between the operators becomes C++."""
    layers = nn.Conv2d(4, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2, stride=2)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
    assert_compiles(model, torch.randn(2, 4, 9, 9), "inductor")


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 4, 2), nn.ConvTranspose2d(4, 4, 2, stride=2)])
def test_a_module_alone(layer):
    assert_compiles(layer, torch.randn(2, 4, 5, 5), "aot_eager")


def test_wrong_calls_are_refused_when_they_are_compiled():
    compiled = torch.compile(oocdnn.torch.conv2d, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="4 channels of x"):
        compiled(torch.zeros(1, 4, 9, 9), torch.zeros(4, 3, 3, 3))
