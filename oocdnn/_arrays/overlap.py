"""Exact overlap of strided arrays. The interleaved halves of one buffer do not overlap."""

from typing import Any, NamedTuple

import numpy as np

_TooHard: type[Exception] = (np.exceptions if hasattr(np, "exceptions") else np).TooHardError
# Candidates that NumPy compares, some milliseconds; layouts whose strides nest need a few.
_MOST_WORK = 10_000
_BASE = 1 << 32  # NumPy takes no array at address 0, where a file begins


class Extent(NamedTuple):
    """The memory of an array, at addresses or at offsets in a file. In bytes."""

    begin: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    length: int  # from the first element to behind the last

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"|V{self.itemsize}",
            "data": (_BASE + self.begin, True),
        }


def share_elements(a: Extent, b: Extent) -> bool:
    """Exact, except where the search takes too long: then False, and the core decides."""
    if not (a.begin < b.begin + b.length and b.begin < a.begin + a.length):
        return False
    try:
        shares: Any = np.shares_memory
        return bool(shares(np.asarray(a), np.asarray(b), max_work=_MOST_WORK))
    except _TooHard:
        return False
