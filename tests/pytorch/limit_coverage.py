"""Which tensors that a computation saves have a recipe, and why the others have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Entry, Kept, Packed, bytes_of
from oocdnn.torch.limit.norms import same_bits
from oocdnn.torch.limit.recipes import Bound, Read, Recipe, Source, admit, whole
from oocdnn.torch.limit.trace import Trace


@dataclass
class Saved:
    """A storage that was saved, and the recipe that gives its bits; else why there is none."""

    dtype: torch.dtype
    size: torch.Size
    nbytes: int
    bound: Bound | None = None
    why: str = ""


@dataclass
class Coverage(Read):
    """The hooks of one forward pass: everything stays where it is.

    Args:
        least_bytes: A smaller storage is taken for a parameter.
        recipes: By the place of the storage; bound instead of looked for.
    """

    least_bytes: int = 1
    recipes: dict[int, Recipe] | None = None
    saved: list[Saved] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trace = Trace()
        self._entries: dict[int, Entry] = {}

    @property
    def found(self) -> dict[int, Recipe]:
        bounds = {i: one.bound for i, one in enumerate(self.saved) if one.bound is not None}
        return {i: one.recipe for i, one in bounds.items() if isinstance(one.recipe, Recipe)}

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
        self.trace.add(one, tensor, len(self._entries))
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
        saved = Saved(tensor.dtype, tensor.size(), nbytes)
        self.saved.append(saved)
        if self.recipes is None:
            bound = admit(tensor, self.trace, self)
        else:
            bound = self._again(self.recipes.get(entry.number), tensor)
        if isinstance(bound, str):
            saved.why = bound
        else:
            saved.bound = bound
        return entry

    def _again(self, recipe: Recipe | None, tensor: Tensor) -> Bound | str:
        bound = None if recipe is None else recipe.bind(tensor, self.trace)
        if bound is None:
            return "not bound"
        value = bound.recipe.compute([self.tensor(source) for source in bound.sources])
        return bound if same_bits(value, whole(tensor).detach()) else "other bits"


def coverage(
    run: Callable[[], Tensor],
    dtype: torch.dtype | None = None,
    least_bytes: int = 1,
    recipes: dict[int, Recipe] | None = None,
    device: str = "cpu",
) -> Coverage:
    """One forward pass, under autocast to `dtype` if given."""
    found = Coverage(least_bytes, recipes)
    with (
        torch.autograd.graph.saved_tensors_hooks(found.pack, found.unpack),
        torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None),
    ):
        run()
    return found


def table(found: Coverage) -> str:
    """The tensors without a recipe, one a line."""
    lines = [
        f"  {i:4} {one.nbytes / 1024:9.1f} KiB {str(one.dtype)[6:]:9} "
        f"{tuple(one.size)!s:22} {one.why}"
        for i, one in enumerate(found.saved)
        if one.bound is None
    ]
    total = sum(one.nbytes for one in found.saved)
    covered = sum(one.nbytes for one in found.saved if one.bound is not None)
    head = f"{len(found.saved) - len(lines)} of {len(found.saved)} tensors, "
    return "\n".join([head + f"{covered / max(total, 1):.0%} of the bytes", *lines])
