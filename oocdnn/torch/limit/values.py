"""The tensors of packed objects: where their bytes are not on the device, they are fetched,
computed, or expanded from a smaller form."""

from __future__ import annotations

from torch import Tensor

from oocdnn.torch.limit.courses import Course
from oocdnn.torch.limit.entry import Entry, Kept, Packed
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.squeeze import reader_of
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trace import Node


class Values:
    """Reads entries; the course of the step is told before it computes one."""

    def __init__(self, store: Store, course: Course) -> None:
        self._store = store
        self.course = course

    def tensor(self, source: Source) -> Tensor:
        """The tensor of a packed object, on the device; not an event."""
        if isinstance(source, Kept):
            return source.tensor()
        check_form(source, None)
        return source.tensor(self.storage(source.entry))

    def storage(self, entry: Entry) -> Tensor:
        """An entry's bytes on the device."""
        return self._store.here(entry, self._computed)

    def _computed(self, entry: Entry) -> Tensor:
        if entry.squeezed is not None:
            self.course.computes(entry)
            entry.expanded = True
            return entry.squeezed.form.expand(entry.squeezed.small, entry.nbytes)
        assert entry.bound is not None
        read = [self.tensor(source) for source in entry.bound.sources]
        self.course.computes(entry)
        return entry.bound.recipe.compute(read)


def check_form(packed: Packed, node: Node | None) -> None:
    """Raises where only a smaller form is left and does not serve the node, or a recipe."""
    form = packed.entry.form
    if form is not None and not form.serves(reader_of(node, packed)):
        raise RuntimeError(
            "the step is another one than the recorded step, and reads otherwise what is left in a "
            "smaller form; call step() of the memory limit at the end of each step"
        )
