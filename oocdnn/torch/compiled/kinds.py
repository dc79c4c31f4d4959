"""What Inductor does with the nodes of a graph."""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx
from torch._functorch.partitioners import get_default_op_list
from torch._inductor.lowering import fallbacks, lowerings
from torch.utils.checkpoint import CheckpointPolicy

from oocdnn.torch.compiled.costs import nbytes_of

_REDUCES = 4  # a result that is so many times smaller than the operands is a reduction's


class Kinds:
    """By PyTorch's own lists."""

    def __init__(self) -> None:
        self._known = get_default_op_list()

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
        """Whether a node gives the same again."""
        return not self.is_random(node) and not self.is_mutable(node)

    @staticmethod
    def is_mutable(node: fx.Node) -> bool:
        schema = getattr(node.target, "_schema", None)
        return schema is not None and bool(schema.is_mutable)

    def value(self, node: fx.Node) -> fx.Node:
        """What a view is of; other nodes themselves."""
        while node.op == "call_function" and self.is_view(node):
            node = node.args[0]
        return node


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
