"""Windows of a chain's result are those of the whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from python.support import integers

import oocdnn

torch = pytest.importorskip("torch")


from oocdnn.bench.truth.windows import Layer, convolve, expected, windows  # noqa: E402


def layers_of(channels, filters):
    for i, (c, k) in enumerate(itertools.pairwise(channels)):
        w, b = integers((k, c, *filters[i]), i, largest=1), integers((k,), i, largest=2)
        yield Layer(torch.from_numpy(w), torch.from_numpy(b), 6.0)


@pytest.mark.parametrize(
    ("extents", "filters"),
    [((40,), [(3,), (5,)]), ((23, 31), [(3, 3)] * 4), ((9, 10, 14), [(3, 1, 3), (1, 3, 5)])],
)
def test_windows_are_those_of_the_whole(extents, filters):
    channels = (3, *(4 for _ in filters))
    layers = list(layers_of(channels, filters))
    x = torch.from_numpy(integers((2, 3, *extents), 9))
    whole = x
    for layer in layers:
        whole = convolve(whole, layer)
    places = windows(extents, 7, 5)
    assert len(places) == 2 ** len(extents) + 5
    for window in places:
        assert torch.equal(expected(x, layers, window), whole[(..., *window)])


def test_a_chain_has_them():
    extents, layers = (24, 30), list(layers_of((3, 8, 8), [(3, 3)] * 2))
    x = integers((1, 3, *extents), 5)
    links = [
        oocdnn.Link(one.w.numpy(), one.b.numpy(), padding=1, activation=("clipped_relu", one.top))
        for one in layers
    ]
    with oocdnn.Context("cpu", "256KiB", profile="none") as context:
        z = context.conv_chain(x, links)
    for window in windows(extents, 11, 3):
        part = expected(torch.from_numpy(x), layers, window)
        np.testing.assert_array_equal(z[(..., *window)], part.numpy())


def test_places_repeat_and_lie_within():
    places = windows((100, 5), 8, 20)
    assert places == windows((100, 5), 8, 20)
    for first, second in places:
        assert first.start >= 0
        assert first.stop - first.start == 8
        assert first.stop <= 100
        assert (second.start, second.stop) == (0, 5)
