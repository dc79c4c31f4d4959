"""Points among the kernels of compiled graphs.

Forward and backward have operators at which the runtime can take device bytes and give them back:

    order = begin_points()        a small tensor of the CPU, which keeps the points in order
    point(order, step, number)
"""

from __future__ import annotations

import heapq
import itertools

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from oocdnn.torch.compiled.copies import OPERATORS
from oocdnn.torch.compiled.costs import nbytes_of
from oocdnn.torch.compiled.operators import define, no_form, token_form
from oocdnn.torch.compiled.steering import steered_step

_MOST = 32  # points of a graph
_LARGE = 1 << 20  # bytes of a value before which there may be a point


def _begin_points() -> Tensor:
    return torch.zeros(1, dtype=torch.int64)


def _point(order: Tensor, step: int, number: int) -> None:
    del order
    steered = steered_step(step)
    if steered is not None:
        steered.at(number)


begin_points = define("begin_points() -> Tensor", _begin_points, token_form)
point = define("point(Tensor(a!) order, int step, int number) -> ()", _point, no_form)
POINTS = begin_points, point


class Points:
    """The places in a step's graphs where the allocator is steered: at their beginning, and before
    the largest values.

    Attributes:
        count: Number of places.
    """

    def __init__(self, forward: fx.Graph, backward: fx.Graph) -> None:
        self._places = [(graph, _places(graph)) for graph in (forward, backward)]
        self.count = sum(len(nodes) for _, nodes in self._places)

    def add(self, step: int) -> None:
        """Has the graphs reach the points of a step."""
        numbers = itertools.count()
        for graph, nodes in self._places:
            if not nodes:
                continue
            with graph.inserting_before(nodes[0]):
                order = graph.call_function(begin_points)
            with _mode(nodes[-1]):
                order.meta["val"] = begin_points()
            for node in nodes:
                with graph.inserting_before(node):
                    made = graph.call_function(point, (order, step, next(numbers)))
                made.meta["val"] = None


def _places(graph: fx.Graph) -> list[fx.Node]:
    """The nodes before which there are points: what is allocated before the first one would belong
    to the step before. None where no value is large."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    large = [n for n in calls if n.target not in OPERATORS and nbytes_of(n) >= _LARGE]
    if not large:
        return []
    found = set(heapq.nlargest(_MOST, large, key=nbytes_of))
    return calls[:1] + [node for node in calls[1:] if node in found]


def _mode(node: fx.Node) -> FakeTensorMode:
    """That a node's values are of."""
    values = tree_leaves(node.meta["val"])
    mode: FakeTensorMode = next(one for one in values if isinstance(one, FakeTensor)).fake_mode
    return mode
