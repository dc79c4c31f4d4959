"""Tests that go on where a case is refused count the cases that ran, so that refusals of all of
them are no success."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counted:
    tried: int = 0
    ran: int = 0

    def begin(self) -> None:
        """Before a case."""
        self.tried += 1

    def done(self) -> None:
        """Where it ran to its end."""
        self.ran += 1

    def need(self, share: float) -> None:
        """After all cases: at least this share of them must have run."""
        assert self.ran > 0, f"none of {self.tried} cases ran"
        assert self.ran >= share * self.tried, f"{self.ran} of {self.tried} cases ran"
