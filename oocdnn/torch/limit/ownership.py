"""Whether nobody else holds a gradient that an operation is given, so that it may be overwritten.

PyTorch's engine gives a gradient up to the operation that reads it last. The references that are
left then are counted once, with gradients that nobody else holds. A gradient with any other count
is held by the program, by another operation, or by something that is not known here. A view, as an
expanded gradient is, holds its base, so that it has another count.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

_References = tuple[int, int, int, int, int]


class Ownership:
    """Tells it for the kernels of one form, which ask in the same place of their code."""

    def __init__(self) -> None:
        self._alone: _References | None = None  # None: not known, or not to be told
        self._learns: int | None = None  # the thread
        self._seen: list[_References] = []

    def __call__(self, gradient: Tensor) -> bool:
        found = _references(gradient)
        if self._learns == threading.get_ident():
            self._seen.append(found)
        return found == self._alone and _is_pytorchs(gradient)

    def learn(self, alone: Callable[[], object], held: Callable[[], object]) -> None:
        """Counts the references of gradients.

        Args:
            alone: Runs the kernel twice, with gradients that nobody else holds.
            held: Runs it with gradients that something else holds.
        """
        self._alone, self._learns = None, threading.get_ident()
        try:
            free, others = self._watched(alone), self._watched(held)
        finally:
            self._learns = None
        told = len(free) == 2 and free[0] == free[1] and others and free[0] not in others
        self._alone = free[0] if told else None

    def _watched(self, run: Callable[[], object]) -> list[_References]:
        self._seen = []
        run()
        return self._seen


def _is_pytorchs(gradient: Tensor) -> bool:
    """Whether the memory is PyTorch's own, and all of it the tensor's. Who else holds memory of
    others is not counted here."""
    storage = gradient.untyped_storage()
    return bool(
        storage.resizable() and storage.nbytes() == gradient.nbytes and not gradient.is_inference()
    )


def _references(gradient: Tensor) -> _References:
    """To the tensor, to its storage, and to the Python objects of both."""
    storage = gradient.untyped_storage()
    return (
        gradient._use_count(),
        torch._C._storage_Use_Count(storage._cdata),
        sys.getrefcount(gradient),
        sys.getrefcount(storage),
        weakref.getweakrefcount(gradient),
    )
