"""Chains that keep nothing but x while they train: the values and gradients of their layers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from nn.comparing import FLOAT64, assert_same, fill
from python.support import integers

import oocdnn
from oocdnn import nn


def plain(recompute, dtype=np.float32):
    """All of it is links."""
    return nn.Chain(
        nn.Conv2d(2, 4, 3, padding=1, dtype=dtype, seed=0),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, bias=False, dtype=dtype, seed=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvBiasActPool(4, 3, 3, padding=1, activation="relu", dtype=dtype, seed=2),
        recompute=recompute,
    )


def step(chain, x, times=1):
    """y, dx and gradients."""
    fill(chain)
    chain.zero_grad()
    for _ in range(times):
        y = chain(x)
        dx = chain.backward(integers(y.shape, 3, x.dtype))
    return [y, dx, *(parameter.grad.copy() for parameter in chain.parameters())]


def same(made, wanted):
    for one, right in zip(made, wanted, strict=True):
        assert one.dtype == right.dtype
        np.testing.assert_array_equal(one.astype(np.float64), right.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, FLOAT64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("times", [1, 2])
def test_it_is_what_layers_give_one_by_one(dtype, times):
    x = integers((5, 2, 6, 6), 5, dtype)
    same(step(plain(True, dtype), x, times), step(plain(False, dtype), x, times))


def test_nothing_between_links_is_kept():
    chain, x = plain(True), integers((5, 2, 6, 6))
    y = chain(x)
    assert all(layer._kept is None for layer in chain)
    assert chain.backward(np.ones_like(y), needs_dx=False) is None
    with pytest.raises(RuntimeError):
        chain.backward(np.ones_like(y))


def test_it_is_pytorchs(torch):
    made = torch.nn
    layers = [made.Conv2d(2, 3, 3, padding=1), made.ReLU(), made.Conv2d(3, 4, 1, bias=False)]
    ours = nn.Chain(
        nn.Conv2d(2, 3, 3, padding=1, dtype=FLOAT64),
        nn.ReLU(),
        nn.Conv2d(3, 4, 1, bias=False, dtype=FLOAT64),
        recompute=True,
    )
    theirs = made.Sequential(*layers).double()
    assert_same(ours, theirs, torch, integers((3, 2, 5, 5), 5, FLOAT64))


def test_the_wire_is_crossed_once():
    """On a context with room for a part of the batch."""
    x = integers((16, 2, 32, 32))
    chain = plain(True)
    with oocdnn.Context("cpu", "512KiB", profile="none") as context:
        y = chain(x)
        dy = np.ones_like(y)
        dx = chain.backward(dy)
        own = sum(parameter.data.nbytes for parameter in chain.parameters())
        assert context.stats.tiles > 1
        assert context.stats.bytes_h2d == x.nbytes + dy.nbytes + own
        assert context.stats.bytes_d2h == dx.nbytes + own


def test_where_no_sample_fits_it_goes_layer_by_layer():
    x = integers((2, 2, 32, 32))
    wanted = step(plain(False), x)
    with oocdnn.Context("cpu", "48KiB", profile="none"):
        chain = plain(True)
        same(step(chain, x), wanted)
        assert chain.recompute is False
        same(step(chain, x), wanted)


def test_other_layers_keep_what_they_need():
    """Those within a chain that has others are links of their own chain only."""
    inner = plain(True)
    chain = nn.Chain(inner, nn.Flatten(), nn.Linear(27, 4), recompute=True)
    x = integers((3, 2, 6, 6))
    wanted = step(nn.Chain(plain(False), nn.Flatten(), nn.Linear(27, 4)), x)
    same(step(chain, x), wanted)
    chain(x)
    assert inner._kept is not None
    assert inner.layers[0]._kept is None
    assert chain._kept is None
