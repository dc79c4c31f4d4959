"""What is changed in the whole process while a memory limit is in use."""

from __future__ import annotations

import threading


class WhileInUse:
    """Changes something when the first limit begins, and restores it when the last one ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection that runs here may end a limit
        self._uses = 0

    def begin(self) -> None:
        with self._lock:
            self._uses += 1
            if self._uses == 1:
                self._change()

    def end(self) -> None:
        with self._lock:
            self._uses -= 1
            if self._uses == 0:
                self._restore()

    def _change(self) -> None:
        raise NotImplementedError

    def _restore(self) -> None:
        raise NotImplementedError
