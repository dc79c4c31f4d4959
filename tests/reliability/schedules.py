"""Rows 2 and 23: drawn plans, stranger than a planner's, against one tile and under the checker."""

from __future__ import annotations

from engine.test_schedules import run_schedules

from reliability.processes import tally
from reliability.rows import Finding, Size, Tally


def chunk(spec: str, seed: int, count: int) -> Tally:
    done = Tally(cases=count)
    try:
        outcome = run_schedules(spec, seed, count)
    except AssertionError as error:
        done.count("errors")
        done.fail(f"{spec} seed {seed} count {count}: {error}")
        return done
    # The null device sums in one piece what lies in one tile, and promises no bits.
    wrong = 0 if "null" in spec else int(outcome["mismatches"])
    done.count("mismatches", wrong)
    done.count("tiles", int(outcome["tiles"]))
    done.count("hazards", int(outcome["hazards"]))
    if wrong or outcome["hazards"]:
        done.fail(f"{spec} seed {seed} count {count}: {outcome['first']}")
    return done


def _run(jobs: list[tuple[str, int, int]]) -> tuple[Tally, dict[str, int]]:
    """All jobs, and the plans of each spec."""
    plans: dict[str, int] = {}
    for spec, _, count in jobs:
        plans[spec] = plans.get(spec, 0) + count
    small = sum(plans.values()) < 1000
    if small:
        done = Tally()
        for job in jobs:
            done.add(chunk(*job))
        return done, plans
    return tally(chunk, jobs), plans


def _jobs(spec: str, plans: int, each: int, first_seed: int) -> list[tuple[str, int, int]]:
    return [(spec, first_seed + at, min(each, plans - at)) for at in range(0, plans, each)]


def measure_invariance(size: Size) -> Finding:
    plans = size.of(40, 1000, 10_000)
    jobs = _jobs("cpu:direct,threads=1", plans, 500, 1 << 20)
    jobs += _jobs("cpu:reference,threads=1", plans, 500, 1 << 20)
    done, by_spec = _run(jobs)
    figure = (
        f"{plans} plans on each of direct and reference, {done['tiles']} tiles: "
        f"{done['mismatches']} differ from one tile in any bit"
    )
    return Finding(figure, not done.failures, done.failures, {"plans": by_spec})


def measure_hazards(size: Size) -> Finding:
    plans, jittered = size.of(60, 2000, 90_000), size.of(2, 20, 1000)
    direct = size.of(10, 400, 9000)
    jobs = _jobs("check(null)", plans, 1000, 1 << 21)
    jobs += _jobs("check(cpu:direct,threads=1)", direct, 500, 1 << 22)
    jobs += [
        (f"check(cpu:direct,threads=1,jitter={seed})", (1 << 23) + seed, 10 if jittered > 10 else 2)
        for seed in range(1, jittered // 10 + 2)
    ][: max(1, jittered // 10)]
    done, by_spec = _run(jobs)
    jitters = sum(count for spec, count in by_spec.items() if "jitter" in spec)
    figure = (
        f"{done.cases} schedules ({plans} at once, {direct} on threads, {jitters} under random "
        f"delays), {done['tiles']} tiles: {done['hazards']} hazards, {done['mismatches']} "
        "mismatches"
    )
    merged = {spec: count for spec, count in by_spec.items() if "jitter" not in spec}
    return Finding(figure, not done.failures, done.failures, {"plans": merged, "jitter": jitters})
