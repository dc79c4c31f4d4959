"""Partitions a joint graph by a plan: what is saved, what is computed again, what is swapped."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from oocdnn.errors import OutOfMemory
from oocdnn.network.plan import Movement, Policy
from oocdnn.network.planner import Plan, least_limit, plan
from oocdnn.torch.compiled import copies
from oocdnn.torch.compiled.joint import Joint
from oocdnn.torch.compiled.room import device_of, room_of
from oocdnn.torch.compiled.steering import Points, Steered

_log = logging.getLogger(__name__)
Modules = tuple[fx.GraphModule, fx.GraphModule]


_plans: deque[Plan] = deque(maxlen=64)  # of the process


def plans() -> list[Plan]:
    """The plans of the graphs that this process has compiled, the latest last; `plan.explain()` is
    a table of what happens to each tensor."""
    return list(_plans)


class Partitioner(CustomPartitionerFn):
    """Plans the graphs of a compiled program within a limit.

    Args:
        limit: Device bytes of the process.
        planning: Seconds for one graph's plan.
        later: Whether the program has compiled a graph before.

    Attributes:
        steered: The steps of the graphs, which have to live as long as these.
    """

    def __init__(self, limit: int, planning: float, later: bool = False) -> None:
        self._limit, self._planning, self._later = limit, planning, later
        self.steered: list[Steered] = []

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **given: Any) -> Modules:
        given.pop("compiler", None)
        tags = {node.name: node.meta.get("recompute") for node in gm.graph.nodes}
        try:
            gm.graph.eliminate_dead_code()
            gm.graph = fx_graph_cse(gm.graph)
            graph = _Planned(gm, given["num_fwd_outputs"], self._limit, self._planning, self._later)
            parts: Modules = min_cut_rematerialization_partition(gm, joint_inputs, **given)
            made = graph.swapped(*parts)
        except OutOfMemory:
            raise
        except Exception as error:  # what graphs consist of is PyTorch's to change
            _log.warning(
                "oocdnn: a graph is compiled without a plan: %s: %s", type(error).__name__, error
            )
            for node in gm.graph.nodes:
                _tag(node, tags.get(node.name))
            plain: Modules = min_cut_rematerialization_partition(gm, joint_inputs, **given)
            return plain
        self.steered += graph.steered
        _plans.append(graph.plan)
        _log.info("oocdnn: %s", graph.plan.explain().summary())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Partitioner:
        """Itself: Inductor copies its configuration."""
        return self

    def uuid(self) -> str:
        """One for all: what Inductor makes of forward and of backward shows the plan."""
        return "oocdnn"


class _Planned:
    """A joint graph with its plan.

    Args:
        gm: Its nodes are marked for PyTorch's partitioner.
        outputs: How many of its results are forward's.
        limit: Device bytes of the process.
        planning: Seconds.
        later: Whether the limit may be passed rather than the graph refused.
    """

    def __init__(
        self, gm: fx.GraphModule, outputs: int, limit: int, planning: float, later: bool
    ) -> None:
        room = room_of(device_of(gm.graph))
        joint = self._joint = Joint(gm.graph, outputs, room.costs, room.least)
        self._outputs, self._limit = outputs, limit
        self._room = room
        self.steered: list[Steered] = []
        least = least_limit(joint.timeline)  # nodes are run to measure their costs
        left = room.within(limit)
        if left < least:
            used, needed = limit - left, limit - left + least
            if not later:
                raise OutOfMemory(
                    f"the compiled step needs {least} bytes for tensors where everything that can "
                    f"move is moved, and {used} for parameters, optimizers, CUDA's context and "
                    f"gaps between tensors; the limit is {limit}: raise it to {needed}, or take a "
                    f"smaller batch{joint.hint()}",
                    least=needed,
                )
            # What earlier graphs save is in use now; they were planned without this one.
            _log.warning(
                "oocdnn: a graph needs %d bytes beside %d that are in use; the limit of %d is "
                "passed: the program has compiled graphs before, after graph breaks "
                "(fullgraph=True says where) or for other sizes%s",
                least, used, limit, joint.hint(),
            )  # fmt: skip
            left = least
        self.plan = plan(joint.timeline, room.links, left, seconds=planning)
        choices = dict(zip(joint.saved, self.plan.schedule.choices, strict=True))
        joint.mark({value for value, one in choices.items() if one.policy is Policy.REBUILD})
        self._places = joint.places()

    def swapped(self, forward: fx.GraphModule, backward: fx.GraphModule) -> Modules:
        """Forward and backward with the copies of the plan."""
        schedule = self.plan.schedule
        for index in schedule.swapped():
            value, moves = self._joint.saved[index], schedule.movements[index]
            if self._leaves(forward.graph, value.name, moves.release):
                self._comes(backward.graph, value, moves)
        if self._room.steers():
            self._add_points(forward.graph, backward.graph)
        for module in (forward, backward):
            module.graph.lint()
            module.recompile()
        return forward, backward

    def _add_points(self, forward: fx.Graph, backward: fx.Graph) -> None:
        points = Points(forward, backward)
        if points.count:
            steered = Steered(self._room.card, self._limit, points.count)
            points.add(steered.number)
            self.steered.append(steered)

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
        readers = set(value.users) - {output}
        point, after = output, False
        for node in graph.nodes:
            after = after or node is value
            if node in readers:
                readers.discard(node)
            elif after and not readers and self._places.get(node.name, -1) >= release:
                point = node
                break
        with graph.inserting_after(value):
            token = _call(graph, copies.swap_out, value, list(value.meta["val"].stride()))
        if self._ends_in_backward(release):
            with graph.inserting_before(output):
                _call(graph, copies.keep_swap_out, token, value)
        else:
            with graph.inserting_before(point):
                _call(graph, copies.finish_swap_out, token, value)
        output.update_arg(0, (*results[: self._outputs], *_replaced(saved, value, token)))
        return True

    def _comes(self, graph: fx.Graph, value: fx.Node, moves: Movement) -> None:
        """Has backward take a token instead of a value, and fetch the value."""
        (given,) = (node for node in graph.find_nodes(op="placeholder") if node.name == value.name)
        form = value.meta["val"]
        readers = set(given.users)
        first = next(node for node in graph.nodes if node in readers)
        given.meta["val"] = _token(form)
        given.meta.pop("tensor_meta", None)
        if self._ends_in_backward(moves.release):
            with graph.inserting_before(self._at(graph, moves.release, first)):
                _call(graph, copies.finish_swap_out, given, None)
        with graph.inserting_before(self._at(graph, moves.fetch, first)):
            come = graph.call_function(
                torch.ops.aten.empty_strided.default, (list(form.size()), list(form.stride())),
                {"dtype": form.dtype, "device": form.device}, name=f"swapped_{value.name}",
            )  # fmt: skip
            come.meta["val"] = form
            _call(graph, copies.swap_in, come, given)
        with graph.inserting_before(first):
            _call(graph, copies.finish_swap_in, come, given)
        for reader in readers:
            reader.replace_input_with(given, come)

    def _at(self, graph: fx.Graph, place: int, last: fx.Node) -> fx.Node:
        """The first node of a graph at or after a position of the timeline; none behind `last`."""
        for node in graph.nodes:
            if node is last:
                break
            if node.op != "placeholder" and self._places.get(node.name, -1) >= place:
                return node
        return last


def _replaced(values: Sequence[Any], old: fx.Node, new: fx.Node) -> list[Any]:
    return [new if one is old else one for one in values]


def _call(graph: fx.Graph, target: Any, *given: Any) -> fx.Node:
    node = graph.call_function(target, given)
    values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in given]
    with values[0].fake_mode:
        node.meta["val"] = target(*values)
    return node


def _token(form: Any) -> Any:
    with form.fake_mode:
        return copies.swap_out(form, list(form.stride()))


def _tag(node: fx.Node, tag: Any) -> None:
    if tag is None:
        node.meta.pop("recompute", None)
    else:
        node.meta["recompute"] = tag
