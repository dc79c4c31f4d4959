"""One step under way: its events, and what happens at each to the tensors that autograd saves."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import (
    ARRIVES,
    LOOK,
    STAYS,
    Course,
    Found,
    Numbered,
    Planned,
    Unplanned,
)
from oocdnn.torch.limit.entry import Entry, Held, Holder, Kept, Packed
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.squeeze import reader_of
from oocdnn.torch.limit.step_kinds import Known
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trace import Node, Trace
from oocdnn.torch.limit.trials import Trials
from oocdnn.torch.limit.values import Values, check_form


class Mode(enum.Enum):
    """RECORD: everything is swapped and timed. FOLLOW: as planned. SWAP: everything is swapped,
    because the step is not the planned one. KEEP: everything is kept, because the step fits."""

    RECORD = "record"
    FOLLOW = "follow"
    SWAP = "swap"
    KEEP = "keep"


Lock = AbstractContextManager[Any]


class Step:
    """Saves and reads tensors. An event is a new storage in forward, or a read in backward.

    Args:
        lock: Held by whoever calls a method.
        mode: Of the step before.
    """

    def __init__(self, card: Card, store: Store, limit: int, lock: Lock, mode: Mode) -> None:
        self._card, self._store, self._limit = card, store, limit
        self._lock = lock
        self.mode = mode
        self.selected = False  # which kind of step it is
        self.backward = False
        self.event = 0
        self.count = 0  # storages
        self.packs = 0  # saved tensors since the kind was selected
        self.running: set[int] = set()  # backward passes, by autograd's numbers
        self.numbered: Numbered = {}
        self.found = Found()
        self.recorder: Recorder | None = None
        self.followed: Known | None = None
        self.unplanned: Known | None = None  # the kind, where it has no plan
        self.mistaken: Known | None = None  # the kind that it was taken for
        self._trials: Trials | None = None
        self._holder: Callable[[], Holder | None] = _nobody
        self._first: Callable[[], Kept | None] = _nobody  # of those where all are kept
        self._codes: Sequence[int] = ()
        self._traced: frozenset[int] | None = None  # all of them
        self._by_address: dict[int, Entry] = {}
        self._trace = Trace()
        self._reading: list[Entry] = []
        self._reading_node: Node | None = None
        self._course: Course = Unplanned(store, limit, self.numbered)
        self._values = Values(store, self._course)

    @property
    def holds(self) -> bool:
        """Whether autograd holds a tensor of the step, parameters and small ones aside."""
        return bool(self.numbered) or self._holder() is not None

    # How it goes on from the first tensor that moves.

    def record(self, recorder: Recorder) -> None:
        """Everything is swapped and timed, and ways to give bytes again are looked for."""
        self.mode, self.recorder = Mode.RECORD, recorder
        self._select()
        self._trials = Trials(self._card, recorder, self._values, self.found, self._limit)
        recorder.begin()

    def keep(self, known: Known) -> None:
        """Everything is kept, of as many tensors as the kind saves."""
        self.mode, self.followed = Mode.KEEP, known
        self._select()

    def swap(self, known: Known) -> None:
        """Everything is swapped, because the kind has no plan."""
        self.mode, self.unplanned = Mode.SWAP, known
        self._select()

    def follow(self, known: Known, course: Planned, recorder: Recorder | None) -> None:
        """As planned; a recorder measures it."""
        self.mode, self.followed = Mode.FOLLOW, known
        self._select()
        self._go_by(course)
        course.begin(self.numbered)
        self._traced, self.recorder = course.traced, recorder
        self._codes = course.codes
        if recorder is not None:
            self._codes = course.codes_recorded
            recorder.begin()

    def _select(self) -> None:
        self.selected, self.packs = True, 0

    def _go_by(self, course: Course) -> None:
        self._course = self._values.course = course

    def _differs(self) -> None:
        """The step is not the one that was planned: what is saved from here on is swapped."""
        self.mode, self.mistaken = Mode.SWAP, self.followed
        self.recorder = self.followed = self._traced = None
        self._codes = ()
        self._course.ends()
        self._go_by(Unplanned(self._store, self._limit, self.numbered))

    def leave(self) -> None:
        """The step ends without backward."""
        self._course.ends()

    def ends(self) -> None:
        self.leave()
        known = self.unplanned
        if known is not None and self.packs != len(known.found.numbers):
            self.mistaken, self.unplanned = known, None
        known = self.followed
        if known is None:
            return
        if self.mode is Mode.KEEP:
            same = self.packs == len(known.found.numbers)
        else:
            same = self.event + 1 == len(known.timeline.operations)
        if not same:
            self.mistaken, self.followed = known, None
            return
        if known.course is not None:
            known.course.ran = True

    def stop(self) -> None:
        """The limit is left: waits for copies, and holds nothing else than autograd does."""
        self._course.stop()
        self._reading_node = None
        for entry in list(self.numbered.values()):
            self._store.copied(entry)

    # Forward.

    def passes(self) -> bool:
        """Whether the next tensor that is saved stays, whatever it is. It is counted here, without
        the lock: only the thread of forward gets that far."""
        index = self.packs
        if index < len(self._codes) and self._codes[index] == STAYS:
            if self.over:
                return False
            self.packs = index + 1
            return True
        if self.mode is not Mode.KEEP or not self.selected or self.backward:
            return False
        assert self.followed is not None
        if index >= len(self.followed.found.numbers) or self._first() is None:
            return False
        self.packs = index + 1
        return True

    def keeps(self, tensor: Tensor) -> Kept | None:
        """What autograd holds of a tensor where all are kept; one more than the kind saves shows
        that the step is another one."""
        if self.mode is not Mode.KEEP or not self.selected:
            return None
        assert self.followed is not None
        if self.packs >= len(self.followed.found.numbers):
            self._differs()
            return None
        kept = Kept(tensor)
        if self.packs == 0:
            self._first = weakref.ref(kept)
        self.packs += 1
        return kept

    @property
    def over(self) -> bool:
        """Whether all that forward saved is gone without backward."""
        if self.mode is Mode.KEEP and self.selected:
            return self.packs > 0 and self._first() is None
        return self.event > 0 and not self.holds

    def save(self, tensor: Tensor) -> Source:
        """What autograd holds of a tensor."""
        index = self.packs
        code = self._codes[index] if index < len(self._codes) else LOOK
        saved: Source
        if code == STAYS:
            saved = Kept(tensor)
        elif code == LOOK or (code == ARRIVES and not self._arrives(tensor)):
            saved = self._packed(tensor)
        else:
            saved = self._held(tensor)
        self.packs = index + 1
        if self._traced is None or index in self._traced:
            self._trace.add(saved, tensor, index)
        return saved

    def moves(self, tensor: Tensor) -> bool:
        """False for what has to stay: parameters and their views, other devices, small storages,
        and what its storage, sizes and strides alone do not tell."""
        if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_nested:
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
        base = tensor._base if tensor._base is not None else tensor
        if base.is_leaf and base.requires_grad:
            return False
        if not self._card.holds(tensor):
            return False
        return bool(tensor.untyped_storage().nbytes() >= self._card.least_bytes)

    def _packed(self, tensor: Tensor) -> Source:
        saved: Source
        if self.moves(tensor):
            saved = Packed(self._entry_of(tensor), tensor, self._gone)
        else:
            saved = Kept(tensor)
        if self.mode is Mode.RECORD and self.selected:
            self.found.numbers.append(saved.entry.number if isinstance(saved, Packed) else -1)
        return saved

    def _arrives(self, tensor: Tensor) -> bool:
        """The event of a new storage that the plan keeps, without a closer look: to keep it is
        right whatever it is. False where it needs the closer look."""
        course = self._course
        assert isinstance(course, Planned)
        if not course.expects(self.count, tensor.untyped_storage().nbytes()):
            self._codes = ()
            return False
        self.count += 1
        self.event += 1
        course.before(self.event)
        course.goes(self.event)
        return True

    def _held(self, tensor: Tensor) -> Held:
        holder = self._holder()
        if holder is None:
            holder = Holder()
            self._holder = weakref.ref(holder)
        return Held(tensor, holder)

    def _entry_of(self, tensor: Tensor) -> Entry:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        known = self._by_address.get(address)
        if known is not None and known.address == address and known.version == tensor._version:
            return known
        entry = Entry(self.count, storage.nbytes(), tensor.detach(), tensor._version)
        self.count += 1
        self._by_address[address] = self.numbered[entry.number] = entry
        self._store.hold(entry)
        try:
            self._arrived(entry, tensor)
        except BaseException:
            self._gone(entry)
            raise
        return entry

    def _arrived(self, entry: Entry, tensor: Tensor) -> None:
        """A new storage: an event of forward."""
        self.event += 1
        if self.recorder is not None:
            self.recorder.stop(entry)
            if self._trials is not None:
                self._trials.arrived(entry, tensor, self._trace, self.numbered)
        if not self._course.arrived(self.event, entry, tensor, self._trace):
            self._differs()
            self._course.arrived(self.event, entry, tensor, self._trace)
        if self.recorder is not None:
            self.recorder.go()
        self._course.goes(self.event)

    # Backward.

    def runs(self) -> None:
        """Called in a backward pass, which is `running` until it ends without an error."""
        number = torch._C._current_graph_task_id()
        if number != -1 and number not in self.running:
            self.running.add(number)
            ended = partial(self.running.discard, number)
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def turn(self) -> None:
        """Backward begins; a planned step has saved all by now."""
        self.backward = True
        self._codes = ()
        if self._trials is not None:
            self._trials.ends()
        known = self.followed if self.mode is Mode.FOLLOW else None
        if known is not None and self.event + 1 != known.timeline.forward:
            self._differs()

    def read_held(self, held: Held) -> None:
        """An event of backward, unless it is an earlier step's: a tensor that the plan keeps."""
        if held.holder is not self._holder():
            return
        self.event += 1
        self._course.before(self.event)
        if self._reading:
            self._let_go(None, torch._C._current_autograd_node())
        self._course.goes(self.event)

    def storage(self, packed: Packed) -> Tensor:
        """The device's bytes for a node that asks for them, which is an event unless they are an
        earlier step's."""
        entry, node = packed.entry, torch._C._current_autograd_node()
        if self.numbered.get(entry.number) is not entry:
            check_form(packed, node)
            return self._values.storage(entry)
        self.event += 1
        if self.recorder is not None:
            self.recorder.stop(None)
            if self.mode is Mode.RECORD and entry.number in self.found.forms:
                self.recorder.seen[entry].readers.add(reader_of(node, packed))
        self._course.before(self.event)
        check_form(packed, node)
        self._let_go(entry, node)
        storage = self._values.storage(entry)
        self._course.after(entry)
        if self.recorder is not None:
            self.recorder.go(entry, node)
        self._course.goes(self.event)
        return storage

    def _let_go(self, entry: Entry | None, node: Node | None) -> None:
        """Holds the device's bytes of the tensors of the running operation only, beyond what the
        plan holds."""
        latest = self._reading
        if node is not self._reading_node:
            for other in latest:
                given_up = other is not entry and other.comes_back
                if given_up and self._course.finished(self.event, other):
                    self._store.drop(other)
            latest.clear()
            self._reading_node = node
        if entry is not None and entry not in latest:
            latest.append(entry)

    def _gone(self, entry: Entry) -> None:
        with self._lock:
            self._store.gone(entry)
            if self.numbered.get(entry.number) is entry:
                del self.numbered[entry.number]


def _nobody() -> None:
    return None
