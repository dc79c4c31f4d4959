"""Rates that depend on a tile's size and channels: what was measured comes back, and between it."""

from __future__ import annotations

import pytest
from geometry import core
from hypothesis import given
from hypothesis import strategies as st
from model import planner
from model.planner import Profile, Refused

SIZES = (400, 3200, 25600)  # elements of y
CHANNELS = (8, 64)
RATES = {  # of each size and number of channels
    (8, 400): 1e8, (8, 3200): 4e8, (8, 25600): 5e8,
    (64, 400): 2e8, (64, 3200): 1e9, (64, 25600): 4e9,
}  # fmt: skip
TILES = {f"{c} {size} direct/f32/fwd": rate for (c, size), rate in RATES.items()}
ENDLESS = {"move_bytes_per_second": 1e30, "run_seconds": 0.0}


def seconds_per_operation(channels: int, pixels: int, tiles=TILES, **fields) -> float:
    """Of one tile of 1x1 filters whose y has channels * pixels elements."""
    problem = core.parse(f"conv1d:fwd x1x{channels}x{pixels} w{channels}x{channels}x1")
    tiling = core.make_tiling(problem, [1, 1, channels, channels, 1, 1, pixels])
    profile = Profile(tiles=tiles, **ENDLESS | fields)
    run = (problem, tiling, core.default_order(problem), [1] * len(core.OPERANDS))
    cost = planner.price(*run, profile, engines="direct")
    return cost["compute_seconds"] / (2 * channels**2 * pixels)


@pytest.mark.parametrize(("channels", "outputs"), RATES)
def test_a_tile_that_was_measured_takes_what_it_took(channels, outputs):
    found = seconds_per_operation(channels, outputs // channels)
    assert found == pytest.approx(1 / RATES[channels, outputs])


@given(st.sampled_from(CHANNELS), st.integers(1, 10_000))
def test_between_two_sizes_the_seconds_of_the_tile_grow_evenly(channels, pixels):
    outputs = channels * pixels
    points = [(size, 1 / RATES[channels, size]) for size in SIZES]
    if outputs <= SIZES[0]:
        wanted = points[0][1]
    elif outputs >= SIZES[-1]:
        wanted = points[-1][1]
    else:
        i = next(i for i, size in enumerate(SIZES) if size >= outputs)
        (below, first), (above, second) = points[i - 1 : i + 1]
        share = (outputs - below) / (above - below)
        wanted = (first * below * (1 - share) + second * above * share) / outputs
    assert seconds_per_operation(channels, pixels) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("channels", "wanted"),
    [
        (16, (1 / 5e8 * (1 / 16 - 1 / 64) + 1 / 4e9 * (1 / 8 - 1 / 16)) / (1 / 8 - 1 / 64)),
        (512, 1 / 4e9),  # as the most that were measured
        (1, 1 / 5e8 + (1 - 1 / 8) * (1 / 5e8 - 1 / 4e9) / (1 / 8 - 1 / 64)),  # still slower
    ],
)
def test_between_two_numbers_of_channels_the_inverse_counts(channels, wanted):
    assert seconds_per_operation(channels, 25600) == pytest.approx(wanted)


def test_fewer_channels_are_not_faster():
    swapped = {
        f"{64 if c == 8 else 8} {size} direct/f32/fwd": rate for (c, size), rate in RATES.items()
    }
    one, eight = (seconds_per_operation(c, 25600, tiles=swapped) for c in (1, 8))
    assert one == eight


def test_no_tile_takes_less_than_reading_and_writing_it():
    moved = 4 * (2 * 8 * 100 + 64)  # bytes of x, y and w
    assert seconds_per_operation(8, 100, move_bytes_per_second=1e3) == pytest.approx(
        moved / 2e3 / (2 * 64 * 100)
    )


@pytest.mark.parametrize("size", ["8", "8 x", "0 400", "8 -1", "8  400", "400direct/f32/fwd"])
def test_a_tile_of_no_size_is_refused(size):
    with pytest.raises(Refused, match="names no tile"):
        planner.reprint(Profile(tiles={f"{size} direct/f32/fwd": 1e9}).text())
