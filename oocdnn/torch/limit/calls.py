"""What a recipe is made of: operations that run again, and the operands that are there."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class Leaf(enum.Enum):
    """An operand that is there: saved by the node itself, the saved output of the node behind the
    edge, or the parameter behind it."""

    SAVED = "saved"
    OUTPUT = "output"
    PARAMETER = "parameter"


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: float


@dataclass(frozen=True)
class Call:
    """An operation that runs again.

    Args:
        name: In `kinds.KINDS`.
        settled: What the node does not tell.
        back: Nodes created since, up to the recipe's own.
        output: Which result of the operation.
        operands: A call with the edge that it is behind.
    """

    name: str
    attributes: tuple[Any, ...]
    settled: tuple[Any, ...]
    back: int
    output: int
    operands: tuple[Part, ...]

    @property
    def calls(self) -> Iterator[Call]:
        """This one and those behind it."""
        yield self
        for operand in self.operands:
            if isinstance(operand, tuple):
                yield from operand[1].calls

    @property
    def leaves(self) -> Iterator[Leaf]:
        """In the order of the walk that takes operands from left to right."""
        for operand in self.operands:
            if isinstance(operand, tuple):
                yield from operand[1].leaves
            elif isinstance(operand, Leaf):
                yield operand


Part = Leaf | Constant | tuple[int, Call] | None
