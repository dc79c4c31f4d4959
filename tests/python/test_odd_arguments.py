"""Arguments that no program means: refused in our words and as our errors, and never by an error of
NumPy's or of a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest

import oocdnn
from oocdnn import InvalidDtype, InvalidProblem, OutOfMemory, nn

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


@pytest.mark.parametrize(
    "layer",
    [
        lambda size: nn.Conv2d(2, 2, (2, size)),
        lambda size: nn.Conv1d(2, size, 1),
        lambda size: nn.ConvTranspose1d(2, size, 1),
        lambda size: nn.BatchNorm2d(size),
        lambda size: nn.BatchNorm2d(size, affine=False),
        lambda size: nn.GroupNorm(1, size),
    ],
)
@pytest.mark.parametrize("size", [1 << 46, (1 << 60) - 1])
def test_parameters_beyond_all_memory_are_refused(layer: Any, size: int) -> None:
    with pytest.raises(OutOfMemory, match=r"cannot be allocated; take fewer channels"):
        layer(size)


@pytest.mark.parametrize(
    "call",
    [
        lambda big: oocdnn.Context("cpu", big),
        lambda big: oocdnn.Context("cpu", "1MiB", busy_gpus=big),
        lambda big: oocdnn.Context("cpu", "1MiB", workspace=big),
        lambda big: oocdnn.plan_for_profile("conv1d:fwd x1x1x4 w1x1x1", "h200", big),
        lambda big: oocdnn.plan_for_profile("conv1d:fwd x1x1x4 w1x1x1", "h200", busy_gpus=big),
        lambda big: oocdnn.conv2d(X, W, padding=big),
        lambda big: oocdnn.conv2d(X, W, padding=((big, 1), 1)),
        lambda big: oocdnn.conv2d(X, W, groups=-big),
        lambda big: oocdnn.conv2d(X, W, mode=big),
        lambda big: oocdnn.conv2d(X, W, math=big),
        lambda big: oocdnn.conv2d(X, W, activation=big),
        lambda big: oocdnn.conv_chain_backward(X, X, [oocdnn.Link(W)], needs=big),
        lambda big: oocdnn.empty((big,)),
        lambda big: nn.Conv1d(1, 1, 1, seed=big),
    ],
)
def test_integers_that_have_no_text_are_refused(call: Any) -> None:
    """Python writes no integer of more than 4300 digits."""
    with pytest.raises(InvalidProblem):
        call(10**5000)


@pytest.mark.parametrize(
    "call",
    [
        lambda size: nn.Upsample(size)(X),
        lambda size: nn.Upsample((1, size))(X.astype(np.float16)),
        lambda size: oocdnn.batch_norm(np.ones(3), np.ones(3), samples=size),
    ],
)
@pytest.mark.parametrize("size", [1 << 42, (1 << 60) - 1])
def test_what_repeats_beyond_all_memory_is_refused(call: Any, size: int) -> None:
    with pytest.raises(OutOfMemory, match=r"cannot be allocated; take (a smaller|fewer)"):
        call(size)


@pytest.mark.parametrize("name", ["é" * 500, "x/" * 3000, "h200\0", "", ".", "h200.txt", "../h200"])
def test_a_profile_of_no_name(name: str) -> None:
    for profile in (name, PurePosixPath(name)):
        with pytest.raises(InvalidProblem, match="is no file, and none of the shipped ones: "):
            oocdnn.plan_for_profile("conv1d:fwd x1x1x4 w1x1x1", profile)


class Encoded:
    """A path in bytes."""

    def __fspath__(self) -> bytes:
        return b"h200"


def test_paths_in_bytes() -> None:
    calls: list[Callable[[Any], object]] = [
        nn.load,
        lambda path: nn.save(path, {}),
        lambda path: oocdnn.plan_for_profile("conv1d:fwd x1x1x4 w1x1x1", path),
    ]
    for call in calls:
        with pytest.raises(InvalidProblem, match=r" is of type Encoded; pass a "):
            call(Encoded())


class Counted:
    """An integer that is no number otherwise."""

    def __index__(self) -> int:
        return 2


def test_options_may_count_in_integers_of_their_own() -> None:
    odd = oocdnn.workspace.MicroBatch(Counted(), 1.0, Counted())  # type: ignore[arg-type]
    for divide in (oocdnn.workspace.divide_workspace, oocdnn.workspace.equal_shares):
        divided = divide({1: [odd], 10**5000: [MICRO]}, 9)
        assert divided.workspace_bytes == 3
    assert oocdnn.workspace.divide_batch([odd], 3, 9).samples == [2, 1]


def test_layers_that_have_no_text_are_refused() -> None:
    for options in (5, [5]):
        with pytest.raises(InvalidProblem, match="layer an object of type int"):
            oocdnn.workspace.divide_workspace({10**5000: options}, 2)  # type: ignore[dict-item]


@pytest.mark.parametrize("flipped", ["convolution", "cross_correlation"])
def test_filters_of_other_libraries_are_not_upsampled(flipped: Any) -> None:
    class Speaks:
        __array_interface__ = W.__array_interface__

    with pytest.raises(oocdnn.Unsupported, match="w is a Speaks"):
        oocdnn.conv_upsample(X, Speaks(), mode=flipped)


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


@pytest.mark.parametrize("wrap", [":", "::", "check,:", ":4096"])
def test_a_wrapper_without_a_name(wrap: str) -> None:
    with pytest.raises(InvalidProblem, match="is not a wrapper"):
        oocdnn.Context("cpu", wrap=wrap)


def endless() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


MICRO = oocdnn.workspace.MicroBatch(1, 1.0, 1)
ODD: dict[str, Callable[[], object]] = {
    "padding": lambda: oocdnn.conv2d(X, W, padding=endless()),
    "chain": lambda: oocdnn.conv_chain(X, [oocdnn.Link(W, stride=endless())]),
    "saves": lambda: oocdnn.conv_bias_act_pool(X, W, save_for_backward=np.ones(2)),
    "mode": lambda: oocdnn.conv_upsample(X, W, mode=np.ones(2)),  # type: ignore[arg-type]
    "needs": lambda: oocdnn.conv_chain_backward(Y, X, [oocdnn.Link(W)], needs=[np.ones(2)]),  # type: ignore[list-item]
    "pool": lambda: oocdnn.conv_bias_act_pool(X, W, pool=oocdnn.Pool(np.ones(2), 2)),  # type: ignore[arg-type]
    "ceil": lambda: oocdnn.conv_bias_act_pool(X, W, pool=oocdnn.Pool("max", 2, ceil=np.ones(2))),  # type: ignore[arg-type]
    "trace": lambda: oocdnn.Context("cpu", trace=np.ones(2)),  # type: ignore[arg-type]
    "empty": lambda: oocdnn.empty(memoryview(np.ones((2, 2)))),  # type: ignore[arg-type]
    "padding of two axes": lambda: oocdnn.conv2d(X, W, padding=memoryview(np.ones((2, 2)))),  # type: ignore[arg-type]
    "no bytes": lambda: oocdnn.empty(2, "U"),
    "objects saved": lambda: oocdnn.nn.save("nowhere", {"a": np.array([None])}),
    "objects": lambda: oocdnn.empty(2, object),
    "pinned": lambda: oocdnn.empty(2, pinned=np.ones(2)),  # type: ignore[arg-type]
    "mean": lambda: oocdnn.batch_norm(Object(dtype="f4"), np.ones(2), samples=1),
    "variance": lambda: oocdnn.batch_norm(np.ones(2), np.ones(3), samples=1),
    "weight": lambda: oocdnn.batch_norm(np.ones(2), np.ones(2), {1}, samples=1),
    "bias": lambda: oocdnn.batch_norm(np.ones(2), np.ones(2), None, np.ones(3), samples=1),
    "eps": lambda: oocdnn.batch_norm(np.ones(2), np.ones(2), samples=1, eps="x"),  # type: ignore[arg-type]
    "dtype": lambda: oocdnn.batch_norm(np.ones(2), np.ones(2), samples=1, dtype="2"),
    "no mean": lambda: oocdnn.batch_norm(np.array(1.0), np.array(1.0), samples=1),
    "no dtype": lambda: oocdnn.batch_norm(np.ones(2), np.ones(2), samples=1, dtype=[]),
    "prologues": lambda: oocdnn.concatenate([oocdnn.Prologue(5, "relu")]),
    "no prologues": lambda: oocdnn.concatenate([]),
    "batch": lambda: oocdnn.workspace.micro_batch_sizes("3"),  # type: ignore[arg-type]
    "large batch": lambda: oocdnn.workspace.micro_batch_sizes(2**70),
    "policy": lambda: oocdnn.workspace.micro_batch_sizes(3, np.ones(2)),  # type: ignore[arg-type]
    "limit": lambda: oocdnn.workspace.divide_batch([MICRO], 2, 1.5),  # type: ignore[arg-type]
    "samples": lambda: oocdnn.workspace.pareto([oocdnn.workspace.MicroBatch("1", 1.0, 1)], 2),  # type: ignore[arg-type]
    "seconds": lambda: oocdnn.workspace.even([oocdnn.workspace.MicroBatch(1, "s", 1)], 2),  # type: ignore[arg-type]
    "options": lambda: oocdnn.workspace.divide_workspace({1: 5}, 2),  # type: ignore[dict-item]
    "option": lambda: oocdnn.workspace.divide_workspace({1: [5]}, 2),  # type: ignore[list-item]
    "total": lambda: oocdnn.workspace.equal_shares({1: [MICRO]}, "x"),  # type: ignore[arg-type]
    "top": lambda: oocdnn.nn.ClippedReLU([1]),  # type: ignore[arg-type]
    "alpha": lambda: oocdnn.nn.ELU(b"b"),  # type: ignore[arg-type]
    "beta": lambda: oocdnn.nn.Swish({}),  # type: ignore[arg-type]
    "norm's eps": lambda: oocdnn.nn.GroupNorm(1, 2, eps=np.ones(2)),  # type: ignore[arg-type]
    "affine": lambda: oocdnn.nn.GroupNorm(1, 2, affine=np.ones(2)),  # type: ignore[arg-type]
    "layer's dtype": lambda: oocdnn.nn.Conv2d(1, 1, 1, dtype=Object()),  # type: ignore[arg-type]
    "seed": lambda: oocdnn.nn.Linear(1, 1, seed={1}),  # type: ignore[arg-type]
    "seed in itself": lambda: oocdnn.nn.Linear(1, 1, seed=endless()),  # type: ignore[arg-type]
    "lr": lambda: oocdnn.nn.SGD([], np.ones(2)),  # type: ignore[arg-type]
    "parameters": lambda: oocdnn.nn.SGD([5], 0.1),  # type: ignore[list-item]
    "reduction": lambda: oocdnn.nn.CrossEntropyLoss(np.ones(2)),  # type: ignore[arg-type]
    "strings": lambda: oocdnn.nn.ReLU()(np.array(["a"])),
    "x of Flatten": lambda: oocdnn.nn.Flatten()([1]),
    "x of Linear": lambda: oocdnn.nn.Linear(1, 1)([1]),
    "dy": lambda: backward(oocdnn.nn.ReLU(), [1]),
    "dy of a pool": lambda: backward(oocdnn.nn.MaxPool2d(2), [1]),
    "dy of Flatten": lambda: backward(oocdnn.nn.Flatten(), (1,)),
    "dz": lambda: backward(oocdnn.nn.ConvBiasActPool(2, 1, 3), [1]),
    "state": lambda: oocdnn.nn.ReLU().load_state_dict(5),  # type: ignore[arg-type]
    "path": lambda: oocdnn.nn.load(5),  # type: ignore[arg-type]
    "values": lambda: oocdnn.nn.save("nowhere", [1]),  # type: ignore[arg-type]
}


def backward(layer: oocdnn.nn.Layer, dy: Any) -> None:
    layer(X)
    layer.backward(dy)


@pytest.mark.parametrize("case", ODD)
def test_odd_values_are_refused_in_our_words(case: str) -> None:
    with pytest.raises(OURS) as refused:
        ODD[case]()
    assert type(refused.value) in OURS
    assert str(refused.value)


@pytest.mark.parametrize("number", [-1, 0, 1])
def test_a_residual_is_of_an_earlier_link(number: int) -> None:
    with pytest.raises(oocdnn.InvalidProblem, match=f"residual is {number}, and no earlier link"):
        oocdnn.conv_chain(X, [oocdnn.Link(W, padding=1, residual=number)])
