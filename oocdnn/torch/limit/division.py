"""In how many parts convolutions run, found by recording a step again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

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
        self,
        needed: Sequence[int],
        room: int,
        ran: Callable[[int], Iterable[Signature]],
    ) -> bool:
        """Whether the step should be recorded again, with other parts.

        Args:
            needed: Bytes that each operation needs whatever the plan.
            room: Bytes that there are.
            ran: Gives the convolutions that ran in an operation.
        """
        if self.settled:
            return False
        if max(needed) >= self.needed:  # the latest parts did not help
            self.parts, self.settled = self.before, True
            return True
        self.needed, self.before = max(needed), dict(self.parts)
        for position, nbytes in enumerate(needed):
            if nbytes > room:
                for one in ran(position):
                    self.parts[one] = min(2 * self.before.get(one, 1), MOST)
        self.settled = self.parts == self.before
        return not self.settled
