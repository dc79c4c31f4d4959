"""Python's collector of cyclic garbage, while a limit is in use."""

from __future__ import annotations

import gc
import threading

# Under hooks every saved tensor is a Python object. The first threshold, which counts new objects,
# is so many times as high in the whole process, so that a training step has about as many
# collections as without hooks.
TIMES = 8
_MOST = (1 << 31) - 1  # that the collector takes


class Collector:
    """The thresholds, while a limit is in use. What the program sets meanwhile stays."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection that runs here may end a limit
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
