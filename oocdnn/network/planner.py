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
from oocdnn.network.plan import KEEP, Choice, Policy, Schedule
from oocdnn.network.schedule import schedule, total_of
from oocdnn.network.simulate import Simulation, simulate
from oocdnn.network.solve import solve
from oocdnn.network.timeline import Link, Timeline

_ROUNDS = 12  # of margins
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


def plan(
    timeline: Timeline, links: Sequence[Link], limit: int, *, seconds: float = 2.0
) -> Plan:
    """The plan of a step within `limit` device bytes, found in about `seconds`.

    Raises InvalidProblem where there is no link or the limit is no number of bytes, and OutOfMemory,
    whose `least` is the smallest limit with a plan, where the step does not fit.
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
    best, bound = _search(timeline, links, limit, began, seconds)
    if best is None:
        raise OutOfMemory(
            f"no plan within {limit} bytes was found in {seconds} s; {timeline.peak_bytes} hold "
            "everything"
        )
    return _plan(timeline, links, limit, best, bound, began, fits=False)


def least_limit(timeline: Timeline) -> int:
    """Bytes below which no plan is: the peak where each movable tensor is there only while an
    operation reads it."""
    steps = [0] * (len(timeline.operations) + 1)
    for one in timeline.saved:
        spans = [(one.produced, one.last_forward_use), (one.first_use, one.last_use)]
        if not one.movable:
            spans = [(one.produced, one.last_use)]
        for first, last in spans:
            steps[first] += one.nbytes
            steps[last + 1] -= one.nbytes
    total = most = 0
    for change, operation in zip(steps, timeline.operations, strict=False):
        total += change
        most = max(most, total + operation.fixed_bytes)
    return most


def _search(
    timeline: Timeline, links: Sequence[Link], limit: int, began: float, seconds: float
) -> tuple[Schedule | None, float]:
    link, margins = total_of(links), [0.0] * len(timeline.operations)
    best: Schedule | None = None
    bound = timeline.seconds
    for number in range(_ROUNDS):
        left = seconds - (time.monotonic() - began)
        if left <= 0 and best is not None:
            break
        try:
            found = solve(timeline, link, limit, margins, max(left, 0.25 * seconds))
        except LookupError:
            break
        if number == 0:
            bound = found.bound
        made = schedule(timeline, links, limit, found.choices)
        excess = [max(held - limit, 0) for held in made.bytes_at]
        if not any(excess):
            if best is None or made.seconds < best.seconds:
                best = made
            if made.seconds <= _ENOUGH * found.seconds:
                break
            excess = _late(timeline, made, limit)
        margins = [margin + more for margin, more in zip(margins, excess, strict=True)]
        if not any(excess):
            break
    return best, bound


def _late(timeline: Timeline, made: Schedule, limit: int) -> list[int]:
    """Bytes to leave free where the device waits more than the fluid view says: one tensor of those
    on their way at each position that is full."""
    on_the_way = [0] * len(timeline.operations)
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
                on_the_way[position] = max(on_the_way[position], one.nbytes // 2)
    return on_the_way


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
