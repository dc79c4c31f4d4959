"""The values of parameters by name: into arrays that are there, to files and from files."""

import os
from collections.abc import Mapping
from typing import Any
from zipfile import BadZipFile

import ml_dtypes
import numpy as np

from oocdnn._arguments import need_kind, path_of
from oocdnn._calls.call_geometry import need_shape
from oocdnn._files import replacing
from oocdnn.errors import InvalidDtype, InvalidProblem
from oocdnn.nn._modules import module_of, moved

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def copy_into(targets: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Copies arrays into those of the same names. All are looked at before one is changed."""
    need_kind("the state", given, Mapping, "a dictionary of arrays, as load() gives it")
    missing = ", ".join(sorted(targets.keys() - given.keys()))
    extra = ", ".join(sorted(given.keys() - targets.keys()))
    if missing or extra:
        raise InvalidProblem(
            f"the names differ; missing: {missing or 'none'}; not known here: {extra or 'none'}; "
            "make the layers as they were when the state was taken"
        )
    for name, target in targets.items():
        need_shape(name, tuple(given[name].shape), target.shape, "the layers here")
    for name, target in targets.items():
        target[...] = moved(_readable(given[name]), module_of(name, target))


def _readable(array: Any) -> Any:
    """Files of NumPy hold bfloat16 as two bytes of no type."""
    return array.view(_BFLOAT16) if array.dtype == np.dtype("V2") else array


def save(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Writes arrays by name to a NumPy archive, which has exactly this path.

    The file is there as a whole or not at all. Raises OSError where it cannot be written.
    """
    need_kind("values", values, Mapping, "a dictionary of arrays, as state_dict() gives it")
    arrays = {name: moved(array, np) for name, array in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InvalidDtype(f"{name} holds objects; pass an array of numbers")
    with replacing(path_of("path", path)) as file:
        np.savez(file, **arrays)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The NumPy arrays by name that `save` wrote.

    Raises OSError where it cannot be read, InvalidProblem where it is no such file.
    """
    path = path_of("path", path)
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.lib.npyio.NpzFile):
            with archive:
                return {name: _readable(archive[name]) for name in archive.files}
    except (ValueError, EOFError, BadZipFile) as error:
        raise InvalidProblem(f"{path} was not written by save: {error}") from error
    raise InvalidProblem(f"{path} was not written by save: it holds one array without a name")
