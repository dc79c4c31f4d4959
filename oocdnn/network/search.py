"""The search for the fastest schedule of a step within a limit: policies by the integer program and
by changes of a few, positions by the scheduler.

The program sees copies as fluid; where the positions then pass the limit, margins at those
positions are raised and it is solved again. The changes are judged as the scheduler sees them.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from oocdnn.network.greedy import fitted, greedy
from oocdnn.network.plan import KEEP, SWAP, Choice, Schedule
from oocdnn.network.polish import COOL, HOT, is_short, polished
from oocdnn.network.program import LEAST
from oocdnn.network.schedule import Scheduler, total_of
from oocdnn.network.solve import Model, Solution
from oocdnn.network.timeline import Link, Timeline

_SHARE = 0.25  # of the open policies, fixed at a time
_DIVE = 8e-3  # seconds that the program needs for its first choices, for each saved tensor
_PART = 16  # tensors that are decided together, of more than
_FEW = 48  # which are decided at once
_PARTS = 2  # of them before the next schedule
_GREEDY_SHARE = 0.1  # of the time, for plans by a simple rule
_SHORT_SHARE = 0.6  # the same, where the time is too short for other searches
_PROGRAM_SHARE = 0.75  # of the time; the rest is for changes by the scheduler's arithmetic
_SEARCHES = ((HOT, 0.25), (COOL, 0.1), (HOT, 0.2))  # shares of the time; one before the program
_ALL = sum(share for _, share in _SEARCHES)  # their share where the program has none
_POOR = 1.02  # of what the program gives them, for its choices: more of it is of no use
_IDLE = 12  # schedules without a better one
_ENOUGH = 1.002  # of the bound: no further round is tried
_FITTED = 1.03  # times the plan for a higher limit; where it is slower once it fits, a poor start


class Problem:
    """A step and its links, with the program, which does not depend on the limit."""

    def __init__(self, timeline: Timeline, links: Sequence[Link]) -> None:
        self.timeline, self.links, self.link = timeline, links, total_of(links)
        # Seconds that the program needs for its first choices, or more.
        self.diving = max(LEAST, _DIVE * len(timeline.saved))

    @cached_property
    def model(self) -> Model:
        return Model(self.timeline, self.link)


class Search:
    """The best schedule within a limit that is found by `end`."""

    def __init__(self, problem: Problem, limit: int, end: float, start: Schedule | None) -> None:
        timeline, now = problem.timeline, time.monotonic()
        self.timeline, self.limit, self.end = timeline, limit, end
        self.problem, self.scheduler = problem, Scheduler(timeline, problem.link, limit)
        self.bound, self.best = timeline.seconds, None  # type: float, Schedule | None
        self._moved = self.scheduler.run(_everything_moved(timeline))
        self.nearest = self._moved  # by its cost
        self._better(self.nearest)
        self._seed, self._anew, self._seconds = 0, False, end - now
        short, leads = self._is_short(), False
        if start is not None:
            made = self.scheduler.run(start.choices)
            self._better(made)
            self._seed = len(_SEARCHES)
            if made.peak_bytes > limit:
                self._better(fitted(timeline, self.scheduler, made.choices))
                # A good plan of a higher limit leads to few others, but in a short time to none.
                self._anew = not short
            leads = self._fits_within(_FITTED * made.seconds)
        if not (short and leads):
            share = _SHORT_SHARE if short else _GREEDY_SHARE
            self._better(greedy(timeline, self.scheduler, now + share * self._seconds))
        self._draw = random.Random(0)

    def _fits_within(self, seconds: float) -> bool:
        return self.best is not None and self.best.seconds <= seconds

    def _is_short(self) -> bool:
        """True where the time suffices neither for the program nor for a search that moves far from
        its start."""
        if _PROGRAM_SHARE * self._seconds >= self.problem.diving:
            return False
        return is_short(self.timeline, _SEARCHES[0][1] / _ALL * self._seconds)

    @property
    def model(self) -> Model:
        return self.problem.model

    def run(self) -> None:
        last, now = self.end, time.monotonic()
        self.end = now + _PROGRAM_SHARE * (last - now)
        if self.end - now < self.problem.diving:
            self._seconds /= _ALL
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
        self.problem.diving = self.end - began
        margins = np.zeros(len(self.timeline.operations))
        waits: dict[int, float] = {}
        self.model.dearer({})
        self.model.limit(self.limit, margins)
        solution = self.model.dive(self.end, _SHARE)
        self.problem.diving = max(time.monotonic() - began, LEAST)
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
        """True where the device waits longer than the fluid view predicts, and most of that time
        for one tensor."""
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
