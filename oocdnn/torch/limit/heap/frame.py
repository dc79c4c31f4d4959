"""The addresses in which a step's large allocations are to be, and the check of a steering there by
simulation of the whole allocator."""

from __future__ import annotations

from dataclasses import dataclass

from oocdnn._native_heap import simulated
from oocdnn.network.plan import Schedule
from oocdnn.torch.limit.heap.allocations import Allocations, Point
from oocdnn.torch.limit.heap.allocator import Allocator, Block, Heap, page_bytes
from oocdnn.torch.limit.heap.arena import Interval
from oocdnn.torch.limit.heap.placement import Lives

_STEPS = 2  # that the whole allocator is simulated for

Act = tuple[int, int]  # address and bytes that are taken there; 0 bytes: it is given back


@dataclass(frozen=True)
class Steering:
    """What the runtime takes and gives back in a step.

    Args:
        end: Address up to which everything is mapped before the first step.
        acts: At points, in order; what is not given back there is where the runtime acts next.
        reserved: Most bytes taken from the driver.
    """

    end: int
    acts: dict[Point, tuple[Act, ...]]
    reserved: int


class Frame:
    """The range of addresses in which a step's large allocations are to be.

    Attributes:
        base, end: Of the range.
        pages: Behind it, mapped because of what is in use there.
        stays: What is in use there for ever.
        old: Intervals that the step before leaves, by their places in `carried`.
    """

    def __init__(
        self, allocations: Allocations, schedule: Schedule, heap: Heap, limit: int
    ) -> None:
        self._allocations, self._heap = allocations, heap
        self.groups = allocations.groups(schedule)
        allocator = self._allocator()
        left = allocations.left(allocator)
        self.stays: list[Interval] = []
        self.old: dict[int, Interval] = {}
        passing = set()
        carried = list(allocations.carried)
        large = set(allocator.used(small=False))
        for place, (number, _) in enumerate(allocations.carried):
            if not left[number]:
                carried[place] = number, 0  # not there: nothing is given back
            else:
                block = left[number].popleft()
                passing.add(block)
                if block in large:
                    self.old[place] = block
        self.stays += sorted(large - passing)
        self.lives = Lives(self.groups, carried)
        self._page = page_bytes(small=False)
        self.base, self.pages = allocator.base, []  # type: int, list[Interval]
        room = limit - heap.elsewhere - self._small()
        while True:
            self.end = self.base + max(room - self._behind, 0) // self._page * self._page
            pages = self._pages()
            if pages == self.pages:
                break
            self.pages = pages
        self.possible = len(self.lives) > 0

    @property
    def used(self) -> list[Interval]:
        return [*self.stays, *self.old.values()]

    @property
    def _behind(self) -> int:
        return sum(nbytes for _, nbytes in self.pages)

    def _pages(self) -> list[Interval]:
        """Of what is in use behind the end."""
        found: list[Interval] = []
        for address, nbytes in sorted(self.used):
            if address + nbytes <= self.end:
                continue
            first = max(self.base + (address - self.base) // self._page * self._page, self.end)
            last = self.base - (self.base - address - nbytes) // self._page * self._page
            if found and first <= sum(found[-1]):
                first = found.pop()[0]
            found.append((first, last - first))
        return found

    @property
    def ranges(self) -> list[Interval]:
        """All that is mapped."""
        return [(self.base, self.end - self.base), *self.pages]

    def mapped(self, address: int, nbytes: int) -> bool:
        """Whether an allocation there takes nothing more from the driver."""
        last = address + nbytes
        return last <= self.end or any(a <= address and last <= a + n for a, n in self.pages)

    def _allocator(self) -> Allocator:
        allocator = Allocator(expandable=True, extents=self._heap.extents)
        allocator.trim()
        return allocator

    def _small(self) -> int:
        """Bytes of the small pool, which nothing steers."""
        items = [
            item for group in self.groups for item in (*((n, 0) for n in group.frees), *group.items)
        ]
        return simulated(self._heap.native(), self._allocations.requests(items)).reserved_small

    def checked(self, acts: dict[Point, tuple[Act, ...]]) -> Steering | None:
        """In the simulation of the whole allocator; None where it does not agree."""
        allocator = self._allocator()
        allocator.fill(self.end)
        before = allocator.reserved
        blocks = self._allocations.left(allocator)
        held: dict[int, Block] = {}
        for _ in range(_STEPS):
            for group in self.groups:
                for block in held.values():
                    allocator.free(block)
                held = {}
                for number in group.frees:
                    if blocks[number]:
                        allocator.free(blocks[number].popleft())
                for address, nbytes in acts.get(group.point, ()) if group.point else ():
                    if nbytes:
                        held[address] = allocator.allocate(nbytes)
                        if held[address].address != address:
                            return None
                    else:
                        allocator.free(held.pop(address))
                for number, nbytes in group.items:
                    if nbytes:
                        blocks[number].append(allocator.allocate(nbytes))
                    elif blocks[number]:
                        allocator.free(blocks[number].popleft())
        if allocator.reserved_of(small=False) > self.end - self.base + self._behind:
            return None
        return Steering(self.end, acts, max(allocator.reserved, before) + self._heap.elsewhere)
