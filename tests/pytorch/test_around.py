"""What torch builds around operators: recomputing, saving elsewhere, exporting, inference."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn
from torch.utils.checkpoint import checkpoint

import oocdnn.torch

pytestmark = pytest.mark.usefixtures("ctx")


@pytest.fixture
def model():
    layers = nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(4, 4, 2, stride=2)
    taken = nn.Sequential(*layers).double()
    oocdnn.torch.take(taken)
    return taken


@pytest.fixture
def x():
    return torch.randn(2, 4, 9, 9, dtype=torch.float64, requires_grad=True)


def gradient(y, x):
    return torch.autograd.grad(y.square().sum(), x)[0]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(model, x, reentrant):
    found = model(x)
    again = checkpoint(model, x, use_reentrant=reentrant)
    assert torch.equal(again, found)
    loss = again.square().sum()
    loss.backward()
    assert torch.equal(x.grad, gradient(found, x))


def test_saved_tensors_go_elsewhere(model, x):
    with torch.autograd.graph.save_on_cpu():
        y = model(x)
    assert torch.equal(gradient(y, x), gradient(model(x), x))


def test_export(model, x):
    program = torch.export.export(model, (x.detach(),))
    assert torch.equal(program.module()(x.detach()), model(x))
    targets = [str(node.target) for node in program.graph.nodes]
    assert [t for t in targets if t.startswith("oocdnn")] == [
        "oocdnn.conv.default",
        "oocdnn.conv_transpose.default",
    ]


def test_inference_mode(model, x):
    with torch.inference_mode():
        y = model(x)
    assert y.is_inference()
    assert torch.equal(y, model(x))


def test_gradients_accumulate(model, x):
    for _ in range(2):
        model(x).sum().backward()
    first = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for twice, parameter in zip(first, model.parameters(), strict=True):
        torch.testing.assert_close(twice, 2 * parameter.grad)
