"""A plan of a step: one policy for each saved tensor, and the copies in order."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from oocdnn.network.timeline import Timeline


class Policy(enum.Enum):
    """Treatment of a saved tensor between forward and backward."""

    KEEP = "keep"
    SWAP = "swap"
    REBUILD = "rebuild"
    SQUEEZE = "squeeze"


@dataclass(frozen=True)
class Choice:
    """The policy of one saved tensor; `recipe` is an index into its recipes for REBUILD."""

    policy: Policy
    recipe: int = -1


KEEP = Choice(Policy.KEEP)
SWAP = Choice(Policy.SWAP)
SQUEEZE = Choice(Policy.SQUEEZE)


@dataclass
class Movement:
    """Positions of one saved tensor that is not kept.

    Args:
        release: Its device bytes are free before this operation; the device waits for the copy.
        fetch: Its device bytes are taken again before this operation, and its copy starts.
        need: It is complete before this operation.
    """

    release: int
    fetch: int
    need: int


@dataclass
class Schedule:
    """Choices with positions, and what they cost by the planner's own arithmetic.

    Args:
        choices: One for each saved tensor.
        movements: One for each saved tensor that is not kept, by its index.
        bytes_at: Device bytes at each position.
        seconds: Predicted time of the step.
        waiting: Seconds of `seconds` in which the device waits for copies.
        recomputing: Seconds of `seconds` for recipes and squeezing.
        late: Seconds of `seconds` in which the device waits for the host.
        waits: Seconds of `waiting` by the saved tensor whose copy is waited for.
    """

    choices: list[Choice]
    movements: dict[int, Movement] = field(default_factory=dict)
    bytes_at: list[int] = field(default_factory=list)
    seconds: float = 0.0
    waiting: float = 0.0
    recomputing: float = 0.0
    late: float = 0.0
    waits: dict[int, float] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        return max(self.bytes_at, default=0)

    def by_need(self) -> list[int]:
        """Tensors that are not kept, in the order in which backward needs them. Copies that start
        at the same position go in this order, since a link carries one after another."""
        return sorted(self.movements, key=lambda index: (self.movements[index].need, index))

    def swapped(self) -> list[int]:
        return [i for i, choice in enumerate(self.choices) if choice.policy is Policy.SWAP]


def needs(timeline: Timeline, choices: Sequence[Choice]) -> list[int]:
    """Position before which each saved tensor has to be complete in backward.

    A tensor that another is computed from is needed where that one is.
    """
    found = [one.first_use for one in timeline.saved]
    for index in reversed(range(len(found))):
        choice = choices[index]
        if choice.policy is Policy.REBUILD:
            for source in timeline.saved[index].recipes[choice.recipe].inputs:
                found[source] = min(found[source], found[index])
    return found
