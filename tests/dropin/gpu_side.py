"""The graph API before a GPU and a cuDNN, here the fake ones, set up by test_intercepted.py.
OOCDNN_LOG_FILE has the log."""

from __future__ import annotations

import json
from ctypes import CDLL, byref, c_int, c_size_t, c_uint64, c_void_p

import numpy as np
import oracle
import pytest
from dropin.graphs import Graphs
from gpu.driver import DeviceArray, InContext, call
from python.support import assert_equal, integers

import oocdnn
from oocdnn import cudnn

X, W, Y = 1, 2, 3
# Engines of the fake cuDNN by the place of their configuration: one that must not be used for tiles
# gives wrong sums, one wants a workspace of 2^50 bytes, one makes no plan, one is right. Two want
# that much, of which a client is offered one. MOST is more than there are.
WRONG, NO_PLAN, HUGE, RIGHT = 0, 8, 9, 10
MOST = 20


@pytest.fixture(scope="module", autouse=True)
def lib():
    """As programs have it: a context is current, and cuDNN was called."""
    with InContext():
        yield cudnn


class Problem:
    def __init__(self, graphs, **flags: bool):
        self.graphs = graphs
        self.x, self.w = integers((2, 3, 9, 8)), integers((4, 3, 3, 3), 1)
        self.expected = oracle.forward(self.x, self.w, padding=1)
        self.y = np.full(self.expected.shape, np.nan, np.float32)
        tensors = [graphs.tensor(u, a) for u, a in ((X, self.x), (W, self.w), (Y, self.y))]
        op = graphs.convolution("FORWARD", *tensors, graphs.window(2, padding=1))
        graph = graphs.graph(op)
        for name, value in flags.items():
            graphs.set(graph, f"OPERATIONGRAPH_IS_{name}_SHAPE_ENABLED", "BOOLEAN", value)
        self.graph = graphs.finalize(graph)

    def plan(self, place: int):
        return self.graphs.plan(self.graphs.configurations(self.graph, MOST)[place])

    def execute(self, plan, arrays, workspace=0) -> int:
        pack = self.graphs.pack(dict(zip((X, W, Y), arrays, strict=True)), workspace)
        return cudnn.cudnnBackendExecute(self.graphs.handle, plan, pack)


def workspace_of(graphs, plan) -> int:
    return graphs.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", "INT64")[0]


def on_device(*arrays):
    return [DeviceArray(array) for array in arrays]


def addresses(arrays):
    return [array.pointer.value for array in arrays]


def device_memory(size: int) -> int:
    pointer = c_uint64()
    call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
    return pointer.value


def last_text() -> str:
    text = cudnn.ffi.new("char[500]")
    cudnn.cudnnGetLastErrorString(text, 500)
    return cudnn.ffi.string(text).decode()


def taken(lines: list[str]) -> list[str]:
    return [line.rsplit("why=", 1)[1] for line in lines if " taken " in line]


def test_what_lies_on_the_device_goes_to_the_real_library(graphs, log):
    problem = Problem(graphs)
    plan = problem.plan(RIGHT)
    arrays = on_device(problem.x, problem.w, problem.y)
    scratch = device_memory(workspace_of(graphs, plan))
    cudnn.check(problem.execute(plan, addresses(arrays), scratch))
    assert_equal(arrays[2].get(), problem.expected)
    assert not taken(log())


def test_the_real_library_ran_that(graphs):
    """The wrong engine's sums are wrong: it was not us who computed."""
    problem = Problem(graphs)
    arrays = on_device(problem.x, problem.w, problem.y)
    cudnn.check(problem.execute(problem.plan(WRONG), addresses(arrays)))
    assert_equal(arrays[2].get(), problem.expected + 0.5)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_operand_in_pageable_memory_is_taken(graphs, log, which):
    problem = Problem(graphs)
    host = [problem.x, problem.w, problem.y]
    arrays = on_device(*host)
    places = addresses(arrays)
    places[which] = host[which].__array_interface__["data"][0]
    cudnn.check(problem.execute(problem.plan(WRONG), places))
    assert_equal(problem.y if which == 2 else arrays[2].get(), problem.expected)
    assert taken(log()) == ["host-operand"]


def test_an_operand_in_pinned_memory_is_taken(graphs, log):
    problem = Problem(graphs)
    arrays = on_device(problem.x, problem.w, problem.y)
    places = addresses(arrays)
    places[0] = arrays[0].pinned.ctypes.data  # it holds x since the copy
    cudnn.check(problem.execute(problem.plan(WRONG), places))
    assert_equal(arrays[2].get(), problem.expected)
    assert taken(log()) == ["host-operand"]


def test_one_plan_serves_device_and_host(graphs, log):
    """The second decision is made at every execution."""
    problem = Problem(graphs)
    plan = problem.plan(WRONG)
    arrays = on_device(problem.x, problem.w, problem.y)
    for _ in range(2):
        cudnn.check(problem.execute(plan, addresses(arrays)))
        assert_equal(arrays[2].get(), problem.expected + 0.5)
        cudnn.check(problem.execute(plan, [problem.x, problem.w, problem.y]))
        assert_equal(problem.y, problem.expected)
    assert taken(log()) == ["host-operand"] * 2


def test_a_plan_whose_workspace_is_too_large_is_taken(graphs, log):
    """The client is told how much we need, and that is all that we use."""
    problem = Problem(graphs)
    plan = problem.plan(HUGE)
    size = workspace_of(graphs, plan)
    assert 0 < size < 2**24
    arrays = on_device(problem.x, problem.w, problem.y)
    scratch = device_memory(size)
    free, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(free), byref(total))
    before = free.value
    for _ in range(3):
        cudnn.check(problem.execute(plan, addresses(arrays), scratch))
    call("cuStreamSynchronize", c_void_p())
    assert_equal(arrays[2].get(), problem.expected)
    call("cuMemGetInfo_v2", byref(free), byref(total))
    assert free.value == before
    assert taken(log()) == ["workspace"] * 3


def test_a_workspace_that_has_spilled_is_left_alone(graphs, log):
    """Tiles in host memory would cross the wire with every access."""
    problem = Problem(graphs)
    plan = problem.plan(HUGE)
    scratch = oocdnn.empty(workspace_of(graphs, plan), np.uint8)
    scratch[...] = 99
    arrays = on_device(problem.x, problem.w, problem.y)
    cudnn.check(problem.execute(plan, addresses(arrays), scratch.ctypes.data))
    call("cuStreamSynchronize", c_void_p())
    assert_equal(arrays[2].get(), problem.expected)
    assert (scratch == 99).all()
    assert taken(log()) == ["workspace"]


def test_a_taken_plan_without_a_workspace_still_runs(graphs):
    problem = Problem(graphs)
    arrays = on_device(problem.x, problem.w, problem.y)
    cudnn.check(problem.execute(problem.plan(HUGE), addresses(arrays)))
    assert_equal(arrays[2].get(), problem.expected)


@pytest.mark.parametrize("name", ["SHAPES", "STRIDES"])
def test_a_taken_plan_with_other_shapes_never_reaches_the_real_library(graphs, name):
    """The client has the small workspace that we said, and the real library would fill its own."""
    problem = Problem(graphs)
    plan = problem.plan(HUGE)
    arrays = on_device(problem.x, problem.w, problem.y)
    pack = graphs.make("VARIANT_PACK")
    places = [cudnn.ffi.cast("void *", place) for place in addresses(arrays)]
    graphs.set(pack, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", *places)
    graphs.set(pack, "VARIANT_PACK_UNIQUE_IDS", "INT64", X, W, Y)
    graphs.set(pack, f"VARIANT_PACK_OVERRIDE_{name}", "VOID_PTR", cudnn.ffi.NULL)
    graphs.finalize(pack)
    status = cudnn.cudnnBackendExecute(graphs.handle, plan, pack)
    assert status == cudnn.CUDNN_STATUS_NOT_SUPPORTED
    assert "in tiles" in last_text()


def test_a_taken_plan_whose_pack_lacks_a_tensor_never_reaches_the_real_library(graphs):
    problem = Problem(graphs)
    plan = problem.plan(HUGE)
    x, w, _ = addresses(on_device(problem.x, problem.w, problem.y))
    status = cudnn.cudnnBackendExecute(graphs.handle, plan, graphs.pack({X: x, W: w, Y + 1: x}))
    assert status == cudnn.CUDNN_STATUS_BAD_PARAM
    assert "lacks the tensor 3" in last_text()


@pytest.mark.parametrize("flag", ["DYNAMIC", "OVERRIDE"])
def test_a_graph_whose_shapes_may_change_keeps_its_workspace(graphs, flag):
    problem = Problem(graphs, **{flag: True})
    assert workspace_of(graphs, problem.plan(HUGE)) == 2**50
    assert workspace_of(graphs, Problem(graphs, **{flag: False}).plan(HUGE)) < 2**24


def test_a_configuration_has_the_workspace_of_its_plan(graphs):
    problem = Problem(graphs)
    for place in (RIGHT, HUGE):
        config = graphs.configurations(problem.graph, MOST)[place]
        size = graphs.get(config, "ENGINECFG_WORKSPACE_SIZE", "INT64")[0]
        assert size == workspace_of(graphs, graphs.plan(config)) < 2**24


def test_a_planned_program_has_room_for_workspaces(graphs, monkeypatch):
    """The plan of its training counts them; the budget is for tiles alone."""
    monkeypatch.setenv("OOC_FAKE_HUNGRY", str(2**20))  # of each of two images
    monkeypatch.setenv("OOCDNN_BUDGET", str(2**20))
    graph = Problem(graphs).graph

    def is_offered(nbytes: int = 2**21) -> bool:
        configs = graphs.configurations(graph, MOST)
        sizes = [graphs.get(one, "ENGINECFG_WORKSPACE_SIZE", "INT64")[0] for one in configs]
        return nbytes in sizes

    assert not is_offered()
    monkeypatch.setenv("OOCDNN_LIMIT", str(2**30))
    assert not is_offered()
    monkeypatch.setenv("OOCDNN_PLAN", "1")
    assert is_offered()
    monkeypatch.setenv("OOCDNN_LIMIT", str(2**21))
    assert not is_offered()
    monkeypatch.setenv("OOC_FAKE_HUNGRY", str(2**32))  # more than others may have
    assert not is_offered(2**33)
    monkeypatch.setenv("OOCDNN_LIMIT", str(2**34))
    assert is_offered(2**33)


def notes_of(graphs, config) -> list[int]:
    engine = graphs.get(
        config, "ENGINECFG_ENGINE", "BACKEND_DESCRIPTOR", into=graphs.make("ENGINE")
    )
    return graphs.get(engine[0], "ENGINE_NUMERICAL_NOTE", "NUMERICAL_NOTE")


def test_of_what_would_be_taken_one_is_offered(graphs):
    """Each would run the same tiles. A client keeps it who wants the same bits in every run."""
    configs = graphs.configurations(Problem(graphs).graph, MOST)
    sizes = [graphs.get(c, "ENGINECFG_WORKSPACE_SIZE", "INT64")[0] for c in configs]
    offered = graphs.configurations(Problem(graphs, DYNAMIC=True).graph, MOST)
    assert len(configs) == len(offered) - 1
    assert 0 < sizes[HUGE] < 2**24
    assert cudnn.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC in notes_of(graphs, offered[HUGE])
    assert cudnn.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC not in notes_of(graphs, configs[HUGE])
    assert len(graphs.configurations(Problem(graphs).graph, HUGE + 1)) == HUGE + 1


@pytest.mark.parametrize("most", [0, *range(1, MOST + 1)])
@pytest.mark.parametrize("mode", ["A", "FALLBACK"])
def test_every_configuration_that_is_offered_tells_all_that_a_real_one_tells(graphs, mode, most):
    """With as many descriptors as heuristics count, with fewer, and with more. The real library
    fills no descriptor twice, and counts more than it gives."""
    told = [
        graphs.described(config)
        for config in graphs.configurations(Problem(graphs).graph, most, mode)
    ]
    real = [
        graphs.described(config)
        for config in graphs.configurations(Problem(graphs, DYNAMIC=True).graph, most, mode)
    ]
    huge = [one for one in real if one["workspace"] == [2**50]]
    assert len(told) == len(real) - max(len(huge) - 1, 0)
    taken = [one for one in told if one not in real]
    assert len(taken) == min(len(huge), 1)
    for one in taken:
        assert 0 < one["workspace"][0] < 2**24
        assert one | {"workspace": [2**50]} in huge


@pytest.mark.parametrize("mode", ["A", "FALLBACK"])
def test_a_count_is_the_real_librarys_where_that_has_any_configuration(graphs, mode):
    """Clients allocate by it, so it need not be exact."""
    counts = [
        graphs.count(
            graphs.heuristics(Problem(graphs, DYNAMIC=dynamic).graph, mode),
            "ENGINEHEUR_RESULTS",
            "BACKEND_DESCRIPTOR",
        )
        for dynamic in (False, True)
    ]
    assert counts[0] == counts[1] > 1


def test_pinned_operands_that_we_cannot_do_go_to_the_real_library(graphs, log):
    """A GPU reads them; the real library has more types than we have."""
    problem = Problem(graphs)
    y = problem.y.astype(np.float64)
    tensors = [graphs.tensor(u, a) for u, a in ((X, problem.x), (W, problem.w), (Y, y))]
    op = graphs.convolution("FORWARD", *tensors, graphs.window(2, padding=1))
    problem.graph = graphs.finalize(graphs.graph(op))
    arrays = on_device(problem.x, problem.w, y)
    places = addresses(arrays)
    places[0] = arrays[0].pinned.ctypes.data
    cudnn.check(problem.execute(problem.plan(WRONG), places))
    assert_equal(arrays[2].get(), (problem.expected + 0.5).astype(np.float64))
    assert not taken(log())
    places[0] = problem.x.__array_interface__["data"][0]  # where only we could
    assert problem.execute(problem.plan(WRONG), places) == cudnn.CUDNN_STATUS_BAD_PARAM


def test_pinned_operands_under_capture_go_to_the_real_library(graphs, log):
    problem = Problem(graphs)
    plan = problem.plan(WRONG)
    arrays = on_device(problem.x, problem.w, problem.y)
    places = addresses(arrays)
    places[0] = arrays[0].pinned.ctypes.data
    capturing = c_int.in_dll(CDLL("libcuda.so.1"), "ooc_fake_capturing")
    capturing.value = 1
    try:
        cudnn.check(problem.execute(plan, places))
    finally:
        capturing.value = 0
    assert_equal(arrays[2].get(), problem.expected + 0.5)
    assert not taken(log())


def test_a_plan_that_the_real_library_cannot_make_stays_refused(graphs):
    """The client tries the next engine; taking it would hide better ones."""
    problem = Problem(graphs)
    config = graphs.configurations(problem.graph, MOST)[NO_PLAN]
    with pytest.raises(Exception, match="not this shape"):
        graphs.plan(config)


def test_tensor_cores_are_used_where_the_clients_engine_uses_them(graphs, log):
    """Only the configuration says whether float tensors may be rounded to TF32."""
    for place in (RIGHT, RIGHT + 1):
        problem = Problem(graphs)
        cudnn.check(problem.execute(problem.plan(place), [problem.x, problem.w, problem.y]))
        assert_equal(problem.y, problem.expected)
    lines = [line for line in log() if " taken " in line]
    assert ["tf32" in line for line in lines] == [True, False]


def test_parts_may_be_destroyed_before_the_whole_is_finished(graphs):
    """cuDNN copies what it is given, and so do we; addresses come again."""
    for _ in range(20):
        inner = Graphs(cudnn, graphs.handle)
        problem = Problem(inner)
        plan = graphs.plan(inner.configuration(problem.graph))
        inner.close()
        problem.graphs = graphs
        cudnn.check(problem.execute(plan, [problem.x, problem.w, problem.y]))
        assert_equal(problem.y, problem.expected)


def test_a_failure_of_ours_has_our_text(graphs):
    problem = Problem(graphs)
    plan = problem.plan(WRONG)
    status = problem.execute(plan, [problem.x, problem.w, problem.x])
    assert status == cudnn.CUDNN_STATUS_BAD_PARAM
    assert "cannot run in place" in last_text()
    with pytest.raises(Exception, match="not this shape"):  # the real library's, later
        problem.plan(NO_PLAN)
    assert "not this shape" in last_text()


def test_the_core_computes_with_the_real_library_behind_the_drop_in(log):
    """A context of ours in a preloaded process must not take the drop-in for cuDNN."""
    with oocdnn.Context("cuda:0", "1MiB") as context:
        engines = [engine["name"] for engine in json.loads(context.info())["engines"]]
        assert any(name.startswith("cudnn") for name in engines)
        y = oocdnn.conv2d(integers((1, 2, 6, 6)), integers((2, 2, 3, 3), 1))
    assert_equal(y, oracle.forward(integers((1, 2, 6, 6)), integers((2, 2, 3, 3), 1)))
    assert not taken(log())
