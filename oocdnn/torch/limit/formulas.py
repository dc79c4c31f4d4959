"""Saved tensors computed again from others that autograd saves, bit for bit.

A formula describes the output of one node of autograd's graph in terms of what nodes before it
saved: relu(batch norm(y)) from y and the saved statistics, a block's output from its last
convolution's result and the block before. It is compiled once, where forward saves the tensor, and
is used only where it gave that tensor's very bits. Later steps check that the graph is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit import fused

Node = Any
Saved = Callable[[Node, str], Tensor]  # a saved attribute of a node


@dataclass(frozen=True)
class Kept:
    """The output of a node that saves it: the tensor under this attribute."""

    node: str
    attribute: str

    def matches(self, node: Node) -> bool:
        return _name(node) == self.node

    def reads(self, node: Node) -> Iterator[tuple[Node, str]]:
        yield node, self.attribute

    def value(self, node: Node, saved: Saved) -> fused.Term:
        return fused.Term(saved(node, self.attribute))


@dataclass(frozen=True)
class Norm:
    """Batch normalisation by the statistics that forward saved."""

    node: str
    order: int  # of the arithmetic, see `fused`

    def matches(self, node: Node) -> bool:
        return _name(node) == self.node and _parameter(node, 1) is not None

    def reads(self, node: Node) -> Iterator[tuple[Node, str]]:
        yield node, "input"

    def value(self, node: Node, saved: Saved) -> fused.Term:
        weight, bias = _parameter(node, 1), _parameter(node, 2)
        assert weight is not None
        assert bias is not None
        table = (saved(node, "result1"), saved(node, "result2"), weight, bias)
        return fused.Term(saved(node, "input"), table, self.order)


@dataclass(frozen=True)
class Sum:
    """The sum of two outputs, and relu of it where `relu` says so; or relu of one output."""

    nodes: tuple[str, ...]  # relu's, then the addition's, where they are there
    relu: bool
    terms: tuple[Kept | Norm, ...]

    def matches(self, node: Node) -> bool:
        node = self._walk(node)
        if node is None:
            return False
        if len(self.terms) == 1:
            return self.terms[0].matches(node)
        return all(term.matches(_before(node, edge)) for edge, term in enumerate(self.terms))

    def reads(self, node: Node) -> Iterator[tuple[Node, str]]:
        for term, behind in self._terms(node):
            yield from term.reads(behind)

    def value(self, node: Node, saved: Saved) -> Tensor:
        return fused.join([t.value(behind, saved) for t, behind in self._terms(node)], self.relu)

    def _terms(self, node: Node) -> Iterator[tuple[Kept | Norm, Node]]:
        node = self._walk(node)
        if len(self.terms) == 1:
            yield self.terms[0], node
            return
        for edge, term in enumerate(self.terms):
            yield term, _before(node, edge)

    def _walk(self, node: Node) -> Node | None:
        """From the node over those named to the one, or the addition, of the terms."""
        for i, name in enumerate(self.nodes):
            if _name(node) != name:
                return None
            last = i + 1 == len(self.nodes)
            if not (last and len(self.terms) > 1):
                node = _before(node, 0)
        return node


def formula_of(node: Node | None, saved: Saved) -> Sum | None:
    """The formula of a node's output, None if there is none."""
    relu = _name(node) == _RELU
    names: tuple[str, ...] = (_RELU,) if relu else ()
    inner = _before(node, 0) if relu else node
    if _name(inner) == "AddBackward0":
        if inner is None or inner._saved_alpha != 1:
            return None
        names = (*names, "AddBackward0")
        behind = [_before(inner, edge) for edge in range(2)]
    elif relu or _name(inner) in _NORMS:
        behind = [inner]
    else:
        return None
    terms = [_term(one, saved, own=one is not node) for one in behind]
    if any(term is None for term in terms):
        return None
    return Sum(names, relu, tuple(term for term in terms if term is not None))


_RELU = "ReluBackward0"
_NORMS = ("CudnnBatchNormBackward0", "NativeBatchNormBackward0")
_OWN = {_RELU: "result"}  # nodes that save their output


def saves_output(node: Node | None) -> bool:
    """True for nodes that save their own output: its packed object must not hold the node."""
    return _name(node) in _OWN


def _term(node: Node | None, saved: Saved, own: bool) -> Kept | Norm | None:
    name = _name(node)
    if own and name in _OWN:
        return Kept(name, _OWN[name])
    if node is None or name not in _NORMS:
        return None
    if _parameter(node, 1) is None or _parameter(node, 2) is None:
        return None
    if name.startswith("Native") and not node._saved_training:
        return None
    x = saved(node, "input")
    epsilon = node._saved_eps if name.startswith("Native") else node._saved_epsilon
    order = fused.order_of(name, fused.like(x, epsilon))
    return Norm(name, order) if order is not None else None


def _name(node: Node | None) -> str:
    return str(node.name()) if node is not None else ""


def _before(node: Node | None, edge: int) -> Node | None:
    if node is None or edge >= len(node.next_functions):
        return None
    return node.next_functions[edge][0]


def _parameter(node: Node, edge: int) -> Tensor | None:
    """The leaf behind an edge, without its gradient."""
    leaf = _before(node, edge)
    variable = getattr(leaf, "variable", None)
    return variable.detach() if isinstance(variable, torch.Tensor) else None
