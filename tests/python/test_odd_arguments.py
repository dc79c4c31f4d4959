"""Arguments that no program means: refused in our words and as our errors, and never by an error of
NumPy's or of a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oocdnn
from oocdnn import InvalidDtype, InvalidProblem, OutOfMemory

X = np.ones((1, 2, 8, 8), np.float32)
W = np.ones((2, 2, 3, 3), np.float32)
Y = np.ones((1, 2, 6, 6), np.float32)
NO_COLUMNS = X[:, :, 0, :0]
OURS = (InvalidProblem, InvalidDtype, OutOfMemory, oocdnn.Unsupported, oocdnn.DeviceError)


class Object:
    """With the attributes that are given; a callable is what raises."""

    def __init__(self, **attributes: Any) -> None:
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        if name not in self._attributes:
            raise AttributeError(name)
        value = self._attributes[name]
        return value() if name.endswith("interface__") and callable(value) else value


def boom(*_: object, **__: object) -> Any:
    raise KeyError("boom")


GOOD = {"shape": (1, 2, 8, 8), "typestr": "<f4", "data": (16, False), "version": 3}
INTERFACES: list[Any] = [
    None,
    5,
    "x",
    [1],
    {},
    boom,
    *({**GOOD, "shape": shape} for shape in (None, ("a",), (1, 2, 8, -8), (1, 2, 8, 2**70))),
    *({**GOOD, "typestr": kind} for kind in (5, "bogus", None)),
    *({**GOOD, "data": data} for data in (None, 16, ("a", False), (2**70, False), (-1, False))),
    *({**GOOD, "strides": steps} for steps in ((1,), "abcd", (2**70, 1, 1, 1), ())),
    *({**GOOD, "stream": stream} for stream in ("x", -1, 2**70)),
    {**GOOD, "mask": 1},
]


@pytest.mark.parametrize("interface", INTERFACES, ids=range(len(INTERFACES)))
def test_a_broken_interface_of_a_gpu_array_is_said(interface: Any) -> None:
    given = Object(__cuda_array_interface__=interface)
    with pytest.raises(InvalidDtype, match=r"^x cannot be read through __cuda_array_interface__: "):
        oocdnn.conv2d(given, W)


@pytest.mark.parametrize(
    "given",
    [
        Object(__dlpack__=boom, __dlpack_device__=lambda: (1, 0)),
        Object(__dlpack__=lambda *_, **__: 5, __dlpack_device__=lambda: (1, 0)),
        Object(__dlpack__=lambda *_, **__: 5, __dlpack_device__=lambda: (2, 0)),
        Object(__dlpack__=boom, __dlpack_device__=lambda: 5),
        Object(__dlpack__=boom, __dlpack_device__=boom),
        Object(__array_interface__={"shape": (1, 2, 8, 8)}),
        Object(__array_interface__=boom),
    ],
    ids=[
        "raises",
        "no capsule",
        "no capsule of a gpu",
        "no device",
        "device",
        "half",
        "raises too",
    ],
)
def test_a_broken_protocol_is_said(given: Any) -> None:
    with pytest.raises(InvalidDtype, match=r"^x cannot be read through (DLPack|__array_interf)"):
        oocdnn.conv2d(given, W)


LARGE = {
    "conv2d": lambda padding: oocdnn.conv2d(X, W, padding=padding),
    "conv_bias_act_pool": lambda padding: oocdnn.conv_bias_act_pool(X, W, padding=padding),
    "conv_upsample": lambda factor: oocdnn.conv_upsample(X, W, factor=factor),
    "conv_chain": lambda padding: oocdnn.conv_chain(X, [oocdnn.Link(W, padding=padding)]),
    "conv_transpose2d": lambda stride: oocdnn.conv_transpose2d(X, W, stride=stride),
    "conv_backward_data": lambda size: oocdnn.conv_backward_data(Y, W, (1, 2, 8, size)),
    "empty": lambda size: oocdnn.empty((size, size), pinned=False),
}


@pytest.mark.parametrize("size", [2**31, 10**9, (1 << 40), (1 << 60) - 1, 1 << 63, 10**30])
@pytest.mark.parametrize("call", LARGE)
def test_sizes_beyond_all_memory_are_refused(call: str, size: int) -> None:
    with pytest.raises(OURS) as refused:
        LARGE[call](size)
    assert type(refused.value) in OURS


def test_a_result_that_is_too_large_names_its_bytes() -> None:
    with pytest.raises(OutOfMemory, match=r"takes 147573953\d+ bytes.*pass out="):
        oocdnn.conv2d(X, W, padding=2**31)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: oocdnn.conv1d(X[0], W), r"w has 4 axes .*conv1d needs 3: K, C/groups, taps on W$"),
        (
            lambda: oocdnn.conv_transpose1d(X[:, :, 0, :0], W[:, :, 0]),
            "x has no elements on axis W",
        ),
        (lambda: oocdnn.conv2d(X[:, :, :, :0], W, padding=2), "x has no elements on axis W"),
        (lambda: oocdnn.conv2d(X, W[:, :, :, :0], padding=2), "w has no taps on axis W"),
    ],
)
def test_what_padding_does_not_mend(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidProblem, match=words) as refused:
        call()
    assert "padding" not in str(refused.value)


@pytest.mark.parametrize("dtype", ["bogus", 5, [("a",)]])
def test_a_type_that_is_none(dtype: Any) -> None:
    with pytest.raises(InvalidDtype, match="dtype is "):
        oocdnn.empty(3, dtype)
