"""In how many parts operations run, found by recording a step again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from oocdnn.network.timeline import Timeline, certain_bytes
from oocdnn.torch.limit import in_place
from oocdnn.torch.limit.parts import MOST
from oocdnn.torch.limit.table import Signature

CONTINUED = 4  # times at most
# Recordings in a row that may need no less than the one before: fewer images can lead to a faster
# algorithm with a larger workspace, which more parts make smaller again.
MISSES = 2
TIGHT = 16  # an operation that leaves less than this part of the room leaves little to gaps


@dataclass
class Division:
    """The search, for steps that begin alike.

    Args:
        parts: To be recorded next.
        best: Those of the best recording so far.
        needed: Most bytes that an operation needed there, beyond those that are in use when the
            step begins: the optimizer allocates its state at the end of the first step.
        latest: What the latest recording needed.
        misses: Recordings in a row that needed no less than the one before.
        settled: True once more parts are not wanted, or did not help.
        continued: Times that a plan did not keep to the limit.
    """

    parts: dict[Signature, int] = field(default_factory=dict)
    best: dict[Signature, int] = field(default_factory=dict)
    needed: float = math.inf
    latest: float = math.inf
    misses: int = 0
    settled: bool = False
    continued: int = 0

    def divides(
        self, timeline: Timeline, room: int, ran: Callable[[int], Iterable[Signature]]
    ) -> bool:
        """Whether a recorded step should be recorded again: with other parts, or because it does
        not fit, which may have been by chance.

        Args:
            timeline: Of the step.
            room: Bytes that there are for tensors.
            ran: Gives the signatures of what ran in an operation.
        """
        if self.settled:
            return False
        certain = certain_bytes(timeline)
        most = max(certain)
        needed = most - timeline.operations[0].first_bytes
        first, recorded = self.needed == math.inf, self.parts
        self.misses = 0 if needed < self.latest else self.misses + 1
        self.latest = needed
        if needed < self.needed:
            self.needed, self.best = needed, recorded
        if most > room and self.misses < MISSES:
            self.parts = self._doubled(timeline, certain, room, ran, range(len(certain)))
            if first or self.parts != recorded:
                return True
        self.parts, self.settled = self.best, True
        return self.parts != recorded

    def continues(
        self,
        timeline: Timeline,
        room: int,
        excess: int,
        ran: Callable[[int], Iterable[Signature]],
    ) -> bool:
        """Doubles parts for a step whose plans all reserve `excess` bytes more than the room; False
        where no more parts help. Doubled are the parts of what leaves little of the room to
        gaps; else of those of forward that leave less than the excess, since results in
        parts have the bits of the whole; else of backward."""
        if self.continued == CONTINUED:
            return False
        self.continued += 1
        recorded, certain = self.parts, certain_bytes(timeline)
        forward, count = timeline.forward, len(timeline.operations)
        self.parts = self._doubled(timeline, certain, room - room // TIGHT, ran, range(count))
        for positions in (range(forward), range(forward, count)):
            if self.parts == recorded:
                self.parts = self._doubled(timeline, certain, room - excess, ran, positions)
        self.needed = self.latest = math.inf
        self.misses, self.settled = 0, self.parts == recorded
        return not self.settled

    def _doubled(
        self,
        timeline: Timeline,
        certain: Sequence[int],
        room: int,
        ran: Callable[[int], Iterable[Signature]],
        positions: Iterable[int],
    ) -> dict[Signature, int]:
        """The parts, doubled for what ran in operations that more parts can make fit."""
        parts = dict(self.parts)
        for position in positions:
            own = timeline.operations[position].fixed_bytes  # what parts can make less
            if certain[position] - own <= room < certain[position]:
                for one in ran(position):
                    parts[one] = min(2 * self.parts.get(one, 1), _most(one))
        return parts


def _most(signature: Signature) -> int:
    return in_place.IN_PLACE if signature[0] in in_place.KERNELS else MOST
