"""The length of a plan's pipeline, by a discrete-event simulation.

Three engines work at the same time, each in the order of the steps:

- fetch fills slots, each when the last convolution that read it has ended;
- compute first moves the rows that are rolled over, whose slot is free only then, and runs a step's
  convolution when the step's boxes are there and, where it begins an output tile, when what the
  output's slot held is drained; the last step of an output tile ends with the finishing pass, and
  waits for the slots of what that makes;
- a tile of dy that is not fetched is made before the first convolution that reads it;
- drain takes finished output tiles to where the caller wants them;
- a copy begins with what it costs beyond its bytes; then these cross the wire, and a fetch and a
  drain that do so at the same time slow each other down.

The library's planner prices plans by a simulation of its own; this is the same contract in another
way, and shares no code with it: the tests hold the two together.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from oocdnn.perfmodel.events import Crossing, Process, Signal, Simulation
from oocdnn.perfmodel.problem import AXES, Axis, Operand, Problem
from oocdnn.perfmodel.profile import Profile
from oocdnn.perfmodel.rates import Engine, Home, Rates
from oocdnn.perfmodel.schedule import Step, walk
from oocdnn.perfmodel.tiling import Tiling

_DIRECT = Engine()


@dataclass(frozen=True)
class Candidate:
    """How a problem is cut and run: tile lengths by axis (missing: whole), the axes from the
    outermost loop to the innermost, the slots of each operand's ring (missing: one), the engine,
    whether tiles hold all padding as zero rows, and a taper (see `Tiling`)."""

    lengths: Mapping[Axis, int] = field(default_factory=dict)
    order: Sequence[Axis] = AXES
    depths: Mapping[Operand, int] = field(default_factory=dict)
    engine: Engine = _DIRECT
    padding_as_data: bool = False
    taper: tuple[Axis, int] | None = None


@dataclass
class Outcome:
    """Seconds of the whole, of its pipeline alone, and busy ones of each engine; bytes that crossed
    the wire. `seconds` is longer than the pipeline where the host, what copies cost beyond their
    bytes, or copies inside the device take longer."""

    seconds: float = 0.0
    pipeline_seconds: float = 0.0
    fetch_seconds: float = 0.0
    compute_seconds: float = 0.0
    drain_seconds: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    steps: int = 0


def simulate(
    problem: Problem,
    candidate: Candidate,
    profile: Profile,
    homes: Mapping[Operand, Home] | None = None,
) -> Outcome:
    """Runs a candidate with operands at `homes` (missing: "host") on a machine of that profile."""
    tiling = Tiling(problem, candidate.lengths, candidate.padding_as_data, candidate.taper)
    pipeline = _Pipeline(problem, Rates(tiling, profile, candidate.engine, homes or {}))
    works = [pipeline.work(step) for step in walk(tiling, candidate.order, candidate.depths)]
    outcome = pipeline.outcome
    wire = pipeline.rates.wire
    outcome.pipeline_seconds = _length(works, Simulation(wire.hop, pipeline.rates.together))
    if profile.shared_engines:
        busy = (outcome.fetch_seconds, outcome.compute_seconds, outcome.drain_seconds)
        outcome.seconds = sum(busy)
    else:
        bounds = _bounds(pipeline, profile, candidate)
        outcome.seconds = max(outcome.pipeline_seconds, *bounds)
    return outcome


_Copy: TypeAlias = tuple[float | Crossing, ...]  # what passes one after the other


@dataclass
class _Work:
    """A step for the three engines: seconds, what to wait for, and what to send at the end."""

    fetches: list[tuple[_Copy, Signal | None, Signal]]
    moves: list[tuple[float, Signal]]
    needs: list[Signal]
    run_seconds: float
    ran: Signal = field(default_factory=Signal)
    drains: list[tuple[_Copy, Signal]] = field(default_factory=list)


def _fetch(clock: Simulation, works: Iterable[_Work]) -> Process:
    for work in works:
        for copy, free, fetched in work.fetches:
            if free is not None:
                yield free
            yield from copy
            clock.send(fetched)


def _compute(clock: Simulation, works: Iterable[_Work]) -> Process:
    for work in works:
        for seconds, moved in work.moves:
            yield seconds
            clock.send(moved)
        yield from work.needs
        yield work.run_seconds
        clock.send(work.ran)


def _drain(clock: Simulation, works: Iterable[_Work]) -> Process:
    for work in works:
        for copy, drained in work.drains:
            yield work.ran
            yield from copy
            clock.send(drained)


def _length(works: Sequence[_Work], clock: Simulation) -> float:
    for engine in (_fetch, _compute, _drain):
        clock.start(engine(clock, works))
    clock.run()
    return clock.now


@dataclass
class _Transfers:
    """All transfers of one operand: over the wire, or inside the device."""

    number: int = 0
    bytes_: int = 0
    seconds: float = 0.0
    each: list[tuple[float, int]] = field(default_factory=list)  # seconds and bytes of each

    def at_end(self, number: int | None) -> tuple[float, float]:
        """Seconds and bytes of the one with that number, None: of the average."""
        if number is not None:
            return self.each[number]
        return self.seconds / self.number, self.bytes_ / self.number


class _Pipeline:
    """Turns steps into work, and keeps account of it."""

    def __init__(self, problem: Problem, rates: Rates) -> None:
        self.problem, self.rates = problem, rates
        self.outcome = Outcome()
        self.transfers: defaultdict[Operand, _Transfers] = defaultdict(_Transfers)

    def work(self, step: Step) -> _Work:
        """The next step's."""
        fetches = self._fetches(step)
        needs = [fetched for _, _, fetched in fetches]
        for out in step.exits:
            finished = out.operand in ("z", "saved")
            awaits = out.ends if finished else out.begins
            if awaits and out.slot.free is not None:
                needs.append(out.slot.free)
        run = self.rates.run_seconds(step.index)
        run += self.rates.finish_seconds(step.index) if step.ends else 0.0
        run += self.rates.restore_seconds(step.index) if step.restores else 0.0
        if any(entry.operand == self.problem.source for entry in step.entries):
            run += self.rates.normalize_seconds(step.index)
        work = _Work(fetches, self._moves(step), needs, run)
        for slot in step.inputs:
            slot.free = work.ran
        self.outcome.steps += 1
        self.outcome.compute_seconds += run + sum(seconds for seconds, _ in work.moves)
        self._drain(step, work)
        return work

    def _fetches(self, step: Step) -> list[tuple[_Copy, Signal | None, Signal]]:
        fetches = []
        for entry in step.entries:
            seconds = self._transfer(entry.operand, entry.fetched)
            self.outcome.fetch_seconds += seconds
            if self._crosses(entry.operand):
                self.outcome.bytes_in += self.rates.bytes_of(entry.operand, entry.fetched)
            if seconds > 0:  # else the operand is itself the tile
                fetches.append((self._copy(entry.operand, seconds), entry.slot.free, Signal()))
        return fetches

    def _moves(self, step: Step) -> list[tuple[float, Signal]]:
        moves = []
        for entry in step.entries:
            seconds = self.rates.move_seconds(entry.operand, entry.moved)
            if entry.source is not None and seconds > 0:
                moves.append((seconds, Signal()))
                entry.source.free = moves[-1][1]
        return moves

    def _drain(self, step: Step, work: _Work) -> None:
        for out in (out for out in step.exits if out.ends):
            seconds = self._transfer(out.operand, out.rows)
            self.outcome.drain_seconds += seconds
            if self._crosses(out.operand):
                self.outcome.bytes_out += self.rates.bytes_of(out.operand, out.rows)
            if seconds > 0:
                work.drains.append((self._copy(out.operand, seconds), Signal()))
                out.slot.free = work.drains[-1][1]

    def _transfer(self, operand: Operand, rows: Sequence[int]) -> float:
        seconds = self.rates.transfer_seconds(operand, rows)
        account = self.transfers[operand]
        account.number += 1
        account.bytes_ += self.rates.bytes_of(operand, rows)
        account.seconds += seconds
        account.each.append((seconds, self.rates.bytes_of(operand, rows)))
        return seconds

    def _copy(self, operand: Operand, seconds: float) -> _Copy:
        """What it costs beyond its bytes comes first, and leaves the wire to others."""
        if not self._crosses(operand):
            return (seconds,)
        before = self.rates.copy_seconds
        return before, Crossing(max(seconds - before, 0.0))

    def _crosses(self, operand: Operand) -> bool:
        return self.rates.crosses(operand)


def _bounds(pipeline: _Pipeline, profile: Profile, candidate: Candidate) -> Iterator[float]:
    """Seconds that no overlap goes below, whatever the order of the work."""
    outcome, rates, written = pipeline.outcome, pipeline.rates, pipeline.problem.written
    crossing = {o: t for o, t in pipeline.transfers.items() if rates.crosses(o)}
    inside = sum(t.seconds for o, t in pipeline.transfers.items() if o not in crossing)
    yield outcome.steps * profile.step_seconds
    yield (outcome.bytes_in + outcome.bytes_out) / rates.wire.both
    yield (
        outcome.compute_seconds
        + inside
        + _exposed(crossing, rates, candidate.engine, pipeline.problem)
    )
    # The first fetch of each operand and the last drain have the wire to themselves, the others
    # share it; what copies cost beyond their bytes counts once for both, as a surcharge. Of tiles
    # that are alike, those at the ends count as the average.
    ends = {
        operand: t.at_end(None if candidate.taper is None else -1 if operand in written else 0)
        for operand, t in crossing.items()
    }
    alone = sum(seconds for seconds, _ in ends.values())
    shared = sum(t.bytes_ - ends[o][1] for o, t in crossing.items()) / rates.wire.both
    drains = sum(t.number - 1 for operand, t in crossing.items() if operand in written)
    fetches = sum(t.number - 1 for operand, t in crossing.items() if operand not in written)
    yield alone + shared + max(fetches, drains) * profile.copy_seconds


def _exposed(
    crossing: Mapping[Operand, _Transfers], rates: Rates, engine: Engine, problem: Problem
) -> float:
    """Of transfers through bounce memory, what is left when that is full: it hides behind no
    convolution. Nothing is computed before the first fetch, or after the last drain. What the
    finishing pass makes lies as the caller wants it, and passes through none."""
    if not rates.bounces:
        return 0.0
    fetches = drains = 0.0
    for operand, transfers in crossing.items():
        beyond = max(transfers.bytes_ / transfers.number - engine.bounce_bytes, 0.0)
        if operand in ("z", "saved"):
            continue
        if operand in problem.written:
            drains += beyond * (transfers.number - 1) / rates.crossing_rate(operand)
        else:
            fetches += beyond * (transfers.number - 1) / rates.crossing_rate(operand)
    return max(fetches, drains)
