"""What Inductor does with the nodes of a graph."""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx
from torch._functorch.partitioners import get_default_op_list
from torch._inductor.lowering import fallbacks, lowerings
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from oocdnn.torch.compiled.costs import nbytes_of

_OWN = frozenset(("aten", "prims"))
_REDUCES = 4  # a result that is so many times smaller than the operands is a reduction's


class Kinds:
    """By PyTorch's own lists.

    Args:
        graph: Whose nodes are asked about.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._known = get_default_op_list()
        self._written = {
            self.value(one)
            for node in graph.nodes
            if node.op == "call_function" and self.is_mutable(node)
            for one in _written_by(node)
        }

    def is_view(self, node: fx.Node) -> bool:
        return bool(self._known.is_view(node) or getattr(node.target, "is_view", False))

    def is_random(self, node: fx.Node) -> bool:
        name = str(node.target)
        return (
            bool(self._known.is_random(node))
            or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            or "random" in name
            or "seed" in name
        )

    def is_fused(self, node: fx.Node) -> bool:
        """Whether Inductor writes a kernel that computes the operands too."""
        if node.target is operator.getitem:
            return self.is_fused(node.args[0])
        if self._known.is_compute_intensive(node) or self.is_mutable(node):
            return False
        return node.target in lowerings and node.target not in fallbacks

    def ends(self, node: fx.Node) -> bool:
        """Whether a fused node's result is in memory before anything reads it: a reduction's, that
        of pooling, or of writes to places."""
        if not self._known.is_fusible(node) and not self.is_random(node):
            return True
        read = max((nbytes_of(self.value(one)) for one in node.all_input_nodes), default=0)
        return not is_bool(node) and _REDUCES * nbytes_of(node) < read

    def repeats(self, node: fx.Node) -> bool:
        """True if a second run of a node gives the same and changes nothing. That is known of
        PyTorch's own operations, which read nothing that the graph overwrites."""
        known = node.target is operator.getitem or getattr(node.target, "namespace", "") in _OWN
        if not known or self.is_random(node) or self.is_mutable(node):
            return False
        return not any(self.value(one) in self._written for one in node.all_input_nodes)

    @staticmethod
    def is_mutable(node: fx.Node) -> bool:
        schema = getattr(node.target, "_schema", None)
        return schema is not None and bool(schema.is_mutable)

    def value(self, node: fx.Node) -> fx.Node:
        """What a view is of; other nodes themselves."""
        while node.op == "call_function" and self.is_view(node):
            if not isinstance(node.args[0], fx.Node):  # of a constant
                break
            node = node.args[0]
        return node


def _written_by(node: fx.Node) -> list[fx.Node]:
    """The operands that an operation overwrites."""
    arguments = node.target._schema.arguments
    given = {one.name: value for one, value in zip(arguments, node.args, strict=False)}
    given |= node.kwargs
    written = [
        given.get(one.name)
        for one in arguments
        if one.alias_info is not None and one.alias_info.is_write
    ]
    return [one for one in tree_leaves(written) if isinstance(one, fx.Node)]


def operation(value: fx.Node) -> fx.Node:
    """The operation that a value comes from."""
    while value.target is operator.getitem:
        value = value.args[0]
    return value


def is_bool(node: fx.Node) -> bool:
    return getattr(node.meta.get("val"), "dtype", None) is torch.bool


def must_recompute(node: fx.Node) -> bool:
    """Whether the program has asked for a node to be computed again, by `checkpoint`."""
    return node.meta.get("recompute") in (
        CheckpointPolicy.MUST_RECOMPUTE,
        CheckpointPolicy.PREFER_RECOMPUTE,
    )


def must_save(node: fx.Node) -> bool:
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def is_dense(node: fx.Node) -> bool:
    """Whether a value has fixed sizes, and no gaps between its elements."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or not all(isinstance(n, int) for n in value.size()):
        return False
    return nbytes_of(node) == int(value.numel()) * int(value.element_size())
