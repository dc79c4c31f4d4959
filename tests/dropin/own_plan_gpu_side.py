"""Plans that only we have made: where the real library has no engine, or makes no plan. On the fake
GPU and cuDNN, as gpu_side.py."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from dropin.gpu_side import (
    MOST,
    Problem,
    W,
    X,
    Y,
    addresses,
    device_memory,
    lib,
    notes_of,
    on_device,
    taken,
    workspace_of,
)
from python.support import assert_equal, integers

from oocdnn import cudnn
from oocdnn.errors import DeviceError

__all__ = ["lib"]  # a fixture


class Wide(Problem):
    """An extent for which the real library has no engine, or not even heuristics."""

    def __init__(self, graphs, width: int):
        self.graphs = graphs
        self.x, self.w = integers((1, 2, 4, width)), integers((3, 2, 3, 3), 1)
        self.expected = oracle.forward(self.x, self.w, padding=1)
        self.y = np.full(self.expected.shape, np.nan, np.float32)
        tensors = [graphs.tensor(u, a) for u, a in ((X, self.x), (W, self.w), (Y, self.y))]
        op = graphs.convolution("FORWARD", *tensors, graphs.window(2, padding=1))
        self.graph = graphs.finalize(graphs.graph(op))


@pytest.mark.parametrize("width", [31000, 61000])
def test_where_the_real_library_has_no_engine_there_is_one_of_ours(graphs, log, width):
    problem = Wide(graphs, width)
    (config,) = graphs.configurations(problem.graph, MOST, "FALLBACK")
    plan = graphs.plan(config)
    size = workspace_of(graphs, plan)
    assert [size] == graphs.described(config)["workspace"]
    assert size > 0
    arrays = on_device(problem.x, problem.w, problem.y)
    cudnn.check(problem.execute(plan, addresses(arrays), device_memory(size)))
    assert_equal(arrays[2].get(), problem.expected)
    assert taken(log()) == ["no-engine"]


def test_other_heuristics_than_the_last_leave_it_to_the_client_to_ask_further(graphs):
    assert graphs.configurations(Wide(graphs, 31000).graph, MOST) == []


def test_an_engine_of_ours_never_reaches_the_real_library(graphs, log):
    """Its descriptor is of a smaller graph: a configuration that the client builds from it is ours
    too."""
    problem = Wide(graphs, 31000)
    (config,) = graphs.configurations(problem.graph, MOST, "FALLBACK")
    (engine,) = graphs.get(
        config, "ENGINECFG_ENGINE", "BACKEND_DESCRIPTOR", into=graphs.make("ENGINE")
    )
    own = graphs.make("ENGINECFG")
    graphs.set(own, "ENGINECFG_ENGINE", "BACKEND_DESCRIPTOR", engine)
    for plan in (graphs.plan(graphs.finalize(own)), graphs.plan(config)):
        arrays = on_device(problem.x, problem.w, problem.y)
        cudnn.check(problem.execute(plan, addresses(arrays)))
        assert_equal(arrays[2].get(), problem.expected)
    assert taken(log()) == ["no-engine"] * 2


def text_of(graphs, plan) -> bytes:
    room = graphs.count(plan, "EXECUTION_PLAN_JSON_REPRESENTATION", "CHAR")
    return b"".join(graphs.get(plan, "EXECUTION_PLAN_JSON_REPRESENTATION", "CHAR", room=room))


def from_text(graphs, text: bytes):
    made = graphs.make("EXECUTION_PLAN")
    graphs.set(made, "EXECUTION_PLAN_HANDLE", "HANDLE", graphs.handle)
    letters = [bytes([byte]) for byte in text]
    graphs.set(made, "EXECUTION_PLAN_JSON_REPRESENTATION", "CHAR", *letters)
    return graphs.finalize(made)


def test_a_plan_of_ours_goes_through_its_text(graphs, log):
    """As clients keep plans; what they read of a real one is read of this one too."""
    problem = Wide(graphs, 31000)
    (config,) = graphs.configurations(problem.graph, MOST, "FALLBACK")
    text = text_of(graphs, graphs.plan(config))
    plan = from_text(graphs, text)
    assert workspace_of(graphs, plan) > 0
    assert text_of(graphs, plan) == text
    (told,) = graphs.get(
        plan, "EXECUTION_PLAN_ENGINE_CONFIG", "BACKEND_DESCRIPTOR", into=graphs.make("ENGINECFG")
    )
    assert graphs.described(told)["workspace"] == [workspace_of(graphs, plan)]
    for one in (plan, graphs.plan(told)):
        arrays = on_device(problem.x, problem.w, problem.y)
        cudnn.check(problem.execute(one, addresses(arrays)))
        assert_equal(arrays[2].get(), problem.expected)
    assert taken(log()) == ["no-engine"] * 2


def test_damaged_texts_are_refused(graphs):
    (config,) = graphs.configurations(Wide(graphs, 31000).graph, MOST, "FALLBACK")
    text = text_of(graphs, graphs.plan(config))
    random = np.random.default_rng(0)
    for cut in (20, len(text) // 2, len(text) - 3):
        with pytest.raises(Exception, match="damaged"):
            from_text(graphs, text[:cut])
    for _ in range(200):
        letters = bytearray(text)
        letters[random.integers(16, len(text) - 2)] = random.choice(list(b"0123456789abcdef"))
        with contextlib.suppress(DeviceError):  # any answer but a crash
            from_text(graphs, bytes(letters))


def test_a_plan_that_the_real_library_does_not_make_has_a_configuration_like_its_own(graphs):
    """Above 2^31 elements a plan is ours where the real library makes none; whether its engine
    rounds to TF32 stays."""

    def described(uid, *shape):
        strides = [4 * int(np.prod(shape[i + 1 :])) for i in range(4)]
        dtype = np.dtype(np.float32)
        like = SimpleNamespace(dtype=dtype, itemsize=4, shape=shape, strides=strides)
        return graphs.tensor(uid, like)

    size = 2**14
    tensors = (
        described(X, 1, 12, size, size),
        described(W, 1, 12, 1, 1),
        described(Y, 1, 1, size, size),
    )
    graph = graphs.finalize(graphs.graph(graphs.convolution("FORWARD", *tensors, graphs.window(2))))
    _, rounded = graphs.configurations(graph, MOST)  # without tensor cores and with
    plan = graphs.plan(rounded)  # the real library makes none of that
    assert workspace_of(graphs, plan) > 0
    (told,) = graphs.get(
        plan, "EXECUTION_PLAN_ENGINE_CONFIG", "BACKEND_DESCRIPTOR", into=graphs.make("ENGINECFG")
    )
    assert cudnn.CUDNN_NUMERICAL_NOTE_TENSOR_CORE in notes_of(graphs, told)
    assert workspace_of(graphs, graphs.plan(told)) == workspace_of(graphs, plan)
    with pytest.raises(Exception, match="in tiles"):
        graphs.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", "CHAR")
