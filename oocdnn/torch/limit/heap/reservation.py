"""Bytes that steps of a schedule reserve, by simulation, with the steering that they need."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from oocdnn._core.native import Progress
from oocdnn.network.plan import Schedule
from oocdnn.torch.limit.heap.allocations import Allocations, Step
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.steering import Steering, steer, trims


class Reservation:
    """Called with a schedule: most bytes reserved, from the given memory on. Where the allocator's
    own choices pass the limit, steering is looked for, for at most `seconds`.

    Args:
        act: Seconds of the host for one act of a steering.
        trim: Seconds for each byte that is given back in the midst of a step, and taken again.

    Attributes:
        heap: The memory that steps begin with.
        limit: Bytes that may be reserved.
        progress: Called every few milliseconds of a search, which ends with what it raises.
    """

    def __init__(
        self,
        allocations: Allocations,
        heap: Heap,
        limit: int,
        seconds: float,
        act: float = 0.0,
        trim: float = 0.0,
    ) -> None:
        self._allocations, self.heap = allocations, heap
        self.limit, self._seconds = limit, seconds
        self.progress: Progress | None = None
        self._act, self._trim = act, trim
        self._known: list[tuple[Schedule, Steering | None]] = []  # the latest ones first
        self._latest: tuple[Schedule, Step] | None = None

    def __call__(self, schedule: Schedule) -> int:
        return self.searched(schedule, self._seconds)

    def searched(self, schedule: Schedule, seconds: float) -> int:
        step = self._step(schedule)
        nbytes, steering = step.reserved(self.heap), None
        if nbytes > self.limit:
            end = time.monotonic() + seconds
            number = len(self._known)
            steering = steer(step, self.heap, self.limit, end, number, self.progress)
            nbytes = nbytes if steering is None else steering.reserved
        self._known.insert(0, (schedule, steering))
        return nbytes

    def trimmed(self, schedule: Schedule) -> int | None:
        steering = trims(self._step(schedule), self.heap, self.limit)
        if steering is None:
            return None
        self._known.insert(0, (schedule, steering))
        return steering.reserved

    def steering(self, schedule: Schedule) -> Steering | None:
        """Of a schedule that it was asked about last."""
        return next((steering for one, steering in self._known if one is schedule), None)

    def acting(self, schedule: Schedule) -> Mapping[int, float]:
        """Seconds of the host at positions for the steering of such a schedule."""
        steering, found = self.steering(schedule), defaultdict[int, float](float)
        for (kind, number), acts in ({} if steering is None else steering.acts).items():
            found[self._position(kind, number, schedule)] += self._act * len(acts)
        return dict(found)

    def stalls(self, schedule: Schedule) -> Mapping[int, float]:
        """Seconds of the device at positions for its trims: the host waits for the device in each,
        so that nothing hides what they take."""
        steering, found = self.steering(schedule), defaultdict[int, float](float)
        for (kind, number), nbytes in ({} if steering is None else steering.trims).items():
            found[self._position(kind, number, schedule)] += self._trim * nbytes
        return dict(found)

    def _step(self, schedule: Schedule) -> Step:
        """The step of a schedule; that of the latest one is there."""
        if self._latest is None or self._latest[0] is not schedule:
            self._latest = schedule, self._allocations.step(schedule)
        return self._latest[1]

    def _position(self, kind: str, number: int, schedule: Schedule) -> int:
        """Of a point."""
        if kind == "run":
            return number
        if kind == "squeeze":
            return self._allocations.timeline.saved[number].produced + 1
        movement = schedule.movements[number]
        return movement.fetch if kind == "fetch" else movement.need
