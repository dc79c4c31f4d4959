"""Saved tensors under a plan: an entry for each storage, a packed object for each tensor on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oocdnn.torch.limit.card import Card, Copy
from oocdnn.torch.limit.formulas import Node, Sum, saves_output


@dataclass(eq=False)
class Entry:
    """One storage that autograd saves, on the device, in a slab in host memory, or both.

    Args:
        number: Its place in the order in which the step saves storages.
        nbytes: Of the storage.
        storage: The bytes on the device, or None while they are not there.
        version: Of the tensor as it was saved.
    """

    number: int
    nbytes: int
    storage: Tensor | None
    version: int
    slab: Tensor | None = None
    leaving: Copy | None = None
    coming: Copy | None = None
    packed: int = 0  # objects that autograd holds
    events: list[int] = field(default_factory=list)  # unpacked at, while recording
    ended: int = -1  # event at which nobody else was seen to hold it, while recording forward
    formula: Sum | None = None  # that gives its bits in this step too

    @property
    def left(self) -> bool:
        """True where a whole copy is in host memory."""
        return self.slab is not None and (self.leaving is None or self.leaving.done())

    @property
    def comes_back(self) -> bool:
        """True where the device's bytes can be given up."""
        return self.slab is not None or self.formula is not None

    def others(self) -> int:
        """References to the device's bytes besides the entry's own."""
        if self.storage is None:
            return 0
        held = self.storage.untyped_storage()
        return int(torch._C._storage_Use_Count(held._cdata)) - 2  # the entry's tensor and `held`

    def leave(self, card: Card, slab: Callable[[int], Tensor]) -> None:
        """Starts the copy to host memory."""
        assert self.storage is not None
        self.slab = slab(self.nbytes)
        self.leaving = card.copy_out(self.storage, self.slab)

    def drop(self, card: Card) -> bool:
        """Gives the device's bytes up, after the copy away; False where others still hold them."""
        if self.storage is None:
            return True
        if self.others() > 0:
            return False
        if self.leaving is not None:
            self.leaving.wait()
            self.leaving = None
        card.discard(self.storage)
        self.storage = None
        return True

    def come(self, card: Card) -> None:
        """Starts the copy back to the device."""
        assert self.slab is not None
        if self.leaving is not None:
            self.leaving.wait()
            self.leaving = None
        self.storage = card.empty(self.nbytes)
        self.coming = card.copy_in(self.slab, self.storage)

    def arrive(self) -> None:
        """Has the compute stream wait for bytes that are on their way."""
        if self.coming is not None:
            self.coming.wait()
            self.coming = None


class Packed:
    """What autograd holds of a saved tensor: an entry, and where in its storage the tensor lies."""

    __slots__ = ("__weakref__", "_counter", "_gone", "_like", "entry", "node", "version")

    def __init__(self, entry: Entry, tensor: Tensor, gone: Callable[[Entry], None]) -> None:
        self.entry, self._gone = entry, gone
        self.version = tensor._version
        self._like = (tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset())
        # Shares the version counter and holds no memory.
        self._counter = tensor.detach()
        self._counter.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        # The node that computed it; not where that node holds this object itself.
        own = tensor.grad_fn if entry.packed or not saves_output(tensor.grad_fn) else None
        self.node: Node | None = own
        entry.packed += 1

    def tensor(self, storage: Tensor) -> Tensor:
        """The tensor on these device bytes; raises as PyTorch does if it was written meanwhile."""
        dtype, size, stride, offset = self._like
        check_version(self._counter, self.version, size)
        return torch.empty(0, dtype=dtype, device=storage.device).set_(
            storage.untyped_storage(), offset, size, stride
        )

    def __del__(self) -> None:
        self.entry.packed -= 1
        if self.entry.packed == 0:
            self._gone(self.entry)


class Kept:
    """A saved tensor that stays where it is. Hooks switch autograd's check of versions off."""

    __slots__ = ("_tensor", "_version")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor, tensor._version

    def tensor(self) -> Tensor:
        check_version(self._tensor, self._version, self._tensor.size())
        return self._tensor


def check_version(counter: Tensor, version: int, size: torch.Size) -> None:
    if counter._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: [{counter.type()} {list(size)}] is at version {counter._version}; "
            f"expected version {version} instead. Hint: enable anomaly detection to find the "
            "operation that failed to compute its gradient, with "
            "torch.autograd.set_detect_anomaly(True)."
        )
