"""Which tensors that a network saves have a recipe, and why the others have none."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Entry, Kept, Packed, bytes_of
from oocdnn.torch.limit.recipes import Bound, Read, Source, admit
from oocdnn.torch.limit.trace import Trace


@dataclass
class Saved:
    """A storage that was saved, and the recipe that gives its bits; else why there is none."""

    number: int
    dtype: torch.dtype
    size: torch.Size
    nbytes: int
    bound: Bound | None = None
    why: str = ""


@dataclass
class Coverage(Read):
    """The hooks of one forward pass: everything stays where it is."""

    least_bytes: int = 1
    saved: list[Saved] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trace = Trace()
        self._entries: dict[int, Entry] = {}

    def pack(self, tensor: Tensor) -> Source:
        base = tensor._base if tensor._base is not None else tensor
        storage = tensor.untyped_storage()
        one: Source
        if (base.is_leaf and base.requires_grad) or storage.nbytes() < self.least_bytes:
            one = Kept(tensor)
        else:
            entry = self._entries.get(storage.data_ptr())
            if entry is None or entry.version != tensor._version:
                entry = self._new(tensor)
            one = Packed(entry, tensor, lambda _: None)
        self.trace.add(one, tensor)
        return one

    def unpack(self, one: Source) -> Tensor:
        return self.tensor(one)

    def tensor(self, source: Source) -> Tensor:
        if isinstance(source, Kept):
            return source.tensor()
        assert source.entry.storage is not None
        return source.tensor(source.entry.storage)

    def _new(self, tensor: Tensor) -> Entry:
        nbytes = tensor.untyped_storage().nbytes()
        entry = Entry(len(self.saved), nbytes, bytes_of(tensor), tensor._version)
        self._entries[tensor.untyped_storage().data_ptr()] = entry
        saved = Saved(entry.number, tensor.dtype, tensor.size(), nbytes)
        self.saved.append(saved)
        bound = admit(tensor, self.trace, self)
        if isinstance(bound, str):
            saved.why = bound
        else:
            saved.bound = bound
        return entry


def coverage(
    net: torch.nn.Module, x: Tensor, dtype: torch.dtype | None = None, least_bytes: int = 1
) -> Coverage:
    """One forward pass, under autocast to `dtype` if given."""
    found = Coverage(least_bytes)
    with (
        torch.autograd.graph.saved_tensors_hooks(found.pack, found.unpack),
        torch.autocast(x.device.type, dtype, enabled=dtype is not None),
    ):
        found.output = net(x)  # type: ignore[attr-defined]
    return found


def table(found: Coverage) -> str:
    """The tensors without a recipe, one a line."""
    lines = [
        f"  {one.number:4} {one.nbytes / 1024:9.1f} KiB {str(one.dtype)[6:]:9} "
        f"{str(tuple(one.size)):22} {one.why}"
        for one in found.saved
        if one.bound is None
    ]
    total = sum(one.nbytes for one in found.saved)
    covered = sum(one.nbytes for one in found.saved if one.bound is not None)
    head = f"{len(found.saved) - len(lines)} of {len(found.saved)} tensors, "
    return "\n".join([head + f"{covered / max(total, 1):.0%} of the bytes", *lines])
