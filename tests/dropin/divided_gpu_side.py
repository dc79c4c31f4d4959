"""Limits of workspace, before a GPU and a cuDNN, here the fake ones, whose best engine wants
workspace for every sample; set up by test_intercepted.py with a limit for each layer or a total."""

from __future__ import annotations

import os
import re

import numpy as np
import oracle
import pytest
from dropin.gpu_side import addresses, device_memory, on_device, taken, workspace_of
from gpu.driver import InContext
from python.support import assert_equal, integers

from oocdnn import cudnn

SAMPLE = int(os.environ.get("OOC_FAKE_HUNGRY", "0"))
LIMIT = int(os.environ.get("OOCDNN_WORKSPACE_LIMIT", "0"))
TOTAL = int(os.environ.get("OOCDNN_WORKSPACE_TOTAL", "0"))
SLACK = 4096  # alignment
HUNGRY = 0  # the place of that engine's configuration


@pytest.fixture(scope="module", autouse=True)
def lib():
    with InContext():
        yield cudnn


class Layer:
    """A forward convolution of so many samples, or its filter's gradient."""

    def __init__(self, graphs, samples: int, width: int, direction: str = "FORWARD"):
        self.graphs, self.direction = graphs, direction
        x, w = integers((samples, 4, 8, width)), integers((4, 4, 3, 3), 1)
        y = oracle.forward(x, w, padding=1).astype(np.float32)
        self.arrays = dict(zip("xwy", on_device(x, w, y), strict=True))
        self.output = "y" if direction == "FORWARD" else "w"
        self.expected = y if direction == "FORWARD" else oracle.backward_filter(
            x, y, w.shape, padding=1
        )  # fmt: skip
        tensors = [graphs.tensor(i, a) for i, a in enumerate((x, w, y), 1)]
        op = graphs.convolution(direction, *tensors, graphs.window(2, padding=1))
        self.graph = graphs.finalize(graphs.graph(op))

    def plan(self):
        """Of the hungry engine; the workspace that is told for it."""
        plan = self.graphs.plan(self.graphs.configurations(self.graph, 20)[HUNGRY])
        return plan, workspace_of(self.graphs, plan)

    def run(self, plan, told: int) -> None:
        self.arrays[self.output].fill(np.full_like(self.arrays[self.output].like, np.nan))
        places = dict(enumerate(addresses(self.arrays.values()), 1))
        pack = self.graphs.pack(places, device_memory(told))
        cudnn.check(cudnn.cudnnBackendExecute(self.graphs.handle, plan, pack))
        assert_equal(self.arrays[self.output].get(), self.expected)

    def appear(self) -> int:
        plan, told = self.plan()
        self.run(plan, told)
        return told


limited = pytest.mark.skipif(LIMIT == 0, reason="in another process")
shared = pytest.mark.skipif(TOTAL == 0, reason="in another process")


@limited
@pytest.mark.parametrize("direction", ["FORWARD", "BACKWARD_FILTER"])
def test_a_batch_is_divided_where_its_workspace_passes_the_limit(graphs, log, direction):
    layer = Layer(graphs, samples=8, width=8, direction=direction)
    plan, told = layer.plan()
    assert told <= LIMIT + SLACK < 8 * SAMPLE
    layer.run(plan, told)
    assert taken(log()) == ["workspace"]
    (line,) = [line for line in log() if " taken " in line]
    assert int(re.search(r"tiles=(\d+)", line)[1]) >= 8 * SAMPLE // LIMIT


@limited
def test_what_stays_within_the_limit_is_the_real_librarys(graphs, log):
    layer = Layer(graphs, samples=LIMIT // SAMPLE, width=9)
    plan, told = layer.plan()
    assert told == LIMIT
    layer.run(plan, told)
    assert taken(log()) == []


def divided(lines: list[str]) -> list[int]:
    """How many layers shared, each time that they were divided."""
    found = (re.search(r"(\d+) layers share", line) for line in lines)
    return [int(one[1]) for one in found if one]


@shared
def test_layers_share_when_the_first_repeats_and_when_a_new_one_appears(graphs, log):
    first, second, third = (Layer(graphs, samples=8, width=width) for width in (8, 10, 12))
    gradient = Layer(graphs, samples=8, width=8, direction="BACKWARD_FILTER")
    for layer in (first, second, second):  # any has all of it, as long as nobody shares
        assert layer.appear() <= TOTAL + SLACK
    assert divided(log()) == []
    first.appear()
    assert divided(log()) == [2]
    for layer in (first, second, first):
        layer.appear()
    assert divided(log()) == [2]
    third.appear()
    assert divided(log()) == [2, 3]
    gradient.appear()
    assert divided(log()) == [2, 3, 4]
    layers = (first, second, third, gradient)
    told = [layer.appear() for layer in layers]
    assert sum(told) <= TOTAL + len(told) * SLACK
    assert all(one >= SAMPLE for one in told)  # there is enough for each to have the fast engine
    assert divided(log()) == [2, 3, 4]
    assert set(taken(log())) == {"workspace"}


@limited
def test_what_is_no_limit_is_ignored_with_one_warning(graphs, log, monkeypatch):
    monkeypatch.setenv("OOCDNN_WORKSPACE_LIMIT", "much")
    for width in (10, 11):
        _, told = Layer(graphs, samples=8, width=width).plan()
        assert told == 8 * SAMPLE
    (line,) = [line for line in log() if "much" in line]
    assert "OOCDNN_WORKSPACE_LIMIT is ignored: 'much' is not a number of bytes" in line
