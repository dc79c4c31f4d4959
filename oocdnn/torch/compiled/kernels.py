"""The kernels of a joint graph of forward and backward.

AOTAutograd traces both in one graph; a partition decides what forward hands to backward. What
Inductor fuses is computed where it is read and takes no memory; the other values are in memory, and
a kernel is what writes some of them at once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from torch import Tensor, fx

from oocdnn.torch.compiled.costs import nbytes_of
from oocdnn.torch.compiled.kinds import Kinds, is_bool, operation


@dataclass
class Kernel:
    """A kernel, or an operation that is run as it is.

    Args:
        reads: Values.
        writes: Values.
        node: The operation that is not fused.
    """

    reads: set[fx.Node] = field(default_factory=set)
    writes: set[fx.Node] = field(default_factory=set)
    node: fx.Node | None = None


class Kernels:
    """Of a joint graph.

    Args:
        graph: Its nodes have `meta["val"]`.
        outputs: How many of its results are forward's.

    Attributes:
        kinds: Of nodes.
        early: Nodes that forward runs.
        late: Nodes that wait for the gradients of forward's results.
        run: Nodes in the order in which they run.
        kernels: In order.
        forward: How many of them are forward's.
        position: Of a value in memory, the kernel that writes it.
    """

    def __init__(self, graph: fx.Graph, outputs: int) -> None:
        self.kinds = Kinds(graph)
        self._calls = [node for node in graph.nodes if node.op == "call_function"]
        self.order = {node: index for index, node in enumerate(graph.nodes)}
        results = list(graph.output_node().args[0])
        self.forward_results = self._values(results[:outputs])
        self.backward_results = self._values(results[outputs:])
        self._ends = self.forward_results | self.backward_results
        self.late = _waiting(graph)
        self.early = self._needed_by_forward()
        self._hoisted: set[fx.Node] = set()
        self._arrange()
        self._hoisted = self._smaller()
        if self._hoisted:
            self.early |= self._hoisted
            self._arrange()

    def in_memory(self, value: fx.Node) -> bool:
        """Whether a value is written to memory, and not only computed where it is read."""
        known = self._in_memory.get(value)
        if known is None:
            known = self._in_memory[value] = self._is_written(value)
        return known

    def read_by(self, node: fx.Node) -> frozenset[fx.Node]:
        """The values in memory that computing a node reads."""
        known = self._reads.get(node)
        if known is None:
            found: set[fx.Node] = set()
            for one in node.all_input_nodes:
                value = self.kinds.value(one)
                if not isinstance(value.meta.get("val"), Tensor):
                    continue  # a size
                if value.op != "call_function" or self.in_memory(value):
                    found.add(value)
                else:
                    found |= self.read_by(operation(value))
            known = self._reads[node] = frozenset(found)
        return known

    # The order.

    def _values(self, nodes: Iterable[object]) -> set[fx.Node]:
        return {self.kinds.value(node) for node in nodes if _is_node(node)}

    def _needed_by_forward(self) -> set[fx.Node]:
        ends = {n for n in self._calls if self.kinds.is_mutable(n) and n not in self.late}
        found = _ancestors(self.forward_results | ends)
        parts = {n for n in self._calls if n.target is operator.getitem and n.args[0] in found}
        return found | parts

    def _arrange(self) -> None:
        """Orders the nodes, forward being what is early, and finds the kernels."""
        self.run = [n for n in self._calls if n in self.early and n not in self._hoisted]
        behind: dict[fx.Node, list[fx.Node]] = {}  # what follows its last operand
        for node in sorted(self._hoisted, key=self.order.__getitem__):
            operands = [one for one in node.all_input_nodes if one in self.early]
            behind.setdefault(max(operands, key=self.order.__getitem__), []).append(node)
        self.run = [one for node in self.run for one in (node, *behind.get(node, ()))]
        self._run_backward()
        self._stretch = self._stretches()
        self._in_memory: dict[fx.Node, bool] = {}
        self._reads: dict[fx.Node, frozenset[fx.Node]] = {}
        for node in self.run:
            self.read_by(node)
        self.kernels = self._made()
        self.position = {
            value: number for number, one in enumerate(self.kernels) for value in one.writes
        }
        self.forward = sum(1 for one in self.kernels if one.writes & self.early)

    def _run_backward(self) -> None:
        """Appends backward. What does not wait for a gradient runs where it is first read."""
        needed, behind = _ancestors(self.backward_results), set(self.run)
        left = [n for n in reversed(self._calls) if n in needed and n in self.late]
        while left:
            node = left[-1]
            missing = [
                one
                for one in node.all_input_nodes
                if one.op == "call_function" and one not in behind
            ]
            if missing:
                left.extend(reversed(missing))
                continue
            left.pop()
            if node not in behind:
                behind.add(node)
                self.run.append(node)

    def _stretches(self) -> dict[fx.Node, int]:
        """Numbers of the stretches between operations that are not fused."""
        found, number, forward = {}, 0, True
        for node in self.run:
            if forward and node not in self.early:
                forward, number = False, number + 1
            whole = not self.kinds.is_fused(node) and not self.kinds.is_view(node)
            number += whole
            found[node] = number
            number += whole
        return found

    def _smaller(self) -> set[fx.Node]:
        """What forward can compute for backward in place of a larger value that backward reads for
        nothing else, such as the mask of a ReLU that a pooling layer follows."""
        readers: dict[fx.Node, set[fx.Node]] = {}
        needed: set[fx.Node] = set()  # as they are
        for node in self.run:
            if node in self.early:
                continue
            if node in self.late or not self.kinds.is_fused(node) or not self.kinds.repeats(node):
                for value in self._values(node.all_input_nodes) & self.early:
                    needed |= {value} if self.in_memory(value) else self.read_by(operation(value))
            elif any(user in self.late for user in self._readers(node)):
                for value in self.read_by(node) & self.early:
                    readers.setdefault(value, set()).add(node)
        return {
            node
            for value, nodes in readers.items()
            if value not in needed and sum(map(nbytes_of, nodes)) < nbytes_of(value)
            for node in nodes
            if all(one in self.early for one in node.all_input_nodes if one.op == "call_function")
        }

    # Values.

    def _readers(self, node: fx.Node) -> Iterator[fx.Node]:
        """The nodes that read a value, through views."""
        left = list(node.users)
        while left:
            user = left.pop()
            if user.op == "call_function" and self.kinds.is_view(user):
                left.extend(user.users)
            else:
                yield user

    def _is_written(self, value: fx.Node) -> bool:
        node = operation(value)
        if not self.kinds.is_fused(node) or value is not node or self.kinds.ends(node):
            return True
        if value in self._ends or value in self._hoisted:
            return True
        if self.kinds.is_random(node):  # unless it becomes a mask of dropout
            return not all(map(is_bool, self._readers(value)))
        if not self.kinds.repeats(node):
            return True
        if is_bool(value) and self._is_drawn(value):
            return True
        return bool(node.all_input_nodes) and any(
            self._stretch[user] != self._stretch[node]
            for user in self._readers(value)
            if user in self._stretch
            and not self.kinds.is_mutable(user)
            and (user in self.early or value not in self.early)  # else backward computes it again
        )

    def _is_drawn(self, value: fx.Node) -> bool:
        """Whether it comes from random numbers without a value in memory between."""
        left = [value]
        while left:
            node = left.pop()
            if self.kinds.is_random(node):
                return True
            left.extend(
                one
                for one in self._values(node.all_input_nodes)
                if one.op == "call_function" and nbytes_of(one) >= nbytes_of(value)
                and self.kinds.is_fused(one) and not self.kinds.ends(operation(one))
            )  # fmt: skip
        return False

    # Kernels.

    def _made(self) -> list[Kernel]:
        made: list[Kernel] = []
        whole: dict[fx.Node, Kernel] = {}
        stretch: list[fx.Node] = []
        number = -1
        for node in self.run:
            if self.kinds.is_mutable(node) or self.kinds.is_view(node):
                continue
            if operation(node) in whole:
                whole[operation(node)].writes.add(node)
                continue
            if self._stretch[node] != number:
                made += self._passes(stretch)
                stretch, number = [], self._stretch[node]
            if self.kinds.is_fused(node):
                stretch.append(node)
            else:
                values = {node} if isinstance(node.meta.get("val"), Tensor) else set()
                whole[node] = Kernel(set(self.read_by(node)), values, node)
                made.append(whole[node])
        return made + self._passes(stretch)

    def _passes(self, stretch: list[fx.Node]) -> list[Kernel]:
        """The kernels of fused nodes: what reads a reduction's result follows it."""
        depth: dict[fx.Node, int] = {}
        made: dict[int, Kernel] = {}
        for node in stretch:
            part = node.target is operator.getitem
            depths = [
                depth[one] + (not part and self.kinds.ends(operation(one)))
                for one in self._values(node.all_input_nodes)
                if one in depth
            ]
            depth[node] = max(depths, default=0)
            if isinstance(node.meta.get("val"), Tensor) and self.in_memory(node):
                kernel = made.setdefault(depth[node], Kernel())
                kernel.writes.add(node)
                kernel.reads |= self.read_by(operation(node))
        return [made[number] for number in sorted(made)]


def _waiting(graph: fx.Graph) -> set[fx.Node]:
    """What depends on the gradients of forward's results."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        name = str(node.target) if node.op == "placeholder" else ""
        begins = "tangents" in name or "bwd_seed_offset" in name
        if begins or any(one in found for one in node.all_input_nodes):
            found.add(node)
    return found


def _ancestors(ends: set[fx.Node]) -> set[fx.Node]:
    found, left = set(ends), list(ends)
    while left:
        for one in left.pop().all_input_nodes:
            if one not in found:
                found.add(one)
                left.append(one)
    return found


def _is_node(one: object) -> TypeGuard[fx.Node]:
    return isinstance(one, fx.Node)
