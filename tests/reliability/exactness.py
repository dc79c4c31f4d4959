"""Row 1: random problems under small budgets, and budgets that force the split of each axis."""

from __future__ import annotations

import traceback
from dataclasses import replace

import numpy as np
from engine.cases import (
    AXES,
    DIRECTIONS,
    LAYOUTS,
    Case,
    RandomDraw,
    forced_case,
    least_with_whole,
    random_case,
    run_case,
)

from reliability.processes import tally
from reliability.rows import Finding, Size, Tally

SMALLEST_BUDGET, LARGEST_BUDGET = 48 << 10, 64 << 10


def axes_of(direction: str) -> list[str]:
    """The axes that a direction has."""
    return [axis for axis in AXES if direction != "backward_bias" or axis not in ("C", "groups")]


def forced(draw: RandomDraw, direction: str, axis: str) -> Case:
    """A small case in which `axis` has to be split.

    The case of `forced_case`, its long axis cut so that a budget of some 50 KiB is half to nine
    tenths of what the smallest tile with the whole axis needs.
    """
    case = forced_case(draw, direction, axis)
    budget = draw.integer(SMALLEST_BUDGET, LARGEST_BUDGET)
    wanted = budget * 100 // draw.integer(45, 90)
    spatial = {"D": 0, "H": len(case.extent) - 2, "W": len(case.extent) - 1}
    name = {"N": "n", "groups": "groups", "K": "k", "C": "c"}.get(axis)
    whole = getattr(case, name) if name else case.extent[spatial[axis]]
    length = max(2, -(-whole * wanted // least_with_whole(case, axis)))
    while True:
        if name:
            cut = replace(case, **{name: length})
        else:
            extent = list(case.extent)
            extent[spatial[axis]] = length
            cut = replace(case, extent=tuple(extent))
        if least_with_whole(cut, axis) > budget:
            return replace(cut, budget=budget)
        length += 1


def forced_chunk(direction: str, axis: str, first: int, count: int) -> Tally:
    done = Tally()
    for seed in range(first, first + count):
        # Any number that differs by direction, axis and seed.
        key = (DIRECTIONS.index(direction), list(AXES).index(axis), seed)
        case = forced(RandomDraw(np.random.default_rng(key)), direction, axis)
        _run(done, case, f"forced {key}", {"threads": 1}, axis)
    return done


def random_chunk(first: int, count: int) -> Tally:
    done = Tally()
    for seed in range(first, first + count):
        draw = RandomDraw(np.random.default_rng((seed, 1)))
        case = random_case(draw)
        options = {"engine": draw.choice((None, None, "onednn", "direct", "reference"))}
        if options["engine"] == "onednn" and (
            case.dtype == "f64" or case.direction == "backward_bias"
        ):
            options["engine"] = None  # oneDNN has neither
        options["threads"] = draw.choice((1, 1, 1, 1, 2))
        _run(done, case, f"random {seed}", options)
    return done


def _run(done: Tally, case: Case, name: str, options: dict, axis: str | None = None) -> None:
    where = f"{name} {options}: {case}"
    done.cases += 1
    try:
        outcome = run_case(case, **options)
    except Exception:
        done.count("errors")
        done.fail(f"{where}: {traceback.format_exc(limit=2)}")
        return
    wrong = outcome.mismatches()
    if wrong:
        done.count("mismatches")
        done.fail(f"{where}: {wrong} of {outcome.result.size} elements differ")
    if outcome.stats.peak_device_bytes > outcome.budget:
        done.count("over budget")
        done.fail(f"{where}: peak {outcome.stats.peak_device_bytes}, budget {outcome.budget}")
    if outcome.reports:
        done.count("hazards")
        done.fail(f"{where}: {outcome.reports[0]}")
    if axis is not None and not outcome.stats.split[AXES[axis]] > 1:
        done.count("not split")
        done.fail(f"{where}: {axis} was not split: {outcome.stats.split}")
    if outcome.budget > case.budget:
        done.count("asked for a larger budget")
        if axis is not None:
            done.count("not split")
            done.fail(f"{where}: asked for a budget of {outcome.budget}")
    done.count("tiles", outcome.stats.tiles)
    done.count("engine " + outcome.stats.engine.split()[0])
    for name_, pieces in outcome.stats.split.items():
        if pieces > 1:
            done.count(f"split {case.direction} {case.layout} {name_}")


def splits(done: Tally) -> dict[str, dict[str, dict[str, int]]]:
    """How often each axis was split: by direction, layout and axis."""
    return {
        direction: {
            layout: {axis: done[f"split {direction} {layout} {axis}"] for axis in AXES.values()}
            for layout in LAYOUTS
        }
        for direction in DIRECTIONS
    }


def print_splits(table: dict[str, dict[str, dict[str, int]]]) -> None:
    print(f"{'cases in which the axis was split':34}", *(f"{a:>7}" for a in AXES))
    for direction, layouts in table.items():
        for layout, axes in layouts.items():
            print(f"  {direction:16}{layout:16}", *(f"{count:7}" for count in axes.values()))


def measure(size: Size) -> Finding:
    per_axis, random = size.of(1, 8, 100), size.of(10, 100, 2000)
    pairs = [(d, a) for d in DIRECTIONS for a in axes_of(d)][:: size.of(5, 1, 1)]
    forced_done = tally(forced_chunk, [(*pair, 0, per_axis) for pair in pairs], size)
    step = random // size.of(1, 4, 20)
    done = tally(random_chunk, [(first, step) for first in range(0, random, step)], size)
    random_cases = done.cases
    done.add(forced_done)
    table = splits(done)
    print_splits(table)
    figure = (
        f"{done.cases} problems ({random_cases} random, {forced_done.cases} with a forced split: "
        f"{per_axis} per direction and axis), {done['tiles']} tiles: {done['mismatches']} "
        f"mismatches, {done['over budget']} above the budget, {done['not split']} not split, "
        f"{done['hazards']} hazards, {done['errors']} errors"
    )
    counts = {k: v for k, v in done.counts.items() if not k.startswith("split ")}
    return Finding(figure, not done.failures, done.failures, {"counts": counts, "splits": table})
