"""Insertion of nodes into graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx


def call(graph: fx.Graph, target: Any, *given: Any, **named: Any) -> fx.Node:
    """Inserts the call of an operator, with the form of its result.

    Args:
        given: The first one is a node.
    """
    node = graph.call_function(target, given, named)
    values = [one.meta["val"] if isinstance(one, fx.Node) else one for one in given]
    with values[0].fake_mode:
        node.meta["val"] = target(*values, **named)
    return node


def first_of(graph: fx.Graph, nodes: Iterable[fx.Node]) -> fx.Node:
    """The first of some nodes in the order of their graph."""
    found = set(nodes)
    return next(node for node in graph.nodes if node in found)
