"""`oocdnn bench`: which problems, by whom, and the rows of results."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import oocdnn
from oocdnn._problem import parse
from oocdnn.bench import gpu_wires
from oocdnn.bench.amounts import flops, operand_bytes
from oocdnn.bench.cpu import Sgemm
from oocdnn.bench.layers import Direction, Layer
from oocdnn.bench.measure import (
    Case,
    Patience,
    Task,
    Times,
    budget_for,
    objection,
    pieces_of,
    time_calls,
)
from oocdnn.bench.peers import PEERS, Absent
from oocdnn.bench.provenance import provenance
from oocdnn.bench.results import About, Row
from oocdnn.bench.sets import SETS, Set
from oocdnn.context import Stats

OURS = "oocdnn"
PATIENT = Patience()
QUICK = Patience(least=3, most=5, noise=0.05, seconds=0.3)
QUICK_FLOPS = 3e10  # of a quick case; fewer images make it so
ONCE = Patience(least=0, most=0)


@dataclass(frozen=True)
class Settings:
    """How cases are measured. `device` None: the default; `budget` None: a share of each problem's
    data."""

    device: str | None = None
    budget: int | str | None = None
    pinned: bool = False
    peers: tuple[str, ...] = tuple(PEERS)
    patience: Patience = PATIENT

    @property
    def placement(self) -> str:
        return "pinned" if self.pinned else "pageable"


def fewer_images(layer: Layer, most_flops: float) -> Layer:
    """The layer with as many of its images as that many operations allow, one at least."""
    return replace(layer, n=max(1, min(layer.n, int(layer.n * most_flops / layer.flops))))


def cases_of(
    names: Sequence[str],
    directions: Sequence[Direction] = (),
    words: str = "f32",
    batch: int | None = None,
    quick: bool = False,
) -> list[Case]:
    """The problems of sets, each once and with how often it occurs, in the directions of each where
    none is given; `words` are the type and the layout of problem strings. Raises KeyError for a set
    that there is not."""
    cases: dict[tuple[str, str], Case] = {}
    for name in dict.fromkeys(names):
        for layer, direction in _calls(SETS[name], directions):
            sized = layer if batch is None else replace(layer, n=batch)
            sized = fewer_images(sized, QUICK_FLOPS) if quick else sized
            problem = f"{sized.problem(direction)} {words}"
            times = SETS[name].times_of(layer)
            found = Case(name, layer.name, problem, sized.flops, times)
            known = cases.get((name, problem))
            cases[name, problem] = replace(known, times=known.times + times) if known else found
    return list(cases.values())


def _calls(one: Set, directions: Sequence[Direction]) -> Iterable[tuple[Layer, Direction]]:
    if not directions:
        return one.calls
    return ((layer, direction) for layer in one.layers for direction in directions)


def case_of(text: str, device: str | None = None) -> Case:
    """A problem of the user's own. Raises InvalidProblem where the string cannot be read."""
    with oocdnn.Context(device) as context:
        context.plan(text)  # the core's words for what is wrong
    return Case("", "", text, flops(parse(text)), 1)


class Bench:
    """Measures cases on one device."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        origin = provenance("oocdnn", 0)
        machine = origin["machine"]
        with oocdnn.Context(settings.device) as context:
            self.device = context.device
        self.about = About(
            date=origin["date"],
            machine=f"{machine['processor']}, {machine['cores']} cores",
            versions=origin["versions"],
            command="",
            commit=origin["commit"] or "",
            rates={},
        )

    def rows(self, case: Case) -> Iterator[Row]:
        """What ours does with a case, then each peer."""
        settings = self._settings
        problem = parse(case.problem)
        budget = settings.budget or budget_for(problem)
        row = self._row(case, budget)
        if (why := objection(problem)) is not None:
            yield {**row, "check": f"skipped: {why}"}
            return
        with oocdnn.Context(self.device, budget) as context:
            try:
                task = Task(problem, context, settings.pinned)
                times = time_calls(task.call(context), settings.patience)
                plan = context.plan(case.problem)
            except (oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
                yield {**row, "check": f"skipped: {error}"}
                return
            row["budget"], row["floor_seconds"] = plan.budget_bytes, plan.floor_seconds
            task.choose(pieces_of(problem, plan))
            yield _timed({**row, "check": task.check()}, times, context.stats)
        for who in settings.peers:
            yield self._peer_row(who, task, row)

    def _peer_row(self, who: str, task: Task, row: Row) -> Row:
        row = {**row, "who": who, "budget": 0, "command": f"{row['command']} --peer {who}"}
        task.out.fill(np.nan)
        try:
            with PEERS[who](task, self.device) as call:
                times = time_calls(call, self._settings.patience)
        except (Absent, MemoryError, oocdnn.OutOfMemory, oocdnn.Unsupported) as error:
            return {**row, "check": f"skipped: {error}"}
        return _timed({**row, "check": task.check()}, times, Stats())

    def _row(self, case: Case, budget: int | str) -> Row:
        settings = self._settings
        words = case.problem.split()
        types = [word for word in words if re.fullmatch(r"b?f\d\d(/tf32)?", word)]
        options = f"--device {self.device} --budget {budget} --placement {settings.placement}"
        return Row(
            set=case.set,
            layer=case.layer,
            times=case.times,
            problem=case.problem,
            who=OURS,
            device=self.device,
            dtype=types[0] if types else "f32",
            placement=settings.placement,
            budget=0,
            seconds=None,
            cold_seconds=None,
            noise=None,
            samples=0,
            dropped=0,
            floor_seconds=None,
            tiles=0,
            peak_device_bytes=0,
            bytes_h2d=0,
            bytes_d2h=0,
            data_bytes=operand_bytes(parse(case.problem)),
            flops=case.flops,
            check="",
            machine=self.about["machine"],
            commit=self.about["commit"],
            command=f'oocdnn bench "{case.problem}" {options}',
        )


def _timed(row: Row, times: Times, stats: Stats) -> Row:
    known = bool(times.warm)
    return {
        **row,
        "seconds": times.median if known else None,
        "cold_seconds": times.cold,
        "noise": times.noise if known else None,
        "samples": len(times.warm),
        "dropped": times.dropped,
        "tiles": stats.tiles,
        "peak_device_bytes": stats.peak_device_bytes,
        "bytes_h2d": stats.bytes_h2d,
        "bytes_d2h": stats.bytes_d2h,
    }


def rates(device: str) -> dict[str, float]:
    """The machine's ceilings for `About`, as far as they are quickly measured."""
    if device == "cpu":
        products = Sgemm(2048, onednn=False)
        for _ in range(5):
            products.measure()
        return {"arithmetic": products.best}
    wires = gpu_wires.measure(int(device.partition(":")[2] or 0))
    found = {"inward": wires.inward, "outward": wires.outward, "both": wires.both}
    return {name: rate * 1e9 for name, rate in found.items()}
