"""In how many parts convolutions run, found by recording a step again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from oocdnn.network.timeline import Timeline, certain_bytes
from oocdnn.torch.limit.parts import MOST, Signature


@dataclass
class Division:
    """The search, for steps that begin alike.

    Args:
        parts: To be recorded next.
        before: Those of the best recording so far.
        needed: Most bytes that an operation needed there.
        settled: True once more parts are not wanted, or did not help.
    """

    parts: dict[Signature, int] = field(default_factory=dict)
    before: dict[Signature, int] = field(default_factory=dict)
    needed: float = math.inf
    settled: bool = False

    def divides(
        self, timeline: Timeline, room: int, ran: Callable[[int], Iterable[Signature]]
    ) -> bool:
        """Whether a recorded step should be recorded again: with other parts, or because it does
        not fit, which may have been by chance.

        Args:
            timeline: Of the step.
            room: Bytes that there are for tensors.
            ran: Gives the convolutions that ran in an operation.
        """
        if self.settled:
            return False
        needed = certain_bytes(timeline)
        if max(needed) >= self.needed:  # not better than before
            divided = self.parts != self.before
            self.parts, self.settled = self.before, True
            return divided
        first = self.needed == math.inf
        self.needed, self.before = max(needed), dict(self.parts)
        for position, nbytes in enumerate(needed):
            own = timeline.operations[position].fixed_bytes  # what parts can make less
            if nbytes - own <= room < nbytes:
                for one in ran(position):
                    self.parts[one] = min(2 * self.before.get(one, 1), MOST)
        stays = self.parts == self.before and not first
        self.settled = stays or self.needed <= room
        return not self.settled
