"""The order of Inductor's kernels, with copies and points where the graph has them.

Inductor's own order takes copies for kernels that cost nothing: it would start them where they are
waited for. Its order for the least memory is taken for the kernels, and the copies are put where
they stand among the graph's nodes.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch._inductor.memory import reorder_for_peak_memory
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from oocdnn.torch.compiled import copies
from oocdnn.torch.compiled.costs import nbytes_of
from oocdnn.torch.compiled.points import POINTS

_PLACED = frozenset((*copies.OPERATORS, *POINTS))
_log = logging.getLogger(__name__)
_Node = Any  # Inductor's BaseSchedulerNode


def arranged(nodes: list[_Node]) -> list[_Node]:
    """The scheduler's nodes in another order; in the graph's where that cannot be found."""
    try:
        return _arranged(nodes) if nodes else nodes
    except Exception as error:  # the scheduler's nodes are Inductor's to change
        _log.warning("oocdnn: kernels keep their order: %s: %s", type(error).__name__, error)
        return nodes


def _arranged(nodes: list[_Node]) -> list[_Node]:
    scheduler = nodes[0].scheduler
    ordered: list[_Node] = reorder_for_peak_memory(
        nodes,
        scheduler.name_to_buf,
        scheduler.name_to_fused_node,
        OrderedSet(V.graph.graph_inputs.keys()),
        OrderedSet(V.graph.get_output_names()),
    )
    places = {node.name: number for number, node in enumerate(V.graph.module.graph.nodes)}
    found = [(_place(node, places), node) for node in nodes]
    left = [(place, node) for place, node in found if place is not None]  # the copies
    if not left:
        return ordered
    left.sort(key=lambda one: one[0])
    copied = {id(node) for _, node in left}
    kernels = [node for node in ordered if id(node) not in copied]
    computed = [_computed(kernel) for kernel in kernels]
    reached = np.array([max((places.get(n.name, -1) for n in ns), default=-1) for ns in computed])
    nbytes = np.array([max(map(nbytes_of, ns), default=0) for ns in computed])
    chain = _ascending(reached, nbytes)
    due: defaultdict[int, list[_Node]] = defaultdict(list)  # copies, by the kernel behind them
    for place, node in left:
        due[_before(chain, reached, place)].append(node)
    made = _Order(nodes)
    waiting: list[_Node] = []
    for number, kernel in enumerate(kernels):
        candidates, waiting = waiting + due.pop(number, []), []
        for copy in candidates:
            if made.ready(copy):
                made.add(copy)
            else:
                waiting.append(copy)
        made.add(kernel)
    for copy in waiting + due[len(kernels)]:
        made.add(copy)
    return made.nodes


def _ascending(reached: NDArray[np.int64], nbytes: NDArray[np.int64]) -> list[int]:
    """Kernels in the graph's order, those that compute the most bytes.

    Others run far from their places: those of parameters and of single numbers, and those that are
    fused from far nodes.

    Args:
        reached: The last place in the graph that each kernel computes.
        nbytes: The largest value that each computes.
    """
    most = np.zeros(len(reached), np.int64)  # bytes of the kernels that end with each
    previous = np.full(len(reached), -1)
    for number, place in enumerate(reached):
        before = np.where(reached[:number] <= place, most[:number], -1)
        if number and before.max() >= 0:
            previous[number] = before.argmax()
        most[number] = nbytes[number] + max(before.max(initial=0), 0)
    found: list[int] = []
    number = int(most.argmax()) if len(most) else -1
    while number >= 0:
        found.append(number)
        number = int(previous[number])
    return found[::-1]


def _before(chain: list[int], reached: NDArray[np.int64], place: int) -> int:
    """The kernel that a copy is put before: the first of the chain that computes what comes after
    the copy's place in the graph; the first of all where none of the chain computes what comes
    before it."""
    at = bisect_right(chain, place, key=lambda number: int(reached[number]))
    if at == 0:
        return 0
    return chain[at] if at < len(chain) else len(reached)


class _Order:
    """Nodes behind those that they depend on.

    Args:
        nodes: All.
    """

    def __init__(self, nodes: list[_Node]) -> None:
        self.nodes: list[_Node] = []
        self._done: set[int] = set()
        self._made = {out.get_name(): node for node in nodes for out in node.get_outputs()}

    def ready(self, node: _Node) -> bool:
        """True if the order has all dependencies of a node."""
        return all(id(one) in self._done for one in self._needed(node))

    def add(self, node: _Node) -> None:
        """A node, after what it depends on; once."""
        left = [node]
        while left:
            one = left[-1]
            missing = [other for other in self._needed(one) if id(other) not in self._done]
            if missing and id(one) not in self._done:
                left.extend(missing)
                continue
            left.pop()
            if id(one) not in self._done:
                self._done.add(id(one))
                self.nodes.append(one)

    def _needed(self, node: _Node) -> list[_Node]:
        found = (self._made.get(one.name) for one in node.unmet_dependencies)
        return [one for one in found if one is not None and one is not node]


def _computed(node: _Node) -> list[fx.Node]:
    """The nodes that a kernel computes, without copies to the graph's inputs. Such copies are the
    graph's last nodes, and Inductor fuses them with the kernels of their values."""
    return [one for one in _origins(node) if one.target is not torch.ops.aten.copy_.default]


def _origins(node: _Node) -> list[fx.Node]:
    return [one for part in node.get_nodes() if part.node for one in part.node.get_origins()]


def _place(node: _Node, places: dict[str, int]) -> int | None:
    """The position of a copy or a point in the graph; None for a kernel."""
    found = [places.get(one.name, -1) for one in _origins(node) if one.target in _PLACED]
    return max(found, default=None)
