"""What calls that are alike have in common, as a key of a dictionary.

Function and keywords are the same, with their types, since 1 and True are equal; and so are type,
shape, strides and element type of each array. Arrays themselves, and contexts, are no part of it.
"""

from typing import Any

from numpy import ndarray

from oocdnn._arrays import gpu_arrays

Key = tuple[Any, ...]

_PLAIN = frozenset((int, bool, str, type(None)))


def key_of(
    key: list[Any], args: tuple[Any, ...], keywords: dict[str, Any], arrays: list[Any]
) -> Key | None:
    """The key of a call, of which `key` is the beginning; its NumPy and CuPy arrays go to `arrays`.
    None where a value is of another kind: then nobody knows what may change behind it."""
    key += len(args), *keywords
    for value in (*args, *keywords.values()):
        kind = type(value)
        if kind is ndarray or (kind not in _PLAIN and gpu_arrays.is_of_cupy(kind)):
            key += kind, value.dtype, value.shape, value.strides
            arrays.append(value)
        elif kind in _PLAIN:
            key += kind, value
        elif not _add(value, kind, key):
            return None
    return tuple(key)


_DEEPEST = 4  # lists in lists; one that holds itself has no end


def _add(value: Any, kind: type, key: list[Any], depth: int = 0) -> bool:
    """Adds a value with its type, tuples and lists with all that is in them."""
    if kind in _PLAIN:
        key += kind, value
    elif kind is float:
        key += kind, repr(value)  # 0.0 and -0.0 are equal
    elif (kind is tuple or kind is list) and depth < _DEEPEST:
        key += kind, len(value)
        return all(_add(one, type(one), key, depth + 1) for one in value)
    else:
        return False
    return True


def names_of(
    parameters: tuple[str, ...], args: tuple[Any, ...], keywords: dict[str, Any]
) -> list[str]:
    """The names of the arrays of a call that has a key, in the same order."""
    named = (*zip(parameters, args, strict=False), *keywords.items())
    return [name for name, value in named if not _add(value, type(value), [])]
