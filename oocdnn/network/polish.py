"""Search by the scheduler's own arithmetic, in the core library: a few policies are changed at a
time. It ends what the program began, which sees copies as fluid, and begins where that is poor.

A search is a number of trials and a seed, so that equal steps have equal plans. The time that is
left bounds it only where the machine is slow.
"""

from __future__ import annotations

import time

from oocdnn.network.plan import Schedule
from oocdnn.network.schedule import Scheduler
from oocdnn.network.timeline import Timeline

HOT = 0.03  # of the step, by which a change may make it worse at first: finds a plan from any other
COOL = 0.003  # the same, near a good plan

_EACH = 1.4e-8  # seconds of a trial for each position and a third of each saved tensor
_LEAST = 3e-7  # and besides
_MOST = 3000  # trials for each saved tensor
_FEW = 100  # trials for each saved tensor, below which no search begins hot
_SEEDS = 1000  # more than rounds
_ROUND = 400  # about as many in a round: of several searches the best is better than a long one


def polished(
    scheduler: Scheduler, start: Schedule, warmth: float, seconds: float, end: float, seed: int
) -> Schedule:
    """The best schedule found from this one: the one that passes the limit by the fewest bytes, and
    of those the fastest. Rounds go on from this one and from the best so far in turn.

    Args:
        warmth: Part of the step by which a change may make it worse at first.
        seconds: What the trials take on a usual machine.
        end: Of `time.monotonic`, at which it ends on any.
        seed: Of its random numbers.
    """
    timeline, best = scheduler.timeline, start
    trials, count = trials_in(timeline, seconds), max(len(timeline.saved), 1)
    if is_short(timeline, seconds):
        warmth = min(warmth, COOL)
    rounds = -(-trials // (_ROUND * count))
    for number in range(rounds):
        left = end - time.monotonic()
        if left <= 0:
            break
        found = scheduler.improved(
            (best if number % 2 else start).choices,
            trials=trials // rounds,
            warmth=warmth * timeline.seconds,
            seconds=left,
            seed=_SEEDS * seed + number,
        )
        best = min(best, scheduler.run(found), key=scheduler.rank)
    return best


def is_short(timeline: Timeline, seconds: float) -> bool:
    """True where a search of this duration cannot move far from its start."""
    return trials_in(timeline, seconds) < _FEW * max(len(timeline.saved), 1)


def trials_in(timeline: Timeline, seconds: float) -> int:
    """Trials that take so long on a usual machine."""
    count = len(timeline.saved)
    each = _LEAST + _EACH * (len(timeline.operations) + 3 * count)
    return min(int(seconds / each), _MOST * count)
