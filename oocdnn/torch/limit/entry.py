"""Saved tensors under a plan: an entry for each storage, a packed object for each tensor on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from oocdnn.torch.limit.card import Copy
    from oocdnn.torch.limit.recipes import Bound
    from oocdnn.torch.limit.squeeze import Form, Squeezed

Like = tuple[torch.dtype, torch.Size, tuple[int, ...], int]  # dtype, size, stride, offset
Version = tuple[Tensor, int]  # a tensor with the version counter of a saved one, and its version


@dataclass(eq=False, slots=True)
class Entry:
    """One storage that autograd saves. Its bytes are on the device, in a slab, both, or neither
    where they can be computed again.

    Args:
        number: Its place in the order in which the step saves storages.
        nbytes: Of the storage.
        storage: A tensor on the device's bytes, or None while they are not there.
        version: Of the tensor as it was saved.
    """

    number: int
    nbytes: int
    storage: Tensor | None
    version: int
    slab: Any = None  # the card's, in memory of the host or of another GPU
    leaving: Copy | None = None
    coming: Copy | None = None
    bound: Bound | None = None  # computes the bytes again
    squeezed: Squeezed | None = None  # a smaller form on the device
    expanded: bool = False  # the bytes on the device came from the smaller form
    own: bool = False  # they are the card's, allocated for the compute stream
    dtype: torch.dtype = torch.uint8  # of the storage that was given up last
    packed: int = 0  # objects that autograd holds

    @property
    def comes_back(self) -> bool:
        """True where the device's bytes can be given up."""
        return self.slab is not None or self.bound is not None or self.squeezed is not None

    @property
    def form(self) -> Form | None:
        """The smaller form, where nothing else is left but what came from it."""
        if self.squeezed is None or (self.storage is not None and not self.expanded):
            return None
        return self.squeezed.form

    @property
    def address(self) -> int | None:
        """Device address of the bytes; another one after they were swapped or computed again."""
        return None if self.storage is None else self.storage.untyped_storage().data_ptr()

    def others(self) -> int:
        """References to the device's bytes besides the entry's own."""
        if self.storage is None:
            return 0
        return users_of(self.storage.untyped_storage()) - 1


class Packed:
    """What autograd holds of a saved tensor: an entry, and where in its storage the tensor lies."""

    __slots__ = ("__weakref__", "_counter", "_gone", "entry", "index", "like", "version")

    def __init__(self, entry: Entry, tensor: Tensor, gone: Callable[[Entry], None]) -> None:
        self.entry, self._gone = entry, gone
        self.index = -1  # among the tensors that the step saves
        self.version = tensor._version
        self.like = like_of(tensor)
        # Shares the version counter and holds no memory.
        self._counter = tensor.detach()
        self._counter.data = _without_bytes(tensor.dtype, tensor.device)
        entry.packed += 1

    @property
    def saved_version(self) -> Version:
        """As it was saved; holds no memory."""
        return self._counter, self.version

    @property
    def place(self) -> int:
        """Index of the device, -1 for the CPU."""
        return int(self._counter.get_device())

    def tensor(self, storage: Tensor) -> Tensor:
        """The tensor, on these device bytes; raises as PyTorch does if it was written meanwhile."""
        dtype, size, stride, offset = self.like
        self._check_version()
        if storage.dtype == dtype:
            return storage.as_strided(size, stride, offset)
        made = self._counter.new_empty(0)
        return made.set_(storage.untyped_storage(), offset, size, stride)

    def without_values(self) -> Tensor:
        """A new tensor of the same form, without the values."""
        _, size, stride, _ = self.like
        self._check_version()
        return self._counter.new_empty_strided(size, stride)

    def _check_version(self) -> None:
        if self._counter._version != self.version:
            raise written(self._counter, self.version, self.like[1])

    def __del__(self) -> None:
        self.entry.packed -= 1
        if self.entry.packed == 0:
            self._gone(self.entry)


class Kept:
    """A tensor that stays where it is. Hooks switch autograd's check of versions off, so it is
    here. An output of the node that saves it would hold that node, and be held by it; leaves, as
    parameters, are no outputs."""

    __slots__ = ("__weakref__", "_tensor", "_version", "index")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor if tensor.is_leaf else tensor.detach()
        self._version = tensor._version
        self.index = -1

    @property
    def like(self) -> Like:
        return like_of(self._tensor)

    @property
    def saved_version(self) -> Version:
        """As it was saved."""
        return self._tensor, self._version

    def tensor(self) -> Tensor:
        tensor = self._tensor
        if tensor._version != self._version:
            raise written(tensor, self._version, tensor.size())
        return tensor


class Holder:
    """Shared by the tensors that one step holds as they are: it lives as long as one of them."""

    __slots__ = ("__weakref__",)


class Held(Kept):
    """A tensor of an entry that the plan keeps: it stays where it is, and its reads are events."""

    __slots__ = ("holder",)

    def __init__(self, tensor: Tensor, holder: Holder) -> None:
        Kept.__init__(self, tensor)
        self.holder = holder


def like_of(tensor: Tensor) -> Like:
    return tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()


def label_of(tensor: Tensor) -> str:
    """ "Relu bfloat16 512x64x112x112": the operation that made a tensor, and its form."""
    node = tensor.grad_fn
    made = "tensor" if node is None else re.sub(r"Backward\d*$", "", node.name())
    shape = "x".join(map(str, tensor.size()))
    return f"{made} {str(tensor.dtype).removeprefix('torch.')} {shape}"


def storage_bytes(tensor: Tensor) -> int:
    """Size of a tensor's storage in bytes; -1 if it has no storage, for example a sparse one."""
    return tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else -1


def users_of(storage: torch.UntypedStorage) -> int:
    """Number of references to a storage, without the one that is given."""
    return int(torch._C._storage_Use_Count(storage._cdata)) - 1


def bytes_of(tensor: Tensor) -> Tensor:
    """The storage of a tensor, as bytes."""
    raw = _without_bytes(torch.uint8, tensor.device).new_empty(0)
    return raw.set_(tensor.untyped_storage())


@cache
def _without_bytes(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(0, dtype=dtype, device=device)


def written(counter: Tensor, version: int, size: torch.Size) -> RuntimeError:
    """PyTorch's error for a tensor that was written since it was saved."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{counter.type()} {list(size)}] is at version {counter._version}; "
        f"expected version {version} instead. Hint: enable anomaly detection to find the "
        "operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )
