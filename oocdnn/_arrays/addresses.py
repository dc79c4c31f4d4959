"""Where a NumPy array's elements begin.

`__array_interface__` builds a dictionary by Python code, which is half of what looking at an array
costs. So the address is read where every compiled extension reads it: in PyArrayObject_fields,
which NumPy's binary interface fixes, `data` follows the object's head. What is read is compared
once with what NumPy says, and where they differ NumPy is asked each time.
"""

import sys

import cffi
import numpy as np

from oocdnn._arrays.mapped import Array

# One word behind the head of an object at address 0; objects begin at whole words.
_WORD = np.dtype(np.uintp).itemsize
_behind_head = cffi.FFI().cast("uintptr_t *", object.__basicsize__)


def _ask(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _read(array: Array) -> int:
    address: int = _behind_head[id(array) // _WORD]
    return address


def _is_readable() -> bool:
    if sys.implementation.name != "cpython":
        return False
    whole = np.zeros((3, 5))
    return all(_read(one) == _ask(one) for one in (whole, whole[1:, 2:], whole[::-1].T))


address_of = _read if _is_readable() else _ask
