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

TRIES = 5  # plans that are looked at


@dataclass
class Gaps:
    """What the steps of one kind showed.

    Args:
        nbytes: Left by the plan that is in use.
        tried: Plans whose steps were looked at; `TRIES` once nothing more is to be seen.
        excess: The least bytes by which one passed the limit.
        nearest: The course of that one.
    """

    nbytes: int = 0
    tried: int = 0
    excess: float = math.inf
    nearest: Planned | None = None

    def passes(self, excess: int, limit: int, course: Planned) -> bool:
        """A step passed the limit by `excess` bytes: another plan leaves more. False after too many
        tries."""
        self.tried += 1
        if excess < self.excess:
            self.excess, self.nearest = excess, course
        self.nbytes += excess + limit // 64 * (self.tried - 1)
        return self.tried < TRIES
