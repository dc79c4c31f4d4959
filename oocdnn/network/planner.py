"""From a timeline, links and a limit to a plan: policies by the integer program, positions by the
scheduler, checked by the simulation.

The program sees copies as fluid; where the positions then pass the limit, margins at those
positions are raised and it is solved again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from oocdnn.errors import InvalidProblem, OutOfMemory
from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Policy, Schedule
from oocdnn.network.schedule import schedule, total_of
from oocdnn.network.simulate import Simulation, simulate
from oocdnn.network.solve import solve
from oocdnn.network.timeline import Link, Saved, Timeline, available, resident_bytes

_ROUNDS = 12  # of margins
_FIRST_SHARE = 0.7  # of the time left for one solution of the program
_ENOUGH = 1.002  # of the bound: no further round is tried


@dataclass
class Plan:
    """A plan of one step.

    Args:
        schedule: Choices and positions.
        simulation: Its predicted course.
        limit: Bytes that it was made for.
        fits: True where everything is kept because the step fits.
        bound: Seconds below which the program knows that no choice of policies is.
        planning: Seconds that planning took.
    """

    timeline: Timeline
    schedule: Schedule
    simulation: Simulation
    limit: int
    fits: bool
    bound: float
    planning: float

    @property
    def seconds(self) -> float:
        return self.simulation.seconds

    @property
    def peak_bytes(self) -> int:
        return self.simulation.peak_bytes

    def choice(self, index: int) -> Choice:
        return self.schedule.choices[index]


def plan(timeline: Timeline, links: Sequence[Link], limit: int, *, seconds: float = 2.0) -> Plan:
    """The plan of a step within `limit` device bytes, found in about `seconds`.

    Raises InvalidProblem where there is no link or the limit is not positive, and OutOfMemory where
    the step does not fit; its `least` is the smallest limit with a plan.
    """
    if not links:
        raise InvalidProblem("a plan needs at least one link to memory that holds what is swapped")
    if limit <= 0:
        raise InvalidProblem(f"the limit is {limit} bytes; it must be positive")
    began = time.monotonic()
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
    best, bound = _search(timeline, links, limit, began + seconds)
    if best is None:
        raise OutOfMemory(
            f"no plan within {limit} bytes was found in {seconds} s; {timeline.peak_bytes} hold "
            "everything"
        )
    return _plan(timeline, links, limit, best, bound, began, fits=False)


def least_limit(timeline: Timeline) -> int:
    """Bytes below which no plan is: the peak where each movable tensor is there only while an
    operation reads it."""
    spans = [
        ((one.produced, one.last_forward_use), (one.first_use, one.last_use))
        if one.movable
        else ((one.produced, one.last_use),)
        for one in timeline.saved
    ]
    return max(resident_bytes(timeline, spans), default=0)


def _search(
    timeline: Timeline, links: Sequence[Link], limit: int, end: float
) -> tuple[Schedule | None, float]:
    """The best schedule within the limit that was found by `end`, and the program's bound."""
    link, margins = total_of(links), [0.0] * len(timeline.operations)
    bound = timeline.seconds
    everything = [SWAP if one.movable else KEEP for one in timeline.saved]
    best = _better(None, schedule(timeline, links, limit, everything), limit)
    last = None
    for number in range(_ROUNDS):
        left = end - time.monotonic()
        if left <= 0 and number > 0:
            break
        try:
            found = solve(timeline, link, limit, margins, max(_FIRST_SHARE * left, 0.1))
        except LookupError:
            break
        if number == 0:
            bound = found.bound
        if found.choices == last:
            break
        last = found.choices
        made = schedule(timeline, links, limit, found.choices)
        best = _better(best, made, limit)
        if best is not None and best.seconds <= _ENOUGH * bound:
            break
        excess = [max(held - limit, 0) for held in made.bytes_at]
        more = excess if any(excess) else _on_the_way(timeline, made)
        margins = [margin + extra for margin, extra in zip(margins, more, strict=True)]
    if best is None or best.seconds <= _ENOUGH * bound:
        return best, bound
    return _polished(timeline, links, limit, best, end), bound


def _better(best: Schedule | None, made: Schedule, limit: int) -> Schedule | None:
    if made.peak_bytes > limit or (best is not None and best.seconds <= made.seconds):
        return best
    return made


def _polished(
    timeline: Timeline, links: Sequence[Link], limit: int, best: Schedule, end: float
) -> Schedule:
    """Changes one policy at a time while that helps, by the scheduler's own arithmetic."""
    improved = True
    while improved:
        improved = False
        for index, one in enumerate(timeline.saved):
            for choice in _options(timeline, one):
                if time.monotonic() > end:
                    return best
                if choice == best.choices[index]:
                    continue
                changed = [*best.choices[:index], choice, *best.choices[index + 1 :]]
                made = schedule(timeline, links, limit, changed)
                if made.peak_bytes <= limit and made.seconds < best.seconds:
                    best, improved = made, True
    return best


def _options(timeline: Timeline, one: Saved) -> list[Choice]:
    if not one.movable:
        return []
    found = [KEEP, SWAP]
    if one.squeeze is not None:
        found.append(SQUEEZE)
    return found + [Choice(Policy.REBUILD, number) for number in available(timeline, one)]


def _on_the_way(timeline: Timeline, made: Schedule) -> list[int]:
    """Bytes to leave free where the device waits more than the fluid view says: one tensor of those
    on their way at each position that is full."""
    found = [0] * len(timeline.operations)
    for index in made.swapped():
        movement, one = made.movements.get(index), timeline.saved[index]
        if movement is None:
            continue
        spans = [
            range(one.last_forward_use + 1, movement.release),
            range(movement.fetch, movement.need),
        ]
        for span in spans:
            for position in span:
                found[position] = max(found[position], one.nbytes // 2)
    return found


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
    return Plan(timeline, made, simulation, limit, fits, bound, time.monotonic() - began)
