"""Rows 2 and 23: drawn plans, stranger than a planner's, against one tile and under the checker."""

from __future__ import annotations

from collections.abc import Iterator

from engine.test_schedules import run_schedules

from reliability.processes import tally
from reliability.rows import Finding, Size, Tally

# Device, first seed, number of plans, and whether every plan has the bits of one tile.
Job = tuple[str, int, int, bool]


def chunk(spec: str, seed: int, count: int, has_bits: bool) -> Tally:
    done = Tally(cases=count)
    try:
        outcome = run_schedules(spec, seed, count)
    except AssertionError as error:
        done.fail(f"{spec} seed {seed} count {count}: {error}")
        return done
    mismatches = int(outcome["mismatches"]) if has_bits else 0
    done.count("mismatches", mismatches)
    done.count("tiles", int(outcome["tiles"]))
    done.count("hazards", int(outcome["hazards"]))
    if mismatches or outcome["hazards"]:
        done.fail(f"{spec} seed {seed} count {count}: {outcome['first']}")
    return done


def jobs(spec: str, plans: int, each: int, seed: int, has_bits: bool = True) -> Iterator[Job]:
    for number, at in enumerate(range(0, plans, each)):
        yield spec, seed + number, min(each, plans - at), has_bits


def measure_invariance(size: Size) -> Finding:
    plans = size.of(40, 1000, 10_000)
    done = tally(
        chunk,
        [
            *jobs("cpu:direct,threads=1", plans, 500, 1 << 20),
            *jobs("cpu:reference,threads=1", plans, 500, 1 << 20),
        ],
        size,
    )
    figure = (
        f"{plans} plans on each of direct and reference, {done['tiles']} tiles: "
        f"{done['mismatches']} differ from one tile in any bit"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)


def measure_hazards(size: Size) -> Finding:
    at_once, threaded = size.of(60, 2000, 90_000), size.of(10, 400, 9000)
    delayed = size.of(2, 20, 1000)
    done = tally(
        chunk,
        [
            # The null device adds up a whole tile in double, so its bits depend on the tiles.
            *jobs("check(null)", at_once, 1000, 1 << 21, has_bits=False),
            *jobs("check(cpu:direct,threads=1)", threaded, 500, 1 << 22),
            *(
                (f"check(cpu:direct,threads=1,jitter={seed})", (1 << 23) + seed, 2, True)
                for seed in range(1, delayed // 2 + 1)
            ),
        ],
        size,
    )
    figure = (
        f"{done.cases} schedules ({at_once} at once, {threaded} on threads, {delayed} under random "
        f"delays), {done['tiles']} tiles: {done['hazards']} hazards, {done['mismatches']} "
        "mismatches"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)
