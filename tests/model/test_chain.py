"""Halos of a chain against the dependencies themselves, row by row."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oocdnn.perfmodel.chain import ChainAxis, Layer, chain_axes
from oocdnn.perfmodel.problem import Pool, Problem
from oocdnn.perfmodel.tiling import Tiling


@st.composite
def layers(draw, gaps: bool = True) -> Layer:
    taps = draw(st.integers(1, 4))
    dilation = draw(st.integers(1, 3)) if gaps else 1
    reach = (taps - 1) * dilation + 1
    stride = draw(st.integers(1, 4 if gaps else taps))
    pads = [draw(st.integers(0, reach)) for _ in range(2)]
    return Layer(taps, stride, dilation, *pads, draw(st.booleans()))


@st.composite
def same(draw) -> Layer:
    """As many rows as before, so that there is something to add."""
    taps, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    reach = (taps - 1) * dilation + 1
    before = draw(st.integers(0, reach - 1))
    return Layer(taps, 1, dilation, before, reach - 1 - before)


@st.composite
def chains(draw, gaps: bool = True, skips: bool = False) -> ChainAxis:
    kinds = layers(gaps) | same() if skips else layers(gaps)
    chosen = draw(st.lists(kinds, min_size=1, max_size=4))
    try:
        chain = ChainAxis(draw(st.integers(1, 40)), chosen)
    except ValueError:
        assume(False)
    pairs = [
        (a, b)
        for a, b in combinations(range(len(chosen) + 1), 2)
        if chain.extents[a] == chain.extents[b] and {one.stride for one in chosen[a:b]} == {1}
    ]
    if not skips or not pairs:
        return chain
    return ChainAxis(chain.extents[0], chosen, draw(st.lists(st.sampled_from(pairs), max_size=3)))


def read(layer: Layer, rows, extent: int) -> set[int]:
    """Row by row and tap by tap."""
    met = {
        q * layer.stride + t * layer.dilation - layer.before
        for q in rows
        for t in range(layer.taps)
    }
    return {row for row in met if 0 <= row < extent}


def hull(rows: set[int]) -> tuple[int, int]:
    return (min(rows), max(rows) + 1) if rows else (0, 0)


def part(data, rows: int) -> tuple[int, int]:
    begin = data.draw(st.integers(0, rows - 1))
    return begin, data.draw(st.integers(begin + 1, rows))


@settings(max_examples=300, deadline=None)
@given(layer=layers(), extent=st.integers(1, 30))
def test_extents_are_those_of_convolutions_and_pools(layer, extent):
    wanted = oracle.pooled_extent(
        extent, layer.before, layer.after, layer.reach, layer.stride, layer.ceil
    )
    assert layer.extent(extent) == wanted


@settings(max_examples=500, deadline=None)
@given(chain=chains(skips=True), data=st.data())
def test_each_tensor_has_exactly_the_rows_that_are_read(chain, data):
    """By the next one, and by those that it is added to."""
    begin, end = part(data, chain.extents[-1])
    spans = chain.spans(begin, end)
    assert (spans[-1].begin, spans[-1].end) == (begin, end)
    for i, layer in enumerate(chain.layers):
        rows = read(layer, range(spans[i + 1].begin, spans[i + 1].end), chain.extents[i])
        for source, result in chain.skips:
            if source == i:
                rows |= set(range(spans[result].begin, spans[result].end))
        assert (spans[i].begin, spans[i].end) == hull(rows)


@settings(max_examples=300, deadline=None)
@given(chain=chains(gaps=False), data=st.data())
def test_without_gaps_x_has_exactly_the_rows_that_the_result_depends_on(chain, data):
    begin, end = part(data, chain.extents[-1])
    rows = set(range(begin, end))
    for layer, extent in zip(reversed(chain.layers), reversed(chain.extents[:-1]), strict=True):
        rows = read(layer, rows, extent)
    x = chain.spans(begin, end)[0]
    assert (x.begin, x.end) == hull(rows)


@settings(max_examples=200, deadline=None)
@given(chain=chains(skips=True), data=st.data())
def test_buffers_hold_what_is_needed_and_are_of_one_size(chain, data):
    length = data.draw(st.integers(1, chain.extents[-1]))
    tiles = chain.tiles(length)
    for tile in tiles:
        for span in tile:
            assert span.moved == 0 or span.origin <= span.begin
            assert span.moved == 0 or span.end <= span.origin + span.extent
        for source, result in chain.skips:  # also where the rows do not exist
            one, other = tile[source], tile[result]
            assert one.origin <= other.origin
            assert other.origin + other.extent <= one.origin + one.extent
    full = [tile for tile in tiles if tile[-1].extent == length]
    assert len({tuple(span.extent for span in tile) for tile in full}) == 1
    # From one tile to the next every buffer moves by the same number of rows.
    steps = [[b.origin - a.origin for a, b in zip(*pair, strict=True)] for pair in pairwise(tiles)]
    assert all(step == steps[0] for step in steps)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), gaps=st.booleans())
def test_tiles_make_the_result_once_and_all_of_what_is_needed(data, gaps):
    """With gaps between taps, padding can have a tile need a row that not the one before it but an
    earlier one has needed."""
    chain = data.draw(chains(gaps))
    length = data.draw(st.integers(1, chain.extents[-1]))
    tiles = chain.tiles(length)
    whole = chain.spans(0, chain.extents[-1])
    for i, total in enumerate(chain.rolled(length)):
        needed = set().union(*(range(tile[i].begin, tile[i].end) for tile in tiles))
        assert total >= len(needed) if gaps else total == len(needed)
        assert needed <= set(range(whole[i].begin, whole[i].end))
    assert chain.computed(length)[-1] == chain.extents[-1]
    assert all(a >= b for a, b in zip(chain.computed(length), chain.rolled(length), strict=True))


@settings(max_examples=100, deadline=None)
@given(chain=chains(skips=True), data=st.data())
def test_a_tile_computed_from_its_rows_alone_is_part_of_the_whole(chain, data):
    """Sums of rows, whose taps weigh differently: everything outside of the spans is poison."""
    begin, end = part(data, chain.extents[-1])
    x = np.random.default_rng(0).integers(-3, 4, chain.extents[0]).astype(np.float64)
    whole, tile = [x], [x]
    for i, (layer, span) in enumerate(zip(chain.layers, chain.spans(begin, end)[:-1], strict=True)):
        outside = np.full(chain.extents[i], np.nan)
        outside[span.begin : span.end] = tile[i][span.begin : span.end]
        tile[i] = outside
        for made in (whole, tile):
            result = apply(layer, made[i], chain.extents[i + 1])
            for source, to in chain.skips:
                if to == i + 1:
                    result += made[source]
            made.append(result)
    np.testing.assert_array_equal(tile[-1][begin:end], whole[-1][begin:end])
    assert not np.isnan(whole[-1]).any()


def apply(layer: Layer, x: np.ndarray, rows: int) -> np.ndarray:
    y = np.zeros(rows)
    for q in range(rows):
        for t in range(layer.taps):
            row = q * layer.stride + t * layer.dilation - layer.before
            if 0 <= row < len(x):
                y[q] += (t + 1) * x[row]
    return y


SPATIAL = st.tuples(*[st.integers(1, 3)] * 3)


@settings(max_examples=100, deadline=None)
@given(taps=SPATIAL, stride=SPATIAL, dilation=SPATIAL, window=SPATIAL, move=SPATIAL, data=st.data())
def test_a_chain_of_one_layer_is_cut_as_a_tile_of_it(taps, stride, dilation, window, move, data):
    """The tiles of one problem and those of a chain agree on the buffers, and on what is fetched
    but for rows between taps."""
    pads = tuple(data.draw(st.integers(0, t - 1)) for t in taps)
    pool_pads = tuple(data.draw(st.integers(0, w - 1)) for w in window)
    pool = Pool(window, move, pool_pads, pool_pads, data.draw(st.booleans()))
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    outputs = (5, 6, 7)
    sizes = zip(outputs, stride, reach, pads, strict=True)
    extents = tuple((o - 1) * s + r - 2 * p for o, s, r, p in sizes)
    assume(min(extents) > 0)
    problem = Problem(
        "fwd", 1, 1, 4, 3, extents, taps, outputs, pads, pads, stride, dilation, pool=pool
    )
    tiling = Tiling(problem, {"d": 1, "h": 2, "w": 2}, padding_as_data=True)
    lengths = {"d": 1, "h": 2, "w": 2}
    for s, (axis, chain) in enumerate(chain_axes([problem]).items()):
        assert chain.extents == [problem.extents[s], problem.outputs[s], problem.pooled[s]]
        for number, tile in enumerate(chain.tiles(lengths[axis])):
            index = dict.fromkeys(("n", "groups", "k", "c", "d", "h", "w"), 0) | {axis: number}
            x = tiling.spans("x", index)[3 + s]
            assert x.origin == tile[0].origin
            if tile[-1].extent == tiling.lengths[axis]:
                assert x.extent == tile[0].extent
            assert tile[0].moved == 0 or x.begin <= tile[0].begin
            assert tile[0].end <= max(x.end, 0)


def test_problems_that_do_not_follow_each_other():
    first = Problem("fwd", 1, 1, 4, 3, (1, 8, 8), (1, 3, 3), (1, 6, 6))
    second = Problem("fwd", 1, 1, 5, 4, (1, 6, 6), (1, 3, 3), (1, 4, 4))
    assert chain_axes([first, second])["w"].extents == [8, 6, 4]
    with pytest.raises(ValueError, match=r"problem 0 writes .*, and problem 1 reads"):
        chain_axes([second, first])
    with pytest.raises(ValueError, match="bwd_data is no layer"):
        chain_axes([Problem("bwd_data", 1, 1, 4, 3, (1, 8, 8), (1, 3, 3), (1, 6, 6))])
    with pytest.raises(ValueError, match="layer 1 has no result"):
        ChainAxis(4, [Layer(3), Layer(3)])
    with pytest.raises(ValueError, match="tensor 0 cannot be added to tensor 1"):
        ChainAxis(4, [Layer(3)], [(0, 1)])
    with pytest.raises(ValueError, match=r"rows \[1, 3\) are not of 2"):
        ChainAxis(4, [Layer(3)]).spans(1, 3)


def test_a_known_chain():
    """Three 3x3 convolutions with padding, then a pool of 2: each tile has a halo of three rows."""
    chain = ChainAxis(64, [Layer(3, before=1, after=1)] * 3 + [Layer(2, 2)])
    x, *_, z = chain.spans(8, 16)
    assert (x.origin, x.extent, x.begin, x.end) == (13, 22, 13, 35)
    assert (z.begin, z.end) == (8, 16)
    assert chain.spans(0, 8)[0].origin == -3
    assert chain.spans(0, 8)[0].begin == 0
    assert chain.computed(8) == [64 + 3 * 6, 64 + 3 * 4, 64 + 3 * 2, 64, 32]
    assert chain.rolled(8) == [64, 64, 64, 64, 32]
