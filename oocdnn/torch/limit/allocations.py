"""What a step allocates, operation by operation, and the bytes that a schedule of it reserves.

The record of one step tells which allocations the program makes and frees between two events. What
the runtime allocates itself (fetched tensors, computed ones, temporaries) follows from the
schedule. Both together, in order, are given to a simulation of the allocator.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oocdnn.network.plan import Policy, Schedule
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.allocator import Allocator, Block, Extent, is_small, rounded

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


Item = tuple[int, bool]  # number of what is allocated (True) or freed


@dataclass(frozen=True)
class Allocations:
    """The allocations of one step without those that the runtime makes.

    Args:
        timeline: Of the step.
        operations: For each operation, what is allocated and freed, in order. Numbers below that
            of the saved tensors are those of saved tensors; a free of one is its last.
        sizes: Bytes by number.
        persistent: Addresses of what outlives every step.
        carried: Numbers of what the next step frees.
        log: The allocator at the step's end.
    """

    timeline: Timeline
    operations: tuple[tuple[Item, ...], ...]
    sizes: tuple[int, ...]
    persistent: frozenset[int]
    carried: tuple[int, ...]
    expandable: bool
    extents: tuple[Extent, ...]
    elsewhere: int = 0

    def reserved(self, schedule: Schedule) -> int:
        """Most bytes taken from the driver in steps that follow the schedule, from the state after
        the recorded step on, with unused memory given back first."""
        return _Replay(self, schedule).run()


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
        self._sizes = [one.nbytes for one in timeline.saved]
        self._carried: list[int] = []

    def sorted(self, log: Log) -> Allocations:
        self._match()
        operations = [
            [
                (self._number(life), allocated)
                for life, allocated, at_event in items
                if self._counts(life, allocated=allocated, at_event=at_event)
            ]
            for items in self._reader.items
        ]
        carried = set(self._carried)
        open_ = {number for items in operations for number, allocated in items if allocated}
        open_ -= {number for items in operations for number, allocated in items if not allocated}
        operations[-1] += [(number, False) for number in sorted(open_ - carried)]
        passing = {life.address for life in self._reader.live.values() if life.number in carried}
        persistent = frozenset(
            address
            for extent in log.extents
            for address in _addresses(extent)
            if address not in passing
        )
        return Allocations(
            self._timeline,
            tuple(map(tuple, operations)),
            tuple(self._sizes),
            persistent,
            tuple(self._carried),
            log.expandable,
            log.extents,
            log.elsewhere,
        )

    def _match(self) -> None:
        """Finds for each allocation of the step before that this step frees one of the same size
        that this step leaves to the next. What it leaves besides stays for ever."""
        left: defaultdict[int, deque[_Life]] = defaultdict(deque)
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
                    other = others.popleft()
                    life.number = self._number(other)
                    self._carried.append(life.number)

    def _number(self, life: _Life) -> int:
        if life.number < 0:
            if life.entry >= 0:
                life.number = life.entry
            else:
                life.number = len(self._sizes)
                self._sizes.append(life.nbytes)
        return life.number

    def _counts(self, life: _Life, *, allocated: bool, at_event: bool) -> bool:
        if allocated:  # by the program; what stays for ever is there before the step
            return life.freed or life.number in self._carried or self._moved(life)
        if life.entry < 0:
            return not life.runtime
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


class _Replay:
    """The allocator through steps of a schedule. Nothing is given back in a step, so that both
    pools can be counted one after the other."""

    def __init__(self, allocations: Allocations, schedule: Schedule) -> None:
        self._all, self._schedule = allocations, schedule
        self._allocator = Allocator(
            expandable=allocations.expandable, extents=allocations.extents
        )
        self._allocator.trim()
        self._blocks: defaultdict[int, deque[Block]] = defaultdict(deque)
        self._squeezed: dict[int, Block] = {}
        self._carry()
        self._releases: defaultdict[int, list[int]] = defaultdict(list)
        self._fetches: defaultdict[int, list[int]] = defaultdict(list)
        self._computed: defaultdict[int, list[int]] = defaultdict(list)
        self._arrivals: defaultdict[int, list[int]] = defaultdict(list)
        movements = schedule.movements
        for number in sorted(movements, key=lambda n: (movements[n].need, n)):
            movement, policy = movements[number], schedule.choices[number].policy
            self._releases[movement.release].append(number)
            if policy is Policy.SWAP:
                self._fetches[movement.fetch].append(number)
            else:
                self._computed[movement.need].append(number)
            if policy is Policy.SQUEEZE:
                self._arrivals[self._all.timeline.saved[number].produced + 1].append(number)

    def run(self) -> int:
        for _ in range(_STEPS):
            for position, items in enumerate(self._all.operations):
                self._act(position)
                for number, allocated in items:
                    if allocated:
                        self._allocate(number)
                    else:
                        self._end(number)
        return self._allocator.reserved + self._all.elsewhere

    def _carry(self) -> None:
        """What the step before leaves, by sizes."""
        found: defaultdict[int, list[Block]] = defaultdict(list)
        for address, block in self._allocator.given.items():
            if address not in self._all.persistent:
                found[block.size].append(block)
        for number in reversed(self._all.carried):
            blocks = found[rounded(self._all.sizes[number])]
            if blocks:
                self._blocks[number].appendleft(blocks.pop())

    def _act(self, position: int) -> None:
        """What the runtime does at an event."""
        saved, schedule = self._all.timeline.saved, self._schedule
        for number in self._releases.get(position, ()):
            self._free(number)
        for number in self._fetches.get(position, ()):
            self._allocate(number)
        for number in self._arrivals.get(position, ()):
            squeeze = saved[number].squeeze
            assert squeeze is not None
            wide = self._allocator.allocate(saved[number].nbytes)
            self._squeezed[number] = self._allocator.allocate(squeeze.nbytes)
            self._allocator.free(wide)
        for number in self._computed.get(position, ()):
            choice = schedule.choices[number]
            nbytes = 0
            if choice.policy is Policy.REBUILD:
                nbytes = saved[number].recipes[choice.recipe].temporary_bytes
            temporary = self._allocator.allocate(nbytes) if nbytes else None
            self._allocate(number)
            if temporary is not None:
                self._allocator.free(temporary)

    def _allocate(self, number: int) -> None:
        self._blocks[number].append(self._allocator.allocate(self._all.sizes[number]))

    def _end(self, number: int) -> None:
        self._free(number)
        squeezed = self._squeezed.pop(number, None)
        if squeezed is not None:
            self._allocator.free(squeezed)

    def _free(self, number: int) -> None:
        """The oldest block of that number."""
        blocks = self._blocks[number]
        if blocks:
            self._allocator.free(blocks.popleft())
