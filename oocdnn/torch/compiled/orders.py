"""The memory orders of values, as Inductor chooses them.

Near convolutions Inductor writes values of four dimensions in channels-last order, whatever order
they were traced in. What is asked for in another order is transposed, and back where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import fx
from torch._functorch.partitioners import get_default_op_list
from torch._inductor.graph import GraphLowering

# Inductor writes nodes with this mark to memory, in the traced memory order. Others it computes
# anew in each kernel that reads them, whose operands then stay in memory until the last of these.
WRITTEN = "inductor_realize_to_strides"
_IMAGES = 4  # dimensions


class Orders:
    """Of the values of forward.

    Args:
        forward: Forward's part of a joint graph.
    """

    def __init__(self, forward: fx.GraphModule) -> None:
        self._graph = forward.graph
        self._channels_last: set[str] = set()
        if GraphLowering.decide_layout_opt(forward, is_inference=False):
            graph = cast(Any, SimpleNamespace(module=forward))
            found = GraphLowering.find_nodes_prefer_channels_last(graph)
            self._channels_last = {node.name for node in found if self._is_image(node)}

    def strides(self, value: fx.Node) -> list[int]:
        """Of a value that is handed to backward."""
        form = value.meta["val"]
        if value.name in self._channels_last:
            with form.fake_mode:
                form = torch.empty_like(form, memory_format=torch.channels_last)
        return list(form.stride())

    def mark(self, values: Iterable[str], *graphs: fx.Graph) -> None:
        """Has Inductor write values of graphs to memory.

        Args:
            values: Their names.
        """
        named = set(values) - self._channels_last
        for graph in graphs:
            for node in graph.nodes:
                if node.name in named:
                    node.meta[WRITTEN] = True

    def save_views(self, backward: fx.Graph, outputs: int) -> None:
        """Saves the view of a value in place of the value, where nothing reads the value itself:
        Inductor knows results of four dimensions as images, and matrices by their views.

        Args:
            outputs: How many of forward's results are the program's.
        """
        output = self._graph.output_node()
        results = list(output.args[0])
        given = {node.name: node for node in backward.find_nodes(op="placeholder")}
        for index, value in enumerate(results):
            if index < outputs or not isinstance(value, fx.Node) or value in results[:outputs]:
                continue
            view, there = self._matrix(value), given.get(value.name)
            if view is None or there is None or not all(_alike(view, one) for one in there.users):
                continue
            results[index] = view
            forms = "val", "tensor_meta"
            there.meta |= {key: view.meta[key] for key in forms if key in view.meta}
            for one in list(there.users):
                one.replace_all_uses_with(there)
                backward.erase_node(one)
        output.update_arg(0, tuple(results))

    def _is_image(self, node: fx.Node) -> bool:
        return _dimensions(node) == _IMAGES and self._matrix(node) is None

    def _matrix(self, value: fx.Node) -> fx.Node | None:
        """The view of fewer dimensions by which all of forward reads a value of four."""
        readers = [one for one in value.users if one.op == "call_function"]
        if _dimensions(value) != _IMAGES or not readers:
            return None
        first = readers[0]
        alone = all(_alike(first, one) for one in readers)
        shorter = get_default_op_list().is_view(first) and _dimensions(first) < _IMAGES
        return first if alone and shorter else None


def _alike(one: fx.Node, other: fx.Node) -> bool:
    """True if two nodes make the same of their first operand."""
    return one.target == other.target and one.args[1:] == other.args[1:] and not other.kwargs


def _dimensions(node: fx.Node) -> int:
    return len(getattr(node.meta.get("val"), "shape", ()))
