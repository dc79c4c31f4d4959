"""Values that no correct program passes, and arrays of every kind that NumPy makes."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TYPES = ("float32", "float64", "float16")
ODD_TYPES = (
    "object", "bool", "complex64", "int8", "int64", "uint16", ">f4", ">f8", "datetime64[s]", "U3",
    "S2", "V5", "longdouble", "f4,i4",
)  # fmt: skip


class Broken(Exception):
    """What the broken objects raise."""


class Object:
    """With the attributes that are given; a callable is a method."""

    def __init__(self, **attributes: Any) -> None:
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_attr") or name not in self._attributes:
            raise AttributeError(name)
        return self._attributes[name]


class Raising:
    """Raises when it is looked at in any way. What an argument's own methods raise may pass as it
    is."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        error.own = True  # type: ignore[attr-defined]

    def __index__(self) -> int:
        raise self._error

    def __float__(self) -> float:
        raise self._error

    def __len__(self) -> int:
        raise self._error

    def __iter__(self) -> Any:
        raise self._error

    def __bool__(self) -> bool:
        raise self._error

    def __eq__(self, other: object) -> bool:
        raise self._error

    def __hash__(self) -> int:
        raise self._error

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._error

    @property
    def shape(self) -> Any:
        raise self._error

    @property
    def __array_interface__(self) -> Any:
        raise self._error


class Lying:
    """An integer and a sequence whose answers do not go together."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __index__(self) -> Any:
        return self._answer

    def __len__(self) -> Any:
        return 2

    def __getitem__(self, index: Any) -> Any:
        if index > 5:
            raise IndexError
        return self._answer


class Sub(np.ndarray):
    """An array of a class of one's own."""


def _recursive() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _deep() -> Any:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    return deep


GOOD = {"shape": (1, 2, 4, 4), "typestr": "<f4", "version": 3}
KEPT = np.zeros(64, np.float32)  # the memory of the interfaces below


def _interfaces() -> list[Any]:
    data = (KEPT.ctypes.data, False)
    return [
        {**GOOD, "data": data},
        {**GOOD, "data": data, "shape": (1, 2, 4, -4)},
        {**GOOD, "data": data, "shape": (1, 2, 2**62, 4)},
        {**GOOD, "data": data, "strides": (0, 0, 0, 0)},
        {**GOOD, "data": data, "strides": (2**62, 1, 1, 1)},
        {**GOOD, "data": data, "typestr": "bogus"},
        {**GOOD, "data": (0, False)},
        {**GOOD, "data": None},
        {**GOOD},
        {},
        5,
        None,
    ]


MAKERS: list[Callable[[random.Random], Any]] = [
    lambda _: None,
    lambda _: True,
    lambda r: r.choice([0, -1, 2, 7, 2**31, 2**31 - 1, 2**62, 2**63, -(2**63), 10**30, 10**5000]),
    lambda r: r.choice([math.nan, math.inf, -math.inf, 1e308, -0.0, 0.5, 1e-320]),
    lambda r: r.choice(["", "same", "valid", "x", "relu", "\0", "é" * 500, "%s%n", "1", "fp32"]),
    lambda _: b"bytes",
    lambda _: 1j,
    lambda r: (r.randint(-1, 3),) * r.randint(0, 4),
    lambda r: ((r.randint(-1, 2), r.randint(-1, 2)),) * r.randint(1, 3),
    lambda r: [r.choice([1, None, "1", 2**40, math.nan, 1.0])] * r.randint(0, 3),
    lambda r: {"dx": r.choice([1, None])},
    lambda _: {1, 2},
    lambda _: _recursive(),
    lambda _: _deep(),
    lambda _: object(),
    lambda _: object,
    lambda _: len,
    lambda _: range(2),
    lambda _: iter(()),
    lambda _: (value for value in (1, 1)),
    lambda _: memoryview(b"abcd"),
    lambda r: Raising(r.choice([Broken("b"), KeyError("k"), RecursionError("r"), TypeError("t"),
                                ValueError("v"), AttributeError("a"), MemoryError("m")])),
    lambda r: Lying(r.choice([1, -1, 2**70, "1", None, 1.5])),
    lambda r: Object(__array_interface__=r.choice(_interfaces())),
    lambda r: Object(__cuda_array_interface__=r.choice(_interfaces()[4:])),
    lambda _: Object(__dlpack__=lambda *_, **__: 5, __dlpack_device__=lambda: (1, 0)),
    lambda _: Object(shape=(1, 2, 4, 4), dtype="float32", strides=None),
    lambda r: r.choice([np.int64(2), np.float32(2), np.bool_(True), np.array(2), np.array([1, 2]),
                        np.array(["a"]), np.datetime64("now"), np.str_("same")]),
    lambda r: array(r, (1, 2, 4, 4), odd=True),
]  # fmt: skip


def value(r: random.Random) -> Any:
    """Any of them."""
    return r.choice(MAKERS)(r)


def _filled(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    size = math.prod(shape)
    start = r.randint(0, 6)
    return ((np.arange(start, start + size) % 7) - 3).astype(dtype).reshape(shape)


def _spread(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Elements with gaps between them."""
    wide = np.zeros([2 * extent for extent in shape], dtype)
    part = wide[tuple(slice(r.randint(0, 1), 2 * extent, 2) for extent in shape)]
    part[...] = _filled(r, shape, dtype)
    return part


def _last(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if len(shape) < 3:
        return _filled(r, shape, dtype)
    channels_last = (shape[0], *shape[2:], shape[1])
    return np.moveaxis(_filled(r, channels_last, dtype), -1, 1)


FOLDER = tempfile.TemporaryDirectory(prefix="oocdnn-fuzz-")


def _mapped(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if math.prod(shape) == 0:
        return _filled(r, shape, dtype)
    path = Path(FOLDER.name) / f"{r.randint(0, 7)}.bin"
    mode = r.choice(["w+", "r+", "r", "c"])
    bytes_of = math.prod(shape) * np.dtype(dtype).itemsize
    if mode != "w+" and (not path.exists() or path.stat().st_size < bytes_of + 64):
        path.write_bytes(bytes(1 << 16))
    offset = r.choice([0, 8, 64])
    return np.memmap(path, dtype, mode, offset, shape)


def _shifted(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """At an address that is no multiple of an element."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    found = np.zeros(size + 1, np.uint8)[1:].view(dtype).reshape(shape)
    found[...] = _filled(r, shape, dtype)
    return found


def _read_only(r: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    found = _filled(r, shape, dtype)
    found.flags.writeable = False
    return found


RIGHT = (_filled, _filled, _filled, _spread, _last, _mapped)
ODD: tuple[Callable[..., Any], ...] = (
    _shifted,
    _read_only,
    lambda r, s, t: _filled(r, s, t)[..., ::-1],
    lambda r, s, t: np.broadcast_to(_filled(r, (1,) * len(s), t), s),
    lambda r, s, t: np.lib.stride_tricks.as_strided(
        KEPT.astype(t), s, [r.choice([0, 1, 3, 4]) for _ in s]
    ),
    lambda r, s, t: _filled(r, s, t).view(Sub),
    lambda r, s, t: np.ma.masked_array(_filled(r, s, t), mask=True),
    lambda r, s, _: np.zeros(s, r.choice(ODD_TYPES)),
    lambda r, s, t: _filled(r, s, t).tolist(),
    lambda r, s, t: _filled(r, s, t).T,
    lambda r, s, t: _filled(r, s, t)[0] if s and s[0] else _filled(r, s, t),
    lambda r, s, t: _filled(r, (*s, 1), t),
    lambda r, s, t: np.zeros([r.choice([0, e, e + 1]) for e in s], t),
    lambda r, s, t: np.full(s, r.choice([np.nan, np.inf, 6e4]), t),
    lambda r, s, t: memoryview(np.ascontiguousarray(_filled(r, s, t))),
    lambda r, s, t: np.asfortranarray(_filled(r, s, t)),
)


def array(
    r: random.Random, shape: tuple[int, ...], dtype: str = "float32", odd: bool = False
) -> Any:
    """An array of a shape; odd ones are of none that is taken, or hard to take."""
    return r.choice(ODD if odd else RIGHT)(r, shape, dtype)
