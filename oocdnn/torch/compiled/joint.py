"""A joint graph of forward and backward as the planner's timeline.

The values in memory that backward reads are the saved tensors; kernels are the operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from oocdnn.network.timeline import Operation, Recipe, Saved, Timeline
from oocdnn.torch.compiled.costs import Cost, Costs, nbytes_of
from oocdnn.torch.compiled.kernels import Kernel, Kernels
from oocdnn.torch.compiled.kinds import is_dense, must_recompute, must_save, operation

_MARK = "recompute"
_MOST = 4  # operations that are not fused in one recipe


class Joint:
    """A joint graph.

    Args:
        graph: Its nodes have `meta["val"]`.
        outputs: How many of its results are forward's.
        costs: Of the device.
        least: Smaller values are kept.
    """

    def __init__(self, graph: fx.Graph, outputs: int, costs: Costs, least: int) -> None:
        self._costs, self._least = costs, least
        self._of = Kernels(graph, outputs)

    @cached_property
    def saved(self) -> list[fx.Node]:
        """The values in memory that backward reads, in the order of production."""
        found = {value for uses in self._uses.values() for value in uses}
        of = self._of
        return sorted(found, key=lambda value: (of.position[value], of.order[value]))

    @cached_property
    def _index(self) -> dict[fx.Node, int]:
        return {value: number for number, value in enumerate(self.saved)}

    @cached_property
    def _results(self) -> dict[fx.Node, list[fx.Node]]:
        """The values in memory of each operation."""
        found: dict[fx.Node, list[fx.Node]] = {}
        for value in self._of.position:
            found.setdefault(operation(value), []).append(value)
        return found

    @cached_property
    def _uses(self) -> dict[int, set[fx.Node]]:
        """The forward values that each backward kernel reads, by the kernel's position."""
        of = self._of
        return {
            number: self._from_forward(of.kernels[number].reads)
            for number in range(of.forward, len(of.kernels))
        }

    def _from_forward(self, values: Iterable[fx.Node]) -> set[fx.Node]:
        """Those of forward; what the program has computed again stands for what it is computed
        from."""
        found: set[fx.Node] = set()
        left = list(values)
        while left:
            value = left.pop()
            if value.op != "call_function" or value not in self._of.early:
                continue
            if must_recompute(operation(value)):
                left.extend(self._of.read_by(operation(value)))
            else:
                found.add(value)
        return found

    @cached_property
    def timeline(self) -> Timeline:
        """Values without a way to move them stay; `saved` has the values in the same order."""
        of = self._of
        used: dict[fx.Node, list[int]] = {value: [] for value in self.saved}
        for number, values in self._uses.items():
            for value in values:
                used[value].append(number)
        read = dict(of.position)  # last positions in forward
        for number, kernel in enumerate(of.kernels[: of.forward]):
            read |= dict.fromkeys(kernel.reads, number)
        saved = [
            Saved(
                value.name,
                nbytes_of(value),
                of.position[value],
                read[value],
                tuple(used[value]),
                self._moves(value),
                self._recipes(value) if self._moves(value) else (),
            )
            for value in self.saved
        ]
        return Timeline(tuple(self._operations()), of.forward, tuple(saved))

    def hint(self) -> str:
        """For a message: the reason why values cannot move; empty if all can."""
        if all(is_dense(value) for value in self.saved):
            return ""
        return "; tensors with dynamic sizes stay on the device: compile with dynamic=False"

    def places(self) -> dict[str, int]:
        """Positions in the timeline by the names of nodes."""
        found = {value.name: number for value, number in self._of.position.items()}
        for value, number in self._of.position.items():
            found.setdefault(operation(value).name, number)
        return found

    def mark(self, rebuilt: set[fx.Node]) -> None:
        """Has PyTorch's partitioner save all saved values but these, which backward computes
        again."""
        of = self._of
        kept = set(self.saved) - rebuilt
        again: set[fx.Node] = set()
        left = [one for node in of.run if node not in of.early for one in node.all_input_nodes]
        while left:
            node = left.pop()
            if node.op != "call_function" or node not in of.early or node in kept or node in again:
                continue
            again.add(node)
            left.extend(node.all_input_nodes)
        for node in filter(of.kinds.repeats, again):
            node.meta[_MARK] = CheckpointPolicy.MUST_RECOMPUTE
        for node in {operation(value) for value in kept} - again:
            node.meta[_MARK] = CheckpointPolicy.MUST_SAVE

    def written(self) -> set[str]:
        """The names of the values that the plan has in memory."""
        return {value.name for value in filter(is_dense, self._of.position)}

    def _moves(self, value: fx.Node) -> bool:
        held = value in self._of.forward_results
        return is_dense(value) and not held and nbytes_of(value) >= self._least

    def _operations(self) -> list[Operation]:
        of, count = self._of, len(self._of.kernels)
        change = [0] * (count + 1)

        def holds(value: fx.Node, first: int, last: int) -> None:
            change[first] += nbytes_of(value)
            change[last + 1] -= nbytes_of(value)

        last: dict[fx.Node, int] = {}
        for number, kernel in enumerate(of.kernels):
            last |= dict.fromkeys(kernel.reads, number)
        results = of.forward_results | of.backward_results
        for value, first in of.position.items():
            if value not in self._index:
                holds(value, first, count - 1 if value in results else last.get(value, first))
        for value, number in last.items():
            if value.op == "placeholder" and value in of.late:
                holds(value, min(of.forward, number), number)
        made, held = [], 0
        for number, kernel in enumerate(of.kernels):
            held += change[number]
            cost = self._cost(kernel)
            made.append(Operation(_name(kernel), cost.seconds, held + cost.workspace))
        return made

    def _cost(self, kernel: Kernel) -> Cost:
        if kernel.node is not None:
            return self._costs.of(kernel.node)
        moved = sum(nbytes_of(one) for one in kernel.reads | kernel.writes)
        return Cost(moved / self._costs.bandwidth)

    def _computed_from(self, value: fx.Node) -> tuple[set[fx.Node], set[fx.Node]] | None:
        """The saved values that one is computed from, and the operations that this runs; None where
        another run would give something else."""
        kinds, known = self._of.kinds, self._index
        sources: set[fx.Node] = set()
        nodes: set[fx.Node] = set()
        left = [operation(value)]
        while left:
            node = left.pop()
            if node in nodes:
                continue
            if not kinds.repeats(node) or must_save(node):
                return None
            nodes.add(node)
            for one in map(kinds.value, node.all_input_nodes):
                if one in known and one is not value:
                    sources.add(one)
                elif one.op == "call_function":
                    left.append(operation(one))
        return sources, nodes

    def _recipes(self, value: fx.Node) -> tuple[Recipe, ...]:
        found = self._computed_from(value)
        if found is None:
            return ()
        of = self._of
        sources, nodes = found
        whole = [node for node in nodes if not of.kinds.is_fused(node)]
        if len(whole) > _MOST:
            return ()
        costs = [self._costs.of(node) for node in whole]
        between = {one for node in nodes for one in self._results.get(node, ())} - {value}
        moved = nbytes_of(value) + sum(map(nbytes_of, sources))
        seconds = sum(cost.seconds for cost in costs) + moved / self._costs.bandwidth
        temporary = sum(map(nbytes_of, between)) + max((c.workspace for c in costs), default=0)
        name = "replay" if whole else "rebuild"
        return (
            Recipe(tuple(sorted(self._index[one] for one in sources)), seconds, temporary, name),
        )


def _name(kernel: Kernel) -> str:
    node = kernel.node or min(kernel.writes, key=str)
    return str(node.name)


def mark_of(node: fx.Node) -> object:
    """The checkpoint policy of a node, to be restored."""
    return node.meta.get(_MARK)


def restore_mark(node: fx.Node, mark: object) -> None:
    """Sets the checkpoint policy of a node, or removes it."""
    node.meta.pop(_MARK, None)
    if mark is not None:
        node.meta[_MARK] = mark
