"""Memory of the host or of other GPUs that copies use, kept for the next ones of its size."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from oocdnn.torch.limit.card import Card


class Slabs:
    """Slabs of a card. What is given up were not used for the longest time, where more are free
    than were ever in use. Threads may share them."""

    def __init__(self, card: Card) -> None:
        self._card = card
        # Those that are not in use, by size, with the number of the use; the last used one last.
        self._free: dict[int, deque[tuple[int, Any]]] = {}
        self._uses = 0
        self._free_bytes = self._in_use = self._most = 0  # bytes; most in use so far
        self._lock = threading.RLock()  # the collector may free a slab while one is taken

    def take(self, nbytes: int) -> Any:
        """Of exactly that size; raises OutOfMemory where there is none."""
        with self._lock:
            free = self._free.get(nbytes)
            if free:
                slab = free.pop()[1]
                if not free:
                    del self._free[nbytes]
                self._free_bytes -= nbytes
            else:
                slab = self._card.slab(nbytes)
            self._in_use += nbytes
            self._most = max(self._most, self._in_use)
            return slab

    def clear(self) -> None:
        """Gives up those that are not in use."""
        with self._lock:
            self._free.clear()
            self._free_bytes = 0

    def keep(self, slab: Any) -> None:
        """Not in use any more, but for copies that the compute stream waits for."""
        with self._lock:
            nbytes: int = slab.nbytes
            self._in_use -= nbytes
            self._free_bytes += nbytes
            self._uses += 1
            self._free.setdefault(nbytes, deque()).append((self._uses, slab))
            while self._free_bytes > self._most:
                oldest = min(self._free, key=lambda size: self._free[size][0][0])
                self._free[oldest].popleft()
                self._free_bytes -= oldest
                if not self._free[oldest]:
                    del self._free[oldest]
