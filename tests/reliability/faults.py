"""Rows 7 to 9: the n-th allocation, copy, run, ... fails, once or from then on, for every n."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
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
# Sides of images: as small as may be, and large enough that half of a budget is one too.
SMALL_SIDE, SIDE = 8, 48
LEAST_CAP = 8 << 10  # of staging memory
MOST_TILES = 8  # so that a call of the device's for each tile is not too many to try them all


def small_case(direction: str, seed: int, side: int) -> Case:
    """An image of `side` to twice that, in two to four channels."""
    draw = RandomDraw(np.random.default_rng((seed, 7)))
    case = random_case(draw, rank=2)
    extent = (draw.integer(side, 2 * side), draw.integer(side, 2 * side))
    k, c = draw.integer(2, 4), draw.integer(2, 4)
    return replace(case, direction=direction, dtype="f32", extent=extent, k=k, c=c)


def in_tiles(case: Case, arrays: dict[str, np.ndarray]) -> Case:
    """The case with the first budget, from a third of its data upward, that makes few tiles."""
    budget = case.data_bytes // 3
    while True:
        with oocdnn.Context("cpu", budget, profile="none", threads=1) as ctx:
            try:
                call(ctx, case, arrays)
                if ctx.stats.tiles <= MOST_TILES:
                    return replace(case, budget=budget)
            except oocdnn.OutOfMemory:
                pass
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
    """One case on devices of which a call fails, and what came of it."""

    def __init__(self, case: Case, arrays: dict[str, np.ndarray], name: str) -> None:
        self.case, self.arrays, self.name = case, arrays, name
        self.expected = reference_of(case, arrays).astype(DTYPES[case.dtype])
        self.done = Tally()

    def exhaust(self, kind: str) -> None:
        """Each call of the kind fails, alone and with all that follow it."""
        for nth in range(1, MOST_CALLS):
            # Nothing makes up for a fault that stays, so the first that does no harm is past the
            # last call.
            if self.attempt(f"{kind}:{nth}:sticky"):
                self.done.at_least(f"most calls of {kind}", nth - 1)
                return
            through = self.attempt(f"{kind}:{nth}")
            self.done.count("made up for" if through else "ended by one failure")
        self.done.fail(f"{self.name}: {kind} still fails at {MOST_CALLS}")

    def attempt(self, fault: str) -> bool:
        """Whether the call goes through. What does not has to leave a context that works, unless
        the fault stays."""
        self.done.cases += 1
        opened = self.tell(fault, partial(self.open, wrap=f"check,fault:{fault}"))
        if opened is None:
            return False
        with opened as context:
            through = self.compute(context, fault)
            if not through and "sticky" not in fault and not self.compute(context, fault):
                self.done.fail(f"{self.name} {fault}: the next call fails too")
            for report in context.check_reports()[:1]:
                self.done.fail(f"{self.name} {fault}: {report}")
        return through

    def open(self, **options: Any) -> oocdnn.Context:
        return oocdnn.Context("cpu", self.case.budget, profile="none", threads=1, **options)

    def compute(self, context: oocdnn.Context, where: str) -> bool:
        """Whether the call goes through, and then the result has to be right."""
        result = self.tell(where, partial(call, context, self.case, self.arrays))
        if result is not None and not np.array_equal(result, self.expected):
            self.done.fail(f"{self.name} {where}: a wrong result")
        return result is not None

    def tell(self, where: str, function: Callable[[], Any]) -> Any:
        """What the function returns; None where it fails, which has to be with a documented error
        that has a text."""
        try:
            return function()
        except DOCUMENTED as error:
            self.done.count("documented errors")
            if not str(error):
                self.done.fail(f"{self.name} {where}: an error without a text")
        except Exception as error:
            self.done.fail(f"{self.name} {where}: {type(error).__name__}: {error}")
        return None


def chunk(kinds: tuple[str, ...], direction: str, seed: int, side: int, files: bool) -> Tally:
    case = small_case(direction, seed, side)
    arrays = make_inputs(case)
    with tempfile.TemporaryDirectory() as folder:
        if files:
            arrays = in_files(arrays, Path(folder))
        case = in_tiles(case, arrays)
        trial = Trial(case, arrays, f"seed {seed} files={files} {case}")
        for kind in kinds:
            trial.exhaust(kind)
    return trial.done


def cap_chunk(direction: str, seed: int) -> Tally:
    """Operands in files under caps of the staging memory, from more than enough to too little."""
    case = small_case(direction, seed, SIDE)
    arrays = make_inputs(case)
    with tempfile.TemporaryDirectory() as folder:
        arrays = in_files(arrays, Path(folder))
        trial = Trial(replace(case, budget=2 * case.data_bytes), arrays, f"seed {seed} {case}")
        cap = 4 * case.data_bytes
        while cap >= LEAST_CAP:
            trial.done.cases += 1
            with trial.open(host_cap=cap) as context:
                if trial.compute(context, f"cap {cap}"):
                    trial.done.count("right")
            cap -= cap // 3
    return trial.done


def _measure(size: Size, kinds: tuple[str, ...], side: int, files: bool) -> Finding:
    seeds, directions = size.of(1, 1, 4), DIRECTIONS[: size.of(1, 4, 4)]
    done = tally(
        chunk, [(kinds, d, seed, side, files) for d in directions for seed in range(seeds)], size
    )
    reached = {kind: done[f"most calls of {kind}"] for kind in kinds}
    for kind, calls in reached.items():
        if calls < 1:
            done.fail(f"no call was ever made to fail: {kind}")
    figure = (
        f"{done.cases} trials in {len(directions) * seeds} problems, single and sticky, up to "
        + ", ".join(f"{kind} {calls}" for kind, calls in reached.items())
        + f": {done['made up for']} single failures made up for, {done['documented errors']} "
        f"documented errors, {len(done.failures)} wrong"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)


def _single_made_up_for(found: Finding) -> Finding:
    """Memory that is refused once must not end a call: a smaller plan takes less."""
    if ended := found.details.get("ended by one failure"):
        found.failures.append(f"{ended} calls ended by one failure")
        found.passed = False
    return found


def measure_memory(size: Size) -> Finding:
    return _single_made_up_for(_measure(size, ("allocate",), SIDE, files=False))


def measure_host_memory(size: Size) -> Finding:
    found = _single_made_up_for(_measure(size, ("allocate_host",), SIDE, files=True))
    seeds = size.of(1, 1, 4)
    capped = tally(cap_chunk, [(d, seed) for d in DIRECTIONS for seed in range(seeds)], size)
    found.failures += capped.failures
    found.passed = not found.failures
    found.figure += (
        f"; {capped.cases} caps of staging memory: {capped['right']} right, "
        f"{capped['documented errors']} documented errors, {len(capped.failures)} wrong"
    )
    return found


def measure_calls(size: Size) -> Finding:
    kinds = ("copy", "event", "run", "create", "prepare")
    return _measure(size, kinds, SMALL_SIDE, files=False)
