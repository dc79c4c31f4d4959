"""Convolutions and matrix products as layers: forward and gradients are PyTorch's, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import FLOAT64, assert_same
from python.support import DTYPES, channels_last, integers

from oocdnn import nn

shapes = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class Case:
    rank: int
    n: int
    c: int
    k: int
    groups: int
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    room: tuple[int, ...]
    bias: bool

    @property
    def reach(self) -> tuple[int, ...]:
        return tuple((t - 1) * d + 1 for t, d in zip(self.taps, self.dilation, strict=True))

    @property
    def keywords(self):
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "bias": self.bias,
        }


@st.composite
def cases(draw) -> Case:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    groups = draw(st.integers(1, 3))
    c, k = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 4))
    taps = each(1, 3)
    pads = tuple(draw(st.integers(0, t)) for t in taps)
    n, bias = draw(st.integers(1, 3)), draw(st.booleans())
    return Case(rank, n, c, k, groups, taps, each(1, 3), pads, each(1, 2), each(0, 7), bias)


@shapes
@given(case=cases())
def test_convolutions(torch, case):
    sizes = zip(case.reach, case.padding, case.room, strict=True)
    extents = tuple(max(reach - 2 * pad, 1) + room for reach, pad, room in sizes)
    x = integers((case.n, case.c, *extents), 5, FLOAT64)
    name = f"Conv{case.rank}d"
    layer = getattr(nn, name)(case.c, case.k, case.taps, **case.keywords, dtype=FLOAT64)
    module = getattr(torch.nn, name)(case.c, case.k, case.taps, **case.keywords).double()
    assert_same(layer, module, torch, x)


@shapes
@given(case=cases(), data=st.data())
def test_transposed_convolutions(torch, case, data):
    extra = tuple(data.draw(st.integers(0, s - 1)) for s in case.stride)
    x = integers((case.n, case.c, *(room + 7 for room in case.room)), 5, FLOAT64)
    name = f"ConvTranspose{case.rank}d"
    keywords = {**case.keywords, "output_padding": extra}
    layer = getattr(nn, name)(case.c, case.k, case.taps, **keywords, dtype=FLOAT64)
    module = getattr(torch.nn, name)(case.c, case.k, case.taps, **keywords).double()
    assert_same(layer, module, torch, x)


@shapes
@given(n=st.integers(1, 9), c=st.integers(1, 40), k=st.integers(1, 40), bias=st.booleans())
def test_matrix_products(torch, n, c, k, bias):
    x = integers((n, c), 5, FLOAT64)
    layer = nn.Linear(c, k, bias, dtype=FLOAT64)
    assert_same(layer, torch.nn.Linear(c, k, bias).double(), torch, x)


def test_channels_last_stays_so(torch):
    x = channels_last(integers((2, 6, 9, 11), 5, FLOAT64))
    layer = nn.Conv2d(6, 4, 3, dtype=FLOAT64)
    assert_same(layer, torch.nn.Conv2d(6, 4, 3).double(), torch, x)
    chain = nn.Chain(layer, nn.ReLU(), nn.MaxPool2d(2), nn.ReLU())
    assert np.moveaxis(chain(x), 1, -1).flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_type(dtype):
    """Sums of few small integers are exact in all of them."""
    x = integers((2, 2, 6, 6), 5)
    results = []
    for kind in (np.dtype(np.float64), DTYPES[dtype]):
        layer = nn.Conv2d(2, 3, 2, dtype=kind)
        for i, parameter in enumerate(layer.parameters()):
            parameter.data[...] = integers(parameter.data.shape, i, largest=1)
        y = layer(x.astype(kind))
        dx = layer.backward(integers(y.shape, 7, kind, largest=1))
        grads = [p.grad for p in layer.parameters()]
        assert all(array.dtype == kind for array in (y, dx, *grads))
        results.append([array.astype(np.float64) for array in (y, dx, *grads)])
    for wide, narrow in zip(*results, strict=True):
        np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Linear"])
def test_first_values_are_distributed_as_pytorchs(torch, name):
    sizes = (40, 60) if name == "Linear" else (40, 60, 3)
    layer, module = getattr(nn, name)(*sizes, seed=3), getattr(torch.nn, name)(*sizes)
    again = getattr(nn, name)(*sizes, seed=np.random.default_rng(3))
    bound = module.weight[0].numel() ** -0.5  # of both, which are uniform
    for (key, mine), theirs in zip(layer.state_dict().items(), module.parameters(), strict=True):
        values = theirs.detach().numpy()
        assert mine.shape == values.shape
        assert mine.dtype == np.float32
        np.testing.assert_array_equal(mine, again.state_dict()[key])
        # The largest of ours, whose seed is known, is near it; of PyTorch's 40 and more, anywhere
        # above the half.
        assert 0.9 * bound < np.abs(mine).max() <= bound
        assert 0.5 * bound < np.abs(values).max() <= np.float32(bound)
        assert abs(mine.mean()) < 0.2 * bound
