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

from oocdnn.torch.compiled.editing import call, first_of
from oocdnn.torch.compiled.kinds import is_dense

# Inductor writes nodes with this mark to memory, in the traced memory order. Others it computes
# anew in each kernel that reads them, whose operands then stay in memory until the last of these.
WRITTEN = "inductor_realize_to_strides"
_IMAGES = 4  # dimensions
_VIEW = torch.ops.aten.view.default


class Orders:
    """Memory orders of the values that forward computes.

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
        """Strides of a value that forward saves."""
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
        """Saves views of values in place of values that Inductor would copy to channels-last order
        though nothing needs that: matrices, which are read by their views, and inputs.

        Args:
            outputs: How many of forward's results are the program's.
        """
        output = self._graph.output_node()
        results = list(output.args[0])
        given = {node.name: node for node in backward.find_nodes(op="placeholder")}
        for index, value in enumerate(results):
            if index < outputs or not isinstance(value, fx.Node) or value in results[:outputs]:
                continue
            there = given.get(value.name)
            if there is None:
                continue
            view = self._matrix(value)
            if view is not None and all(_alike(view, one) for one in there.users):
                results[index] = view
                _take(there, view)
                for one in list(there.users):
                    one.replace_all_uses_with(there)
                    backward.erase_node(one)
            elif value.op == "placeholder" and value.name in self._channels_last:
                results[index] = self._flat(value, there)
        output.update_arg(0, tuple(results))

    def _flat(self, value: fx.Node, there: fx.Node) -> fx.Node:
        """An input as one row, of which backward's placeholder `there` makes the image again."""
        form = value.meta["val"]
        if not is_dense(value) or not form.is_contiguous():
            return value
        with self._graph.inserting_before(self._graph.output_node()):
            flat = call(self._graph, _VIEW, value, [form.numel()])
        readers = list(there.users)
        _take(there, flat)
        if readers:
            with there.graph.inserting_before(first_of(there.graph, readers)):
                image = call(there.graph, _VIEW, there, list(form.size()))
            for one in readers:
                one.replace_input_with(there, image)
        return flat

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


def _take(placeholder: fx.Node, value: fx.Node) -> None:
    """Has a placeholder of backward stand for another value of forward."""
    for key in ("val", "tensor_meta"):
        placeholder.meta.pop(key, None)
        if key in value.meta:
            placeholder.meta[key] = value.meta[key]


def _alike(one: fx.Node, other: fx.Node) -> bool:
    """True if two nodes make the same of their first operand."""
    return one.target == other.target and one.args[1:] == other.args[1:] and not other.kwargs


def _dimensions(node: fx.Node) -> int:
    return len(getattr(node.meta.get("val"), "shape", ()))
