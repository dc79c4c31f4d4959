"""New arrays for what a call writes: in the library and on the side of an array of the caller's."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from oocdnn._arrays import gpu_arrays
from oocdnn._arrays.mapped import Array
from oocdnn._core.cdefs import DType
from oocdnn.arrays import View, host_view, view
from oocdnn.errors import OutOfMemory


def allocate(
    like: View,
    shape: tuple[int, ...],
    keep_order: bool = True,
    make: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> View:
    """A new array of the type and library of `like`, in its memory order where asked.

    The elements are not set. The order is channels-last where that of `like` is, else row-major.
    Host memory comes from `make`.
    """
    axes = tuple(range(len(shape)))
    order = (0, *axes[2:], 1) if keep_order and like.channels_last and len(axes) > 2 else axes
    if like.stream is not None:
        with allocating(shape, like.itemsize):
            made = gpu_arrays.allocate(like.array[0], shape, order)
        return view("out", made)
    with allocating(shape, like.itemsize):
        wide = make(tuple(shape[axis] for axis in order), like.array.dtype)
    array = wide.transpose(tuple(order.index(axis) for axis in axes))
    return host_view("out", array, like.dtype, like.library)


REMEDY = "compute less at a time, or pass out=, for example an array in a file"


@contextmanager
def allocating(shape: tuple[int, ...], itemsize: int, remedy: str = REMEDY) -> Iterator[None]:
    """Around the allocation of an array. NumPy raises a ValueError for the largest sizes."""
    try:
        yield
    except (MemoryError, OverflowError, ValueError) as error:
        size = math.prod(shape) * itemsize
        raise OutOfMemory(
            f"an array of shape {shape} takes {size} bytes, which cannot be allocated; {remedy}"
        ) from error


def allocate_bytes(
    like: View, count: int, make: Callable[[tuple[int, ...], np.dtype[Any]], Array]
) -> View:
    """New bytes in the library and on the side of `like`, not set; on the host from `make`."""
    if like.stream is None:
        with allocating((count,), 1):
            array = make((count,), np.dtype(np.uint8))
        return host_view("saved", array, DType.BYTE, like.library)
    with allocating((count,), 1):
        array = gpu_arrays.allocate_of(like.array[0], (count,), "uint8")
    torch = gpu_arrays.is_torch(array)
    seen = gpu_arrays.of_torch(array) if torch else gpu_arrays.of_interface(array)
    return View(
        "saved", (array, seen.keeper), DType.BYTE, seen.shape, seen.strides, seen.address,
        stream=seen.stream,
    )  # fmt: skip


def allocate_sums(
    like: View, shape: tuple[int, ...], make: Callable[[tuple[int, ...], np.dtype[Any]], Array]
) -> View:
    """A new row-major array of float64 in the library and on the side of `like`, not set."""
    if like.stream is None:
        with allocating(shape, 8):
            array = make(shape, np.dtype(np.float64))
        return host_view("sums", array, DType.FLOAT64, like.library)
    with allocating(shape, 8):
        made = gpu_arrays.allocate_of(like.array[0], shape, "float64")
    return view("sums", made)
