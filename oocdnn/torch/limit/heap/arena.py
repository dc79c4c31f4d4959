"""The large pool of an expandable segment by intervals: a range of mapped addresses, and pages
behind it that are mapped because of what is in use there.

It takes the addresses that PyTorch's allocator takes while the whole range is mapped, and is faster
than the simulation of the whole allocator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]  # address and bytes

LEAST = 1 << 20  # bytes; a free interval that is not larger cannot be taken
_ENDLESS = 1 << 45
_APART = 512


class Arena:
    """Free intervals by address. What is not in use behind the last one is free without end: a
    block that can grow comes last, as large as it can become."""

    __slots__ = ("free",)

    def __init__(self, free: list[Interval]) -> None:
        self.free = free

    @classmethod
    def around(cls, used: Iterable[Interval], begin: int, pages: Iterable[Interval] = ()) -> Arena:
        """The free intervals between these. What is free at the beginning of the pages is no
        neighbour of the addresses in front of them, which are not mapped."""
        free, cursor = [], begin
        starts = [(address, 0) for address, _ in pages]
        for address, nbytes in sorted([*used, *starts]):
            if address > cursor:
                free.append((cursor, address - cursor - (_APART if nbytes == 0 else 0)))
            cursor = max(cursor, address + nbytes)
        return cls([*free, (cursor, _ENDLESS)])

    def allocate(self, nbytes: int) -> int:
        """The address at the beginning of the smallest interval that holds it, of equal ones the
        lowest."""
        most, place = _ENDLESS + 1, -1
        for i, (_, size) in enumerate(self.free):
            if nbytes <= size < most:
                most, place = size, i
        address, size = self.free[place]
        if size == nbytes:
            del self.free[place]
        else:
            self.free[place] = (address + nbytes, size - nbytes)
        return address

    def give(self, address: int, nbytes: int) -> None:
        free = self.free
        place, end = bisect_left(free, (address, 0)), address + nbytes
        if place < len(free) and free[place][0] == end:
            end += free[place][1]
            del free[place]
        if place > 0 and sum(free[place - 1]) == address:
            place -= 1
            address = free[place][0]
            del free[place]
        free.insert(place, (address, end - address))


def within(free: Iterable[Interval], ranges: Sequence[Interval]) -> list[Interval]:
    """The parts of free intervals that lie in the ranges."""
    found = []
    for address, nbytes in free:
        for first, size in ranges:
            begin, stop = max(address, first), min(address + nbytes, first + size)
            if begin < stop:
                found.append((begin, stop - begin))
    return found


def cut(
    free: Sequence[Interval], holes: Iterable[Interval], ranges: Sequence[Interval]
) -> tuple[list[Interval], list[Interval]]:
    """Divides free intervals: the open ones are the holes, the others are to be taken. Outside of
    the ranges, which are in order of address, everything is open."""
    merged: list[list[int]] = []
    for first, nbytes in sorted(holes):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], first + nbytes)
        else:
            merged.append([first, first + nbytes])
    opened: list[Interval] = []
    taken: list[Interval] = []

    def leave(first: int, last: int) -> None:
        if opened and sum(opened[-1]) == first:
            first = opened.pop()[0]
        if last > first:
            opened.append((first, last - first))

    def take(first: int, last: int) -> None:
        if last - first > LEAST:
            taken.append((first, last - first))
        else:
            leave(first, last)

    for address, nbytes in free:
        cursor = address
        for first, size in within([(address, nbytes)], ranges):
            leave(cursor, first)
            cursor, last = first, first + size
            for begin, stop in merged:
                begin, stop = max(begin, cursor), min(stop, last)
                if stop - begin > LEAST:
                    take(cursor, begin)
                    leave(begin, stop)
                    cursor = stop
            take(cursor, last)
            cursor = last
        leave(cursor, address + nbytes)
    return opened, taken
