"""Bytes that steps of a schedule reserve, by simulation, with the steering that they need."""

from __future__ import annotations

import time

from oocdnn.network.plan import Schedule
from oocdnn.torch.limit.heap.allocations import Allocations
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.steering import Steering, steer


class Reservation:
    """Called with a schedule: most bytes reserved, from the given memory on. Where the allocator's
    own choices pass the limit, steering is looked for, for at most so many seconds."""

    def __init__(self, allocations: Allocations, heap: Heap, limit: int, seconds: float) -> None:
        self._allocations, self._heap = allocations, heap
        self._limit, self._seconds = limit, seconds
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
