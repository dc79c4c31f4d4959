"""In how many parts operations run, found by recording a step again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from oocdnn.network.timeline import Timeline, certain_bytes
from oocdnn.torch.limit import in_place
from oocdnn.torch.limit.parts import MOST
from oocdnn.torch.limit.table import Signature

CONTINUED = 4  # times at most
TIGHT = 16  # an operation that leaves less than this part of the room leaves little to gaps


@dataclass
class Division:
    """The search, for steps that begin alike.

    Args:
        parts: To be recorded next.
        before: Those of the best recording so far.
        needed: Most bytes that an operation needed there, beyond those that are in use in all of
            the step: the optimizer allocates its state at the end of the first step.
        settled: True once more parts are not wanted, or did not help.
        continued: Times that a plan did not keep to the limit.
    """

    parts: dict[Signature, int] = field(default_factory=dict)
    before: dict[Signature, int] = field(default_factory=dict)
    needed: float = math.inf
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
        most = max(certain_bytes(timeline))
        needed = most - min(one.fixed_bytes for one in timeline.operations)
        if needed >= self.needed:  # not better than before
            divided = self.parts != self.before
            self.parts, self.settled = self.before, True
            return divided
        first = self.needed == math.inf
        self.needed, self.before = needed, dict(self.parts)
        self._double(timeline, room, ran, range(len(timeline.operations)))
        stays = self.parts == self.before and not first
        self.settled = stays or most <= room
        return not self.settled

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
        self.before = dict(self.parts)
        forward, count = timeline.forward, len(timeline.operations)
        self._double(timeline, room - room // TIGHT, ran, range(count))
        for positions in (range(forward), range(forward, count)):
            if self.parts == self.before:
                self._double(timeline, room - excess, ran, positions)
        self.needed, self.settled = math.inf, self.parts == self.before
        return not self.settled

    def _double(
        self,
        timeline: Timeline,
        room: int,
        ran: Callable[[int], Iterable[Signature]],
        positions: Iterable[int],
    ) -> None:
        """Doubles the parts of what ran in operations that more parts can make fit."""
        needed = certain_bytes(timeline)
        for position in positions:
            own = timeline.operations[position].fixed_bytes  # what parts can make less
            if needed[position] - own <= room < needed[position]:
                for one in ran(position):
                    self.parts[one] = min(2 * self.before.get(one, 1), _most(one))


def _most(signature: Signature) -> int:
    return in_place.IN_PLACE if signature[0] in in_place.KERNELS else MOST
