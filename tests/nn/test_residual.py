"""Blocks that add their input: PyTorch's gradients, and depth first after eval."""

from __future__ import annotations

import numpy as np
import pytest
from nn.comparing import FLOAT64, assert_same
from python.support import DTYPES, integers

import oocdnn
from oocdnn import nn


def fused(c, k, rng, dtype=np.float32, activation=None):
    return nn.ConvBiasActPool(c, k, 3, padding=1, activation=activation, dtype=dtype, seed=rng)


def block(channels, inner, rng, dtype=np.float32):
    clip = ("clipped_relu", 2.0)
    layers = fused(channels, inner, rng, dtype, clip), fused(inner, channels, rng, dtype)
    return nn.Residual(*layers, activation=nn.ReLU())


def whole_numbers(chain):
    for i, parameter in enumerate(chain.parameters()):
        parameter.data[:] = integers(parameter.data.shape, i, largest=1)
    return chain


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.Tanh()])
def test_a_block_is_pytorchs(torch, activation):
    made = torch.nn

    class Block(made.Sequential):
        def forward(self, x):
            y = super().forward(x) + x
            if activation is None:
                return y
            return torch.relu(y) if isinstance(activation, nn.ReLU) else torch.tanh(y)

    theirs = Block(made.Conv2d(3, 4, 3, padding=1), made.ReLU(), made.Conv2d(4, 3, 1)).double()
    rng = np.random.default_rng(0)
    mine = nn.Residual(
        nn.Conv2d(3, 4, 3, padding=1, dtype=FLOAT64, seed=rng),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1, dtype=FLOAT64, seed=rng),
        activation=activation,
    )
    assert list(mine.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    x, tolerance = integers((2, 3, 5, 6), 5, FLOAT64), 1e-12 if activation else 0.0
    assert_same(mine, theirs, torch, x, tolerance=tolerance)


@pytest.mark.parametrize("name", DTYPES)
def test_after_eval_blocks_run_depth_first(monkeypatch, name):
    """Several of them in one chain with what is around them; the numbers are those of training."""
    calls = []
    real = oocdnn.conv_chain

    def counted(x, links):
        calls.append([link.residual for link in links])
        return real(x, links)

    monkeypatch.setattr(nn.chain, "conv_chain", counted)
    monkeypatch.setattr(nn.residual, "conv_chain", counted)
    rng, kind = np.random.default_rng(1), DTYPES[name]
    first = fused(3, 4, rng, kind, ("clipped_relu", 2.0))
    net = nn.Chain(first, block(4, 2, rng, kind), nn.Chain(block(4, 3, rng, kind)), nn.AvgPool2d(2))
    whole_numbers(net)
    x = integers((2, 3, 6, 6), dtype=kind, largest=1)
    trained = net(x)
    assert not calls
    np.testing.assert_array_equal(net.eval()(x), trained)
    assert calls == [[None, None, 0, None, 2]]
    np.testing.assert_array_equal(net[1](first(x)), net[1].train()(first(x)))
    assert calls[1:] == [[None, "x"]]


def test_blocks_that_are_no_links_run_layer_by_layer():
    rng = np.random.default_rng(2)
    x = integers((2, 2, 6, 6))
    for layers in (
        [nn.Conv2d(2, 2, 3, padding=1, seed=rng), nn.BatchNorm2d(2)],
        [fused(2, 2, rng, activation="relu")],
        [nn.ReLU()],
        [],
    ):
        mine = nn.Residual(*layers).eval()
        np.testing.assert_array_equal(mine(x), nn.Chain(*layers).eval()(x) + x)
        assert mine.links(0) is None
    nested = nn.Residual(block(2, 3, rng))  # ends with what it adds itself
    whole_numbers(nested)
    np.testing.assert_array_equal(nested.eval()(x), nested[0](x) + x)


def test_gradients_of_a_block_that_nobody_needs():
    mine, x = whole_numbers(block(2, 3, np.random.default_rng(3))), integers((1, 2, 4, 4))
    mine(x)
    assert mine.backward(np.ones_like(x), needs_dx=False) is None
    assert all(parameter.grad is not None for parameter in mine.parameters())
    with pytest.raises(RuntimeError, match=r"Residual\.backward has nothing to go back to"):
        mine.backward(np.ones_like(x))


def test_what_a_block_refuses():
    with pytest.raises(TypeError, match="activation is of type str"):
        nn.Residual(nn.ReLU(), activation="relu")
    with pytest.raises(oocdnn.InvalidProblem, match="what the layers make of x has shape"):
        nn.Residual(nn.Conv2d(2, 3, 1, seed=0))(integers((1, 2, 4, 4)))
    both = nn.Conv2d(2, 3, 1, seed=0), nn.Conv2d(3, 3, 1, seed=0)
    with pytest.raises(oocdnn.InvalidProblem, match="link 1 of a chain: x as residual has shape"):
        nn.Residual(*both).eval()(integers((1, 2, 4, 4)))
