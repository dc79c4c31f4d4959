"""The module that an array belongs to, NumPy or CuPy, and what differs between the two."""

import sys
from types import ModuleType
from typing import Any

import numpy as np

from oocdnn._arrays.gpu_arrays import is_cupy
from oocdnn._calls.call_geometry import need_shape
from oocdnn.arrays import view
from oocdnn.errors import InvalidDtype

_REAL = "fiub"  # kinds of NumPy's types
_WIDE = np.dtype(np.float32)


def module_of(name: str, array: Any) -> ModuleType:
    """numpy or cupy; errors name the array as `name`."""
    host = isinstance(array, np.ndarray)
    if host or is_cupy(array):
        if array.dtype.kind not in _REAL and array.dtype.name != "bfloat16":
            raise InvalidDtype(f"{name} has elements of type {array.dtype}; pass real numbers")
        return np if host else sys.modules["cupy"]
    raise InvalidDtype(
        f"{name} is of type {type(array).__module__}.{type(array).__name__}; layers take NumPy and "
        f"CuPy arrays, for example numpy.asarray({name})"
    )


def need_floating(name: str, array: Any) -> ModuleType:
    """The module of an array for arithmetic whose results are fractions: those of integers would be
    rounded to integers."""
    module = module_of(name, array)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise InvalidDtype(
            f"{name} has elements of type {array.dtype}; pass floating-point numbers, for example "
            f"{name}.astype(numpy.float32)"
        )
    return module


def need_like(name: str, array: Any, shape: tuple[int, ...], of: str) -> ModuleType:
    """The module of a floating-point array, which must have the shape that follows from `of`."""
    module = need_floating(name, array)
    need_shape(name, array.shape, shape, of)
    return module


def moved(array: Any, module: ModuleType) -> Any:
    """`array` as one of `module`, copied only where it is one of another."""
    if is_cupy(array) and module is np:
        return array.get()
    return module.asarray(array)


def zeros(module: ModuleType, like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of the type of `like`, channels-last where `like` is.

    CuPy's own zeros_like keeps the order, but books no more memory than `like` has.
    """
    if len(shape) > 2 and view("x", like).channels_last:
        return module.moveaxis(module.zeros((shape[0], *shape[2:], shape[1]), like.dtype), -1, 1)
    return module.zeros(shape, like.dtype)


def wide(array: Any) -> Any:
    """`array` in a type that arithmetic is done in: elements of 16 bits as float32."""
    return array.astype(_WIDE) if array.dtype.itemsize == 2 else array


def narrow(array: Any, like: Any) -> Any:
    """`array` in the type of `like`."""
    return array.astype(like.dtype, copy=False)
