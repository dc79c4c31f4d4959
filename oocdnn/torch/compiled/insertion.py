"""Puts the copies of a plan into the graphs of forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import fx

from oocdnn.network.plan import Movement, Schedule
from oocdnn.torch.compiled import copies
from oocdnn.torch.compiled.editing import call, first_of
from oocdnn.torch.compiled.joint import Joint
from oocdnn.torch.compiled.orders import Orders


class Insertion:
    """Inserts the copies of a schedule into graphs.

    Args:
        joint: The graph that was partitioned.
        schedule: Of its timeline.
        outputs: How many of forward's results are the program's.
        orders: Of forward's values.
    """

    def __init__(self, joint: Joint, schedule: Schedule, outputs: int, orders: Orders) -> None:
        self._joint, self._schedule = joint, schedule
        self._outputs, self._orders = outputs, orders
        self._places = joint.places()

    def run(self, forward: fx.Graph, backward: fx.Graph) -> None:
        """Has both graphs copy what the schedule swaps, where forward saves it."""
        swapped = set(self._schedule.swapped())
        for index in filter(swapped.__contains__, self._schedule.by_need()):
            value, moves = self._joint.saved[index], self._schedule.movements[index]
            if self._leaves(forward, value.name, moves.release):
                self._comes(backward, value, moves)

    def _ends_in_backward(self, release: int) -> bool:
        return release >= self._joint.timeline.forward

    def _leaves(self, graph: fx.Graph, name: str, release: int) -> bool:
        """Has forward save a token instead of a value; False where it does not save the value."""
        output = graph.output_node()
        results = list(output.args[0])
        saved = results[self._outputs :]
        value = next((one for one in saved if isinstance(one, fx.Node) and one.name == name), None)
        if value is None:
            return False
        with graph.inserting_after(value):
            token = call(graph, copies.swap_out, value, self._orders.strides(value))
        if self._ends_in_backward(release):
            with graph.inserting_before(output):
                call(graph, copies.keep_swap_out, token, value)
        else:
            nodes = list(graph.nodes)
            readers = {value, *value.users} - {output}
            last = max(index for index, node in enumerate(nodes) if node in readers)
            with graph.inserting_before(self._at(nodes[last + 1 :], release, output)):
                call(graph, copies.finish_swap_out, token, value)
        output.update_arg(0, (*results[: self._outputs], *_replaced(saved, value, token)))
        return True

    def _comes(self, graph: fx.Graph, value: fx.Node, moves: Movement) -> None:
        """Has backward take a token instead of a value, and fetch the value."""
        (given,) = (node for node in graph.find_nodes(op="placeholder") if node.name == value.name)
        form = value.meta["val"]
        readers = set(given.users)
        first = first_of(graph, readers)
        given.meta["val"] = _token(form)
        given.meta.pop("tensor_meta", None)
        if self._ends_in_backward(moves.release):
            with graph.inserting_before(self._at(graph.nodes, moves.release, first)):
                call(graph, copies.finish_swap_out, given, None)
        with graph.inserting_before(self._at(graph.nodes, moves.fetch, first)):
            coming = call(graph, copies.swap_in, given)
        with graph.inserting_before(first):
            size, stride = list(form.size()), self._orders.strides(value)
            come = call(
                graph, copies.finish_swap_in, coming, size, stride,
                dtype=form.dtype, device=form.device,
            )  # fmt: skip
        for reader in readers:
            reader.replace_input_with(given, come)

    def _at(self, nodes: Iterable[fx.Node], place: int, last: fx.Node) -> fx.Node:
        """The first of the nodes at or after a position of the timeline; none behind `last`."""
        for node in nodes:
            if node is last:
                break
            if node.op != "placeholder" and self._places.get(node.name, -1) >= place:
                return node
        return last


def _replaced(values: Sequence[Any], old: fx.Node, new: fx.Node) -> list[Any]:
    return [new if one is old else one for one in values]


def _token(form: Any) -> Any:
    with form.fake_mode:
        return copies.swap_out(form, list(form.stride()))
