"""Integers go in, and what comes out is what torch finds in float64, bit for bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings
from pytorch.cases import Case, cases

import oocdnn.torch

pytestmark = pytest.mark.usefixtures("ctx")


def results(compute, case: Case) -> list[torch.Tensor | None]:
    """y and the gradients of x, w and b."""
    operands = case.operands()
    y = compute(*operands)
    dy = case.filled(tuple(y.shape), 3)
    wanted = [one for one in operands if one is not None]
    return [y.detach(), *torch.autograd.grad(y, wanted, dy)]


def assert_as_torch(case: Case) -> None:
    wide = case.as_float64()
    for ours, torchs in zip(results(case.ours, case), results(wide.torchs, wide), strict=True):
        assert ours.dtype == case.dtype
        assert torch.equal(ours, torchs.to(case.dtype))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_results_and_gradients(case):
    assert_as_torch(case)


LARGE = {
    "conv1d": Case(1, False, (2, 16, 9000), (24, 16, 5), 24, {"padding": 2}),
    "conv2d": Case(2, False, (2, 8, 120, 130), (12, 8, 3, 3), 12, {"stride": 2, "padding": 1}),
    "conv3d": Case(3, False, (1, 6, 20, 40, 40), (8, 6, 3, 3, 3), 8, {"padding": "same"}),
    "conv_transpose2d": Case(2, True, (2, 8, 60, 64), (8, 6, 2, 2), 6, {"stride": 2}),
    "conv_transpose3d": Case(3, True, (1, 6, 12, 20, 20), (6, 4, 2, 2, 2), 4, {"stride": 2}),
}


@pytest.mark.parametrize("name", LARGE)
def test_in_tiles(name, ctx):
    """Tensors of several times the budget."""
    assert_as_torch(LARGE[name])
    assert ctx.stats.tiles > 1
    assert ctx.stats.peak_device_bytes <= 256 << 10


def test_a_gradient_that_was_expanded():
    case = LARGE["conv2d"]
    x, w, b = case.operands()
    case.ours(x, w, b).sum().backward()
    grads = [one.grad for one in (x, w, b)]
    wide = case.as_float64().operands()
    case.torchs(*wide).sum().backward()
    for ours, torchs in zip(grads, wide, strict=True):
        assert torch.equal(ours.double(), torchs.grad)


def test_an_expanded_input():
    case = LARGE["conv2d"]
    x, w, b = (one.detach() for one in case.operands())
    wide = x[:1].expand(3, -1, -1, -1)
    assert torch.equal(case.ours(wide, w, b), case.ours(wide.contiguous(), w, b))


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 2), (1, 2)])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_only_the_gradients_that_are_wanted(name, needed):
    case = LARGE[name]
    operands = [one.detach().requires_grad_(i in needed) for i, one in enumerate(case.operands())]
    everything = results(case.ours, case)
    y = case.ours(*operands)
    saved = [one is not None for one in y.grad_fn.saved_tensors]
    assert saved == [1 in needed, 0 in needed]
    dy = case.filled(tuple(y.shape), 3)
    found = torch.autograd.grad(y, [operands[i] for i in needed], dy)
    for i, ours in zip(needed, found, strict=True):
        assert torch.equal(ours, everything[1 + i])


def test_training_with_integers():
    """Three steps of two layers whose numbers all stay exact in float64."""

    def train(convolve, transpose):
        first, second = torch.zeros(6, 3, 3, 3).double(), torch.zeros(6, 2, 2, 2).double()
        weights = [
            (torch.arange(one.numel()) % 5 - 2.0).double().reshape(one.shape).requires_grad_()
            for one in (first, second)
        ]
        x = (torch.arange(3 * 8 * 10) % 7 - 3.0).double().reshape(1, 3, 8, 10)
        for _ in range(3):
            y = transpose(torch.relu(convolve(x, weights[0], padding=1)), weights[1], stride=2)
            gradients = torch.autograd.grad((y * y).sum(), weights)
            with torch.no_grad():
                for one, gradient in zip(weights, gradients, strict=True):
                    one -= torch.sign(gradient)
        return weights

    ours = train(oocdnn.torch.conv2d, oocdnn.torch.conv_transpose2d)
    torchs = train(torch.nn.functional.conv2d, torch.nn.functional.conv_transpose2d)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))
