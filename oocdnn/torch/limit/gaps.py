"""The bytes between tensors that PyTorch's allocator cannot use, found by watching steps.

They count against the limit, differ from plan to plan, and are not known before a step has run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocdnn.torch.limit.courses import Planned

TRIES = 8  # steps after which the search has ended


@dataclass
class Gaps:
    """The search for the bytes that a plan leaves to the gaps between tensors.

    Args:
        nbytes: Left by the plan that is in use.
        tried: Steps that were looked at; `TRIES` once the search has ended.
        passing: Most bytes that were found too few, -1 if none.
        best: The fastest plan that fits: its seconds, bytes left, and course.
        nearest: Where none fits: the least bytes by which one passes the limit, and its course.
    """

    nbytes: int = 0
    tried: int = 0
    passing: int = -1
    best: tuple[float, int, Planned] | None = None
    nearest: tuple[float, Planned | None] = (math.inf, None)

    @property
    def chosen(self) -> Planned:
        """The course to go on with."""
        course = self.nearest[1] if self.best is None else self.best[2]
        assert course is not None
        return course

    def saw(self, excess: int, seconds: float, course: Planned) -> None:
        """A step passed the limit by `excess` bytes, or kept to it."""
        self.tried += 1
        if excess > 0:
            self.passing = max(self.passing, self.nbytes)
            self.nearest = min(self.nearest, (excess, course), key=lambda one: one[0])
        elif self.best is None or seconds < self.best[0]:
            self.best = seconds, self.nbytes, course

    def settled(self, limit: int) -> bool:
        if self.tried >= TRIES:
            return True
        return self.best is not None and self.best[1] - self.passing <= limit // 64

    def next(self, excess: int, limit: int) -> None:
        if self.best is None:  # more than was missing: another plan has other gaps
            self.nbytes += excess + limit // 64 * self.tried
        else:
            self.nbytes = (self.best[1] + max(self.passing, 0)) // 2
