"""Rows 7 to 9: the n-th allocation, copy, run, ... fails, once or from then on, for every n."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from engine.cases import DIRECTIONS, DTYPES, Case, RandomDraw, call, make_inputs, random_case
from engine.cases import reference as reference_of

import oocdnn
from reliability.processes import tally
from reliability.rows import Finding, Size, Tally

DOCUMENTED = (oocdnn.DeviceError, oocdnn.OutOfMemory, oocdnn.Unsupported)
MOST_CALLS = 2000
# A failure may be made up for (a smaller plan), so one success does not yet mean that the count is
# past the last call; this many in a row do.
SUCCESSES = 6


def small_case(direction: str, seed: int) -> Case:
    """Some KiB, so that a budget of half of it makes a few tiles."""
    draw = RandomDraw(np.random.default_rng((seed, 7)))
    case = random_case(draw, rank=2)
    extent = (draw.integer(8, 14), draw.integer(8, 14))
    k, c = draw.integer(2, 4), draw.integer(2, 4)
    return replace(case, direction=direction, dtype="f32", extent=extent, k=k, c=c)


def in_tiles(case: Case, arrays: dict[str, np.ndarray]) -> Case:
    """The case with the first budget that works, from a third of its data upward."""
    budget = case.data_bytes // 3
    while True:
        with oocdnn.Context("cpu", budget, profile="none", threads=1) as ctx:
            try:
                call(ctx, case, arrays)
                return replace(case, budget=budget)
            except oocdnn.OutOfMemory:
                budget += budget // 4


def in_files(arrays: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The same arrays in files, which need staging memory of the host."""
    mapped = {}
    for name, array in arrays.items():
        path = folder / f"{name}.bin"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        mapped[name] = np.memmap(path, array.dtype, "r+", shape=array.shape)
    return mapped


class Trial:
    """One case under one kind of fault."""

    def __init__(self, case: Case, arrays: dict[str, np.ndarray], name: str) -> None:
        self.case, self.arrays, self.name = case, arrays, name
        self.expected = reference_of(case, arrays).astype(DTYPES[case.dtype])
        self.done = Tally()

    def exhaust(self, kind: str, sticky: bool) -> None:
        successes = 0
        for nth in range(1, MOST_CALLS):
            wrap = f"check,fault:{kind}:{nth}" + (":sticky" if sticky else "")
            self.done.cases += 1
            successes = successes + 1 if self.attempt(wrap, sticky) else 0
            if successes == SUCCESSES:
                self.done.at_least(f"most {kind} calls", nth - SUCCESSES)
                return
        self.done.fail(f"{self.name}: {kind} still fails at {MOST_CALLS}")

    def exhaust_or_tell(self, kind: str, sticky: bool) -> None:
        try:
            self.exhaust(kind, sticky)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.done.fail(f"{self.name} {kind} sticky={sticky}: {text}")

    def attempt(self, wrap: str, sticky: bool) -> bool:
        """True where the call went through."""
        try:
            context = oocdnn.Context("cpu", self.case.budget, wrap=wrap, profile="none", threads=1)
        except DOCUMENTED as error:
            self.documented(wrap, error)
            return False
        with context:
            right = self.once(context, wrap)
            if not right and not sticky and not self.once(context, wrap + ", again"):
                self.done.fail(f"{self.name} {wrap}: the next call fails too")
            for report in context.check_reports()[:1]:
                self.done.fail(f"{self.name} {wrap}: {report}")
        return right

    def once(self, context: Any, wrap: str) -> bool:
        try:
            result = call(context, self.case, self.arrays)
        except DOCUMENTED as error:
            self.documented(wrap, error)
            return False
        if not np.array_equal(result, self.expected):
            self.done.fail(f"{self.name} {wrap}: a wrong result")
        return True

    def documented(self, wrap: str, error: Exception) -> None:
        self.done.count(type(error).__name__)
        if not str(error):
            self.done.fail(f"{self.name} {wrap}: an error without a text")


def chunk(kinds: tuple[str, ...], direction: str, seed: int, files: bool) -> Tally:
    case = small_case(direction, seed)
    arrays = make_inputs(case)
    with tempfile.TemporaryDirectory() as folder:
        if files:
            arrays = in_files(arrays, Path(folder))
        case = in_tiles(case, arrays)
        trial = Trial(case, arrays, f"seed {seed} files={files} {case}")
        for kind in kinds:
            for sticky in (False, True):
                trial.exhaust_or_tell(kind, sticky)
    return trial.done


def _measure(size: Size, kinds: tuple[str, ...], files: bool) -> Finding:
    seeds = size.of(1, 1, 4)
    directions = DIRECTIONS[:1] if size is Size.SMOKE else DIRECTIONS
    done = tally(chunk, [(kinds, d, seed, files) for d in directions for seed in range(seeds)])
    reached = {kind: done[f"most {kind} calls"] for kind in kinds}
    for kind, calls in reached.items():
        if calls < 1:
            done.fail(f"no call was ever made to fail: {kind}")
    errors = sum(done[kind.__name__] for kind in (*DOCUMENTED, oocdnn.FileError))
    figure = (
        f"{done.cases} trials in {len(directions) * seeds} problems, single and sticky, up to "
        + ", ".join(f"{kind} {calls}" for kind, calls in reached.items())
        + f": {errors} documented errors, {len(done.failures)} wrong"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)


def measure_memory(size: Size) -> Finding:
    return _measure(size, ("allocate",), False)


def measure_host_memory(size: Size) -> Finding:
    return _measure(size, ("allocate_host",), True)


def measure_calls(size: Size) -> Finding:
    kinds = ("run",) if size is Size.SMOKE else ("copy", "event", "run", "create", "prepare")
    return _measure(size, kinds, False)
