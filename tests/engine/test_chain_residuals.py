"""Chains whose links add what earlier ones have given, or x: exactly what a call for each link
gives, and over the wire only where a section ends between the two."""

from __future__ import annotations

import numpy as np
import pytest
from engine.cases import DEVICE
from engine.test_chain_calls import check_in_pieces, check_within, integers, link_by_link

import oocdnn
from oocdnn import Link


def blocks(count, channels, rng, size=3):
    """Of a ResNet, after a convolution and a pool: the second of each two adds what was before."""
    clip = ("clipped_relu", 3.0)
    w = integers(rng, (channels, 3, 3, 3), np.float32, 1)
    links = [Link(w, integers(rng, channels, np.float32), padding=1, activation=clip, pool=2)]
    for number in range(count):
        for added in (None, 2 * number):
            w = integers(rng, (channels, channels, size, size), np.float32, 1)
            b = integers(rng, channels, np.float32)
            links.append(Link(w, b, padding=size // 2, activation=clip, residual=added))
    return links


@pytest.mark.parametrize("budget", ["64MiB", "1MiB", "512KiB", "256KiB", "128KiB"])
def test_blocks_within_every_budget(budget):
    """What they add crosses only where a section ends before it."""
    rng = np.random.default_rng(20)
    links, x = blocks(4, 8, rng), integers(rng, (6, 3, 48, 48), np.float32)
    check_within(budget, x, links)


def test_a_large_sample_with_what_is_added():
    """In pieces, within a budget that no inner tensor fits."""
    rng = np.random.default_rng(21)
    links = blocks(2, 4, rng)
    links.append(Link(integers(rng, (4, 4, 3, 3), np.float32, 1), padding=1, residual=0))
    x = integers(rng, (1, 3, 384, 384), np.float32, 1)
    check_in_pieces("384KiB", x, links)


def test_sections_leave_what_later_ones_add():
    """The first result is added by each of the links that come after it, whatever sections there
    are: it stays in host memory until the last of these."""
    rng = np.random.default_rng(22)
    x, clip = integers(rng, (4, 8, 16, 16), np.float32), ("clipped_relu", 3.0)
    shape = (8, 8, 3, 3)
    added = [None, None, 0, 0, "x", 2, 0]
    links = [
        Link(integers(rng, shape, np.float32, 1), padding=1, activation=clip, residual=i)
        for i in added
    ]
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    crossed = set()
    for kib in (20, 24, 32, 48, 64, 4096):
        with oocdnn.Context(DEVICE, kib << 10, profile="none") as context:
            np.testing.assert_array_equal(context.conv_chain(x, links), wanted)
            crossed.add(context.stats.bytes_d2h)
    assert min(crossed) == wanted.nbytes
    assert len(crossed) > 1


def test_what_strides_thin_out_is_added_between_sections():
    """A window with a stride may keep the extent where padding makes up for it; its rows are not
    those that it is added to, so these links cannot run depth first."""
    rng = np.random.default_rng(23)
    x = integers(rng, (3, 2, 5, 5), np.float32)
    links = [
        Link(integers(rng, (2, 2, 3, 3), np.float32, 1), stride=2, padding=3, residual=added)
        for added in (None, "x", 0)
    ]
    with oocdnn.Context(DEVICE, "1MiB") as context:
        wanted = link_by_link(context, x, links)
        np.testing.assert_array_equal(context.conv_chain(x, links), wanted)


def test_what_is_added_may_be_where_the_result_goes():
    """It is read tile by tile before the tile is written. x may not."""
    rng = np.random.default_rng(24)
    x, w = integers(rng, (5, 4, 40, 40), np.float32), integers(rng, (4, 4, 3, 3), np.float32, 1)
    out = integers(rng, x.shape, np.float32)
    links = [Link(w, padding=1), Link(w, padding=1, residual=out.copy(), residual_alpha=-1.0)]
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    for budget in ("64MiB", "128KiB", "32KiB"):
        mine = links[1].residual.copy()
        with oocdnn.Context(DEVICE, budget, profile="none") as context:
            last = Link(w, padding=1, residual=mine, residual_alpha=-1.0)
            context.conv_chain(x, [links[0], last], out=mine)
        np.testing.assert_array_equal(mine, wanted)
    with (
        oocdnn.Context(DEVICE, "1MiB") as context,
        pytest.raises(oocdnn.InvalidProblem, match="overlaps"),
    ):
        context.conv_chain(x, [links[0], Link(w, padding=1, residual="x")], out=x)


def test_what_cannot_be_added():
    x, w = np.ones((1, 3, 8, 8), np.float32), np.ones((2, 3, 3, 3), np.float32)
    wrong = {
        "no earlier link has that number": 1,
        "'y'; pass the number": "y",
        "residual, what link 0 gives, has shape": 0,
        "x as residual has shape": "x",
        "residual has shape": np.ones(3, np.float32),
    }
    for words, added in wrong.items():
        pair = [Link(np.ones((3, 3, 1, 1), np.float32)), Link(w, residual=added)]
        with pytest.raises(oocdnn.InvalidProblem, match=f"^link 1 of a chain: .*{words}"):
            oocdnn.conv_chain(x, pair)
