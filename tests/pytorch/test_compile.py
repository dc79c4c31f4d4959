"""torch.compile takes the operators as they are, without a break in the graph."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from pytorch.nets import UNet
from torch import nn

import oocdnn.torch

pytestmark = [pytest.mark.usefixtures("ctx"), pytest.mark.timeout(600)]
NAMES = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    yield
    torch.compiler.reset()


def backends():
    compiler = shutil.which("g++") or shutil.which("clang++")
    skipped = pytest.mark.skipif(not compiler, reason="there is no C++ compiler")
    return ["aot_eager", pytest.param("inductor", marks=skipped)]


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
    if "transpose" not in name:
        tensors = operands(name, 1)
    for batch in (1, 2, 3):
        tensors = operands(name, batch)
        if "transpose" in name:
            tensors[1] = tensors[1].detach().requires_grad_()
        expected, found = step(*tensors), compiled(*tensors)
        assert torch.equal(found, expected)
        gradients = (torch.autograd.grad(y.sum(), tensors) for y in (expected, found))
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose3d"])
def test_sizes_that_change_are_compiled_once(name):
    convolve, counted = getattr(oocdnn.torch, name), torch._dynamo.testing.CompileCounter()

    def step(x, w):
        return convolve(x, w, stride=2, groups=2)

    compiled = torch.compile(step, fullgraph=True, backend=counted, dynamic=True)
    for batch in (2, 3, 5):
        x, w, _ = operands(name, batch)
        x = torch.cat([x] * batch, -1).detach()
        assert torch.equal(compiled(x, w), step(x, w))
    assert counted.frame_count == 1


@pytest.mark.parametrize("backend", backends())
def test_a_taken_unet(backend):
    torch.manual_seed(0)
    model = UNet().double()
    oocdnn.torch.take(model)
    x = torch.randn(1, 1, 8, 8, 8, dtype=torch.float64)
    expected = model(x)
    expected.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    found = torch.compile(model, fullgraph=True, backend=backend)(x)
    found.square().sum().backward()
    torch.testing.assert_close(found, expected)
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_taken_module_within():
    layer = nn.ConvTranspose2d(4, 4, 2, stride=2)
    oocdnn.torch.take(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 4, 5, 5)
    assert torch.equal(compiled(x), layer(x))
    oocdnn.torch.give_back(layer)
    assert torch.equal(compiled(x), layer(x))


def test_wrong_calls_are_refused_when_they_are_compiled():
    compiled = torch.compile(oocdnn.torch.conv2d, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="4 channels of x"):
        compiled(torch.zeros(1, 4, 9, 9), torch.zeros(4, 3, 3, 3))
