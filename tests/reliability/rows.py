"""What a row of the reliability table is, and how much of it one run does."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Size(enum.Enum):
    """How much a run does: the smoke test of the default suite, a look, or the full count."""

    SMOKE = 0
    QUICK = 1
    FULL = 2

    def of(self, smoke: int, quick: int, full: int) -> int:
        return (smoke, quick, full)[self.value]

    @property
    def apart(self) -> bool:
        """Whether work goes to processes of its own, whose start the default suite cannot wait
        for."""
        return self is not Size.SMOKE


@dataclass
class Finding:
    """What a row measured. `passed` is None where it could not be run, with the reason in figure.

    `failures` name what went wrong, each with all that repeats it; `details` are for reading.
    """

    figure: str
    passed: bool | None
    failures: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One property, what it has to reach, and the function that measures it."""

    key: str
    property: str
    target: str
    measure: Callable[[Size], Finding]
    command: str = ""
    asked_only: bool = False  # not part of a run of all rows

    def line(self) -> str:
        return self.command or f"make reliability ROWS={self.key}"


@dataclass
class Tally:
    """Counts of a run, added up over worker processes."""

    cases: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def at_least(self, name: str, value: int) -> None:
        self.counts[name] = max(self.counts.get(name, value), value)

    def fail(self, text: str) -> None:
        self.failures.append(text)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    def add(self, other: Tally) -> Tally:
        """Adds the counts; names that begin with "most" are maxima."""
        self.cases += other.cases
        for name, value in other.counts.items():
            self.at_least(name, value) if name.startswith("most") else self.count(name, value)
        self.failures += other.failures
        return self
