"""Device memory at the lowest addresses, for what optimizers keep.

An optimizer allocates its state at the end of its first step, in whatever gaps there are then, and
keeps it. In the midst of free memory it leaves too little in one piece for large tensors.
"""

from __future__ import annotations

import contextlib

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.allocator import Allocator
from oocdnn.torch.limit.optimizers import state_bytes

_WORKSPACES = 64 << 20  # bytes of cuBLAS's, of two threads


class LowMemory:
    """Memory that is held so that others come to lie elsewhere."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._taken: list[int] = []  # addresses

    def hold(self, limit: int) -> int:
        """Holds as many bytes as optimizers will allocate, and those of workspaces, where there is
        room within `limit` bytes of the process. The bytes that are held."""
        card, before = self._card, self._card.held()
        with contextlib.suppress(Exception):  # of optimizers that are not as PyTorch's
            nbytes = state_bytes(card.device, large=True)
            if 0 < nbytes <= limit - card.others() - before and self._trim():
                self._take(nbytes + _WORKSPACES)
        return card.held() - before

    def open(self) -> None:
        """An optimizer is about to allocate its state: gives back what is held, and fills what is
        free between tensors, so that the state comes to the lowest addresses. So do the workspaces
        of libraries, wherever the step had them."""
        self.give()
        if self._trim():
            self._fill()
            self._card.free_workspaces()
            self._fill()  # where they were, so that they come elsewhere
            self._card.allocate_workspaces()

    def give(self) -> None:
        """Gives everything back."""
        while self._taken:
            self._card.give(self._taken.pop())

    def _trim(self) -> bool:
        """Gives unused memory back to the driver; False where addresses are not those of expandable
        segments, so that nothing is given back."""
        heap = self._card.heap()
        if heap is None or not heap.expandable:
            return False
        self._card.trim()
        return True

    def _fill(self) -> None:
        """Takes what is free in memory that the driver has given."""
        heap = self._card.heap()
        assert heap is not None
        for nbytes in Allocator(expandable=True, extents=heap.extents).takeable():
            self._take(nbytes)

    def _take(self, nbytes: int) -> None:
        address = self._card.take(nbytes)
        if address:
            self._taken.append(address)
