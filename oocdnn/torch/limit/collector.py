"""Python's collector of cyclic garbage runs as often within a limit as without one."""

from __future__ import annotations

import gc
import threading

# Saved tensors are Python objects under hooks: so many times as many new objects make a collection
# of the youngest ones, and through these of the older ones.
TIMES = 8
_MOST = (1 << 31) - 1  # that the collector takes


class Collector:
    """The thresholds, while a limit is in use. What the program sets meanwhile stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses = 0
        self._before = self._set = gc.get_threshold()

    def begin(self) -> None:
        with self._lock:
            self._uses += 1
            if self._uses == 1:
                self._before = gc.get_threshold()
                youngest, *older = self._before
                gc.set_threshold(min(TIMES * youngest, _MOST), *older)
                self._set = gc.get_threshold()

    def end(self) -> None:
        with self._lock:
            self._uses -= 1
            if self._uses == 0 and gc.get_threshold() == self._set:
                gc.set_threshold(*self._before)
