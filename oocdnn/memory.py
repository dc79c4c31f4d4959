"""Host memory that a device reaches fast: pinned where it is a GPU.

On the CPU device every array is as near as any other. Programs that use these are ready for both.
"""

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Generic, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from oocdnn._arguments import dtype_of, flag, several
from oocdnn._arrays import pins
from oocdnn._arrays.allocation import allocating
from oocdnn._arrays.mapped import Array
from oocdnn._calls import windows
from oocdnn._calls.stack import current_context
from oocdnn._shown import shown
from oocdnn.arrays import view
from oocdnn.errors import InvalidDtype, InvalidProblem

A = TypeVar("A")


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: npt.DTypeLike = np.float32,
    pinned: bool = True,
) -> Array:
    """A new array, elements not set, in pinned memory of exactly its size where a GPU is used.

    The memory is that of the current context's device, and lives as long as an array uses it.
    Pinning takes about 0.3 s per GiB, so keep such arrays rather than making them again.
    """
    sizes = several("shape", shape, "integers") if isinstance(shape, Sequence) else (shape,)
    extents = tuple(windows.integer("shape", size, 0) for size in sizes)
    kind = dtype_of("dtype", dtype)
    if kind.hasobject or kind.itemsize == 0:
        raise InvalidDtype(
            f"dtype is {shown(dtype)}, whose elements have no fixed bytes; pass numbers"
        )
    size = math.prod(extents) * kind.itemsize
    if not flag("pinned", pinned):
        with allocating(extents, kind.itemsize):
            return np.empty(extents, kind)
    memory = np.asarray(current_context().host_memory(max(size, 1)))
    return memory[:size].view(kind).reshape(extents)


class pin(Generic[A]):
    """Keeps an array's memory pinned: `with oocdnn.pin(x): ...` or until `close`.

    The array must be one piece without gaps, and is kept alive meanwhile. Pinning and its end take
    about 0.05 s per GiB of memory in use. On the CPU device there is nothing to pin. Calls on a GPU
    pin an array that owns its memory by themselves when they use it again and again.
    """

    def __init__(self, array: A) -> None:
        seen = view("array", array)
        if seen.stream is not None:
            raise InvalidProblem("array is on a GPU; only host memory can be pinned")
        self.array = array
        begin, end = seen.address, seen.address + seen.layout.length
        self._seen: Array = seen.array
        pins.forget(self._seen)
        self._memory = current_context().pin(begin, end - begin) if end > begin else None

    def close(self) -> None:
        """Ends the pinning; may be called again."""
        if self._memory is not None:
            self._memory.close()
            pins.forget(self._seen)  # what was counted meanwhile was pinned here

    def __enter__(self) -> A:
        return self.array

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
