"""The saved tensors of one step in order, found again by the operation that saved them.

Autograd numbers its nodes in the order of their creation. A saved tensor is known by the number of
the node that saves it and its place among what that node saves, or by the number of the node whose
output it is. Neither depends on addresses.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Kept, Packed

Node = Any
_counter = torch._C._autograd._get_sequence_nr


class Trace:
    """Saved tensors of one step's forward pass."""

    def __init__(self) -> None:
        self._objects: list[weakref.ref[Packed | Kept]] = []
        self._first: dict[int, int] = {}  # of a node's number: index of the first that it saves
        self._outputs: dict[int, int] = {}  # of a node's number: index of its saved output

    def add(self, saved: Packed | Kept, tensor: Tensor) -> None:
        """Called while a node saves the tensor: the node is the latest one."""
        saved.index = len(self._objects)
        self._objects.append(weakref.ref(saved))
        self._first.setdefault(_counter() - 1, saved.index)
        node = tensor.grad_fn
        if node is not None and tensor.output_nr == 0:
            self._outputs.setdefault(node._sequence_nr(), saved.index)

    def ordinal(self, node: Node, saved: Packed | Kept) -> int | None:
        """The place of a saved tensor among what the node saves; None if it is not found there."""
        place = saved.index - self._first.get(node._sequence_nr(), saved.index + 1)
        return place if place >= 0 and self.saved(node, place) is saved else None

    def saved(self, node: Node, ordinal: int) -> Packed | Kept | None:
        first = self._first.get(node._sequence_nr())
        if first is None or first + ordinal >= len(self._objects):
            return None
        return self._objects[first + ordinal]()

    def output(self, node: Node) -> Packed | Kept | None:
        """The saved tensor that is the node's output, None if none is."""
        index = self._outputs.get(node._sequence_nr())
        return None if index is None else self._objects[index]()

    def latest(self) -> list[Packed | Kept]:
        """What the node that saves something now has saved so far."""
        first = self._first.get(_counter() - 1, len(self._objects))
        found = [one() for one in self._objects[first:]]
        return [one for one in found if one is not None]
