"""The saved tensors of one step in order, found again by the operation that saved them.

Autograd numbers its nodes in the order of their creation. A saved tensor is known by the number of
the node whose output it is, which does not depend on addresses.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Kept, Packed

Node = Any
_counter = torch._C._autograd._get_sequence_nr


def is_saving(node: Node) -> bool:
    """Whether the node is saving something now: it is the latest one, but for the node that views
    of its result have."""
    return bool(_counter() - 2 <= node._sequence_nr())


class Trace:
    """Saved tensors of one step's forward pass."""

    def __init__(self) -> None:
        self._objects: list[weakref.ref[Packed | Kept]] = []
        self._first: dict[int, int] = {}  # of a node's number: place of the first that it saves
        self._outputs: dict[tuple[int, int], int] = {}  # of a node's number and output: its place

    def add(self, saved: Packed | Kept, tensor: Tensor, index: int) -> None:
        """Called while a node saves the tensor: the node is the latest one.

        Args:
            index: Among the tensors that the step saves.
        """
        saved.index, place = index, len(self._objects)
        self._objects.append(weakref.ref(saved))
        self._first.setdefault(_counter() - 1, place)
        node = tensor.grad_fn
        if node is not None:
            self._outputs.setdefault((node._sequence_nr(), tensor.output_nr), place)

    def output(self, node: Node, number: int) -> Packed | Kept | None:
        """The saved tensor that is an output of the node, None if none is."""
        place = self._outputs.get((node._sequence_nr(), number))
        return None if place is None else self._objects[place]()

    def latest(self) -> list[Packed | Kept]:
        """What the node that saves something now has saved so far."""
        first = self._first.get(_counter() - 1, len(self._objects))
        found = [one() for one in self._objects[first:]]
        return [one for one in found if one is not None]
