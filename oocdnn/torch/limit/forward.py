"""The forward half of a step: what becomes of the tensors that autograd saves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.torch.limit.courses import ARRIVES, BEFORE, LOOK, STAYS, Planned
from oocdnn.torch.limit.entry import Entry, Held, Holder, Kept, Packed, storage_bytes
from oocdnn.torch.limit.mode import Mode
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.trace import Trace

if TYPE_CHECKING:
    from oocdnn.torch.limit.step import Step


class Forward:
    """Saves tensors.

    Attributes:
        count: Storages.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self.count = 0
        self._trace = Trace()
        self._by_address: dict[int, Entry] = {}
        self._holder: Callable[[], Holder | None] = _nobody
        self._first: Callable[[], Kept | None] = _nobody  # of those where all are kept

    @property
    def holds(self) -> bool:
        """True if autograd holds a tensor of the step that may move."""
        return bool(self._step.numbered) or self._holder() is not None

    @property
    def over(self) -> bool:
        """True if autograd released every tensor that forward saved before backward read one."""
        if self._keeps_all:
            return self._step.packs > 0 and self._first() is None
        return self._step.event > 0 and not self.holds

    @property
    def _keeps_all(self) -> bool:
        return self._step.mode is Mode.KEEP and self._step.selected

    def try_short_path(self, tensor: Tensor) -> Kept | None:
        """Saves a tensor that stays on the device and whose event needs no work. Returns None if
        the tensor needs the full path. Takes the lock only for tensors with an event: a backward
        pass on another thread may end what forward follows.
        """
        step = self._step
        index, codes = step.packs, step.codes
        if index < len(codes):
            code = codes[index]
            if code == STAYS:
                if self._holder() is None and step.event and not step.numbered:  # `over`
                    return None
                step.packs = index + 1
                return Kept(tensor)
            if code == LOOK or step.card.capturing():
                return None
            with step.lock:
                return self._hold_on_short_path(tensor, index) if step.codes is codes else None
        if not self._keeps_all or step.backward:
            return None
        assert step.followed is not None
        if index >= len(step.followed.found.numbers) or self._first() is None:
            return None
        step.packs = index + 1
        return Kept(tensor)

    def _hold_on_short_path(self, tensor: Tensor, index: int) -> Held | None:
        """Saves a tensor of an entry that the plan keeps, if its event needs no work."""
        step, holder = self._step, self._holder()
        if holder is None or not (step.codes[index] == BEFORE or self._count_if_idle(tensor)):
            return None
        saved = Held(tensor, holder)
        if step.traced is not None and index in step.traced:
            self._trace.add(saved, tensor, index)
        step.packs = index + 1
        return saved

    def _count_if_idle(self, tensor: Tensor) -> bool:
        """Counts the event of a new storage that the plan keeps, if the event needs no work."""
        step, course = self._step, self._step.course
        assert isinstance(course, Planned)
        position = step.event + 1
        if not course.idle(position) or not course.expects(self.count, storage_bytes(tensor)):
            return False
        self.count += 1
        step.event = position
        return True

    def keeps(self, tensor: Tensor) -> Kept | None:
        """What autograd holds of a tensor where all are kept; one more than the kind saves shows
        that the step is another one."""
        if not self._keeps_all:
            return None
        step = self._step
        assert step.followed is not None
        if step.packs >= len(step.followed.found.numbers):
            step.differs()
            return None
        kept = Kept(tensor)
        if step.packs == 0:
            self._first = weakref.ref(kept)
        step.packs += 1
        return kept

    def save(self, tensor: Tensor) -> Source:
        """What autograd holds of a tensor."""
        step = self._step
        index = step.packs
        code = step.codes[index] if index < len(step.codes) else LOOK
        saved: Source
        if code == STAYS:
            saved = Kept(tensor)
        elif code == LOOK or (code == ARRIVES and not self._arrives(tensor)):
            saved = self._packed(tensor)
        else:
            saved = self._held(tensor)
        step.packs = index + 1
        if step.traced is None or index in step.traced:
            self._trace.add(saved, tensor, index)
        return saved

    def moves(self, tensor: Tensor) -> bool:
        """False for what has to stay: parameters and their views, other devices, small storages,
        and what its storage, sizes and strides alone do not tell."""
        if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
            return False
        card = self._step.card
        if not card.holds(tensor) or tensor.untyped_storage().nbytes() < card.least_bytes:
            return False
        base = tensor._base
        if base is None:
            base = tensor
        if base.is_leaf and base.requires_grad:
            return False
        return not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())

    def _packed(self, tensor: Tensor) -> Source:
        step = self._step
        saved: Source
        if self.moves(tensor):
            saved = Packed(self._entry_of(tensor), tensor, step.gone)
        else:
            saved = Kept(tensor)
        if step.trials is not None:
            step.found.numbers.append(saved.entry.number if isinstance(saved, Packed) else -1)
        return saved

    def _arrives(self, tensor: Tensor) -> bool:
        """The event of a new storage that the plan keeps, without a closer look: to keep it is
        right whatever it is. False where it needs the closer look."""
        step, course = self._step, self._step.course
        assert isinstance(course, Planned)
        if not course.expects(self.count, storage_bytes(tensor)):
            step.codes = ()
            return False
        self.count += 1
        step.event += 1
        course.before(step.event)
        course.goes(step.event)
        return True

    def _held(self, tensor: Tensor) -> Held:
        holder = self._holder()
        if holder is None:
            holder = Holder()
            self._holder = weakref.ref(holder)
        return Held(tensor, holder)

    def is_of(self, held: Held) -> bool:
        """Whether the step saved it."""
        return held.holder is self._holder()

    def _entry_of(self, tensor: Tensor) -> Entry:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        known = self._by_address.get(address)
        if known is not None and known.address == address and known.version == tensor._version:
            return known
        step = self._step
        entry = Entry(self.count, storage.nbytes(), tensor.detach(), tensor._version)
        self.count += 1
        self._by_address[address] = step.numbered[entry.number] = entry
        step.store.hold(entry)
        try:
            self._arrived(entry, tensor)
        except BaseException:
            step.gone(entry)
            raise
        return entry

    def _arrived(self, entry: Entry, tensor: Tensor) -> None:
        """A new storage: an event of forward."""
        step = self._step
        step.event += 1
        if step.recorder is not None:
            step.recorder.stop(entry)
            if step.trials is not None:
                step.trials.arrived(entry, tensor, self._trace, step.numbered)
        if not step.course.arrived(step.event, entry, tensor, self._trace):
            step.differs()
            step.course.arrived(step.event, entry, tensor, self._trace)
        if step.recorder is not None:
            step.recorder.go()
        step.course.goes(step.event)


def _nobody() -> None:
    return None
