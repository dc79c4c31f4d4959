"""What a step allocates, operation by operation, and the bytes that a schedule of it reserves.

The record of one step tells which allocations the program makes and frees between two events. What
the runtime allocates itself (fetched tensors, computed ones, temporaries) follows from the
schedule. Both together, in order, are given to a simulation of the allocator.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from oocdnn.network.plan import Policy, Schedule
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.heap.allocator import Allocator, Block, Extent, rounded

_STEPS = 2  # that are simulated: the second begins with what the first leaves


@dataclass(frozen=True)
class Log:
    """An allocator's history.

    Args:
        entries: True for an allocation and False for a free, address, bytes asked for; in order.
        extents: Memory that the allocator holds at the end.
        expandable: Whether it has expandable segments.
        elsewhere: Bytes that it holds for other streams and private pools.
    """

    entries: Sequence[tuple[bool, int, int]]
    extents: tuple[Extent, ...]
    expandable: bool
    elsewhere: int = 0


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


Item = tuple[int, int]  # a number, and the bytes that are allocated for it, or 0: it is freed


@dataclass(frozen=True)
class Allocations:
    """The allocations of one step without those that the runtime makes.

    Args:
        timeline: Of the step.
        operations: For each operation, what is allocated and freed, in order. Numbers below that
            of the saved tensors are those of saved tensors; a free of one is its last.
        carried: What the next step frees: number and bytes.
        persistent: Addresses of what outlives every step.
        log: Tells the state of the allocator at the step's end.
    """

    timeline: Timeline
    operations: tuple[tuple[Item, ...], ...]
    carried: tuple[Item, ...]
    persistent: frozenset[int]
    log: Log

    def planned(self, schedule: Schedule) -> list[Item]:
        """The allocations and frees of a step that follows the schedule."""
        return list(_Sequence(self.timeline, schedule).items(self.operations))

    def reserved(self, schedule: Schedule) -> int:
        """Most bytes taken from the driver in steps that follow the schedule, from the state after
        the recorded step on, with unused memory given back first."""
        items = self.planned(schedule)
        allocator = Allocator(expandable=self.log.expandable, extents=self.log.extents)
        allocator.trim()
        blocks = self._left(allocator)
        for _ in range(_STEPS):
            for number, nbytes in items:
                if nbytes:
                    blocks[number].append(allocator.allocate(nbytes))
                elif blocks[number]:
                    allocator.free(blocks[number].popleft())
        return allocator.reserved + self.log.elsewhere

    def _left(self, allocator: Allocator) -> defaultdict[int, deque[Block]]:
        """Blocks that the step before leaves, by the numbers under which the next one frees
        them."""
        found: defaultdict[int, list[Block]] = defaultdict(list)
        for address, block in allocator.used.items():
            if address not in self.persistent:
                found[block.size].append(block)
        blocks: defaultdict[int, deque[Block]] = defaultdict(deque)
        for number, nbytes in self.carried:
            if found[rounded(nbytes)]:
                blocks[number].append(found[rounded(nbytes)].pop(0))
        return blocks


class _Sequence:
    """Puts what the runtime does at each event between the operations of the program."""

    def __init__(self, timeline: Timeline, schedule: Schedule) -> None:
        self._saved, self._choices = timeline.saved, schedule.choices
        self._releases: defaultdict[int, list[int]] = defaultdict(list)
        self._fetches: defaultdict[int, list[int]] = defaultdict(list)
        self._computed: defaultdict[int, list[int]] = defaultdict(list)
        self._squeezed: defaultdict[int, list[int]] = defaultdict(list)
        movements = schedule.movements
        for number in sorted(movements, key=lambda n: (movements[n].need, n)):
            movement, policy = movements[number], schedule.choices[number].policy
            self._releases[movement.release].append(number)
            if policy is Policy.SWAP:
                self._fetches[movement.fetch].append(number)
            else:
                self._computed[movement.need].append(number)
            if policy is Policy.SQUEEZE:
                self._squeezed[timeline.saved[number].produced + 1].append(number)

    def items(self, operations: Sequence[Sequence[Item]]) -> Iterator[Item]:
        for position, items in enumerate(operations):
            yield from self._event(position)
            for number, nbytes in items:
                yield number, nbytes
                if nbytes == 0 and number < len(self._saved):
                    yield from self._end(number)

    def _event(self, position: int) -> Iterator[Item]:
        """Releases, then fetches, then what is computed."""
        for number in self._releases.get(position, ()):
            yield number, 0
        for number in self._fetches.get(position, ()):
            yield number, self._saved[number].nbytes
        for number in self._squeezed.get(position, ()):
            squeeze = self._saved[number].squeeze
            assert squeeze is not None
            temporary = _temporary(number)
            if squeeze.temporary_bytes:
                yield temporary, squeeze.temporary_bytes
            yield _form(number), squeeze.nbytes
            if squeeze.temporary_bytes:
                yield temporary, 0
        for number in self._demanded(self._computed.get(position, ())):
            yield from self._compute(number)

    def _demanded(self, numbers: Sequence[int]) -> list[int]:
        """In the order in which they are computed: the inputs of each in front of it."""
        found: dict[int, None] = {}

        def demand(number: int) -> None:
            choice = self._choices[number]
            if choice.policy is Policy.REBUILD:
                for source in self._saved[number].recipes[choice.recipe].inputs:
                    if source in numbers and source not in found:
                        demand(source)
            found[number] = None

        for number in sorted(numbers, reverse=True):  # the last one is read, and needs the others
            if number not in found:
                demand(number)
        return list(found)

    def _compute(self, number: int) -> Iterator[Item]:
        """The operation's temporary bytes come after its result."""
        one, choice, extra = self._saved[number], self._choices[number], 0
        if choice.policy is Policy.REBUILD:
            extra = one.recipes[choice.recipe].temporary_bytes
        yield number, one.nbytes
        if extra:
            yield _temporary(number), extra
            yield _temporary(number), 0

    def _end(self, number: int) -> Iterator[Item]:
        """A squeezed form stays until the end of what it is of."""
        if self._choices[number].policy is Policy.SQUEEZE:
            yield _form(number), 0


def _form(number: int) -> int:
    """The number of the squeezed form of a saved tensor; they are negative."""
    return -2 * number - 1


def _temporary(number: int) -> int:
    """The number of what is temporary while a saved tensor is computed."""
    return -2 * number - 2


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


def read(log: Log, notes: Sequence[Note], timeline: Timeline) -> Allocations | None:
    """From the history of one step, which begins with the end of the step before. None where the
    notes are not those of the timeline's events, or not in the history."""
    count = len(timeline.operations)
    if len(notes) != 2 * (count - 1):
        return None
    reader = _Reader(notes, [[] for _ in range(count)])
    reader.walk(log.entries)
    if reader.seen != len(notes):
        return None
    return _Sorter(reader, timeline).sorted(log)


class _Sorter:
    """Numbers what a history holds, and leaves out what the runtime did."""

    def __init__(self, reader: _Reader, timeline: Timeline) -> None:
        self._reader, self._timeline = reader, timeline
        self._numbers = len(timeline.saved)

    def sorted(self, log: Log) -> Allocations:
        carried = self._carried()
        numbers = {number for number, _ in carried}
        operations = [
            [
                (self._number(life), life.nbytes if allocated else 0)
                for life, allocated, at_event in items
                if self._counts(life, numbers, allocated=allocated, at_event=at_event)
            ]
            for items in self._reader.items
        ]
        everything = [item for items in operations for item in items]
        open_ = {number for number, nbytes in everything if nbytes}
        open_ -= {number for number, nbytes in everything if not nbytes}
        operations[-1] += [(number, 0) for number in sorted(open_ - numbers)]
        passing = {life.address for life in self._reader.live.values() if life.number in numbers}
        persistent = {address for extent in log.extents for address in _addresses(extent)} - passing
        return Allocations(
            self._timeline,
            tuple(map(tuple, operations)),
            tuple(carried),
            frozenset(persistent),
            replace(log, entries=()),
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


def _addresses(extent: Extent) -> list[int]:
    """Of blocks in use."""
    address, found = extent.address, []
    for size, used in extent.blocks:
        if used:
            found.append(address)
        address += size
    return found
