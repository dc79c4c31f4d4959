"""Saved tensors computed again from others that autograd saves, bit for bit.

A recipe describes the output of a node of autograd's graph in terms of what the nodes before it
saved: relu(batch norm(y)) from y and the saved statistics, a block's output from its last
convolution's result and the block before, a convolution's result from its input. It is found once,
where forward saves the tensor, and admitted only where it gave that tensor's very bits. Later steps
bind it to their own tensors, and only where they run the same operations on operands of the same
form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from oocdnn.torch.limit import fused
from oocdnn.torch.limit.entry import Kept, Like, Packed, like_of
from oocdnn.torch.limit.kinds import KINDS, Kind, Operand, term_of
from oocdnn.torch.limit.trace import Node, Trace

_DEPTH = 8  # operations between the result and what is saved

Source = Packed | Kept  # parameters are kept too


@dataclass(frozen=True)
class Leaf:
    """An operand that is there.

    Args:
        how: `saved` by the node itself, the saved `output` of the node behind the edge, or the
            `parameter` behind it.
        at: The place among what the node saves, or the edge.
    """

    how: str
    at: int


@dataclass(frozen=True)
class Call:
    """An operation that runs again. `back` counts nodes created since, up to the recipe's own."""

    name: str
    attributes: tuple[Any, ...]
    settled: tuple[Any, ...]
    back: int
    operands: tuple[Leaf | tuple[int, Call] | None, ...]  # a call with the edge that it is behind

    @property
    def calls(self) -> Iterator[Call]:
        """This one and those behind it."""
        yield self
        for operand in self.operands:
            if isinstance(operand, tuple):
                yield from operand[1].calls


@dataclass(frozen=True)
class Recipe:
    """How to compute one saved tensor: a tree of calls, and the form of the result and of each
    leaf, in the order of a walk that takes operands from left to right."""

    root: Call
    like: Like
    leaves: tuple[Like, ...]

    @property
    def name(self) -> str:
        """`replay` where arithmetic runs again, else `rebuild`."""
        return "replay" if any(KINDS[call.name].heavy for call in self.root.calls) else "rebuild"

    def bind(self, tensor: Tensor, trace: Trace) -> Bound | None:
        """The recipe for a tensor of this step; None where it is not the same computation."""
        node = tensor.grad_fn
        if node is None or like_of(tensor) != self.like:
            return None
        sources: list[Source] = []
        if not _matches(self.root, node, node._sequence_nr(), trace, sources):
            return None
        if tuple(source.like for source in sources) != self.leaves:
            return None
        return Bound(self, sources)


@dataclass
class Bound:
    """A recipe with the tensors of one step. It holds them as autograd does."""

    recipe: Recipe
    sources: list[Source]


def search(tensor: Tensor, trace: Trace, read: Read) -> Bound | None:
    """A recipe of a tensor that is being saved, None if there is none. `read` gives the tensor of
    a packed object."""
    node = tensor.grad_fn
    if node is None or tensor.output_nr != 0:
        return None
    finder = _Finder(trace, read, node._sequence_nr())
    root = finder.call(node, _DEPTH)
    if root is None:
        return None
    leaves = tuple(source.like for source in finder.sources)
    return Bound(Recipe(root, like_of(tensor), leaves), finder.sources)


class Read(Protocol):
    """Reads what autograd holds."""

    def attribute(self, node: Node, name: str) -> Source | None:
        """What a node saves under a name; None if it saves nothing there."""

    def tensor(self, source: Source) -> Tensor:
        """On the device."""


class _Finder:
    """One walk from a node towards what is saved."""

    def __init__(self, trace: Trace, read: Read, newest: int) -> None:
        self._trace, self._read, self._newest = trace, read, newest
        self.sources: list[Source] = []

    def call(self, node: Node, depth: int) -> Call | None:
        kind = KINDS.get(node.name())
        if kind is None or depth == 0:
            return None
        found: list[Leaf | tuple[int, Call] | None] = []
        mark = len(self.sources)
        for operand in _operands(kind, node):
            one = self._operand(node, operand, depth)
            if one is None and not operand.optional:
                del self.sources[mark:]
                return None
            found.append(one)
        attributes, settled = kind.read(node), ()
        if kind.settle is not None:
            values = self._values(found, mark)
            if values is None:
                del self.sources[mark:]
                return None
            answer = kind.settle(*values, *attributes)
            if answer is None:
                del self.sources[mark:]
                return None
            settled = answer
        back = self._newest - node._sequence_nr()
        return Call(node.name(), attributes, settled, back, tuple(found))

    def _operand(self, node: Node, operand: Operand, depth: int) -> Leaf | tuple[int, Call] | None:
        if operand.attribute:
            source = self._read.attribute(node, operand.attribute)
            if source is not None:
                place = self._trace.ordinal(node, source)
                if place is None:
                    return None
                self.sources.append(source)
                return Leaf("saved", place)
        behind = _behind(node, operand.edge)
        if behind is None:
            return None
        leaf = _leaf_behind(behind, operand.edge, self._trace)
        if leaf is not None:
            self.sources.append(leaf[1])
            return leaf[0]
        call = self.call(behind, depth - 1)
        return None if call is None else (operand.edge, call)

    def _values(
        self, found: list[Leaf | tuple[int, Call] | None], mark: int
    ) -> list[Tensor | None] | None:
        """The operands, to settle an operation."""
        tensors = iter([self._read.tensor(source) for source in self.sources[mark:]])
        return [_value(one, tensors) for one in found]


def _operands(kind: Kind, node: Node) -> tuple[Operand, ...]:
    if kind.all_edges:
        return tuple(Operand(edge=edge) for edge in range(len(node.next_functions)))
    return kind.operands


def _behind(node: Node, edge: int) -> Node | None:
    """The node whose first output is behind an edge."""
    if not 0 <= edge < len(node.next_functions):
        return None
    behind, output = node.next_functions[edge]
    return behind if output == 0 else None


def _leaf_behind(behind: Node, edge: int, trace: Trace) -> tuple[Leaf, Source] | None:
    variable = getattr(behind, "variable", None)
    if variable is not None:
        return Leaf("parameter", edge), Kept(variable)
    saved = trace.output(behind)
    return None if saved is None else (Leaf("output", edge), saved)


def _matches(call: Call, node: Node, newest: int, trace: Trace, sources: list[Source]) -> bool:
    """Whether a node of this step is the one of the call; collects its leaves."""
    kind = KINDS[call.name]
    if node.name() != call.name or newest - node._sequence_nr() != call.back:
        return False
    if kind.read(node) != call.attributes:
        return False
    if kind.all_edges and len(node.next_functions) != len(call.operands):
        return False
    for operand in call.operands:
        if operand is None:
            continue
        source: Source | None = None
        if isinstance(operand, Leaf) and operand.how == "saved":
            source = trace.saved(node, operand.at)
        else:
            edge = operand.at if isinstance(operand, Leaf) else operand[0]
            behind = _behind(node, edge)
            if behind is None:
                return False
            if isinstance(operand, tuple):
                if not _matches(operand[1], behind, newest, trace, sources):
                    return False
                continue
            pair = _leaf_behind(behind, edge, trace)
            if pair is None or pair[0] != operand:
                return False
            source = pair[1]
        if source is None:
            return False
        sources.append(source)
    return True


def compute(recipe: Recipe, tensors: list[Tensor]) -> Tensor:
    """The recipe's result from its leaves. Autograd and autocast are off: operands have the types
    that the operations had."""
    with torch.no_grad(), torch._C._DisableAutocast():
        value = _value((0, recipe.root), iter(tensors))
    assert value is not None
    return value


def _value(operand: Leaf | tuple[int, Call] | None, tensors: Iterator[Tensor]) -> Tensor | None:
    if operand is None:
        return None
    if isinstance(operand, Leaf):
        return next(tensors)
    call = operand[1]
    joined = _joined(call)
    if joined is not None:
        relu, parts = joined
        return fused.join([_term(part, tensors) for part in parts], relu)
    values = [_value(one, tensors) for one in call.operands]
    return KINDS[call.name].run(*values, *call.attributes, *call.settled)


_NORMS = ("NativeBatchNormBackward0", "CudnnBatchNormBackward0")
_Part = Leaf | tuple[int, Call] | None


def _joined(call: Call) -> tuple[bool, list[_Part]] | None:
    """relu(a + b), relu(a) or a + b with a normalisation among the terms: one fused pass."""
    part: _Part = (0, call)
    relu = call.name == "ReluBackward0"
    if relu:
        part = call.operands[0]
    parts: list[_Part] = [part]
    inner = part[1] if isinstance(part, tuple) else None
    if inner is not None and inner.name == "AddBackward0" and inner.attributes == (1,):
        parts = list(inner.operands)
    normed = [isinstance(one, tuple) and one[1].name in _NORMS for one in parts]
    plain = [isinstance(one, Leaf) for one in parts]
    return (relu, parts) if any(normed) and all(map(any, zip(normed, plain, strict=True))) else None


def _term(part: _Part, tensors: Iterator[Tensor]) -> fused.Term:
    if isinstance(part, Leaf):
        return fused.Term(next(tensors))
    assert isinstance(part, tuple)
    call = part[1]
    values: list[Any] = [_value(one, tensors) for one in call.operands]
    return term_of(*values, *call.settled)
