"""Batches in parts within a limit of workspace, beside the best that is undivided (after µ-cuDNN).

    oocdnn bench study workspace --out result.json

Every operand is on the GPU. *Undivided*: the fastest of cuDNN's engines, by measurement, that runs
the whole batch with a workspace within the limit. *Divided*: what a call does with `workspace=` the
limit, which may be the same. Both choose among the same engines of cuDNN (those that add products:
neither Winograd nor FFT), are timed in turns by the GPU's clock, and must give the same elements:
these are small integers, of which such engines give the same sums.

By default only engines that work on the arrays as they lie are used, so that nothing but workspace
is taken besides the operands. A network's total is that of its convolutions, forward and backward,
without the data gradient of the first; the figures of µ-cuDNN beside it are those of whole training
steps on a P100.

A kernel (a layer in a direction) should take about half a second for each limit that changes
something, the first of a kind some seconds more. With `--seconds` it stops in time, and with
`--resume` goes on.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import geometric_mean, mean
from typing import Any

import click

import oocdnn
from oocdnn.bench.cases import Case
from oocdnn.bench.studies.divided import (
    HOW,
    KINDS,
    MIB,
    NETWORKS,
    Bench,
    Call,
    Kernel,
    Side,
    kernels,
)
from oocdnn.bench.studies.study import Run, contains, maths, only, study

MARKS = {"alexnet": 1.63, "resnet18": 1.21}  # µ-cuDNN's, of whole steps on a P100
EACH = (8, 64, 512)  # MiB
LIMITS = {"deepbench": (8, 64, 128, 256, 512), "alexnet": EACH, "resnet18": EACH}
CLEARLY = 1.05  # times as fast, from which on a kernel counts as faster


@dataclass
class Row:
    """A kernel under a limit. `like`: the greater limit under which it was measured, where both
    sides take no more than this one even there. `wrong`: elements that differ, None where there was
    nothing to compare with."""

    set: str
    layer: str
    times: int
    problem: str
    math: str
    limit: int
    undivided: Side
    divided: Side
    like: int
    wrong: int | None = None
    took: float = 0.0

    def join(self) -> None:
        """Where not to divide is the best, both are one call, of which the second in a turn finds
        small operands in the cache: each is given the times of that."""
        one, other = self.undivided, self.divided
        if not one.failed and replace(one, seconds=[]) == replace(other, seconds=[]):
            one.seconds = other.seconds

    @property
    def speedup(self) -> float:
        return self.undivided.median / self.divided.median


def attempt(work: Callable[[], tuple[Side, Call]]) -> tuple[Side, Call | None]:
    """What the work gives, or a side that failed."""
    try:
        return work()
    except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
        return Side(failed=str(error)), None


class Comparison:
    """Both sides of one kernel under one limit after the other."""

    def __init__(self, bench: Bench, case: Case, math_name: str, repeats: int) -> None:
        self._bench, self._case, self._math, self._repeats = bench, case, math_name, repeats
        self._kernel: Kernel = bench.kernel(case.problem)
        self._last: Row | None = None  # where both sides ran
        self._whole = False  # an undivided result is there, maybe from another limit

    def row(self, limit: int) -> Row:
        """Limits must be given the greatest first."""
        began = time.perf_counter()
        row = self._as_before(limit) or self._measure(limit)
        row.took = time.perf_counter() - began
        self._last = row if row.undivided.seconds and row.divided.seconds else None
        return row

    def _row(self, limit: int, undivided: Side, divided: Side) -> Row:
        one = self._case
        return Row(
            one.set, one.layer, one.times, one.problem, self._math, limit, undivided, divided, limit
        )

    def _as_before(self, limit: int) -> Row | None:
        """The fastest with more workspace is the fastest still where it takes no more than this."""
        last = self._last
        if last is None or max(last.undivided.bytes, last.divided.bytes) > limit:
            return None
        row = self._row(limit, last.undivided, last.divided)
        row.like, row.wrong = last.like, last.wrong
        return row

    def _measure(self, limit: int) -> Row:
        bench, kernel = self._bench, self._kernel
        sides = [
            attempt(lambda: bench.undivided(kernel, limit)),
            attempt(lambda: bench.divided(kernel, limit)),
        ]
        ready = [(side, call) for side, call in sides if call is not None]
        times = bench.watch.turns([call for _, call in ready], self._repeats)
        for (side, _), seconds in zip(ready, times, strict=True):
            side.seconds = seconds
        row = self._row(limit, sides[0][0], sides[1][0])
        row.join()
        self._whole = self._whole or bool(row.undivided.seconds)
        if self._whole and row.divided.seconds:
            row.wrong = kernel.results[0].differing(kernel.results[1])
        return row


def side_text(side: Side) -> str:
    if side.failed:
        return f"no engine ({side.failed})"
    parts = f", {side.parts} parts of {side.samples}" if side.parts > 1 else ""
    return f"{side.median * 1e3:8.3f} ms{parts}, {side.bytes / MIB:.1f} MiB, {side.engine}"


def line(row: Row) -> str:
    like = "" if row.like == row.limit else f" as under {row.like // MIB} MiB"
    wrong = "" if not row.wrong else f", {row.wrong} DIFFER"
    return (
        f"{row.layer} {row.problem} {row.limit // MIB:4d} MiB: {row.speedup:6.3f} x{like}, "
        f"undivided {side_text(row.undivided)}; divided {side_text(row.divided)}{wrong}"
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each set, kind of arithmetic and limit, over the kernels that both sides ran."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.set, row.math, row.limit), []).append(row)
    return [_summed(*key, group) for key, group in sorted(groups.items())]


def _summed(name: str, math_name: str, limit: int, rows: Sequence[Row]) -> dict[str, Any]:
    both = [row for row in rows if row.undivided.seconds and row.divided.seconds]
    found: dict[str, Any] = {
        "set": name,
        "math": math_name,
        "limit": limit,
        "kernels": len(rows),
        "no undivided engine": sum(not row.undivided.seconds for row in rows),
        "no divided engine": sum(not row.divided.seconds for row in rows),
        "elements that differ": sum(row.wrong or 0 for row in rows),
    }
    if not both:
        return found
    speedups, best = [row.speedup for row in both], max(both, key=lambda row: row.speedup)
    layers = [ratio for found in layer_speedups(rows).values() for ratio in found.values()]
    found |= {
        "faster": sum(speedup >= CLEARLY for speedup in speedups),
        "mean": mean(speedups),
        "geometric mean": geometric_mean(speedups),
        "least": min(speedups),
        "best": best.speedup,
        "best kernel": best.problem,
        "undivided seconds": sum(row.times * row.undivided.median for row in both),
        "divided seconds": sum(row.times * row.divided.median for row in both),
    }
    if layers:
        found |= {"layers": len(layers), "mean of layers": mean(layers)}
    if name in NETWORKS and len(both) == len(kernels(name, math_name)):  # all of its own batch
        found["whole"] = found["undivided seconds"] / found["divided seconds"]
    return found


def summary_line(found: dict[str, Any]) -> str:
    head = f"{found['set']:<10} {found['math']} {found['limit'] // MIB:4d} MiB:"
    text, wrong = f"{head} {found['kernels']} kernels", found["elements that differ"]
    if missing := found["no undivided engine"]:
        text += f", {missing} without an undivided engine"
    if "mean" in found:
        text += (
            f", {found['faster']} faster, mean {found['mean']:.3f} x (geometric "
            f"{found['geometric mean']:.3f}), {found['least']:.3f} to {found['best']:.3f}"
        )
    if "layers" in found:
        text += f", mean of {found['layers']} layers {found['mean of layers']:.3f}"
    if "whole" in found:
        text += f", whole {found['whole']:.3f} x"
        if mark := MARKS.get(found["set"]):
            text += f" (µ-cuDNN {mark} on a P100)"
    return text + (f", {wrong} DIFFER" if wrong else "")


def layer_speedups(rows: Sequence[Row]) -> dict[tuple[str, str, str], dict[int, float]]:
    """Of each layer (set, kind of arithmetic, name) by limit: undivided over divided seconds of all
    its directions together, where both sides ran them all."""
    sums: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for row in rows:
        by_limit = sums.setdefault((row.set, row.math, row.layer), {})
        both = by_limit.setdefault(row.limit, [0.0, 0.0])
        both[0] += row.undivided.median  # not a number where it did not run
        both[1] += row.divided.median
    return {
        key: {
            limit: undivided / divided
            for limit, (undivided, divided) in sorted(by_limit.items())
            if not math.isnan(undivided + divided)
        }
        for key, by_limit in sums.items()
    }


def layer_line(key: tuple[str, str, str], speedups: dict[int, float]) -> str:
    text = "  ".join(f"{limit // MIB:4d} MiB {ratio:6.3f} x" for limit, ratio in speedups.items())
    return f"{' '.join(key):<32} {text or 'no engine'}"


def row_of(fields: dict[str, Any]) -> Row:
    """From a journal."""
    sides = {name: Side(**fields[name]) for name in ("undivided", "divided")}
    return Row(**{**fields, **sides})


def chosen(
    name: str, maths: Sequence[str], only: Sequence[str], batch: int | None
) -> Iterator[tuple[Case, str]]:
    for math_name in maths:
        for case in kernels(name, math_name, batch):
            if contains(f"{case.layer} {case.problem} {math_name}", only):
                yield case, math_name


sets = click.option("--set", "names", multiple=True, type=click.Choice(["deepbench", *NETWORKS]))
limits = click.option("--limit", "limits", multiple=True, type=click.IntRange(min=0), help="MiB.")


@study("workspace", *HOW, sets, limits, maths(KINDS), only, repeats=10, on="gpu")
def command(
    run: Run, device: str, budget: str, engine: str, names: Sequence[str], limits: Sequence[int],
    maths: Sequence[str], batch: int | None, only: Sequence[str], repeats: int,
) -> None:  # fmt: skip
    rows = [row_of(fields) for fields in run.rows()]
    with Bench(device, budget, engine) as bench:
        run.note("found", json.loads(bench.free.info()))
        for name in names or tuple(LIMITS):
            wanted = [limit * MIB for limit in limits or LIMITS.get(name, EACH)]
            cases = chosen(name, maths or KINDS, only, batch)
            for case, math_name in run.left(cases, _key, whole(rows, wanted)):
                kernel = Comparison(bench, case, math_name, repeats)
                done = {row.limit for row in rows if (row.set, row.problem) == _key((case, ""))}
                for row in map(kernel.row, sorted(wanted, reverse=True)):
                    if row.limit not in done:
                        rows.append(row)
                        run.keep(asdict(row), line(row))
    run.note("summary", summary(rows))
    run.say(*(layer_line(*one) for one in layer_speedups(rows).items()))
    run.say(*map(summary_line, summary(rows)))


def _key(case: tuple[Case, str]) -> tuple[str, str]:
    return case[0].set, case[0].problem


def whole(rows: Sequence[Row], wanted: Sequence[int]) -> set[tuple[str, str]]:
    """The kernels, by set and problem, that have a row for each limit."""
    limits: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        limits.setdefault((row.set, row.problem), set()).add(row.limit)
    return {kernel for kernel, found in limits.items() if found.issuperset(wanted)}
