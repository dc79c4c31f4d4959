"""Host times of a step that follows its plan."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from oocdnn.torch.limit.card import Card

_EVERY = 64  # events between two marks
_MARKS = 4  # that the device may not have reached; launches wait in a full queue further behind


class HostClock:
    """Measures the host times of one step: of its operations, which lie between two events, and of
    the runtime at events. A recorder measures operations too, but what it does at events makes
    those that follow take the host longer.

    The host waits for the device where that is far behind, outside of the times that are measured:
    launches into a full queue would wait within them.

    Attributes:
        operations: Seconds, by positions of the step.
        runtime: Seconds at all events.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self.operations: dict[int, float] = {}
        self.runtime = 0.0
        self._event = 0
        self._marks: deque[Any] = deque()
        self._went = time.perf_counter()

    def ran(self, event: int, began: float) -> None:
        """The runtime ran from `began` until now; `event` is the step's latest one. If that is no
        new one, this was part of an operation."""
        if event == self._event:
            return
        now = time.perf_counter()
        if event == self._event + 1:
            self.operations[self._event] = began - self._went
        self.runtime += now - began
        self._event = event
        if event % _EVERY == 0:
            self._keep_near()
        self._went = time.perf_counter()

    def _keep_near(self) -> None:
        self._marks.append(self._card.mark())
        if len(self._marks) > _MARKS:
            mark = self._marks.popleft()
            self._card.wait(mark)
            self._card.reuse((mark,))

    def stop(self) -> None:
        """The step ends."""
        self._card.reuse(self._marks)
        self._marks.clear()


def least_operations(clocks: Sequence[HostClock]) -> dict[int, float]:
    """The least host time of each operation: what else runs on the machine only adds to it."""
    found: dict[int, float] = {}
    for clock in clocks:
        for position, seconds in clock.operations.items():
            found[position] = min(seconds, found.get(position, seconds))
    return found
