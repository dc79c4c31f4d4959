"""Tensors in host memory that a GPU reaches at the speed of the wire.

On the CPU device this is plain memory, so that programs need not be written twice.
"""

import math
import sys
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

import oocdnn
from oocdnn._arrays.mapped import Array
from oocdnn._arrays.results import Results
from oocdnn._calls.stack import current_context
from oocdnn.errors import InvalidProblem

Size = int | Sequence[int]


def empty(size: Size, dtype: torch.dtype = torch.float32) -> Tensor:
    """A new tensor, elements not set, in pinned memory of exactly its size; see `oocdnn.empty`."""
    shape, length = _extents(size, dtype)
    return _tensor(oocdnn.empty(length, np.uint8), shape, dtype)


class host_pool:
    """Pinned memory for tensors, in blocks that serve again when no tensor uses them any more.

    A block is pinned once, and used for tensors of about its size. The memory is that of the
    current context's device, at most `limit` bytes. Tensors below 4 MiB or beyond the limit are in
    ordinary memory. Tensors may outlive the pool and the context.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 0:
            raise InvalidProblem(f"limit is {limit} bytes; it must not be negative")
        self._blocks = Results(
            current_context().host_memory, sys.maxsize if limit is None else limit
        )

    def empty(self, size: Size, dtype: torch.dtype = torch.float32) -> Tensor:
        """A new tensor, elements not set."""
        shape, length = _extents(size, dtype)
        return _tensor(self._blocks.empty((length,), np.dtype(np.uint8)), shape, dtype)

    def place(self, tensor: Tensor) -> Tensor:
        """A copy of `tensor` in the pool, in its memory order if it has no gaps; it needs no
        gradient."""
        order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
        wide = self.empty([tensor.shape[axis] for axis in order], tensor.dtype)
        back = [order.index(axis) for axis in range(tensor.ndim)]
        return wide.permute(back).copy_(tensor.detach())

    def release(self) -> None:
        """Frees the blocks that no tensor lies in."""
        self._blocks.release()

    def close(self) -> None:
        """Frees all blocks, each when no tensor lies in it; new tensors are ordinary ones then."""
        self._blocks.close()

    def __enter__(self) -> "host_pool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _extents(size: Size, dtype: torch.dtype) -> tuple[tuple[int, ...], int]:
    """The shape, and the bytes that it takes."""
    shape = (size,) if isinstance(size, int) else tuple(size)
    if any(extent < 0 for extent in shape):
        raise InvalidProblem(f"size is {shape}; it must not be negative")
    return shape, math.prod(shape) * dtype.itemsize


def _tensor(memory: Array, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """`memory`, bytes in one row, as a tensor; there may be none."""
    if not memory.size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(memory).view(dtype).reshape(shape)
