"""Python's collector of cyclic garbage, while a limit is in use."""

from __future__ import annotations

import gc

from oocdnn.torch.limit.in_use import WhileInUse

# Under hooks every saved tensor is a few Python objects, which live until backward. The collector
# counts new objects: its first threshold is so many times as high, and higher by what a step's
# forward pass makes, so that a training step has about as many collections as without hooks.
TIMES = 8
OBJECTS = 4  # of a saved tensor
_MOST = (1 << 31) - 1  # that the collector takes


class Collector(WhileInUse):
    """The thresholds. What the program sets meanwhile stays."""

    def __init__(self) -> None:
        super().__init__()
        self._before = self._set = gc.get_threshold()
        self._saved = 0  # tensors of a step, at most

    def expects(self, saved: int) -> None:
        """Steps save so many tensors."""
        with self._lock:
            if saved > self._saved and self._uses and gc.get_threshold() == self._set:
                self._saved = saved
                self._raise()

    def _change(self) -> None:
        self._before, self._saved = gc.get_threshold(), 0
        self._raise()

    def _raise(self) -> None:
        youngest, *older = self._before
        if youngest:  # else there are no collections
            gc.set_threshold(min(TIMES * youngest + OBJECTS * self._saved, _MOST), *older)
        self._set = gc.get_threshold()

    def _restore(self) -> None:
        if gc.get_threshold() == self._set:
            gc.set_threshold(*self._before)


collector = Collector()
