"""Arguments that are no arrays. What is wrong with one is said by its name and what was given."""

import math
import os
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


def path_of(name: str, value: Any) -> Path:
    """`value` as the path of a file."""
    need_kind(name, value, (str, os.PathLike), "a path")
    return Path(value)


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
