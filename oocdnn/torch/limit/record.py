"""From the events of one step to a timeline for the planner.

An event is a saved storage that is new (in forward) or a saved tensor that is asked for again (in
backward). An operation of the timeline is the time between two events.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from oocdnn.network.timeline import Operation, Recipe, Saved, Squeeze, Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.heap.allocations import Allocations, Item
from oocdnn.torch.limit.heap.reading import Note, read, templates
from oocdnn.torch.limit.squeeze import Form, Reader
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.table import Signature, Table
from oocdnn.torch.limit.trace import Node


@dataclass(frozen=True)
class Record:
    """Measurements of a kind of step, from all of its recordings so far.

    Args:
        sure: For each operation, whether the device's time is known: there is no wait for the host
            in it.
        copying: Seconds of the host for one copy; None where there were few.
    """

    timeline: Timeline
    sure: tuple[bool, ...]
    copying: float | None = None

    def with_hosts(self, seconds: Mapping[int, float]) -> Record:
        """With these host times of operations, by positions."""
        operations = tuple(
            replace(one, host=seconds.get(position, one.host))
            for position, one in enumerate(self.timeline.operations)
        )
        return replace(self, timeline=replace(self.timeline, operations=operations))


@dataclass
class _Event:
    begin: Any  # mark: the device goes on, after what the runtime did at the event
    end: Any = None  # mark: the next event
    began: float = 0.0  # of the host's clock, in seconds, as the marks are of the device's
    host: float = 0.0  # seconds from there to the next event
    resident: int = 0  # bytes of entries on the device from here on
    held: int = 0  # bytes on the device here
    most: int = 0  # bytes on the device until the next event
    appeared: int = 0  # bytes of the entry that the next event saw first
    node: Node | None = None  # of backward; held, so that no other takes its address
    ran: list[Signature] = field(default_factory=list)  # operations that have parts
    sure: bool = False  # the device began when the host had enqueued all


_AHEAD = 1.5  # times what an operation takes the host: the device is busy so long before it
_HOST = 2e-4  # seconds, where that is not known
_BEHIND = 8  # operations that the device has not begun, with which it is kept busy no more
_FAR = 64  # such operations, with which the host waits here and not in launches into a full queue
_COPIES = 8  # the cost of fewer is not known


@dataclass
class _Seen:
    """Observations of one entry while a step is recorded."""

    label: str = ""  # the operation that made it, and its form
    reads: list[int] = field(default_factory=list)  # events of backward
    bare: list[int] = field(default_factory=list)  # such events at which no value is read
    readers: set[Reader] = field(default_factory=set)  # in backward, where it has a smaller form
    ended: int = -1  # event of forward at which nobody else was seen to hold it


@dataclass
class _Recipe:
    reads: tuple[int, ...]
    name: str
    begin: Any
    end: Any
    host: float  # seconds
    extra: int


@dataclass
class Recorder:
    """Events of one step, in order; event 0 is the step's beginning.

    At an event the runtime calls `stop`, acts, and calls `go`: its waits are part of no operation.
    A device that is faster than the host waits within operations. It is kept busy before those that
    no recording has measured without that.

    Args:
        before: What earlier recordings of the step measured.
    """

    card: Card
    store: Store
    bytes_too: bool  # else times only
    table: Table  # tells which operations run that have parts
    entries: list[Entry] = field(default_factory=list)
    seen: dict[Entry, _Seen] = field(default_factory=dict)
    produced: list[int] = field(default_factory=list)
    forward: int = 0  # events of forward, 0 while it runs
    events: list[_Event] = field(default_factory=list)
    recipes: dict[int, list[_Recipe]] = field(default_factory=dict)
    squeezes: dict[int, tuple[Form, Any, Any, float]] = field(default_factory=dict)
    watched: bool = False  # whether the card keeps the history of its allocator
    notes: list[Note] = field(default_factory=list)  # in that history, two for each event
    brackets: bool = False  # whether it keeps it for what recipes allocate
    before: Record | None = None
    _begun: int = 0  # operations that the device was seen to have begun
    _copies: int = 0  # before the step, as the store counts them
    _spent: float = 0.0
    _around: list[Note] = field(default_factory=list)  # two for each recipe
    _numbers: list[tuple[int, int]] = field(default_factory=list)  # of its entry, and its own there
    _open: list[Entry] = field(default_factory=list)  # that others were seen to hold

    def begin(self) -> None:
        if self.bytes_too:
            self.card.peak()
        self._copies, self._spent = self.store.copies, self.store.spent
        self._keep_device_busy()
        self._go(_Event(self.card.mark()))

    def stop(self, appeared: Entry | None) -> None:
        """An event: a new storage in forward, or none and a read in backward."""
        last = self._stop()
        self.table.ran = None
        self._note(appeared)
        if self.bytes_too:
            last.most = max(last.most, self.card.peak())
            if appeared is not None or self.forward == 0:
                self._look(len(self.events))
        if appeared is not None:
            last.appeared = appeared.nbytes
            self.produced.append(len(self.events) - 1)
            self.entries.append(appeared)
            self.seen[appeared] = _Seen()
            self._open.append(appeared)
        elif self.forward == 0:
            self.forward = len(self.events)

    def go(self, read: Entry | None = None, node: Node | None = None, values: bool = True) -> None:
        """`values`: the node reads the entry's values, and not only its form."""
        self._note(read if values else None)
        if read is not None:
            seen = self.seen[read]
            (seen.reads if values else seen.bare).append(len(self.events))
        if self.bytes_too:
            self.card.peak()
        held = self.card.held() if self.bytes_too else 0
        self._keep_device_busy()
        mark, resident = self.card.mark(), self.store.resident
        self._go(_Event(mark, resident=resident, held=held, node=node))

    def _keep_device_busy(self) -> None:
        """Has the device work before the next operation, so that the host gets ahead of it."""
        number = len(self.events)
        while self._begun < number and self.card.reached(self.events[self._begun].begin):
            self._begun += 1
        if number - self._begun > _FAR:
            self._begun = number - _FAR
            self.card.wait(self.events[self._begun].begin)
        if number - self._begun >= _BEHIND:
            return
        if self.before is None or number >= len(self.before.sure):
            self.card.busy(_AHEAD * _HOST)
        elif not self.before.sure[number]:
            self.card.busy(_AHEAD * self.before.timeline.operations[number].host)

    def _go(self, event: _Event) -> None:
        self.events.append(event)
        self.table.ran = event.ran
        event.began = time.perf_counter()

    def _stop(self) -> _Event:
        """Ends the times of the last event."""
        last = self.events[-1]
        last.host = time.perf_counter() - last.began
        last.sure = not self.card.reached(last.begin)
        last.end = self.card.mark()
        return last

    def recipe(
        self,
        entry: Entry,
        reads: tuple[int, ...],
        name: str,
        begin: Any,
        end: Any,
        host: float,
        extra: int,
    ) -> None:
        """A further way to compute an entry from others, timed between two marks, with what it
        takes the host."""
        known = self.recipes.setdefault(entry.number, [])
        known.append(_Recipe(reads, name, begin, end, host, extra))

    def squeezed(self, entry: Entry, form: Form, begin: Any, end: Any, host: float) -> None:
        """A smaller form of an entry; both ways are timed between two marks, with what they take
        the host."""
        self.squeezes[entry.number] = (form, begin, end, host)

    def computing(self) -> None:
        """A recipe is about to be tried; the last one may have failed."""
        if self.brackets:
            del self._around[2 * len(self._numbers) :]
            self._around.append(self._noted(len(self._around)))

    def computed(self, entry: Entry, made: Tensor) -> None:
        """It has given the bytes of this entry, whose next recipe it is."""
        if self.brackets:
            storage = self.card.address(made)
            self._numbers.append((entry.number, len(self.recipes.get(entry.number, ()))))
            self._around.append(self._noted(len(self._around), entry.number, storage))

    def templates(self) -> dict[tuple[int, int], tuple[Item, ...]]:
        """What recipes allocate, by the numbers of entries and of their recipes, where the card has
        the history."""
        log = self.card.watched() if self.brackets else None
        if log is None:
            return {}
        count = 2 * len(self._numbers)
        pairs = zip(self._around[:count:2], self._around[1:count:2], strict=True)
        known = zip(self._numbers, templates(log, pairs), strict=True)
        return {numbers: one for numbers, one in known if one is not None}

    def allocations(
        self, timeline: Timeline, templates: Mapping[tuple[int, int], Sequence[Item]]
    ) -> Allocations | None:
        """What the step allocated, where the card has the history."""
        log = self.card.watched() if self.watched else None
        return None if log is None else read(log, self.notes, timeline, templates)

    def first(self, label: str) -> Record | None:
        """The record of a step's first recording; None if the step saved nothing, or read nothing
        back."""
        operations, sure = self.operations()
        if not self.forward or not self.entries:
            return None
        saved = tuple(
            self._saved(entry, produced)
            for entry, produced in zip(self.entries, self.produced, strict=True)
        )
        self._reuse()
        return Record(Timeline(operations, self.forward, saved, label), sure, self._copying())

    def ran(self, position: int) -> list[Signature]:
        """What ran in an operation and has parts."""
        return self.events[position].ran

    def again(self) -> Record | None:
        """The record `before`, updated with this recording; None if this step differs from it."""
        if self.before is None:
            return None
        timeline = self.before.timeline
        same = len(self.events) == len(timeline.operations) and self.forward == timeline.forward
        if not same or len(self.entries) != len(timeline.saved):
            return None
        operations, sure = self.operations()
        self._reuse()
        timeline = Timeline(operations, timeline.forward, timeline.saved, timeline.label)
        known = [one for one in (self._copying(), self.before.copying) if one is not None]
        return Record(timeline, sure, min(known, default=None))

    def operations(self) -> tuple[tuple[Operation, ...], tuple[bool, ...]]:
        """As measured now and before, and which of their seconds are known: the least, of the
        recordings that know them where there are any."""
        self._stop()
        self.look()
        found, known = [], []
        for i, event in enumerate(self.events):
            seconds, host, sure = self.card.seconds(event.begin, event.end), event.host, event.sure
            fixed = max(event.most - event.resident - event.appeared, 0)
            begin: int | None = max(event.held - event.resident, 0)
            if self.before is not None:
                before, was_sure = self.before.timeline.operations[i], self.before.sure[i]
                if sure == was_sure:
                    seconds = min(seconds, before.seconds)  # a late host only adds
                elif was_sure:
                    seconds = before.seconds
                sure = sure or was_sure
                host = min(host, before.host)  # a host that has to wait takes longer
                if not self.bytes_too:
                    fixed, begin = before.fixed_bytes, before.begin_bytes
            name = f"{'forward' if i < self.forward else 'backward'} {i}"
            found.append(Operation(name, seconds, fixed, begin, host))
            known.append(sure)
        return tuple(found), tuple(known)

    def _copying(self) -> float | None:
        copies = self.store.copies - self._copies
        return (self.store.spent - self._spent) / copies if copies >= _COPIES else None

    def look(self) -> None:
        """Notes the peak so far, before it is lost or the step ends."""
        if self.bytes_too:
            last = self.events[-1]
            last.most = max(last.most, self.card.peak())

    def _saved(self, entry: Entry, produced: int) -> Saved:
        last = self.forward - 1
        seen = self.seen[entry]
        held = seen.ended < 0
        ended = last if held else min(max(seen.ended - 1, produced), last)
        uses = seen.reads or seen.bare or [len(self.events) - 1]
        reads = sorted({*uses, self._end_of_node(uses[-1])})
        return Saved(
            f"{entry.number} {seen.label}",
            entry.nbytes,
            produced,
            ended,
            tuple(reads),
            movable=bool(seen.reads or seen.bare) and not held,
            recipes=self._recipes(entry),
            squeeze=self._squeeze(entry),
        )

    def _recipes(self, entry: Entry) -> tuple[Recipe, ...]:
        return tuple(
            Recipe(
                one.reads,
                self.card.seconds(one.begin, one.end),
                one.extra,
                one.name,
                one.host,
            )
            for one in self.recipes.get(entry.number, ())
        )

    def _squeeze(self, entry: Entry) -> Squeeze | None:
        known = self.squeezes.get(entry.number)
        if known is None:
            return None
        form, begin, end, host = known
        if not all(form.serves(reader) for reader in self.seen[entry].readers):
            return None
        nbytes, seconds = form.nbytes(entry.nbytes), self.card.seconds(begin, end)
        return Squeeze(nbytes, seconds, whole=form.whole, host=host)

    def _reuse(self) -> None:
        self.card.reuse(mark for event in self.events for mark in (event.begin, event.end))

    def _end_of_node(self, event: int) -> int:
        """The last event of the operation of backward that this event is of."""
        node = self.events[event].node
        while event + 1 < len(self.events) and self.events[event + 1].node is node is not None:
            event += 1
        return event

    def _note(self, entry: Entry | None) -> None:
        if not self.watched:
            return
        number, storage = -1, 0
        if entry is not None and entry.storage is not None:
            number, storage = entry.number, self.card.address(entry.storage)
        self.notes.append(self._noted(len(self.notes), number, storage))

    def _noted(self, count: int, number: int = -1, storage: int = 0) -> Note:
        nbytes = 257 + count % 251  # differs from the neighbours'; tensors rarely have it
        return Note(self.card.note(nbytes), nbytes, number, storage)

    def _look(self, event: int) -> None:
        """Notes which entries nobody else holds any more."""
        still = []
        for entry in self._open:
            if entry.others() == 0:
                self.seen[entry].ended = event
            else:
                still.append(entry)
        self._open = still
