"""From a timeline, links and a limit to a plan, checked by the simulation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.explain import Explanation, explain
from oocdnn.network.plan import KEEP, Choice, Policy, Schedule
from oocdnn.network.reserving import Reserved, Reserving
from oocdnn.network.schedule import schedule
from oocdnn.network.search import Problem, Search
from oocdnn.network.simulate import Simulation, simulate
from oocdnn.network.timeline import Link, Timeline, certain_bytes

__all__ = ["Plan", "Reserved", "curve", "least_limit", "plan", "planned"]

_POINTS = 8  # of a curve


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
        acting: Seconds of the host at positions, for what keeps the allocator to that.
        stalls: Seconds of the device at positions, which waits for the allocator.
        faster: A faster plan for which no way was found to reserve as little, or None.
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
    acting: Mapping[int, float] = field(default_factory=dict)
    stalls: Mapping[int, float] = field(default_factory=dict)
    faster: Plan | None = None

    @property
    def seconds(self) -> float:
        return self.simulation.seconds

    @property
    def peak_bytes(self) -> int:
        return self.simulation.peak_bytes

    @property
    def swapped_bytes(self) -> int:
        """The bytes of the tensors that are swapped."""
        return sum(self.timeline.saved[index].nbytes for index in self.schedule.swapped())

    def choice(self, index: int) -> Choice:
        return self.schedule.choices[index]

    def retimed(self, timeline: Timeline, links: Sequence[Link]) -> Plan:
        """The same schedule for other times of the operations and of copies."""
        delayed = timeline.delayed(self.acting, self.stalls)
        simulation = simulate(delayed, links, self.schedule)
        bound = min(self.bound, simulation.seconds)
        return replace(self, timeline=timeline, links=links, simulation=simulation, bound=bound)

    def reserving(self, reserved: Reserved, seconds: float | None = None) -> Plan:
        """With what its schedule reserves, and what that takes; `seconds`: looked for so long."""
        if seconds is None:
            return self._told(reserved(self.schedule), reserved)
        return self._told(reserved.searched(self.schedule, seconds), reserved)

    def trimming(self, reserved: Reserved) -> Plan | None:
        """With what its schedule reserves where unused memory is given back in the midst of the
        step; None where that does not keep to the limit."""
        nbytes = reserved.trimmed(self.schedule)
        return None if nbytes is None else self._told(nbytes, reserved)

    def _told(self, nbytes: int, reserved: Reserved) -> Plan:
        acting, stalls = reserved.acting(self.schedule), reserved.stalls(self.schedule)
        plan = replace(self, reserved=nbytes, acting=acting, stalls=stalls)
        same = acting == self.acting and stalls == self.stalls
        return plan if same else plan.retimed(self.timeline, self.links)

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
    until one fits, for up to twice as long, then fast ones that nearly fit, for as long again, and
    others that take the host less. Where none does, trims are looked for, for up to half as long.
    Where none is found, the result is the one that reserves least.

    Raises InvalidProblem where there is no link or the limit is not positive, and OutOfMemory where
    the step does not fit; its `least` is the smallest limit with a plan.
    """
    if not links:
        raise InvalidProblem("a plan needs at least one link to memory that holds what is swapped")
    if limit <= 0:
        raise InvalidProblem(f"the limit is {limit} bytes; it must be positive")
    problem = Problem(timeline, links)
    if reserved is not None:
        within, least = partial(_within, problem), least_limit(timeline)
        return Reserving(within, reserved, least, limit, seconds).run()
    return _within(problem, limit, time.monotonic() + seconds)


def _within(problem: Problem, limit: int, end: float, start: Plan | None = None) -> Plan:
    """The plan within `limit` that is found by `end` of `time.monotonic`, from another one on."""
    timeline, links, began = problem.timeline, problem.links, time.monotonic()
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
    search = Search(problem, limit, end, None if start is None else start.schedule)
    search.run()
    best = search.best
    if best is None:
        raise OutOfMemory(
            f"no plan within {limit} bytes was found in {end - began:.1f} s; "
            f"{timeline.peak_bytes} hold everything"
        )
    bound = min(search.bound, best.seconds)
    return _plan(timeline, links, limit, best, bound, began, fits=False)


def planned(
    timeline: Timeline,
    links: Sequence[Link],
    limit: int,
    choices: Sequence[Choice],
    tensor_bytes: int | None = None,
) -> Plan | None:
    """The plan with these choices; None where it does not keep to the limit. Arguments as those of
    `plan`, but for a choice for each saved tensor, and bytes for tensors where that is less than
    the limit."""
    began = time.monotonic()
    room = limit if tensor_bytes is None else tensor_bytes
    made = schedule(timeline, links, room, list(choices))
    if made.peak_bytes > room:
        return None
    fits = all(one.policy is Policy.KEEP for one in choices)
    return _plan(timeline, links, limit, made, 0.0, began, fits=fits)


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
