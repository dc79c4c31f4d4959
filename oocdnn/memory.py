"""Host memory that a device reaches fast.

On the CPU device every array is as near as any other, so these give and take plain memory. Programs
that use them are ready for a GPU.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Generic, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from oocdnn._mapped import Array
from oocdnn.arrays import view

A = TypeVar("A")


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: npt.DTypeLike = np.float32,
    pinned: bool = True,
) -> Array:
    """A new array, elements not set, in pinned memory of exactly its size where a GPU is used."""
    return np.empty(shape, dtype)


class pin(Generic[A]):
    """Keeps an array's memory pinned: `with oocdnn.pin(x): ...` or until `close`.

    The array must outlive the pinning. On the CPU device there is nothing to pin.
    """

    def __init__(self, array: A) -> None:
        view("array", array)
        self.array = array

    def close(self) -> None:
        """Ends the pinning; may be called again."""

    def __enter__(self) -> A:
        return self.array

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
