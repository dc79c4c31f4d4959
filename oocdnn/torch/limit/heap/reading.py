"""From an allocator's history of one step to what the program allocates in it.

Notes, which are small allocations, tell where in the history the events of the step are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.heap.allocations import RESULT, Allocations, Item
from oocdnn.torch.limit.heap.allocator import Heap, rounded


@dataclass(frozen=True)
class Log:
    """An allocator's history.

    Args:
        entries: True for an allocation and False for a free, address, bytes asked for; in order.
        heap: The allocator's memory at the end.
    """

    entries: Sequence[tuple[bool, int, int]]
    heap: Heap


@dataclass(frozen=True)
class Note:
    """A point in the history: an allocation that was made to be found again.

    Notes come in pairs, at the beginning and at the end of what the runtime does at an event.

    Args:
        address: Of the allocation.
        nbytes: Of the allocation; others rarely have this size.
        entry: Number of the entry that arrived or was read, -1 if none.
        storage: Address of the entry's bytes.
    """

    address: int
    nbytes: int
    entry: int = -1
    storage: int = 0


@dataclass(eq=False)
class _Life:
    """An allocation, from the history."""

    nbytes: int
    address: int
    old: bool = False  # from before the step
    runtime: bool = False  # made by the runtime
    mark: bool = False
    entry: int = -1
    number: int = -1
    freed: bool = False


@dataclass
class _Reader:
    """One walk over a history. Events alternate with operations; at an event the runtime acts."""

    notes: Sequence[Note]
    items: list[list[tuple[_Life, bool, bool]]]  # life, whether allocated, whether at an event
    live: dict[int, _Life] = field(default_factory=dict)
    last: dict[int, _Life] = field(default_factory=dict)  # of each entry
    reads: set[int] = field(default_factory=set)  # entries
    seen: int = 0  # notes

    def walk(self, entries: Iterable[tuple[bool, int, int]]) -> None:
        for allocated, address, nbytes in entries:
            if allocated:
                self._allocated(address, nbytes)
            else:
                self._freed(address, nbytes)

    def _allocated(self, address: int, nbytes: int) -> None:
        note = self.notes[self.seen] if self.seen < len(self.notes) else None
        life = self.live[address] = _Life(nbytes, address, runtime=self._at_event)
        if note is not None and (note.address, note.nbytes) == (address, nbytes):
            life.mark = True
            self._noted(note)
        elif not life.runtime:
            self._items.append((life, True, False))

    def _freed(self, address: int, nbytes: int) -> None:
        life = self.live.pop(address, None) or _Life(nbytes, address, old=True)
        life.nbytes, life.freed = nbytes, True
        if not life.mark:
            self._items.append((life, False, self._at_event))

    def _noted(self, note: Note) -> None:
        if note.entry >= 0:
            life = self.live.get(note.storage)
            if life is None:
                life = self.live[note.storage] = _Life(0, note.storage, old=True)
            life.entry = note.entry
            self.last[note.entry] = life
            if self._at_event:
                self.reads.add(note.entry)
        self.seen += 1

    @property
    def _at_event(self) -> bool:
        return self.seen % 2 == 1

    @property
    def _items(self) -> list[tuple[_Life, bool, bool]]:
        return self.items[(self.seen + 1) // 2]


def read(
    log: Log,
    notes: Sequence[Note],
    timeline: Timeline,
    templates: Mapping[tuple[int, int], Sequence[Item]] | None = None,
) -> Allocations | None:
    """From the history of one step, which begins with the end of the step before. None where the
    notes are not those of the timeline's events, or not in the history."""
    count = len(timeline.operations)
    if len(notes) != 2 * (count - 1):
        return None
    reader = _Reader(notes, [[] for _ in range(count)])
    reader.walk(log.entries)
    if reader.seen != len(notes):
        return None
    return _Sorter(reader, timeline, templates or {}).sorted(log)


class _Sorter:
    """Numbers what a history holds, and leaves out what the runtime did."""

    def __init__(
        self,
        reader: _Reader,
        timeline: Timeline,
        templates: Mapping[tuple[int, int], Sequence[Item]],
    ) -> None:
        self._reader, self._timeline, self._templates = reader, timeline, templates
        self._numbers = len(timeline.saved)

    def sorted(self, log: Log) -> Allocations:
        carried = self._carried()
        numbers = {number for number, _ in carried}
        operations, leading = [], []
        for items in self._reader.items:
            some: list[Item] = []
            first = 0
            for life, allocated, at_event in items:
                if self._counts(life, numbers, allocated=allocated, at_event=at_event):
                    some.append((self._number(life), life.nbytes if allocated else 0))
                    first += at_event
            operations.append(some)
            leading.append(first)
        everything = [item for items in operations for item in items]
        open_ = {number for number, nbytes in everything if nbytes}
        open_ -= {number for number, nbytes in everything if not nbytes}
        operations[-1] += [(number, 0) for number in sorted(open_ - numbers)]
        passing = {life.address for life in self._reader.live.values() if life.number in numbers}
        persistent = {
            address for extent in log.heap.extents for address in extent.addresses
        } - passing
        return Allocations(
            self._timeline,
            tuple(map(tuple, operations)),
            tuple(leading),
            tuple(carried),
            frozenset(persistent),
            self._templates,
        )

    def _carried(self) -> list[Item]:
        """Finds for each allocation of the step before that this step frees one of the same size
        that this step leaves to the next. What it leaves besides stays for ever."""
        left: defaultdict[int, deque[_Life]] = defaultdict(deque)
        found = []
        for items in self._reader.items:
            for life, allocated, _ in items:
                if allocated and not life.freed:
                    left[rounded(life.nbytes)].append(life)
        for items in self._reader.items:
            for life, allocated, _ in items:
                if allocated or not life.old:
                    continue
                others = left[rounded(life.nbytes)]
                if others:
                    life.number = self._number(others.popleft())
                    found.append((life.number, life.nbytes))
        return found

    def _number(self, life: _Life) -> int:
        if life.number < 0:
            life.number = life.entry
            if life.entry < 0:
                life.number, self._numbers = self._numbers, self._numbers + 1
        return life.number

    def _counts(self, life: _Life, carried: set[int], *, allocated: bool, at_event: bool) -> bool:
        if allocated:  # by the program; what stays for ever is there before the step
            return life.freed or life.number in carried or self._moved(life)
        if life.entry < 0:
            return not life.runtime
        if life.old:
            return life.number in carried
        final = self._reader.last[life.entry] is life
        return final and (life.entry in self._reader.reads or not at_event)

    def _moved(self, life: _Life) -> bool:
        """Whether the runtime has the entry elsewhere now."""
        return life.entry >= 0 and self._reader.last[life.entry] is not life


def templates(log: Log, pairs: Iterable[tuple[Note, Note]]) -> Iterator[tuple[Item, ...] | None]:
    """What is allocated between the notes of each pair, the second at the result, and what of it is
    freed there; None if they are not in the history. Pairs are in its order."""
    start = 0
    for begin, end in pairs:
        first = _place(log, begin, start)
        last = -1 if first < 0 else _place(log, end, first + 1)
        if last < 0:
            yield None
        else:
            yield _template(log.entries[first + 2 : last], end.storage)
            start = last + 1


def _place(log: Log, note: Note, start: int) -> int:
    """Where the note is in the history from there on, -1 if it is not."""
    wanted, entries = (True, note.address, note.nbytes), log.entries
    return next((i for i in range(start, len(entries)) if entries[i] == wanted), -1)


def _template(entries: Iterable[tuple[bool, int, int]], storage: int) -> tuple[Item, ...] | None:
    live: dict[int, int] = {}  # by address, the number
    items: list[Item] = []
    for allocated, address, nbytes in entries:
        if allocated:
            live[address] = len(items) + 1
            items.append((live[address], nbytes))
        elif address in live:
            items.append((live.pop(address), 0))
    if storage not in live:
        return None
    result = live.pop(storage)
    stays = set(live.values())  # tensors that it reads, and that came back
    return tuple(
        (RESULT if number == result else number, nbytes)
        for number, nbytes in items
        if number not in stays
    )
