"""Partitions a joint graph by a plan: what is saved, what is computed again, what is swapped."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import fx
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from oocdnn.errors import OutOfMemory
from oocdnn.network.plan import Policy
from oocdnn.network.planner import Plan, least_limit, plan
from oocdnn.torch.compiled.insertion import Insertion
from oocdnn.torch.compiled.joint import Joint, mark_of, restore_mark
from oocdnn.torch.compiled.orders import Orders
from oocdnn.torch.compiled.points import Points
from oocdnn.torch.compiled.room import Room, device_of, room_of
from oocdnn.torch.compiled.steering import Steered

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
        later: Whether the program has compiled a graph before: then the limit is passed rather than
            the graph refused.
    """

    def __init__(self, limit: int, planning: float, later: bool = False) -> None:
        self._limit, self._planning, self._later = limit, planning, later
        self._steered: list[Steered] = []

    def taken(self) -> list[Steered]:
        """The steps of the graphs that were partitioned, which have to live as long as these: the
        partitioner lives longer, in Inductor's configuration."""
        steered, self._steered = self._steered, []
        return steered

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **given: Any) -> Modules:
        given.pop("compiler", None)
        marks = {node.name: mark_of(node) for node in gm.graph.nodes}
        try:
            gm.graph.eliminate_dead_code()
            gm.graph = fx_graph_cse(gm.graph)
            outputs = given["num_fwd_outputs"]
            room = room_of(device_of(gm.graph))
            room.prepare(gm.graph)
            joint = Joint(gm.graph, outputs, room.costs, room.least)
            made = self._plan(joint, room)
            choices = zip(joint.saved, made.schedule.choices, strict=True)
            joint.mark({value for value, one in choices if one.policy is Policy.REBUILD})
            parts: Modules = min_cut_rematerialization_partition(gm, joint_inputs, **given)
            forward, backward = (module.graph for module in parts)
            orders = Orders(parts[0])
            orders.mark(joint.written(), forward, backward)
            Insertion(joint, made.schedule, outputs, orders).run(forward, backward)
            orders.save_views(backward, outputs)
            self._steer(room, forward, backward)
            for module in parts:
                module.graph.lint()
                module.recompile()
        except OutOfMemory:
            raise
        except Exception as error:  # what graphs consist of is PyTorch's to change
            _log.warning(
                "oocdnn: a graph is compiled without a plan: %s: %s", type(error).__name__, error
            )
            for node in gm.graph.nodes:
                restore_mark(node, marks.get(node.name))
            plain: Modules = min_cut_rematerialization_partition(gm, joint_inputs, **given)
            return plain
        _plans.append(made)
        _log.info("oocdnn: %s", made.explain().summary())
        return parts

    def _plan(self, joint: Joint, room: Room) -> Plan:
        least = least_limit(joint.timeline)  # nodes are run to measure their costs
        left = room.within(self._limit)
        if left < least:
            used, needed = self._limit - left, self._limit - left + least
            if not self._later:
                raise OutOfMemory(
                    f"the compiled step needs {least} bytes for tensors where everything that can "
                    f"move is moved, and {used} for parameters, optimizers, CUDA's context and "
                    f"gaps between tensors; the limit is {self._limit}: raise it to {needed}, or "
                    f"take a smaller batch{joint.hint()}",
                    least=needed,
                )
            # What earlier graphs save is in use now; they were planned without this one.
            _log.warning(
                "oocdnn: a graph needs %d bytes beside %d that are in use; the limit of %d is "
                "passed: the program has compiled graphs before, after graph breaks "
                "(fullgraph=True says where) or for other sizes%s",
                least, used, self._limit, joint.hint(),
            )  # fmt: skip
            left = least
        return plan(joint.timeline, room.links, left, seconds=self._planning)

    def _steer(self, room: Room, forward: fx.Graph, backward: fx.Graph) -> None:
        """Prepares the graphs for steering, and for a look at what the driver counts."""
        points = Points(forward, backward)
        if room.allocates() and points.count:
            steered = Steered(room.card, self._limit, points.count, steers=room.steers())
            points.add(steered.number)
            self._steered.append(steered)

    def __deepcopy__(self, memo: dict[int, Any]) -> Partitioner:
        """Itself: Inductor copies its configuration."""
        return self

    def uuid(self) -> str:
        """One for all: what Inductor makes of forward and of backward shows the plan."""
        return "oocdnn"
