"""Normalisations and upsampling in inference: PyTorch's, alone and as part of the convolutions."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from nn.comparing import tensors
from python.support import assert_close, integers

import oocdnn
from oocdnn import nn


def randomize(layer, seed=0) -> None:
    rng = np.random.default_rng(seed)
    for name, array in layer.state_dict().items():
        if name.endswith("running_var"):
            array[...] = rng.uniform(0.5, 2, array.shape)
        elif not name.endswith("num_batches_tracked"):
            array[...] = rng.standard_normal(array.shape) / 2


def pairs(torch):
    made = torch.nn
    return [
        (nn.GroupNorm(2, 4), made.GroupNorm(2, 4)),
        (nn.GroupNorm(4, 4, 0.1, False), made.GroupNorm(4, 4, 0.1, False)),
        (nn.InstanceNorm2d(4), made.InstanceNorm2d(4)),
        (nn.InstanceNorm2d(4, affine=True), made.InstanceNorm2d(4, affine=True)),
        (nn.BatchNorm2d(4), made.BatchNorm2d(4)),
        (nn.BatchNorm2d(4, 0.1, False), made.BatchNorm2d(4, 0.1, affine=False)),
        (nn.Upsample(2), made.Upsample(scale_factor=2)),
    ]


def test_layers_are_pytorchs(torch):
    x = np.random.default_rng(1).standard_normal((3, 4, 6, 5), np.float32)
    for layer, theirs in pairs(torch):
        randomize(layer)
        theirs.load_state_dict(tensors(torch, layer.state_dict()))
        y = layer.eval()(x)
        assert y.dtype == x.dtype
        assert_close(y, theirs.eval()(torch.from_numpy(x)).detach().numpy())


def decoder(made, rng=None):
    """A part of a decoder with all that is fused: counted sums, running statistics, upsampling."""
    seed = {} if rng is None else {"seed": rng}
    act = made.SiLU if rng is None else nn.Swish
    up = made.Upsample(scale_factor=2) if rng is None else nn.Upsample(2)
    return (
        made.Conv2d(3, 8, 3, padding=1, **seed),
        made.GroupNorm(4, 8), act(),
        made.Conv2d(8, 8, 3, padding=1, **seed),
        made.BatchNorm2d(8), made.ReLU(), up,
        made.Conv2d(8, 6, 3, padding=1, **seed),
        made.InstanceNorm2d(6), made.ReLU(),
        made.ConvTranspose2d(6, 4, 2, stride=2, **seed),
        made.GroupNorm(2, 4),
        made.Conv2d(4, 2, 1, **seed),
    )  # fmt: skip


def test_a_decoder_is_pytorchs(torch, monkeypatch):
    chain = nn.Chain(*decoder(nn, np.random.default_rng(3))).eval()
    randomize(chain, 4)
    theirs = torch.nn.Sequential(*decoder(torch.nn)).eval()
    theirs.load_state_dict(tensors(torch, chain.state_dict()))
    x = np.random.default_rng(5).standard_normal((2, 3, 9, 11), np.float32)
    apart = []
    for layer in chain:
        if isinstance(layer, (nn.normalization.Norm, nn.Upsample)):
            kind = type(layer)
            seen = functools.wraps(kind.forward)(lambda self, x: apart.append(1))
            monkeypatch.setattr(kind, "forward", seen)
    y = chain(x)
    assert not apart, "a pass of its own"
    with torch.no_grad():
        assert_close(y, theirs(torch.from_numpy(x)).numpy(), 1e-4)


def test_while_training_each_layer_is_a_pass():
    chain = nn.Chain(nn.Conv2d(2, 4, 3, seed=1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1, seed=2))
    x = integers((1, 2, 6, 6))
    trained = chain(x)
    assert_close(chain.eval()(x), trained)
    with pytest.raises(oocdnn.Unsupported, match="no backward"):
        chain[1].backward(trained)


def test_reproducible_contexts_count_by_a_pass():
    chain = nn.Chain(nn.Conv2d(2, 4, 3, seed=1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1, seed=2))
    x = integers((1, 2, 6, 6))
    y = chain.eval()(x)
    with oocdnn.Context("cpu", reproducible=True):
        assert_close(chain(x), y)


def test_errors():
    with pytest.raises(oocdnn.InvalidProblem, match="do not divide"):
        nn.GroupNorm(3, 4)
    with pytest.raises(oocdnn.InvalidProblem, match="4 channels"):
        nn.GroupNorm(2, 4)(integers((1, 3, 5)))
    with pytest.raises(oocdnn.Unsupported, match="eval"):
        nn.BatchNorm2d(4)(integers((1, 4, 5, 5)))


def test_files_hold_statistics(tmp_path):
    layer = nn.Chain(nn.BatchNorm1d(3))
    randomize(layer, 7)
    nn.save(tmp_path / "norm.npz", layer.state_dict())
    other = nn.Chain(nn.BatchNorm1d(3))
    other.load_state_dict(nn.load(tmp_path / "norm.npz"))
    for name, array in other.state_dict().items():
        np.testing.assert_array_equal(array, layer.state_dict()[name])
    assert len(other.parameters()) == 2


@pytest.mark.parametrize(("offset", "tolerance"), [(1e8, 2e-7), (1e6, 2e-9), (0.0, 1e-14)])
def test_layers_far_from_zero(offset, tolerance):
    """Alone, and behind the convolution that counts."""
    x = np.random.default_rng(6).standard_normal((2, 4, 9, 33)) + offset
    apart = x.reshape(2, 2, -1).astype(np.longdouble)
    apart = apart - apart.mean(2, keepdims=True)
    wanted = (apart / np.sqrt((apart**2).mean(2, keepdims=True) + 1e-5)).reshape(x.shape)
    norm = nn.GroupNorm(2, 4, dtype=np.float64)
    np.testing.assert_allclose(norm(x), wanted, 0, tolerance)
    first, second = (nn.Conv2d(4, 4, 1, bias=False, dtype=np.float64) for _ in range(2))
    for layer in (first, second):
        layer.weight.data[...] = np.eye(4)[:, :, None, None]
    chain = nn.Chain(first, norm, second).eval()
    np.testing.assert_allclose(chain(x), wanted, 0, tolerance)


def test_layers_of_equal_elements():
    x = np.full((2, 4, 9, 33), 1e4, np.float32)
    for norm in (nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)):
        np.testing.assert_array_equal(norm(x), 0.0)
    assert nn.GroupNorm(2, 4)(x[:0]).shape == (0, 4, 9, 33)
