"""What is refused, as which error, and the words that help."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from python.support import integers

import oocdnn
from oocdnn import (
    DeviceError,
    FileError,
    InvalidDtype,
    InvalidProblem,
    OutOfMemory,
    Unsupported,
)

X = integers((2, 6, 9, 11))
W = integers((4, 6, 3, 3))
DY = integers((2, 4, 7, 9))
PROBLEM = "conv2d:fwd x2x6x9x11 w4x6x3x3"


class Refused(NamedTuple):
    call: Callable[[], object]
    error: type[Exception]
    words: str


def conv(x=X, w=W, b=None, **keywords):
    return lambda: oocdnn.conv2d(x, w, b, **keywords)


def transposed(x=X, w=None, **keywords):
    w = integers((6, 2, 3, 3)) if w is None else w
    return lambda: oocdnn.conv_transpose2d(x, w, **keywords)


def data(x_shape=X.shape, dy=DY, w=W, **keywords):
    return lambda: oocdnn.conv_backward_data(dy, w, x_shape, **keywords)


def weights(w_shape=W.shape, x=X, dy=DY, **keywords):
    return lambda: oocdnn.conv_backward_filter(x, dy, w_shape, **keywords)


def read_only():
    out = np.zeros((2, 4, 7, 9), np.float32)
    out.flags.writeable = False
    return out


def overlapping():
    store = np.zeros(X.size + DY.size, np.float32)
    return store[: X.size].reshape(X.shape), store[-DY.size - 1 : -1].reshape(DY.shape)


class OnDevice:
    @property
    def __cuda_array_interface__(self):
        return {"shape": X.shape, "typestr": "<f4", "data": (0, False)}


class ElsewhereByDlpack:
    def __dlpack__(self, stream):
        return X.__dlpack__()

    def __dlpack_device__(self):
        return (2, 0)


odd = np.zeros(4 * X.size + 1, np.uint8)[1:].view(np.float32).reshape(X.shape)
packed = np.zeros(X.shape, np.dtype([("a", "u1"), ("b", "f4")]))["b"]

# By what the error names.
WRONG_TYPES = {
    "device": lambda: oocdnn.Context(3),
    "engine": lambda: oocdnn.Context("cpu", engine=3),
    "profile": lambda: oocdnn.plan_for_profile(PROBLEM, 3),
    "problem": lambda: oocdnn.Context("cpu").plan(3),
    "plan": lambda: oocdnn.Context("cpu").price(PROBLEM, 3),
    "compute_seconds": lambda: oocdnn.Context("cpu").refine(PROBLEM, 3),
    "progress": conv(progress=3),
    "x_shape": data(3),
    "w_shape": weights(3),
    "prologue": conv(prologue=3),
    "sums": lambda: oocdnn.group_norm(3, 8),
    "prologues": lambda: oocdnn.concatenate(3),
    r"prologues\[0\]": lambda: oocdnn.concatenate([3]),
    "links": lambda: oocdnn.conv_chain(X, 3),
    "saved": lambda: oocdnn.conv_bias_act_pool_backward(DY, 3),
    "choices": lambda: oocdnn.workspace.divide_batch(3, 1, 1),
    "layers": lambda: oocdnn.workspace.divide_workspace(3, 1),
}

REFUSED = {
    # Ranks and shapes.
    "unbatched x": Refused(conv(X[0]), InvalidProblem, r"x has 3 axes .*x\[None\]"),
    "one axis too many": Refused(conv(X[None]), InvalidProblem, "x has 5 axes .*needs 4"),
    "w of another rank": Refused(
        conv(w=W[0]), InvalidProblem, "w has 3 axes .*K, C/groups, taps on H, W"
    ),
    "channels": Refused(conv(w=W[:, :5]), InvalidProblem, "w has 5 on axis 1.*6 channels of x"),
    "transposed channels": Refused(
        transposed(w=integers((5, 2, 3, 3))), InvalidProblem, "w has 5 on axis 0.*channels of x"
    ),
    "b of another size": Refused(
        conv(b=integers((5,))), InvalidProblem, r"b has shape \(5,\).*\(4,\)"
    ),
    "b with axes": Refused(conv(b=integers((1, 4, 1, 1))), InvalidProblem, "b has shape"),
    "scale of another size": Refused(conv(scale=integers((3,))), InvalidProblem, "scale has shape"),
    "residual of another shape": Refused(
        conv(residual=X), InvalidProblem, r"residual has shape \(2, 6, 9, 11\).*\(2, 4, 7, 9\)"
    ),
    "empty output": Refused(
        conv(X[:, :, :2]), InvalidProblem, "empty on axis H: input 2 .*reach 3.*more padding"
    ),
    "empty transposed output": Refused(
        transposed(X[:, :, :1], padding=2), InvalidProblem, "empty on axis H.*less padding"
    ),
    "no taps": Refused(conv(w=W[:, :, :0]), InvalidProblem, "w has no taps on axis H"),
    "x_shape of another rank": Refused(data((2, 6, 9)), InvalidProblem, "x_shape is .*4 axes"),
    "x_shape of other channels": Refused(data((2, 5, 9, 11)), InvalidProblem, "w has 6 on axis 1"),
    "x_shape of another batch": Refused(data((3, 6, 9, 11)), InvalidProblem, "dy has shape"),
    "x_shape that does not lead to dy": Refused(
        data((2, 6, 9, 12)), InvalidProblem, r"dy has shape \(2, 4, 7, 9\).*\(2, 4, 7, 10\)"
    ),
    "x_shape negative": Refused(data((2, 6, -9, 11)), InvalidProblem, r"x_shape\[2\] is -9"),
    "w_shape of other channels": Refused(
        weights((4, 5, 3, 3)), InvalidProblem, "w_shape has shape"
    ),
    "w_shape that does not lead to dy": Refused(
        weights((4, 6, 3, 5)), InvalidProblem, r"dy has shape .*\(2, 4, 7, 7\)"
    ),
    "dy of two axes": Refused(
        lambda: oocdnn.conv_backward_bias(DY[0, 0]), InvalidProblem, "dy has 2 axes.*3, 4 or 5"
    ),
    # Parameters.
    "stride zero": Refused(conv(stride=0), InvalidProblem, "stride is 0; .*at least 1"),
    "stride zero on an axis": Refused(conv(stride=(1, 0)), InvalidProblem, "stride on axis W is 0"),
    "stride of three": Refused(conv(stride=(1, 1, 1)), InvalidProblem, "one integer or 2"),
    "stride a fraction": Refused(conv(stride=1.5), InvalidProblem, "stride is 1.5"),
    "stride a text": Refused(conv(stride="2"), InvalidProblem, "stride is '2'"),
    "stride far too large": Refused(conv(stride=2**70), InvalidProblem, "below 2.*60"),
    "dilation zero": Refused(conv(dilation=0), InvalidProblem, "dilation is 0"),
    "padding negative": Refused(conv(padding=-1), InvalidProblem, "padding is -1"),
    "padding negative after": Refused(
        conv(padding=((0, 0), (0, -1))), InvalidProblem, "padding after on axis W is -1"
    ),
    "padding of one pair": Refused(conv(padding=((1, 1),)), InvalidProblem, "2 pairs"),
    "padding of mixed forms": Refused(conv(padding=(1, (1, 1))), InvalidProblem, "2 pairs"),
    "padding an unknown word": Refused(conv(padding="full"), InvalidProblem, "'full'.*\"same\""),
    "same with a stride": Refused(conv(padding="same", stride=2), InvalidProblem, "stride 1"),
    "groups zero": Refused(conv(groups=0), InvalidProblem, "groups is 0"),
    "groups that do not divide C": Refused(
        conv(groups=4), InvalidProblem, "x has 6 channels.*groups=4"
    ),
    "groups that do not divide K": Refused(
        conv(w=integers((4, 2, 3, 3)), groups=3), InvalidProblem, "w has 4 channels.*groups=3"
    ),
    "output_padding too large": Refused(
        transposed(stride=2, output_padding=2),
        InvalidProblem,
        "output_padding on axis H is 2.*stride",
    ),
    "unknown mode": Refused(conv(mode="fft"), InvalidProblem, "'fft'.*'cross_correlation'"),
    "unknown math": Refused(
        conv(math="fp8"), InvalidProblem, "'fp8'.*'tf32', 'fp32x3', 'fp32_fast'"
    ),
    "unknown activation": Refused(conv(activation="gelu"), InvalidProblem, "'gelu'.*'swish'"),
    "activation without its parameter": Refused(
        conv(activation="clipped_relu"), InvalidProblem, "needs a parameter"
    ),
    "activation with a parameter too many": Refused(
        conv(activation=("relu", 1.0)), InvalidProblem, "has no parameter"
    ),
    "alpha not finite": Refused(conv(alpha=float("inf")), InvalidProblem, "alpha is inf"),
    "beta not a number": Refused(conv(beta="1"), InvalidProblem, "pass out="),
    "beta without out": Refused(conv(beta=0.5), InvalidProblem, "beta=0.5.*pass out="),
    # Outputs.
    "out of another shape": Refused(
        conv(out=DY[:, :3]), InvalidProblem, r"out has shape \(2, 3, 7, 9\).*\(2, 4, 7, 9\)"
    ),
    "out read-only": Refused(conv(out=read_only()), InvalidProblem, "out is read-only"),
    "out of another type": Refused(
        conv(out=DY.astype(np.float64)), InvalidDtype, "out .*float64, x of float32"
    ),
    "out that repeats elements": Refused(
        conv(out=np.lib.stride_tricks.as_strided(DY.copy(), DY.shape, (252, 4, 4, 4))),
        InvalidProblem,
        "share an address",
    ),
    # Memory.
    "other byte order": Refused(conv(X.astype(">f4")), InvalidProblem, "byte order.*newbyteorder"),
    "reversed": Refused(conv(X[:, :, ::-1]), InvalidProblem, "stride of -.*ascontiguousarray"),
    "broadcast": Refused(
        conv(np.broadcast_to(X[:1], X.shape)), InvalidProblem, "stride of 0 bytes on axis 0"
    ),
    "misaligned": Refused(conv(odd), InvalidProblem, r"multiple of 4 bytes; pass x\.copy"),
    "fields of records": Refused(conv(packed), InvalidProblem, "multiples of 4 bytes"),
    # Types.
    "integers": Refused(
        conv(X.astype(np.int32)), InvalidDtype, "x has elements of type int32.*float16"
    ),
    "complex": Refused(conv(X.astype(np.complex64)), InvalidDtype, "complex64"),
    "mixed types": Refused(conv(w=W.astype(np.float64)), InvalidDtype, "w .*float64, x of float32"),
    "b in double": Refused(conv(b=np.zeros(4)), InvalidDtype, "b has elements of type float64"),
    "a list": Refused(conv([[1.0]]), InvalidDtype, "x is of type list.*NumPy arrays"),
    "nothing": Refused(conv(None), InvalidDtype, "x is of type NoneType"),
    "masked": Refused(conv(np.ma.masked_array(X)), InvalidDtype, r"x is a masked array.*filled"),
    # What is not here.
    "an array on a GPU": Refused(conv(OnDevice()), Unsupported, r"not in host memory.*asnumpy"),
    "on a GPU by DLPack": Refused(conv(ElsewhereByDlpack()), Unsupported, "not in host memory"),
    "a device that is not here": Refused(lambda: oocdnn.Context("cuda:99"), Unsupported, "cuda:99"),
    "an unknown device": Refused(lambda: oocdnn.Context("tpu"), Exception, "tpu"),
    # Contexts and plans.
    "budget a word": Refused(lambda: oocdnn.Context("cpu", "lots"), InvalidProblem, "'lots'.*2GiB"),
    "budget negative": Refused(lambda: oocdnn.Context("cpu", -1), InvalidProblem, "budget is -1"),
    "budget a list": Refused(
        lambda: oocdnn.Context("cpu", [1]), InvalidProblem, r"budget is \[1\]"
    ),
    "budget a fraction": Refused(
        lambda: oocdnn.Context("cpu", 1.5), InvalidProblem, "budget is 1.5.*whole bytes"
    ),
    "threads below none": Refused(
        lambda: oocdnn.Context("cpu", threads=-1), InvalidProblem, "threads is -1"
    ),
    "threads too many": Refused(
        lambda: oocdnn.Context("cpu", threads=2**40), InvalidProblem, "threads is 1099511627776"
    ),
    "plans too many": Refused(
        lambda: oocdnn.current_context().candidates("conv1d:fwd x1x1x9 w1x1x3", best=2**40),
        InvalidProblem,
        "best is 1099511627776; it must be at least 0 and at most 2147483647",
    ),
    "alpha too large": Refused(
        conv(alpha=10**400), InvalidProblem, "alpha is too large for a number"
    ),
    "threads a fraction": Refused(
        lambda: oocdnn.Context("cpu", threads=1.5), InvalidProblem, "threads is 1.5"
    ),
    "a cap below none": Refused(
        lambda: oocdnn.Context("cpu", host_cap=-1), InvalidProblem, "host_cap is -1"
    ),
    "a wire of less than nothing": Refused(
        lambda: oocdnn.Context("cpu", link_gb_per_s=-1), InvalidProblem, "link_gb_per_s is -1"
    ),
    "seconds in words": Refused(
        lambda: oocdnn.Context("cpu", planning_seconds="x"), InvalidProblem, "planning_seconds is"
    ),
    "a shape for data that is an array": Refused(
        data(X), InvalidProblem, r"x_shape is an array of shape \(2, 6, 9, 11\); pass its shape"
    ),
    "a shape for a filter that is an array": Refused(
        weights(W), InvalidProblem, r"w_shape is an array of shape \(4, 6, 3, 3\)"
    ),
    **{
        f"{name} of another type": Refused(call, InvalidProblem, f"{name} is of type int; pass ")
        for name, call in WRONG_TYPES.items()
    },
    "statistics that are no arrays": Refused(
        lambda: oocdnn.batch_norm(3, 3, samples=1), InvalidDtype, "mean is of type int"
    ),
    "an unknown wrapper": Refused(
        lambda: oocdnn.Context("cpu", wrap="paper"), InvalidProblem, "paper.*check"
    ),
    "a problem that cannot be read": Refused(
        lambda: oocdnn.Context("cpu").plan("conv2d:fwd x1x3 nonsense"), InvalidProblem, "nonsense"
    ),
    "a timeline that was not asked for": Refused(
        lambda: oocdnn.Context("cpu").take_trace(), Unsupported, "trace"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("ctx")
def test_refused(name):
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=f"(?s){words}"):
        call()


@pytest.mark.usefixtures("ctx")
def test_overlapping_output():
    x, out = overlapping()
    with pytest.raises(InvalidProblem, match=r"out overlaps x.*another out"):
        oocdnn.conv2d(x, W, out=out)


@pytest.mark.parametrize(
    ("error", "builtins"),
    [
        (InvalidProblem, (ValueError,)),
        (InvalidDtype, (TypeError,)),
        (OutOfMemory, (MemoryError,)),
        (Unsupported, (NotImplementedError,)),
        (DeviceError, (RuntimeError,)),
        (FileError, (DeviceError, OSError)),
    ],
)
def test_errors_are_the_builtins_that_one_expects(error, builtins):
    assert issubclass(error, builtins)
    assert all(issubclass(error, builtin) for builtin in builtins)
    raised = error("some text")
    assert str(raised) == "some text"
    assert str(pickle.loads(pickle.dumps(raised))) == "some text"


def test_out_of_memory_says_the_least_that_works():
    with oocdnn.Context("cpu", 100) as context:
        with pytest.raises(OutOfMemory, match="100 B") as caught:
            context.conv2d(X, W)
        least = caught.value.least
    assert least > 100
    assert copy.copy(caught.value).least == least
    with oocdnn.Context("cpu", least) as context:
        assert context.conv2d(X, W).shape == DY.shape


def test_a_context_is_usable_after_errors(ctx):
    expected = ctx.conv2d(X, W)
    for name in ("groups zero", "out read-only", "empty output", "mixed types"):
        with pytest.raises(REFUSED[name].error):
            REFUSED[name].call()
    np.testing.assert_array_equal(ctx.conv2d(X, W), expected)


@pytest.mark.parametrize("keyword", ["stride", "padding", "dilation"])
def test_what_equals_a_served_value_is_refused_all_the_same(ctx, keyword):
    for served in (1, (1, 1), [1, 1], np.int64(1), np.array([1, 1])):
        for refused in (1.0, (1, 1.0), [1.0, 1]):
            ctx.conv2d(X, W, **{keyword: served})
            with pytest.raises(InvalidProblem, match=rf"{keyword} .*is 1\.0"):
                ctx.conv2d(X, W, **{keyword: refused})


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="strides"):
        oocdnn.conv2d(X, W, strides=2)
