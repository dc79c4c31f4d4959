"""What chains are predicted to take: as little as in the best sections, of which not all are looked
at."""

from __future__ import annotations

import itertools

import numpy as np
from counted import Counted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn.arrays import view
from oocdnn.chain import Link, make_all
from oocdnn.errors import OutOfMemory
from oocdnn.nn._chain_prices import chain_seconds

GAIN = 1.02  # that a section which is passed over may have been worth


@st.composite
def chains(draw):
    """The shape of x, and links that go together."""
    images, channels, size = draw(st.integers(1, 16)), draw(st.integers(1, 8)), 16
    x, links = (images, channels, size, size), []
    for _ in range(draw(st.integers(2, 5))):
        k = draw(st.sampled_from([1, 4, 16]))
        filter_size = draw(st.sampled_from([1, 3, 5]))
        w = np.empty((k, channels, filter_size, filter_size), np.float32)
        pool = oocdnn.Pool("max", 2, 1) if draw(st.booleans()) else None
        links.append(Link(w, padding=filter_size // 2, activation="relu", pool=pool))
        channels = k
    return x, links


def cuts(count: int):
    """All ways to cut so many links."""
    for inner in itertools.product([False, True], repeat=count - 1):
        ends = [i + 1 for i, cut in enumerate(inner) if cut]
        yield list(itertools.pairwise([0, *ends, count]))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    chain=chains(),
    kib=st.sampled_from([16, 64, 1024]),
    wire=st.sampled_from([0.05, 0.5, 8.0]),
)
def no_choice_of_sections_is_far_from_the_best(counted, chain, kib, wire):
    counted.begin()
    shape, links = chain
    like = view("x", np.empty(shape, np.float32))
    shapes = [shape, *(one.shape for one in make_all(links, shape))]

    def seconds(begin: int, end: int) -> float:
        try:
            return chain_seconds(like, shapes[begin], links[begin:end], False)
        except OutOfMemory:
            return float("inf")

    with oocdnn.Context("cpu", f"{kib}KiB", profile="none", link_gb_per_s=wire):
        least = min(sum(seconds(*one) for one in way) for way in cuts(len(links)))
        assert seconds(0, len(links)) <= GAIN * least
    if least < float("inf"):
        counted.done()


def test_no_choice_of_sections_is_far_from_the_best():
    counted = Counted()
    no_choice_of_sections_is_far_from_the_best(counted)
    counted.need(0.5)
