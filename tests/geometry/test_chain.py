"""The native halos of a chain against the reference, which tests/model/test_chain.py holds to the
dependencies themselves."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

from geometry.core import library
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


def numbers_of(chain: ChainAxis) -> ctypes.Array:
    numbers = [
        number
        for layer, (rows, result) in zip(chain.layers, pairwise(chain.extents), strict=True)
        for number in (layer.taps, layer.stride, layer.dilation, layer.before, rows, result)
    ]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def native_spans(chain: ChainAxis, begin: int, length: int) -> list[tuple[int, ...]]:
    spans = (ctypes.c_int64 * (4 * len(chain.extents)))()
    flat = [number for skip in chain.skips for number in skip]
    skips = (ctypes.c_int64 * len(flat))(*flat)
    count, skipped = ctypes.c_int64(len(chain.layers)), ctypes.c_int64(len(chain.skips))
    library().oocdnn_testing_chain_spans(
        numbers_of(chain), count, skips, skipped, *map(ctypes.c_int64, (begin, length)), spans
    )
    return [tuple(spans[4 * i : 4 * i + 4]) for i in range(len(chain.extents))]


@dataclass(frozen=True)
class Swept:
    """A tensor's rows in a tile of a sweep: its buffer, what exists of that, and what is new."""

    held: range
    there: range
    computed: range


def swept(chain: ChainAxis, number: int, length: int) -> tuple[list[Swept], int]:
    """Of each tensor; and how far before row 0 of the last result the sweep begins."""
    found = (ctypes.c_int64 * (5 * len(chain.extents)))()
    function = library().oocdnn_testing_swept_spans
    function.restype = ctypes.c_int64
    sizes = map(ctypes.c_int64, (len(chain.layers), number, length))
    lead = function(numbers_of(chain), *sizes, found)
    spans = []
    for i in range(len(chain.extents)):
        origin, extent, begin, end, kept = found[5 * i : 5 * i + 5]
        held = range(origin, origin + extent)
        spans.append(Swept(held, range(begin, end), held[kept:]))
    return spans, lead


def within(rows: range, others: range) -> bool:
    return not rows or (others.start <= rows.start and rows.stop <= others.stop)


@settings(max_examples=500, deadline=None)
@given(chain=chains(), data=st.data())
def test_tiles_of_a_sweep_keep_what_they_share(chain, data):
    """Each row is computed in one tile, and found in those behind it that read it. Inputs of
    convolutions are kept, which are every second tensor."""
    assume(len(chain.layers) % 2 == 0)
    length = data.draw(st.integers(1, chain.extents[-1]))
    before, lead = swept(chain, 0, length)
    number = 0
    while before[-1].held.start < chain.extents[-1]:
        for i, layer in enumerate(chain.layers):
            assert before[i].held == layer.held(before[i + 1].computed)
            assert before[i].there == range(
                min(max(before[i].held.start, 0), chain.extents[i]),
                min(max(before[i].held.stop, 0), chain.extents[i]),
            )
            if number == 0 and i > 0 and i % 2 == 0:
                assert before[i].computed.start <= 0
        number += 1
        tile, _ = swept(chain, number, length)
        for i in range(len(chain.extents)):
            kept = range(tile[i].held.start, tile[i].computed.start)
            assert within(kept, before[i].held)
            assert len(tile[i].held) == len(before[i].held)
            if i % 2 == 0 and kept:
                assert tile[i].computed.start == before[i].computed.stop
        before = tile
    first, _ = swept(chain, 0, length)
    assert (
        lead == 0
        or any(  # no shorter one does
            first[i].computed.start + prod(layer.stride for layer in chain.layers[i:]) > 0
            for i in range(2, len(chain.layers), 2)
        )
    )


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
