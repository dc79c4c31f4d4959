"""Host times of a step that follows its plan."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from oocdnn.torch.limit.card import Card

_EVERY = 64  # events between two marks
_MARKS = 4  # that the device may be behind; further behind launches may wait in a full queue


class HostClock:
    """Measures the host times of one step: of its operations, which lie between two events, and of
    the hooks at events. A recorder measures operations too, but its work at events slows the host
    in the operations that follow.

    The clock waits at every `_EVERY`th event until the device is near. No measured time includes
    these waits. Hooks of several threads run one after the other.

    Attributes:
        operations: Seconds, by positions of the step; the first ones are not measured.
        runtime: Seconds of the hooks at events, without the first one.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self.operations: dict[int, float] = {}
        self.runtime = 0.0
        self._event: int | None = None  # the latest one; None until the first hook
        self._whole = False  # the time since that event is known
        self._marks: deque[Any] = deque()
        self._went = 0.0

    def ran(self, event: int, began: float) -> None:
        """A hook ran from `began` until now. `event` is the number of the latest event; a hook
        without a new one is part of an operation."""
        if event == self._event:
            return
        now = time.perf_counter()
        if self._event is not None:
            if self._whole and event == self._event + 1:
                self.operations[self._event] = began - self._went
            self.runtime += now - began
            self._whole = True
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

    @property
    def total(self) -> float:
        """Seconds of the operations and hooks that were measured."""
        return sum(self.operations.values()) + self.runtime

    def stop(self) -> None:
        """The step ends."""
        self._card.reuse(self._marks)
        self._marks.clear()
