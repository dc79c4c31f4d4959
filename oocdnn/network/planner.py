"""From a timeline, links and a limit to a plan: policies by the integer program and by search,
positions by the scheduler, checked by the simulation.

The program sees copies as fluid; where the positions then pass the limit, margins at those
positions are raised and it is solved again. The search sees them as the scheduler does.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.explain import Explanation, explain
from oocdnn.network.greedy import fitted, greedy
from oocdnn.network.plan import KEEP, SWAP, Choice, Schedule
from oocdnn.network.polish import COOL, HOT, is_short, polished
from oocdnn.network.program import LEAST
from oocdnn.network.schedule import Scheduler, schedule, total_of
from oocdnn.network.simulate import Simulation, simulate
from oocdnn.network.solve import Model, Solution
from oocdnn.network.timeline import Link, Timeline, certain_bytes

_SHARE = 0.25  # of the open policies, fixed at a time
_DIVE = 8e-3  # seconds that the program needs for its first choices, for each saved tensor
_PART = 16  # tensors that are decided together, of more than
_FEW = 48  # which are decided at once
_PARTS = 2  # of them before the next schedule
_GREEDY_SHARE = 0.1  # of the time, for plans by a simple rule
_SHORT_SHARE = 0.6  # the same, where the time is too short for other searches
_PROGRAM_SHARE = 0.75  # of the time; the rest is for changes by the scheduler's arithmetic
_SEARCHES = ((HOT, 0.25), (COOL, 0.1), (HOT, 0.2))  # shares of the time; one before the program
_POOR = 1.02  # of what the program gives them, for its choices: more of it is of no use
_POINTS = 8  # of a curve
_IDLE = 12  # schedules without a better one
_ENOUGH = 1.002  # of the bound: no further round is tried


# Parts of the limit that plans leave to the gaps between tensors, one after the other, where a plan
# that leaves none does not fit; where the least limit leaves fewer, equal steps to that.
_GAPS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.11, 0.15, 0.2, 0.27, 0.35)
_STEPS = 8
_FIRST_SHARE = 0.55  # of the time, for the plan that leaves none
_NEXT_SHARE, _LEAST_SHARE = 0.08, 0.04  # of the time, which each other has at most, at least
_MOST = 2.0  # times as much time, until one fits


class Reserved(Protocol):
    """Tells how many bytes a schedule makes an allocator reserve."""

    def __call__(self, schedule: Schedule, /) -> int:
        """At least the schedule's peak; the gaps between tensors are in it."""


@dataclass
class Plan:
    """A plan of one step.

    Args:
        links: To the memory that holds what is swapped.
        schedule: Choices and positions.
        simulation: Its predicted course.
        limit: Bytes that it was made for.
        fits: True where everything is kept because the step fits.
        bound: Seconds below which the program has no choice of policies, copies being fluid. Where
            equal blocks are decided together, or chains of recipes are longer than it looks at,
            other choices may be a little below.
        planning: Seconds that planning took.
        reserved: Predicted bytes that the allocator reserves, or None where that is not known.
    """

    timeline: Timeline
    links: Sequence[Link]
    schedule: Schedule
    simulation: Simulation
    limit: int
    fits: bool
    bound: float
    planning: float
    reserved: int | None = None

    @property
    def seconds(self) -> float:
        return self.simulation.seconds

    @property
    def peak_bytes(self) -> int:
        return self.simulation.peak_bytes

    def choice(self, index: int) -> Choice:
        return self.schedule.choices[index]

    def retimed(self, timeline: Timeline) -> Plan:
        """The same schedule for other times of the operations."""
        simulation = simulate(timeline, self.links, self.schedule)
        bound = min(self.bound, simulation.seconds)
        return replace(self, timeline=timeline, simulation=simulation, bound=bound)

    def explain(self) -> Explanation:
        """The policy of each tensor with its reason, and totals; `str` gives a table."""
        return explain(
            self.timeline, self.schedule, self.simulation, self.limit, self.bound, self.reserved
        )


def plan(
    timeline: Timeline,
    links: Sequence[Link],
    limit: int,
    *,
    seconds: float = 2.0,
    reserved: Reserved | None = None,
) -> Plan:
    """The plan of a step within `limit` device bytes, found in about `seconds`.

    With `reserved`, the limit is for the bytes that an allocator reserves: plans for less are tried
    until one fits, for up to twice as long. Where none is found, the result is the one that
    reserves least.

    Raises InvalidProblem where there is no link or the limit is not positive, and OutOfMemory where
    the step does not fit; its `least` is the smallest limit with a plan.
    """
    if not links:
        raise InvalidProblem("a plan needs at least one link to memory that holds what is swapped")
    if limit <= 0:
        raise InvalidProblem(f"the limit is {limit} bytes; it must be positive")
    step = _Step(timeline, links)
    if reserved is not None:
        return _reserving(step, limit, seconds, reserved)
    return _within(step, limit, time.monotonic() + seconds)


class _Step:
    """A step and its links, with the program, which does not depend on the limit."""

    def __init__(self, timeline: Timeline, links: Sequence[Link]) -> None:
        self.timeline, self.links, self.link = timeline, links, total_of(links)
        # Seconds that the program needs for its first choices, or more.
        self.diving = max(LEAST, _DIVE * len(timeline.saved))

    @cached_property
    def model(self) -> Model:
        return Model(self.timeline, self.link)


def _within(step: _Step, limit: int, end: float, start: Plan | None = None) -> Plan:
    """The plan within `limit` that is found by `end` of `time.monotonic`, from another one on."""
    timeline, links, began = step.timeline, step.links, time.monotonic()
    kept = schedule(timeline, links, limit, [KEEP] * len(timeline.saved))
    if kept.peak_bytes <= limit:
        return _plan(timeline, links, limit, kept, timeline.seconds, began, fits=True)
    least = least_limit(timeline)
    if least > limit:
        raise OutOfMemory(
            f"the step needs {least} bytes where everything that can move is moved; the limit is "
            f"{limit}",
            least=least,
        )
    search = _Search(step, limit, end, start)
    search.run()
    best = search.best
    if best is None:
        raise OutOfMemory(
            f"no plan within {limit} bytes was found in {end - began:.1f} s; "
            f"{timeline.peak_bytes} hold everything"
        )
    bound = min(search.bound, best.seconds)
    return _plan(timeline, links, limit, best, bound, began, fits=False)


def _reserving(step: _Step, limit: int, seconds: float, reserved: Reserved) -> Plan:
    """Plans for less and less, the first of which has most of the time, until one fits; where the
    time is not enough for all of them, some are left out. What is left of the time is for another
    one that leaves as much."""
    began, least = time.monotonic(), least_limit(step.timeline)
    end = began + seconds  # of the searches, and of telling what the last plan reserves
    best = last = _within(step, limit, began + _FIRST_SHARE * seconds)
    telling = _tell(last, reserved)
    part, parts = 0.0, _parts(limit, least)
    while _bytes(best) > limit and parts:
        left = began + _MOST * seconds - time.monotonic()
        number = min(max(int(left / (_LEAST_SHARE * seconds + telling)), 1), len(parts))
        each = min(max(left / number - telling, _LEAST_SHARE * seconds), _NEXT_SHARE * seconds)
        most = part + (_bytes(last) - limit) / limit / 2  # half of what passes the limit
        left_out = [one for one in parts[: -(-len(parts) // number) - 1] if one < most]
        part, *parts = parts[len(left_out) :]
        with contextlib.suppress(OutOfMemory):
            room = limit - int(part * limit)
            start = last if last.peak_bytes > room else None  # else it would be the best again
            last = _within(step, room, time.monotonic() + each, start)
            telling = _tell(last, reserved)
            best = min(best, last, key=_bytes)
    now = time.monotonic()
    left = end - now - telling
    if _bytes(best) <= limit and not best.fits and left > _LEAST_SHARE * seconds:
        last = _within(step, best.limit, now + left, best)
        if last.seconds < best.seconds:
            _tell(last, reserved)
            best = last if _bytes(last) <= limit else best
    best.limit, best.planning = limit, time.monotonic() - began
    return best


def _parts(limit: int, least: int) -> list[float]:
    """Parts of the limit to leave, the smallest first."""
    most = 1 - least / limit
    if most > _GAPS[-1]:
        return list(_GAPS)
    return [most * i / _STEPS for i in range(1, _STEPS + 1)] if most > 0 else []


def _tell(made: Plan, reserved: Reserved) -> float:
    """Notes what the plan reserves; the seconds that this took."""
    began = time.monotonic()
    made.reserved = reserved(made.schedule)
    return time.monotonic() - began


def _bytes(made: Plan) -> int:
    assert made.reserved is not None
    return made.reserved


def curve(
    timeline: Timeline,
    links: Sequence[Link],
    limits: Sequence[int] = (),
    *,
    seconds: float = 8.0,
) -> list[tuple[int, float | None]]:
    """Planned seconds of the step for several limits in bytes, found in about `seconds` in all.

    Without `limits`, eight of them from the least limit to what holds everything. None stands for a
    limit with no plan.
    """
    if not limits:
        least, most = least_limit(timeline), timeline.peak_bytes
        limits = sorted({least + (most - least) * i // (_POINTS - 1) for i in range(_POINTS)})
    return [(limit, _seconds_at(timeline, links, limit, seconds / len(limits))) for limit in limits]


def _seconds_at(
    timeline: Timeline, links: Sequence[Link], limit: int, seconds: float
) -> float | None:
    try:
        return plan(timeline, links, limit, seconds=seconds).seconds
    except OutOfMemory:
        return None


def least_limit(timeline: Timeline) -> int:
    """Bytes below which no plan is: the peak where each movable tensor is there only while an
    operation reads it."""
    return max(certain_bytes(timeline), default=0)


class _Search:
    """The best schedule within a limit that is found by `end`."""

    def __init__(self, step: _Step, limit: int, end: float, start: Plan | None) -> None:
        timeline, now = step.timeline, time.monotonic()
        self.timeline, self.limit, self.end = timeline, limit, end
        self.step, self.scheduler = step, Scheduler(timeline, step.link, limit)
        self.bound, self.best = timeline.seconds, None  # type: float, Schedule | None
        self._moved = self.scheduler.run(_everything_moved(timeline))
        self.nearest = self._moved  # by its cost
        self._better(self.nearest)
        self._seed, self._anew, self._seconds = 0, False, end - now
        short = is_short(timeline, _SEARCHES[0][1] * self._seconds)
        if start is not None:
            made = self.scheduler.run(start.schedule.choices)
            self._better(made)
            self._seed = len(_SEARCHES)
            if made.peak_bytes > limit:
                self._better(fitted(timeline, self.scheduler, made.choices))
                # A good plan of a higher limit leads to few others, but in a short time to none.
                self._anew = not short
        if start is None or not short:
            share = _SHORT_SHARE if short else _GREEDY_SHARE
            self._better(greedy(timeline, self.scheduler, now + share * self._seconds))
        self._draw = random.Random(0)

    @property
    def model(self) -> Model:
        return self.step.model

    def run(self) -> None:
        last, now = self.end, time.monotonic()
        self.end = now + _PROGRAM_SHARE * (last - now)
        if self.end - now < self.step.diving:
            self._seconds /= sum(share for _, share in _SEARCHES)
            self._polish(0, last)
        else:
            self._polish(0, self.end)
            with contextlib.suppress(LookupError):
                self._run()
        for number in range(1, len(_SEARCHES)):
            if not self._enough():
                self._polish(number, last)

    def _polish(self, number: int, end: float) -> None:
        """The search of this number, from the best schedule so far, or anew."""
        warmth, share = _SEARCHES[number]
        seconds = share * self._seconds
        seed = self._seed + number
        start = self._moved if self._anew and number == 0 else self.nearest
        self._better(polished(self.scheduler, start, warmth, seconds, end, seed))

    def _run(self) -> None:
        """Choices from the relaxation; then the best choices of a few tensors at a time, others as
        they are, and what the schedule tells: room at positions where it has less than the program
        saw, and seconds for swapping a tensor that it waits for alone. A large tensor cannot come
        back byte by byte, as copies that are fluid do."""
        began = time.monotonic()
        self.step.diving = self.end - began
        margins = np.zeros(len(self.timeline.operations))
        waits: dict[int, float] = {}
        self.model.dearer({})
        self.model.limit(self.limit, margins)
        solution = self.model.dive(self.end, _SHARE)
        self.step.diving = max(time.monotonic() - began, LEAST)
        self.bound = max(self.bound, solution.bound)
        made = self.scheduler.run(solution.choices)
        self._better(made)
        idle = 0
        while idle < _IDLE and not self._enough() and time.monotonic() < self.end:
            made = self.scheduler.run(solution.choices)
            better = self._better(made)
            if solution.excess < 1.0:
                idle = 0 if better else idle + 1
                if self._waits_for_one(made, solution.seconds):
                    for index, seconds in made.waits.items():
                        waits[index] = waits.get(index, 0.0) + seconds
                    self.model.dearer(waits)
                more = self._room(made, solution.seconds)
                if more.any():
                    margins += more
                    self.model.limit(self.limit, margins)
                    solution = self.model.again(self.end, solution)
            for _ in range(1 if len(self.model.parts) <= _FEW else _PARTS):
                with contextlib.suppress(LookupError):
                    solution = self.model.improved(self.end, solution, self._part(made))
        made = self.scheduler.run(solution.choices)
        self._better(made)
        near = self.scheduler.cost(made) <= _POOR * solution.seconds
        if near and not self._enough() and time.monotonic() < self.end:
            self._exact(solution)

    def _exact(self, solution: Solution) -> None:
        self.model.limit(self.limit, np.zeros(len(self.timeline.operations)))
        self.model.dearer({})
        solution = self.model.exact(self.end, self.model.again(self.end, solution))
        self.bound = max(self.bound, solution.bound)
        self._better(self.scheduler.run(solution.choices))

    def _part(self, made: Schedule) -> set[int]:
        """Two runs of tensors that follow one another: any, and around the fullest position where
        that passes the limit."""
        count = len(self.model.parts)
        if count <= _FEW:
            return set(range(count))
        begins = [self._draw.randrange(count), self._draw.randrange(count)]
        if made.peak_bytes > self.limit:
            full = made.bytes_at.index(made.peak_bytes)
            firsts = [self.timeline.saved[part[0]] for part in self.model.parts]
            far = [min(abs(one.first_use - full), abs(one.produced - full)) for one in firsts]
            begins[0] = far.index(min(far)) - self._draw.randrange(_PART // 2)
        return {(begin + i) % count for begin in begins for i in range(_PART // 2)}

    def _waits_for_one(self, made: Schedule, seconds: float) -> bool:
        """Whether the device waits more than in the fluid view, and most of it for one tensor."""
        if made.peak_bytes > self.limit or made.seconds <= _ENOUGH * seconds:
            return False
        return max(made.waits.values(), default=0.0) > made.waiting / 2

    def _room(self, made: Schedule, seconds: float) -> np.ndarray:
        """Bytes to leave free: by which the limit is passed, or half a tensor of those on their way
        where the device waits more than in the fluid view."""
        excess: np.ndarray = np.maximum(np.asarray(made.bytes_at) - self.limit, 0)
        enough = made.seconds <= _ENOUGH * seconds
        if excess.any() or enough or self._waits_for_one(made, seconds):
            return excess
        return _on_the_way(self.timeline, made) / 2

    def _enough(self) -> bool:
        return self.best is not None and self.best.seconds <= _ENOUGH * self.bound

    def _better(self, made: Schedule | None) -> bool:
        if made is None:
            return False
        if self.scheduler.cost(made) < self.scheduler.cost(self.nearest):
            self.nearest = made
        fits = made.peak_bytes <= self.limit
        better = fits and (self.best is None or made.seconds < self.best.seconds)
        if better:
            self.best = made
        return better


def _plan(
    timeline: Timeline,
    links: Sequence[Link],
    limit: int,
    made: Schedule,
    bound: float,
    began: float,
    *,
    fits: bool,
) -> Plan:
    simulation = simulate(timeline, links, made)
    planning = time.monotonic() - began
    return Plan(timeline, links, made, simulation, limit, fits, bound, planning)


def _everything_moved(timeline: Timeline) -> list[Choice]:
    return [SWAP if one.movable and one.nbytes else KEEP for one in timeline.saved]


def _on_the_way(timeline: Timeline, made: Schedule) -> np.ndarray:
    """Bytes to leave free where the device waits more than the fluid view says: half a tensor of
    those on their way at each position."""
    found = np.zeros(len(timeline.operations))
    for index in made.swapped():
        movement, half = made.movements[index], timeline.saved[index].nbytes / 2
        for first, last in (
            (timeline.saved[index].last_forward_use + 1, movement.release),
            (movement.fetch, movement.need),
        ):
            np.maximum(found[first:last], half, out=found[first:last])
    return found
