"""Bytes that a plan leaves free because the driver counted more than was predicted.

PyTorch's allocator is simulated where its state is known. What the simulation does not see (other
streams, other allocators, steps of other kinds in between) shows only while steps run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocdnn.torch.limit.courses import Planned

_TRIES = 5  # plans that may pass the limit
_STEPS = 2  # of one: the second begins with what the first leaves in the allocator


@dataclass
class Gaps:
    """What the steps of one kind showed.

    Args:
        nbytes: Left by the plan that is in use.
        tried: Plans whose steps passed the limit.
        settled: Whether the plan is no longer compared to the limit.
        kept: Steps of the plan in use that kept to the limit.
        excess: The least bytes by which one passed the limit.
        nearest: The course of that one.
    """

    nbytes: int = 0
    tried: int = 0
    settled: bool = False
    kept: int = 0
    excess: float = math.inf
    nearest: Planned | None = None

    def keeps(self) -> None:
        """A step kept to the limit; after enough of them the plan is settled."""
        self.kept += 1
        self.settled = self.kept >= _STEPS

    def passes(self, excess: int, limit: int, course: Planned) -> bool:
        """A step passed the limit by `excess` bytes: another plan leaves more. False after too many
        tries."""
        self.tried += 1
        self.kept = 0
        if excess < self.excess:
            self.excess, self.nearest = excess, course
        self.nbytes += excess + limit // 64 * (self.tried - 1)
        return self.tried < _TRIES
