"""Bytes that steps of a schedule reserve, by simulation, with the steering that they need."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from oocdnn.network.plan import Schedule
from oocdnn.torch.limit.heap.allocations import Allocations
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.steering import Steering, steer


class Reservation:
    """Called with a schedule: most bytes reserved, from the given memory on. Where the allocator's
    own choices pass the limit, steering is looked for, for at most `seconds`.

    Args:
        act: Seconds of the host for one act of a steering.
    """

    def __init__(
        self,
        allocations: Allocations,
        heap: Heap,
        limit: int,
        seconds: float,
        act: float = 0.0,
    ) -> None:
        self._allocations, self._heap = allocations, heap
        self._limit, self._seconds, self._act = limit, seconds, act
        self._known: list[tuple[Schedule, Steering | None, int]] = []

    def __call__(self, schedule: Schedule) -> int:
        step = self._allocations.step(schedule)
        nbytes, steering = step.reserved(self._heap), None
        if nbytes > self._limit:
            end = time.monotonic() + self._seconds
            steering = steer(step, self._heap, self._limit, end, len(self._known))
            nbytes = nbytes if steering is None else steering.reserved
        self._known.append((schedule, steering, nbytes))
        return nbytes

    def steering(self, schedule: Schedule) -> Steering | None:
        """Of a schedule that it was called with."""
        return next((steering for one, steering, _ in self._known if one is schedule), None)

    def acting(self, schedule: Schedule) -> Mapping[int, float]:
        """Seconds of the host at positions for the steering of such a schedule."""
        steering, found = self.steering(schedule), defaultdict[int, float](float)
        for (kind, number), acts in ({} if steering is None else steering.acts).items():
            found[self._position(kind, number, schedule)] += self._act * len(acts)
        return dict(found)

    def _position(self, kind: str, number: int, schedule: Schedule) -> int:
        """Of a point."""
        if kind == "run":
            return number
        if kind == "squeeze":
            return self._allocations.timeline.saved[number].produced + 1
        movement = schedule.movements[number]
        return movement.fetch if kind == "fetch" else movement.need
