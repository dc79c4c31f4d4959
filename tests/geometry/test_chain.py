"""The native halos of a chain against the reference, which tests/model/test_chain.py holds to the
dependencies themselves."""

from __future__ import annotations

import ctypes
from itertools import combinations, pairwise

from geometry.doors import library
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oocdnn.perfmodel.chain import ChainAxis, Layer


@st.composite
def chains(draw) -> ChainAxis:
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        taps, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        pads = [draw(st.integers(0, (taps - 1) * dilation + 1)) for _ in range(2)]
        stride = draw(st.integers(1, 4))
        if draw(st.booleans()):  # as many rows as before, so that there is something to add
            stride, pads[1] = 1, (taps - 1) * dilation - min(pads[0], (taps - 1) * dilation)
            pads[0] = (taps - 1) * dilation - pads[1]
        layers.append(Layer(taps, stride, dilation, *pads, draw(st.booleans())))
    try:
        chain = ChainAxis(draw(st.integers(1, 60)), layers)
    except ValueError:
        assume(False)
    pairs = [pair for pair in combinations(range(len(layers) + 1), 2) if addable(chain, *pair)]
    skips = draw(st.lists(st.sampled_from(pairs), max_size=3)) if pairs else []
    return ChainAxis(chain.extents[0], layers, skips)


def addable(chain: ChainAxis, one: int, other: int) -> bool:
    strides = [layer.stride for layer in chain.layers[one:other]]
    return chain.extents[one] == chain.extents[other] and max(strides) == 1


def native_spans(chain: ChainAxis, begin: int, length: int) -> list[tuple[int, ...]]:
    numbers = [
        number
        for layer, (rows, result) in zip(chain.layers, pairwise(chain.extents), strict=True)
        for number in (layer.taps, layer.stride, layer.dilation, layer.before, rows, result)
    ]
    spans = (ctypes.c_int64 * (4 * len(chain.extents)))()
    layers = (ctypes.c_int64 * len(numbers))(*numbers)
    flat = [number for skip in chain.skips for number in skip]
    skips = (ctypes.c_int64 * len(flat))(*flat)
    count, skipped = ctypes.c_int64(len(chain.layers)), ctypes.c_int64(len(chain.skips))
    library().oocdnn_testing_chain_spans(
        layers, count, skips, skipped, *map(ctypes.c_int64, (begin, length)), spans
    )
    return [tuple(spans[4 * i : 4 * i + 4]) for i in range(len(chain.extents))]


@settings(max_examples=1000, deadline=None)
@given(chain=chains(), data=st.data())
def test_native_spans_are_those_of_the_reference(chain, data):
    """What is needed ends with the result; buffers do not, so that all tiles have theirs of one
    size."""
    rows = chain.extents[-1]
    begin = data.draw(st.integers(0, rows - 1))
    length = data.draw(st.integers(1, rows))
    wanted = chain.spans(begin, min(begin + length, rows))
    found = native_spans(chain, begin, length)
    assert [(origin, first, last) for origin, _, first, last in found] == [
        (span.origin, span.begin, span.end) for span in wanted
    ]
    whole = chain.spans(0, length)
    assert [extent for _, extent, *_ in found] == [span.extent for span in whole]
