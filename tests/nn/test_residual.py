"""Blocks that add their input: PyTorch's gradients, and depth first after eval."""

from __future__ import annotations

import numpy as np
import pytest
from nn.comparing import FLOAT64, assert_same, tensors
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


def test_a_block_with_a_shortcut_is_pytorchs(torch):
    made = torch.nn

    class Block(made.Sequential):
        def __init__(self, *layers):
            super().__init__(*layers)
            self.add_module("shortcut", made.Conv2d(3, 4, 1, stride=2))

        def forward(self, x):
            return torch.relu(self[2](self[1](self[0](x))) + self.shortcut(x))

    theirs = Block(
        made.Conv2d(3, 2, 3, 2, padding=1), made.ReLU(), made.Conv2d(2, 4, 3, padding=1)
    ).double()
    rng = np.random.default_rng(4)
    mine = nn.Residual(
        nn.Conv2d(3, 2, 3, 2, padding=1, dtype=FLOAT64, seed=rng),
        nn.ReLU(),
        nn.Conv2d(2, 4, 3, padding=1, dtype=FLOAT64, seed=rng),
        activation=nn.ReLU(),
        shortcut=nn.Conv2d(3, 4, 1, 2, dtype=FLOAT64, seed=rng),
    )
    x = integers((2, 3, 6, 7), 5, FLOAT64)
    assert_same(mine, theirs, torch, x)
    trained = mine(x)
    assert mine.eval().links(0) is None
    np.testing.assert_array_equal(mine(x), trained)


def resnet(made, channels, **seed):
    """The first layers of a ResNet: a stem, and three blocks, of which one goes down."""
    c, relu = channels, made.ReLU

    def layers(before, stride):
        return (
            made.Conv2d(before, c, 3, stride, padding=1, bias=False, **seed),
            made.BatchNorm2d(c),
            relu(),
            made.Conv2d(c, c, 3, padding=1, bias=False, **seed),
            made.BatchNorm2d(c),
        )

    stem = made.Conv2d(3, c, 3, padding=1, **seed), made.BatchNorm2d(c), relu(), made.MaxPool2d(2)
    down = made.Conv2d(c, c, 1, 2, bias=False, **seed)
    return stem, [(layers(c, 1), None), (layers(c, 1), None), (layers(c, 2), down)]


def test_a_resnet_is_pytorchs_and_runs_depth_first(torch, monkeypatch):
    """Batch norms, activations and the pool are parts of the links."""

    class Block(torch.nn.Sequential):
        def __init__(self, layers, shortcut):
            super().__init__(*layers)
            if shortcut is not None:
                self.add_module("shortcut", shortcut)

        def forward(self, x):
            y = x
            for layer in list(self)[:5]:
                y = layer(y)
            return torch.relu(y + (self.shortcut(x) if len(self) > 5 else x))

    stem, blocks = resnet(nn, 6, seed=np.random.default_rng(6))
    mine = nn.Chain(
        *stem, *(nn.Residual(*made, activation=nn.ReLU(), shortcut=way) for made, way in blocks)
    ).eval()
    stem, blocks = resnet(torch.nn, 6)
    theirs = torch.nn.Sequential(*stem, *(Block(*block) for block in blocks)).eval()
    rng = np.random.default_rng(7)
    for name, array in mine.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            array[...] = rng.uniform(0.5, 1.5, array.shape) / 4
    theirs.load_state_dict(tensors(torch, mine.state_dict()))
    calls = []
    for module in (nn.chain, nn.residual):
        real = module.conv_chain
        monkeypatch.setattr(
            module,
            "conv_chain",
            lambda x, links, real=real: (
                calls.append([link.residual for link in links]) or real(x, links)
            ),
        )
    x = rng.standard_normal((2, 3, 16, 16), np.float32)
    y = mine(x)
    assert calls[0] == [None, None, 0, None, 2]
    assert len(calls[1]) == 2
    assert calls[1][1].shape == (2, 6, 4, 4)
    with torch.no_grad():
        np.testing.assert_allclose(y, theirs(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DTYPES)
def test_what_comes_after_a_convolution_joins_it(monkeypatch, name):
    """But for batch norms of 16 bits, which round between."""
    calls = []
    real = oocdnn.conv_chain
    monkeypatch.setattr(
        nn.chain, "conv_chain", lambda x, links: calls.append(len(links)) or real(x, links)
    )
    rng, kind = np.random.default_rng(8), DTYPES[name]
    layers = [
        nn.Conv2d(2, 3, 3, padding=1, dtype=kind, seed=rng),
        nn.ClippedReLU(3.0),
        nn.Conv2d(3, 2, 3, dtype=kind, seed=rng),
        nn.AvgPool2d(2),
        nn.ReLU(),  # behind a pool, and by itself
        nn.Conv2d(2, 2, 1, dtype=kind, seed=rng),
        nn.MaxPool2d(2, 1),
    ]
    chain = whole_numbers(nn.Chain(*layers))
    x = integers((2, 2, 8, 8), dtype=kind, largest=1)
    trained = chain(x)
    np.testing.assert_array_equal(chain.eval()(x), trained)
    assert calls == [2, 1]
    norm = nn.BatchNorm2d(2, dtype=kind)
    for joined in (nn.Chain(layers[2], norm, layers[5]), nn.Chain(layers[2], norm)):
        del calls[:]
        joined.eval()(trained[:, :1].repeat(3, 1).repeat(4, 2).repeat(4, 3))
        whole = len(joined) - 1
        assert calls == ([] if np.dtype(kind).itemsize == 2 else [whole])


def test_blocks_that_are_no_links_run_layer_by_layer():
    rng = np.random.default_rng(2)
    x = integers((2, 2, 6, 6))
    for layers in (
        [nn.Conv2d(2, 2, 3, padding=1, seed=rng), nn.GroupNorm(1, 2)],
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
