"""Calls like earlier ones look only at where their arrays lie, and do what the first did."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python.support import DTYPES, assert_equal, channels_last, integers

import oocdnn
from oocdnn._calls import prepared
from oocdnn._core import native

# Direct: exact, and the same bits whatever the tiles are.
ENGINE = "direct"


class Recorder:
    """The core library, which notes what calls say."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.calls: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def oocdnn_run(self, handle: Any, convolution: Any, operands: Any) -> int:
        self.calls.append({"convolution": plain(convolution[0]), "operands": plain(operands[0])})
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self.library.oocdnn_run(handle, convolution, operands)


def plain(value: Any) -> Any:
    """A C value as Python's, with what it points to; functions are left out."""
    ffi = native._ffi()
    if not isinstance(value, ffi.CData):
        return value
    kind = ffi.typeof(value)
    if kind.kind == "struct":
        return {name: plain(getattr(value, name)) for name, _ in kind.fields}
    if kind.kind == "array":
        return [plain(one) for one in value]
    if kind.kind == "function" or (kind.kind == "pointer" and kind.item.kind == "function"):
        return None
    if kind.kind == "pointer" and kind.item.kind == "struct":
        return plain(value[0]) if value else None
    return int(ffi.cast("uintptr_t", value))


@pytest.fixture(scope="module")
def recorder():
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(native._library())
        patch.setattr(native, "_library", lambda: recorder)
        yield recorder


class Case:
    """A function, its keywords, and the arrays of each of its calls, which differ in values and
    places alone."""

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self.dtype = DTYPES[draw(st.sampled_from(["float32", "float64", "float16"]))]
        self.name = draw(
            st.sampled_from(
                ["conv2d", "conv3d", "conv_transpose2d", "conv_backward_data",
                 "conv_backward_filter", "conv_backward_bias", "conv_bias_act_pool"]
            )
        )  # fmt: skip
        rank = 3 if self.name == "conv3d" else draw(st.sampled_from([2, 2, 1]))
        if self.name in ("conv2d", "conv_transpose2d"):
            rank = 2
        groups, n = draw(st.sampled_from([1, 2])), draw(st.integers(1, 2))
        c, k = 2 * groups, 2 * draw(st.integers(1, 2)) * groups
        self.x = (n, c, *[draw(st.integers(4, 7)) for _ in range(rank)])
        self.w = (k, c // groups, *[draw(st.integers(1, 3)) for _ in range(rank)])
        if self.name == "conv_transpose2d":
            self.w = (c, k // groups, *self.w[2:])
        self.moves: dict[str, Any] = {
            "stride": draw(st.sampled_from([1, 2, (1,) * rank])),
            "padding": draw(st.sampled_from([0, 1, [1] * rank, ((0, 1),) * rank])),
            "groups": groups,
        }
        self.more: dict[str, Any] = {}
        if draw(st.booleans()):
            self.more["alpha"] = draw(st.sampled_from([2, 0.5, 1.0, -1]))
        self.gives_out = draw(st.booleans())
        if self.gives_out and self.name != "conv_bias_act_pool":
            self.more["beta"] = draw(st.sampled_from([0.0, 1, 2.0]))
        self.finishes = self.name in ("conv2d", "conv3d", "conv_transpose2d", "conv_bias_act_pool")
        if self.finishes:
            self.more["activation"] = draw(st.sampled_from([None, "relu", ("clipped_relu", 2.0)]))
        self.has_bias = self.finishes and draw(st.booleans())
        self.residual = self.finishes and draw(st.sampled_from(["", "apart", "out"]))
        if self.name == "conv_bias_act_pool":
            self.more["pool"] = draw(st.sampled_from([None, 2]))
            self.more["save_for_backward"] = draw(st.booleans())
            if self.more["pool"]:
                self.residual = self.residual and "apart"
        if self.name == "conv_backward_bias":
            self.moves = {}
        self.last = draw(st.booleans())
        self.spaced = draw(st.booleans())

    def array(self, shape: tuple[int, ...], seed: int, plain: bool = False) -> np.ndarray:
        values = integers(shape, seed, self.dtype)
        if self.last and not plain and len(shape) > 2:
            values = channels_last(values)
        if self.spaced and not plain and len(shape) > 2:
            wide = np.zeros((*shape[:-1], shape[-1] + 3), self.dtype)
            wide[..., : shape[-1]] = values
            values = wide[..., : shape[-1]]
        return values

    def arrays(self, seed: int, y: tuple[int, ...], result: tuple[int, ...]) -> dict[str, Any]:
        x, w = self.array(self.x, seed), self.array(self.w, seed + 1, plain=True)
        dy = self.array(y, seed + 2)
        arrays: dict[str, Any] = {
            "conv_backward_data": {"dy": dy, "w": w, "x_shape": self.x},
            "conv_backward_filter": {"x": x, "dy": dy, "w_shape": list(self.w)},
            "conv_backward_bias": {"dy": dy},
        }.get(self.name, {"x": x, "w": w})
        if self.has_bias:
            channels = y[1]
            arrays["b"] = integers((channels,), seed + 3, self.dtype)
        if self.gives_out:
            arrays["out"] = self.array(result, seed + 4)
        if self.residual == "apart":
            arrays["residual"] = self.array(y, seed + 5)
        if self.residual == "out" and self.gives_out:
            arrays["residual"] = arrays["out"]
        return arrays

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of y, and of the result."""
        rank = len(self.x) - 2
        x, w = np.zeros(self.x, self.dtype), np.zeros(self.w, self.dtype)
        with oocdnn.Context("cpu", engine=ENGINE):
            if self.name == "conv_transpose2d":
                y = oocdnn.conv_transpose2d(x, w, **self.moves).shape
            else:
                moves = self.moves or {"groups": self.x[1] // self.w[1]}
                y = getattr(oocdnn, f"conv{rank}d")(x, w, **moves).shape
            result = {
                "conv_backward_data": self.x,
                "conv_backward_filter": self.w,
                "conv_backward_bias": y[1:2],
            }.get(self.name, y)
            if self.more.get("pool"):
                result = (*y[:2], *[n // 2 for n in y[2:]])
        return y, result

    def call(self, arrays: dict[str, Any]) -> Any:
        return getattr(oocdnn, self.name)(**arrays, **self.moves, **self.more)


def without_places(said: dict[str, Any], made: bool) -> dict[str, Any]:
    """Arrays that a call makes lie wherever there is room."""
    if made:
        slots = ("x", "y", "w", "bias", "z", "saved")
        operands = {s: t and {**t, "data": 0} for s, t in said["operands"].items() if s in slots}
        return {**said, "operands": {**said["operands"], **operands}}
    return said


def parts(result: Any) -> list[np.ndarray]:
    if not isinstance(result, tuple):
        return [result]
    z, saved = result
    return [z] if saved.bits is None else [z, saved.bits]


@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_the_core_is_told_the_same(recorder, data):
    """By a call like an earlier one as by the same call as the first of its context."""
    case = Case(data)
    y, result = case.shapes()
    if 0 in result:
        return
    with oocdnn.Context("cpu", engine=ENGINE) as context:
        case.call(case.arrays(1, y, result))
        (prepared,) = context.prepared._calls.values()
        arrays = case.arrays(2, y, result)
        if "out" in arrays:
            before = arrays["out"].copy()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native.NativeContext, "run", None)  # which the long way ends in
            again = case.call(arrays)
        said = recorder.calls[-1]
        assert list(context.prepared._calls.values()) == [prepared]
    first = [one.copy() for one in parts(again)]
    if "out" in arrays:
        assert parts(again)[0] is arrays["out"]
        arrays["out"][...] = before
    with oocdnn.Context("cpu", engine=ENGINE):
        anew = case.call(arrays)
    made = not case.gives_out or bool(case.more.get("save_for_backward"))
    assert without_places(said, made) == without_places(recorder.calls[-1], made)
    for one, other in zip(first, parts(anew), strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    for one, other in zip(parts(again), parts(anew), strict=True):
        assert one.strides == other.strides
    if isinstance(anew, tuple):
        same = ("x_shape", "w_shape", "y_shape", "z_shape", "activation", "scaled", "call")
        assert all(getattr(again[1], s) == getattr(anew[1], s) for s in same)


X, W = integers((2, 4, 6, 7)), integers((4, 4, 3, 3))


def test_an_array_that_changes_between_calls(recorder, tmp_path):
    """The object stays the same, and what is seen of it does not."""
    with oocdnn.Context("cpu", engine=ENGINE) as context:
        x, out = X.copy(), np.empty_like(X)
        for _ in range(2):
            assert_equal(context.conv2d(x, W, padding=1, out=out), oracle.forward(x, W, padding=1))
        x[...] = 2 * X
        assert_equal(context.conv2d(x, W, padding=1, out=out), oracle.forward(x, W, padding=1))
        x.resize((3, 4, 6, 7), refcheck=False)
        x[...] = 1
        assert_equal(context.conv2d(x, W, padding=1), oracle.forward(x, W, padding=1))
        x.resize(X.shape, refcheck=False)
        x[...] = X
        out.flags.writeable = False
        with pytest.raises(oocdnn.InvalidProblem, match="out is read-only"):
            context.conv2d(x, W, padding=1, out=out)
        out.flags.writeable = True
        assert_equal(context.conv2d(x, W, padding=1, out=out), oracle.forward(x, W, padding=1))
        mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
        mapped[...] = 3 * X
        y = oracle.forward(3 * X, W, padding=1)
        for one in (np.asarray(mapped), mapped):
            assert_equal(context.conv2d(one, W, padding=1, out=out), y)
            assert recorder.calls[-1]["operands"]["x"]["fd"] >= 0


def test_the_context_s_arithmetic_and_the_context_are_part_of_it():
    with oocdnn.Context("cpu", engine=ENGINE) as one, oocdnn.Context("cpu", engine=ENGINE) as two:
        one.conv2d(X, W)
        assert len(one.prepared._calls) == 1
        assert not two.prepared._calls
        one.math = oocdnn.Context("cpu", math="tf32").math
        one.conv2d(X, W)
        assert len(one.prepared._calls) == 2
    for _ in range(2):
        with pytest.raises(oocdnn.DeviceError, match="this context is closed"):
            one.conv2d(X, W)


def test_nothing_of_the_caller_s_is_kept():
    context = oocdnn.Context("cpu", engine=ENGINE)
    arrays = [X.copy(), W.copy(), np.empty_like(X)]
    for _ in range(3):
        context.conv2d(*arrays[:2], padding=1, out=arrays[2])
        context.conv2d(*arrays[:2])
    seen = [weakref.ref(array) for array in arrays]
    gc.disable()
    try:
        arrays.clear()
        assert [ref() for ref in seen] == [None] * 3
    finally:
        gc.enable()
    ref = weakref.ref(context)
    del context
    gc.collect()
    assert ref() is None


def test_so_many_are_remembered_and_no_more():
    memory = prepared.Memory(3)
    calls = [object() for _ in range(5)]
    for number, call in enumerate(calls):
        memory.add((number,), call)
        memory.add((number,), object())  # another thread was first
    assert [memory.find((number,)) for number in range(5)] == [None, None, *calls[2:]]
    assert len(memory._keys) == 3


def test_many_threads_make_the_same_call():
    """Each with arrays of its own."""
    failures = []

    def work(seed: int, context: oocdnn.Context) -> None:
        x, w, out = integers(X.shape, seed), integers(W.shape, seed), np.empty_like(X)
        y = oracle.forward(x, w, padding=1)
        try:
            for _ in range(60):
                context.conv2d(x, w, padding=1, out=out)
                assert_equal(out, y)
                out[...] = np.nan
                assert_equal(context.conv2d(x, w, padding=1), y)
        except Exception as error:
            failures.append(error)

    with oocdnn.Context("cpu", engine=ENGINE) as context:
        threads = [threading.Thread(target=work, args=(seed, context)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(context.prepared._calls) == 2


def test_calls_that_are_under_way_at_once(recorder):
    """One begins when another has told where its arrays lie."""
    with oocdnn.Context("cpu", engine=ENGINE) as context:
        first, second = np.empty_like(X), np.empty_like(X)
        for _ in range(3):
            first[...] = second[...] = np.nan

            def other() -> None:
                context.conv2d(2 * X, W, padding=1, out=second)

            recorder.meanwhile = other
            context.conv2d(X, W, padding=1, out=first)
            assert_equal(first, oracle.forward(X, W, padding=1))
            assert_equal(second, oracle.forward(2 * X, W, padding=1))


def test_a_failure_leaves_the_call_as_it_was():
    """The core refuses, after all was looked at; and the next call is served."""
    with oocdnn.Context("cpu", engine=ENGINE, wrap="fault:copy:40") as context:
        out, y = np.empty_like(X), oracle.forward(X, W, padding=1)

        def serves() -> bool:
            try:
                context.conv2d(X, W, padding=1, out=out)
            except oocdnn.DeviceError:
                return False
            assert_equal(out, y)
            return True

        assert [serves() for _ in range(40)].count(False) == 1
