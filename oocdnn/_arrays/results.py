"""Memory for the results that calls make themselves: pinned, and used again when a result is gone.

Fresh memory costs more to touch than a result costs to drain, and more again to pin. So a result
lies in a block that an earlier one of about its size has left, or in a new block, and its memory
comes back here when no array uses it any more. Small results, and what goes beyond the context's
share, are ordinary arrays.

A finalizer takes no lock, because it may run in the midst of anything.
"""

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from oocdnn._arrays import pins
from oocdnn._arrays.mapped import Array
from oocdnn._arrays.pins import Lease
from oocdnn._core.native import HostMemory
from oocdnn.errors import DeviceError, OutOfMemory

_SPARE = 8  # a result may leave 1/8 of its size of a block unused


class _Shelf:
    """Blocks given back since somebody looked. It keeps nothing of the context alive."""

    def __init__(self) -> None:
        self.blocks: deque[HostMemory] = deque()
        self.closed = False


def _give_back(shelf: _Shelf, memory: HostMemory) -> None:
    shelf.blocks.append(memory)
    while shelf.closed and shelf.blocks:
        shelf.blocks.popleft().close()


class Results:
    """The blocks of one context, at most `limit` bytes, lent ones included. 0: no blocks."""

    def __init__(self, allocate: Callable[[int], HostMemory], limit: int) -> None:
        self._allocate = allocate
        self._limit = limit
        self._held = 0
        self._idle: list[HostMemory] = []  # the longest unused first
        self._shelf = _Shelf()
        self._lock = threading.RLock()  # a signal handler may come in the midst of what it guards
        self._busy = False  # somebody is there; only a signal handler sees it
        _living.add(self)

    def forget(self) -> None:
        """In a forked child, which has not inherited the blocks, nor whoever held the lock."""
        self._lock, self._busy = threading.RLock(), False
        self._limit, self._idle, self._shelf = 0, [], _Shelf()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array in row-major order, elements not set."""
        size = math.prod(shape) * dtype.itemsize
        memory = self._take(size) if pins.LEAST_BYTES <= size <= self._limit else None
        if memory is None:
            return np.empty(shape, dtype)
        lease = Lease(memory, size)
        weakref.finalize(lease, _give_back, self._shelf, memory).atexit = False
        return np.asarray(lease).view(dtype).reshape(shape)

    def release(self) -> None:
        """Frees the blocks that no result lies in."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                self._collect()
                while self._idle:
                    self._free(self._idle.pop())
            finally:
                self._busy = False

    def close(self) -> None:
        """Frees all blocks, each when no result lies in it."""
        with self._lock:
            self._shelf.closed = True
            self._limit = 0
        self.release()

    def _take(self, size: int) -> HostMemory | None:
        with self._lock:
            if self._busy:
                return None
            self._busy = True
            try:
                return self._find(size)
            finally:
                self._busy = False

    def _find(self, size: int) -> HostMemory | None:
        self._collect()
        fitting = [one for one in self._idle if size <= one.size <= size + size // _SPARE]
        if fitting:
            best = min(fitting, key=lambda one: one.size)
            self._idle.remove(best)
            return best
        while self._idle and self._held + size > self._limit:
            self._free(self._idle.pop(0))
        if self._held + size > self._limit:
            return None
        try:
            memory = self._allocate(size)
        except (DeviceError, OutOfMemory):
            return None
        self._held += size
        return memory

    def _collect(self) -> None:
        while self._shelf.blocks:
            memory = self._shelf.blocks.popleft()
            if memory.pinned:
                self._idle.append(memory)
            else:  # a fork made ordinary memory of it
                self._free(memory)

    def _free(self, memory: HostMemory) -> None:
        self._held -= memory.size
        memory.close()


_living: weakref.WeakSet[Results] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for results in list(_living):
        results.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
