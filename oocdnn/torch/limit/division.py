"""In how many parts convolutions run backward, found by recording a step again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oocdnn.torch.limit.parts import NODE

_MOST = 16  # parts of a convolution


@dataclass
class Division:
    """The search, for steps that begin alike. Parts are by the number of the entry that is read.

    Args:
        parts: To be recorded next.
        before: Those of the best recording so far.
        needed: Most bytes that an operation needed there.
        settled: True once more parts are not wanted, or did not help.
        capped: True where forward needed more than there is room.
    """

    parts: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    needed: float = math.inf
    settled: bool = False
    capped: bool = False

    def divides(
        self,
        needed: Sequence[int],
        room: int,
        forward: int,
        reader: Callable[[int], tuple[str, int]],
    ) -> bool:
        """Whether the step should be recorded again, with more parts or a cap on forward.

        Args:
            needed: Bytes that each operation needs whatever the plan.
            room: Bytes that there are.
            forward: Operations of forward.
            reader: Gives the name of an operation's node, and the entry that it reads.
        """
        if self.settled:
            return False
        if max(needed) >= self.needed:  # the latest parts did not help
            self.parts, self.settled = self.before, True
            return True
        capped = self.capped
        self.needed, self.before = max(needed), dict(self.parts)
        for position, nbytes in enumerate(needed):
            if nbytes <= room:
                continue
            name, number = reader(position)
            doubled = 2 * self.parts.get(number, 1)
            if name == NODE and doubled <= _MOST:
                self.parts[number] = doubled
            self.capped = self.capped or position < forward
        self.settled = self.parts == self.before and capped == self.capped
        return not self.settled
