"""Memory of other GPUs that holds what leaves this one."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from oocdnn._core.swap import NativeSwapper, Slab
from oocdnn.errors import OutOfMemory

_PAGE = 2 << 20  # bytes that the driver takes at a time


def whole_pages(nbytes: int) -> int:
    """The most bytes, of so many, that one slab of a lender can have."""
    return nbytes // _PAGE * _PAGE if nbytes >= _PAGE else min(nbytes, _PAGE // 2)


class Lenders:
    """Slabs of other GPUs, the first named ones first. They count in whole pages.

    Args:
        allowed: Bytes that may be borrowed of each GPU, by its number.
    """

    def __init__(self, swapper: NativeSwapper, allowed: Mapping[int, int]) -> None:
        self._swapper = swapper
        self._left = dict(allowed)

    def slab(self, nbytes: int) -> Slab | None:
        """None where no GPU may lend so many bytes more, or has them."""
        pages = -(-nbytes // _PAGE) * _PAGE if nbytes > _PAGE // 2 else nbytes
        for number, left in self._left.items():
            if pages > left:
                continue
            try:
                slab = self._swapper.slab(nbytes, number)
            except OutOfMemory:
                continue
            self._left[number] -= pages
            weakref.finalize(slab, self._freed, number, pages).atexit = False
            return slab
        return None

    def _freed(self, number: int, nbytes: int) -> None:
        self._left[number] += nbytes
