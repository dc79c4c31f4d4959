"""Elements that benchmarks sum on their own, against the tests' reference: every one of them."""

from __future__ import annotations

import numpy as np
import oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn.bench.truth import sampled
from oocdnn.cli.problems import parse, window_of

small = st.integers(1, 3)


@st.composite
def problems(draw: st.DrawFn) -> str:
    """Small problems with everything that moves a filter."""
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    taps = [draw(small) for _ in range(rank)]
    dilation = [draw(small) for _ in range(rank)]
    stride = [draw(small) for _ in range(rank)]
    pads = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(rank)]
    reach = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    extents = [
        max(1, r - before - after) + draw(st.integers(0, 4))
        for r, (before, after) in zip(reach, pads, strict=True)
    ]
    c, k = groups * draw(small), groups * draw(small)
    lists = {
        "x": [draw(small), c, *extents],
        "w": [k, c // groups, *taps],
        "str": stride,
        "dil": dilation,
    }
    words = [name + "x".join(map(str, sizes)) for name, sizes in lists.items()]
    words.append("pad" + "x".join(f"{before}:{after}" for before, after in pads))
    direction = draw(st.sampled_from(["fwd", "bwd_data", "bwd_filter"]))
    flip = draw(st.sampled_from(["", " flip"]))
    return f"conv{rank}d:{direction} {' '.join(words)} grp{groups}{flip}"


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_every_element_is_that_of_the_reference(text: str, seed: int) -> None:
    problem, random = parse(text), np.random.default_rng(seed)
    x, w, y = (
        random.integers(-2, 3, shape).astype(np.float32)
        for shape in (problem.x, problem.w, problem.y)
    )
    stride, dilation, before, after = window_of(problem)
    moves = {
        "stride": stride,
        "padding": list(zip(before, after, strict=True)),
        "dilation": dilation,
        "groups": sampled.groups_of(problem),
        "flip": "mode" in problem.keywords,
    }
    first, second, want = {
        "fwd": (x, w, lambda: oracle.forward(x, w, **moves)),
        "bwd_data": (y, w, lambda: oracle.backward_data(y, w, problem.x, **moves)),
        "bwd_filter": (x, y, lambda: oracle.backward_filter(x, y, problem.w, **moves)),
    }[problem.direction]
    expected = want()
    for place in np.ndindex(expected.shape):
        assert sampled.element(problem, first, second, place) == expected[place], place


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=4))
def test_places_lie_in_the_result_and_beside_its_seams(axes: list[tuple[int, int]]) -> None:
    shape, pieces = [extent for extent, _ in axes], [parts for _, parts in axes]
    chosen = sampled.places(shape, pieces, 400, seed=1)
    assert len(chosen) == 400
    for axis, (extent, parts) in enumerate(axes):
        seen = {place[axis] for place in chosen}
        assert seen <= set(range(extent))
        length = -(-extent // parts)
        assert {0, extent - 1, *range(0, extent, length)} <= seen
        assert {start - 1 for start in range(length, extent, length)} <= seen
