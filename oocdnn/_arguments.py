"""Arguments that are no arrays. What is wrong with one is said by its name and what was given."""

import math
import operator
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oocdnn._shown import shown
from oocdnn.errors import InvalidDtype, InvalidProblem

T = TypeVar("T")


def number_of(name: str, value: Any) -> float:
    """`value` as a number, which need not be finite."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidProblem(f"{name} is {shown(value)}; it must be a number") from None
    except OverflowError:
        raise InvalidProblem(f"{name} is too large for a number") from None


def real(name: str, value: Any, least: float = -math.inf) -> float:
    """`value` as a finite number of at least `least`."""
    number = number_of(name, value)
    if not math.isfinite(number):
        raise InvalidProblem(f"{name} is {number}; it must be finite")
    if number < least:
        raise InvalidProblem(f"{name} is {number}; it must be at least {least}")
    return number


_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_MOST_BYTES = 2**60
NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"


def byte_count(name: str, value: Any) -> int:
    """A number of bytes: an integer, or text such as "16GiB", "1.5GB" or "4096"."""
    if isinstance(value, str):
        found = re.fullmatch(rf"\+?({NUMBER})\s*([A-Za-z]*)", value.strip())
        if found is None or found[2] not in _UNITS or float(found[1]) > _MOST_BYTES:
            raise InvalidProblem(
                f"{name} is {value!r}, not a number of bytes; write 512MiB, 2GiB or 1.5GB"
            )
        return int(float(found[1]) * _UNITS[found[2]])
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise refuse(name, value, 'whole bytes, or text such as "16GiB"')
    return operator.index(value)


def lender(text: str) -> tuple[str, int]:
    """A GPU and the bytes that it lends, of text such as "cuda:1=40GiB"; 0 bytes in "cuda:1"."""
    name, mark, size = text.strip().partition("=")
    if not re.fullmatch(r"cuda:\d+", name):
        raise InvalidProblem(f"{shown(text)} names no GPU; write cuda:1, or cuda:1=40GiB")
    return name, byte_count(f"what {name} lends", size) if mark else 0


def flag(name: str, value: Any) -> bool:
    """`value` as true or false."""
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise refuse(name, value, "True or False") from None


def dtype_of(name: str, value: Any) -> np.dtype[Any]:
    """`value` as a type of NumPy's elements."""
    try:
        made: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError, RecursionError) as error:
        raise InvalidDtype(f"{name} is {shown(value)}: {error}") from error
    return made


def path_of(name: str, value: Any, wanted: str = "a path") -> Path:
    """`value` as the path of a file."""
    need_kind(name, value, (str, os.PathLike), wanted)
    try:
        return Path(value)
    except TypeError:  # it gives bytes, or nothing that is a path
        raise refuse(name, value, wanted) from None


def need_kind(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    """`value` must be of a class; the error asks for what is `wanted`."""
    if not isinstance(value, kind):
        raise refuse(name, value, wanted)


def need_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise refuse(name, value, "a function, or None")


def several(name: str, values: Iterable[T], wanted: str) -> tuple[T, ...]:
    """What `values` holds."""
    try:
        entries = iter(values)
    except (TypeError, NotImplementedError):  # the latter of a memoryview of several axes
        raise refuse(name, values, wanted) from None
    return tuple(entries)


def refuse(name: str, value: object, wanted: str) -> InvalidProblem:
    """The error for an argument of a type that is not taken."""
    return InvalidProblem(f"{name} is of type {type(value).__name__}; pass {wanted}")
