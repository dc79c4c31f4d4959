"""Search by the scheduler's own arithmetic: one or two policies changed at a time, kept where that
is not worse. It ends what the program began, which sees copies as fluid."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from oocdnn.network.plan import KEEP, Schedule
from oocdnn.network.schedule import Scheduler
from oocdnn.network.solve import options

_NEIGHBOURS = 14  # a second change is at most so many saved tensors away, as often as not


def polished(
    scheduler: Scheduler, start: Schedule, end: float, draw: random.Random, stale: int
) -> Schedule:
    """The best schedule found from this one by `end`, or until `stale` changes in a row did not
    help. First the limit may be passed at a price; if it still is, nothing comes before it."""
    now = time.monotonic()
    found = _walk(scheduler, start, (now + end) / 2, draw, stale, _priced)
    return _walk(scheduler, found, end, draw, stale, _fitting)


Key = Callable[[Scheduler, Schedule], tuple[float, float]]


def _priced(scheduler: Scheduler, made: Schedule) -> tuple[float, float]:
    return 0.0, scheduler.cost(made)


def _fitting(scheduler: Scheduler, made: Schedule) -> tuple[float, float]:
    return max(made.peak_bytes - scheduler.limit, 0), made.seconds


def _walk(
    scheduler: Scheduler, best: Schedule, end: float, draw: random.Random, stale: int, key: Key
) -> Schedule:
    ways = [[KEEP, *options(scheduler.timeline, one)] for one in scheduler.timeline.saved]
    open_ = [index for index, way in enumerate(ways) if len(way) > 1]
    least, idle, present = key(scheduler, best), 0, list(best.choices)
    while open_ and idle < stale and time.monotonic() < end:
        idle += 1
        changed = list(present)
        first = draw.choice(open_)
        changed[first] = draw.choice(ways[first])
        if draw.random() < 0.6:
            second = draw.choice(open_)
            if draw.random() < 0.5:
                near = first + draw.randint(-_NEIGHBOURS, _NEIGHBOURS)
                second = min(max(near, 0), len(ways) - 1)
            changed[second] = draw.choice(ways[second])
        if changed == present:
            continue
        made = scheduler.run(changed)
        cost = key(scheduler, made)
        if cost <= least:
            if cost < least:
                idle = 0
            least, best, present = cost, made, changed
    return best
