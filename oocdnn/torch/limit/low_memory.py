"""Device memory at the lowest addresses, for what optimizers keep.

An optimizer allocates its state at the end of its first step, in whatever gaps there are then, and
keeps it. In the midst of free memory it leaves too little in one piece for large tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from oocdnn.errors import OutOfMemory
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import bytes_of, users_of
from oocdnn.torch.limit.heap.allocator import Allocator, is_small
from oocdnn.torch.limit.optimizers import gradients, state_bytes

_MOST = 4 << 30  # bytes of gradients that are moved
_ROUNDING = 2 << 20  # bytes by which the allocator rounds the state up, or more


class LowMemory:
    """Memory that is held so that what optimizers allocate comes to the lowest addresses."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._taken: list[int] = []  # addresses

    def open(self) -> None:
        """An optimizer is about to allocate its state. Moves gradients out of its way, fills what
        is free elsewhere, and has libraries allocate their workspaces at low addresses too. Raises
        only if gradients cannot come back: OutOfMemory."""
        self.give()
        heap, state, place = None, 0, 0
        with contextlib.suppress(Exception):  # of optimizers that are not as PyTorch's
            heap = self._card.heap()
            state = state_bytes(self._card.device, large=True)
        if heap is None or not heap.expandable:
            return  # addresses are not in the order in which memory is given
        if not (state and self._card.quiet()):
            with contextlib.suppress(Exception):
                self._renew()
            return
        with _gradients_in_host_memory(self._card, self.give), contextlib.suppress(Exception):
            self._renew()
            place = self._take(state + _ROUNDING)
        with contextlib.suppress(Exception):
            self._fill()
        if place in self._taken:
            self._taken.remove(place)
            self._card.give(place)

    def give(self) -> None:
        """Gives everything back."""
        while self._taken:
            self._card.give(self._taken.pop())

    def _renew(self) -> None:
        """Gives unused memory back to the driver, and has libraries that hold workspaces allocate
        them anew."""
        self._card.trim()
        self._fill()
        if self._card.free_workspaces():  # else cuBLAS would load its kernels, 128 MiB, for nothing
            self._fill()  # the old addresses: the new workspaces are allocated elsewhere
            self._card.allocate_workspaces()

    def _fill(self) -> None:
        """Takes what is free in memory that the driver has given."""
        heap = self._card.heap()
        assert heap is not None
        for nbytes in Allocator(expandable=True, extents=heap.extents).takeable():
            self._take(nbytes)

    def _take(self, nbytes: int) -> int:
        address = self._card.take(nbytes)
        if address:
            self._taken.append(address)
        return address


@contextlib.contextmanager
def _gradients_in_host_memory(card: Card, relieve: Callable[[], object]) -> Iterator[None]:
    """Within it, large gradients are in host memory. They stay the same tensors on the same
    storages; only the address of the device memory changes. `relieve` is called if there is no
    memory for them afterwards; raises OutOfMemory if there is none then either."""
    moved: list[tuple[Tensor, Tensor]] = []
    try:
        with contextlib.suppress(Exception):  # no host memory: the others stay
            for gradient in _large(card):
                moved.append((gradient, _in_host_memory(gradient)))
                card.resize(gradient.untyped_storage(), 0)
        yield
    finally:
        try:
            _return(moved, card)
        except torch.OutOfMemoryError:
            relieve()
            card.trim()
            try:
                _return(moved, card)
            except torch.OutOfMemoryError as error:
                nbytes = sum(copy.nbytes for _, copy in moved)
                raise OutOfMemory(
                    f"{len(moved)} gradients of {nbytes} bytes, moved to host memory before an "
                    "optimizer's first step, no longer fit the GPU: something else takes its "
                    "memory; end that, or raise the limit"
                ) from error


def _large(card: Card) -> list[Tensor]:
    """Large gradients on the device whose storages no other tensor uses: views may have given their
    address to other libraries."""
    found, room = [], _MOST
    for gradient in gradients(card.device):
        if gradient.layout is not torch.strided or gradient.is_inference():
            continue
        storage = gradient.untyped_storage()
        nbytes = storage.nbytes()
        if (
            users_of(storage) == 1
            and storage.resizable()
            and not is_small(nbytes)
            and nbytes <= room
        ):
            found.append(gradient)
            room -= nbytes
    return found


def _in_host_memory(gradient: Tensor) -> Tensor:
    """The bytes of its storage."""
    with _disable_current_modes():
        return torch.empty(gradient.untyped_storage().nbytes(), dtype=torch.uint8).copy_(
            bytes_of(gradient)
        )


def _return(moved: list[tuple[Tensor, Tensor]], card: Card) -> None:
    """Takes from the list what is back on the device."""
    while moved:
        gradient, copy = moved[-1]
        card.resize(gradient.untyped_storage(), copy.nbytes)
        with _disable_current_modes():
            bytes_of(gradient).copy_(copy)
        moved.pop()
