"""Of calls that are much alike none is taken for another; and where arrays begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from python.support import channels_last, integers

import oocdnn
from oocdnn._arrays import addresses

# Direct: the same bits whatever the tiles are.
ENGINE = "direct"
# Fractions, of which sums in another type have other bits.
X, W = (
    np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    for shape in ((2, 4, 6, 7), (4, 4, 3, 3))
)


def block() -> np.ndarray:
    """Room for x and out that may overlap."""
    return np.zeros(4 * X.size + 64, np.float32)


def shaped(room: np.ndarray, begin: int) -> np.ndarray:
    array = room[begin : begin + X.size].reshape(X.shape)
    array[...] = X
    return array


def read_only() -> np.ndarray:
    array = X.copy()
    array.flags.writeable = False
    return array


def overlapping(distance: int) -> Callable[[], tuple[tuple, dict]]:
    def make() -> tuple[tuple, dict]:
        room = block()
        return (shaped(room, 0), W), {"padding": 1, "out": shaped(room, distance)}

    return make


def unaligned() -> np.ndarray:
    raw = np.zeros(X.nbytes + 1, np.uint8)
    array = raw[1:].view(np.float32).reshape(X.shape)
    array[...] = X
    return array


def in_place(**keywords: Any) -> Callable[[], tuple[tuple, dict]]:
    def make() -> tuple[tuple, dict]:
        out = X.copy()
        return (X, W), {"padding": 1, "out": out, "residual": out, **keywords}

    return make


def shifted() -> tuple[tuple, dict]:
    room = block()
    residual = shaped(room, 0)
    return (X, W), {"padding": 1, "residual": residual, "out": shaped(room, 7)}


class Derived(np.ndarray):
    pass


def with_(x: Callable[[], Any] = X.copy, w: Any = W, **keywords: Any) -> Callable:
    def make() -> tuple[tuple, dict]:
        made = {name: value() if callable(value) else value for name, value in keywords.items()}
        return (x(), w), {"padding": 1, **made}

    return make


# Calls that are much alike. Some are errors.
ALIKE: list[Callable[[], tuple[tuple, dict]]] = [
    with_(),
    with_(out=X.copy),
    with_(out=lambda: channels_last(X)),
    with_(lambda: channels_last(X)),
    with_(lambda: channels_last(X), out=X.copy),
    with_(lambda: X[:, :, ::-1]),  # an error
    with_(lambda: np.repeat(X, 2, axis=3)[..., ::2]),
    with_(lambda: np.broadcast_to(X[:1], X.shape)),  # an error
    with_(lambda: X.astype(np.float64)),  # an error
    with_(lambda: X.astype(np.float64), W.astype(np.float64)),
    with_(lambda: X.astype(">f4")),  # an error
    with_(lambda: np.ma.masked_array(X)),  # an error
    with_(lambda: X.copy().view(Derived)),
    with_(lambda: X.tolist()),  # an error
    with_(unaligned),  # an error
    with_(out=unaligned),  # an error
    with_(out=read_only),  # an error
    with_(read_only),
    overlapping(0),  # an error
    overlapping(X.size - 1),  # an error
    overlapping(X.size),
    in_place(),
    in_place(beta=1),
    in_place(activation="relu"),
    shifted,  # an error
    with_(residual=X.copy, out=X.copy),
    with_(padding=(1, 1)),
    with_(padding=[1, 1]),
    with_(padding=((1, 1), (1, 1))),
    with_(padding=((1, 1), (1, 1.0))),  # an error
    with_(padding=1.0),  # an error
    with_(padding=True),
    with_(padding=np.int64(1)),
    with_(padding=np.array([1, 1])),
    with_(padding=np.array([0, 2])),
    with_(padding="same"),
    with_(padding=2),
    with_(alpha=0.0, out=X.copy),
    with_(alpha=-0.0, out=X.copy),
    with_(alpha=2),
    with_(alpha=2.0),
    with_(alpha=np.float64(2)),
    with_(alpha=float("nan")),  # an error
    with_(beta=1, out=X.copy),
    with_(beta=1),  # an error
    with_(b=lambda: integers((4,))),
    with_(b=lambda: integers((4,)).astype(np.float64)),  # an error
    with_(scale=lambda: integers((4,))),
    with_(math="fp32"),
    with_(math="tf16"),  # an error
    with_(stream=0),
    with_(stream=-1),  # an error
    with_(progress=lambda: lambda done, tiles: None),
    with_(w=W[:, :3]),  # an error
    with_(workspace=0),  # an error of the core
    with_(workspace=1 << 20),
]


def outcome(call: Callable[[], tuple[tuple, dict]]) -> tuple[str, Any]:
    args, keywords = call()
    try:
        y = oocdnn.conv2d(*args, **keywords)
    except (oocdnn.InvalidProblem, oocdnn.InvalidDtype, oocdnn.Unsupported) as error:
        return type(error).__name__, str(error)
    assert "out" not in keywords or y is keywords["out"]
    # Of signed zeros too: bits.
    return str(y.dtype), (y.shape, y.strides, np.ascontiguousarray(y).tobytes())


@pytest.fixture(scope="module")
def outcomes():
    """Of each call as the first of its context."""

    def first(call: Callable[[], tuple[tuple, dict]]) -> tuple[str, Any]:
        with oocdnn.Context("cpu", engine=ENGINE):
            return outcome(call)

    return [first(call) for call in ALIKE]


@settings(deadline=None, max_examples=60)
@example(order=[*range(len(ALIKE)), *range(len(ALIKE)), *reversed(range(len(ALIKE)))])
@given(order=st.lists(st.integers(0, len(ALIKE) - 1), max_size=30))
def test_no_call_is_taken_for_another(outcomes, order):
    with oocdnn.Context("cpu", engine=ENGINE):
        for number in order:
            assert outcome(ALIKE[number]) == outcomes[number], number


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    steps=st.lists(st.sampled_from([1, 2, -1]), min_size=4, max_size=4),
    kind=st.sampled_from([np.ndarray, Derived]),
)
def test_addresses_are_those_that_numpy_tells(shape, steps, kind):
    slices = [slice(None, None, step) for step in steps[: len(shape)]]
    array = np.zeros(shape, np.float32)[(..., *slices)]
    for one in (array.view(kind), array.T, array[..., None]):
        assert addresses.address_of(one) == one.__array_interface__["data"][0]


def test_addresses_are_read_where_numpy_is_cpython_s():
    assert addresses.address_of is addresses._read
