"""Where the bytes of entries are: every move between the device, slabs and nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from oocdnn.errors import OutOfMemory
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry, bytes_of
from oocdnn.torch.limit.slabs import Slabs
from oocdnn.torch.limit.squeeze import Form, Squeezed


class Store:
    """Moves entries, and counts their bytes on the device.

    Args:
        raises: Whether a lack of slabs raises OutOfMemory; else what would go there stays.

    Attributes:
        resident: Bytes of entries on the device.
        copies: Copies so far, both ways.
        spent: Seconds of the host for them and for their device bytes, without waits and new
            page-locked memory.
    """

    def __init__(self, card: Card, raises: bool = True) -> None:
        self.card, self._raises = card, raises
        self.resident = self.copies = 0
        self.spent = 0.0
        self._slabs = Slabs(card)

    def renew(self) -> None:
        """For another plan: what other devices lend is there for all that it swaps."""
        if any(self.card.borrowed.values()):
            self._slabs.clear()

    def hold(self, entry: Entry) -> None:
        """A new entry, whose storage is on the device."""
        self.resident += entry.nbytes

    def squeeze(self, entry: Entry, form: Form) -> None:
        """Makes the smaller form, which is there until the entry is gone."""
        assert entry.storage is not None
        entry.squeezed = Squeezed(form, form.squeeze(bytes_of(entry.storage)))
        self.resident += form.nbytes(entry.nbytes)

    def leave(self, entry: Entry) -> bool:
        """Starts the copy to a slab; False where the program has resized the storage, or there is
        no slab."""
        assert entry.storage is not None
        if entry.storage.untyped_storage().nbytes() != entry.nbytes:
            return False
        try:
            entry.slab = self._slabs.take(entry.nbytes)
        except OutOfMemory:
            if self._raises:
                raise
            return False
        began = time.perf_counter()
        entry.leaving = self.card.copy_out(entry.storage, entry.slab)
        self._count(began)
        return True

    def copied(self, entry: Entry) -> None:
        """Has the compute stream wait for the end of the copy away."""
        if entry.leaving is not None:
            entry.leaving.wait()
            entry.leaving = None

    def drop(self, entry: Entry) -> bool:
        """Gives the device's bytes up, after copies on their way; False where others still hold
        them."""
        if entry.storage is None:
            return True
        if entry.others() > 0:
            return False
        self.copied(entry)
        self.arrived(entry)
        began = time.perf_counter()
        self.card.discard(entry.storage, entry.own)
        entry.dtype, entry.storage = entry.storage.dtype, None
        self.resident -= entry.nbytes
        if entry.slab is not None:
            self.spent += time.perf_counter() - began
        return True

    def come(self, entry: Entry) -> None:
        """Starts the copy back to the device."""
        assert entry.slab is not None
        self.copied(entry)
        began = time.perf_counter()
        whole = entry.nbytes % entry.dtype.itemsize == 0
        entry.storage = self.card.empty(entry.nbytes, entry.dtype if whole else torch.uint8)
        entry.own = True
        self.resident += entry.nbytes
        entry.coming = self.card.copy_in(entry.slab, entry.storage)
        self._count(began)

    def arrived(self, entry: Entry) -> None:
        """Has the compute stream wait for the end of the copy back."""
        if entry.coming is not None:
            entry.coming.wait()
            entry.coming = None

    def here(self, entry: Entry, compute: Callable[[Entry], Tensor]) -> Tensor:
        """The bytes on the device, for the compute stream; `compute` gives those that have a recipe
        or a smaller form."""
        if entry.storage is None:
            if entry.slab is not None:
                self.come(entry)
            else:
                entry.storage = compute(entry).detach()  # and not a view, which holds another one
                entry.own = False
                self.resident += entry.nbytes
        self.arrived(entry)
        assert entry.storage is not None
        return entry.storage

    def gone(self, entry: Entry) -> None:
        """Autograd holds nothing of it any more."""
        self.copied(entry)
        self.arrived(entry)
        if entry.storage is not None:
            self.resident -= entry.nbytes
        if entry.squeezed is not None:
            self.resident -= entry.squeezed.form.nbytes(entry.nbytes)
        if entry.slab is not None:  # copies are behind the compute stream's next work
            self._slabs.keep(entry.slab)
        entry.storage = entry.slab = entry.bound = entry.squeezed = None

    def _count(self, began: float) -> None:
        """A copy that was started."""
        self.copies += 1
        self.spent += time.perf_counter() - began
