"""Simulation of PyTorch's caching allocator for CUDA, for one stream.

The allocator is deterministic: which bytes it takes from the driver follows from the order and the
sizes of allocations and frees. The rules are those of PyTorch's native backend with its default
settings, with and without `expandable_segments`.

- Sizes are multiples of 512 bytes. Up to 1 MiB they come from the small pool, above from the large
  one.
- A request takes the smallest free block that holds it, of equal ones that of the lowest address;
  the rest of the block stays free. Free neighbours are one block.
- Where no free block holds it, a segment is taken from the driver: 2 MiB for the small pool, 20 MiB
  for less than 10 MiB, else the size rounded up to 2 MiB.
- An expandable segment is a range of addresses for a whole pool. Pages of 2 MiB (small pool) or
  20 MiB (large pool) are mapped where they are needed, at the lowest addresses where the request
  fits, beside free blocks that it takes as well.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

_MIB = 1 << 20
_ALIGNMENT = 512
_SMALL = _MIB  # largest request of the small pool
_PAGE = {True: 2 * _MIB, False: 20 * _MIB}  # of an expandable segment, by whether it is small
_SEGMENT_SMALL, _SEGMENT_MEDIUM, _SEGMENT_ROUND = 2 * _MIB, 20 * _MIB, 2 * _MIB
_LEAST_LARGE = 10 * _MIB  # from here on a request has a segment of its own
_SPACE = 1 << 44  # addresses of an expandable segment


@dataclass(frozen=True)
class Extent:
    """A contiguous range of device memory that the allocator has taken from the driver.

    Args:
        address: Of its first byte.
        small: True for the small pool.
        expandable: True for a mapped part of an expandable segment, else the range is a segment.
        blocks: Size of each block in order of address, and True where it is in use.
    """

    address: int
    small: bool
    expandable: bool
    blocks: tuple[tuple[int, bool], ...]

    @property
    def nbytes(self) -> int:
        return sum(size for size, _ in self.blocks)


@dataclass(frozen=True)
class Heap:
    """The memory that an allocator holds.

    Args:
        extents: For one stream.
        expandable: Whether it has expandable segments.
        elsewhere: Bytes that it holds for other streams and private pools.
    """

    extents: tuple[Extent, ...]
    expandable: bool
    elsewhere: int = 0


class Block:
    """A range of addresses: in use, free, or not mapped. Neighbours are of the same segment."""

    __slots__ = ("address", "mapped", "next", "prev", "segment", "size", "used")

    def __init__(self, address: int, size: int, segment: _Segment) -> None:
        self.address, self.size, self.segment = address, size, segment
        self.used, self.mapped = False, True
        self.prev: Block | None = None
        self.next: Block | None = None

    def put_behind(self, before: Block) -> None:
        self.prev, self.next = before, before.next
        if before.next is not None:
            before.next.prev = self
        before.next = self


class _Segment:
    """A range of addresses whose blocks are neighbours."""

    __slots__ = ("address", "expandable", "pool")

    def __init__(self, address: int, pool: _Pool, *, expandable: bool) -> None:
        self.address, self.pool, self.expandable = address, pool, expandable


class _Pool:
    """Free blocks by size and address, and blocks that are not mapped by address."""

    __slots__ = ("blocks", "free", "reserved", "small", "unmapped")

    def __init__(self, *, small: bool) -> None:
        self.small, self.reserved = small, 0
        self.free: list[tuple[int, int]] = []
        self.unmapped: list[int] = []
        self.blocks: dict[int, Block] = {}  # of `free` and `unmapped`, by address

    def put(self, block: Block) -> None:
        insort(self.free, (block.size, block.address))
        self.blocks[block.address] = block

    def take(self, block: Block) -> None:
        del self.free[bisect_left(self.free, (block.size, block.address))]
        del self.blocks[block.address]

    def put_unmapped(self, block: Block) -> None:
        insort(self.unmapped, block.address)
        self.blocks[block.address] = block

    def take_unmapped(self, block: Block) -> None:
        del self.unmapped[bisect_left(self.unmapped, block.address)]
        del self.blocks[block.address]


def rounded(nbytes: int) -> int:
    """Bytes that a request takes."""
    return max(-(-nbytes // _ALIGNMENT), 1) * _ALIGNMENT


def page_bytes(*, small: bool) -> int:
    """Of an expandable segment."""
    return _PAGE[small]


def is_small(nbytes: int) -> bool:
    """True for a request of the small pool."""
    return rounded(nbytes) <= _SMALL


class Allocator:
    """An allocator with the given extents; those of an expandable segment are one segment for each
    pool.

    Attributes:
        allocated: Bytes of blocks in use.
        expandable: Whether segments are.
        used: The blocks in use, by address.
    """

    def __init__(self, *, expandable: bool, extents: Iterable[Extent] = ()) -> None:
        self.allocated = 0
        self.expandable = expandable
        self._pools = {small: _Pool(small=small) for small in (False, True)}
        self._end = 1 << 50  # of addresses in use, where new segments begin
        self.used: dict[int, Block] = {}
        ordered = sorted(extents, key=lambda extent: extent.address)
        if ordered:
            self._end = ordered[-1].address + ordered[-1].nbytes + _SPACE
        for small, pool in self._pools.items():
            own = [extent for extent in ordered if extent.small == small]
            self._adopt(pool, [extent for extent in own if extent.expandable])
            for extent in own:
                if not extent.expandable:
                    self._chain(_Segment(extent.address, pool, expandable=False), [extent])

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return sum(pool.reserved for pool in self._pools.values())

    def reserved_of(self, *, small: bool) -> int:
        """Of one pool."""
        return self._pools[small].reserved

    @property
    def base(self) -> int:
        """Address of the large pool's first expandable segment."""
        pool = self._pools[False]
        blocks = [*pool.blocks.values(), *self.used.values()]
        found = [one.segment for one in blocks if one.segment.pool is pool]
        return min((one.address for one in found if one.expandable), default=self._end)

    def takeable(self) -> list[int]:
        """Bytes of the large pool's free blocks that requests can take, the largest first."""
        return sorted((size for size, _ in self._pools[False].free if size > _SMALL), reverse=True)

    def fill(self, end: int) -> list[int]:
        """Maps the large pool up to an address, by requests that are freed again; their bytes."""
        pool, blocks = self._pools[False], []
        while (pool.unmapped[0] if pool.unmapped else self.base) < end:
            if not pool.unmapped:
                blocks.append(self.allocate(_PAGE[False]))
                continue
            first = pool.blocks[pool.unmapped[0]]
            stop = min(first.address + first.size, end)
            if first.prev is not None and not first.prev.used:
                first = first.prev
            blocks.append(self.allocate(stop - first.address))
        sizes = [block.size for block in blocks]
        for block in blocks:
            self.free(block)
        return sizes

    def allocate(self, nbytes: int) -> Block:
        """A block of at least so many bytes."""
        size = rounded(nbytes)
        pool = self._pools[size <= _SMALL]
        block = self._best(pool, size)
        if block is None:
            block = self._expanded(pool, size) if self.expandable else self._segment(pool, size)
        else:
            pool.take(block)
        rest = block.size - size
        if rest >= _ALIGNMENT and (pool.small or self.expandable or rest > _SMALL):
            other = Block(block.address + size, rest, block.segment)
            other.put_behind(block)
            block.size = size
            pool.put(other)
        block.used = True
        self.used[block.address] = block
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        del self.used[block.address]
        block.used = False
        pool = block.segment.pool
        self._merge(pool, block)
        pool.put(block)

    def trim(self) -> None:
        """Gives segments and pages without a block in use back to the driver."""
        for small in (False, True):
            pool = self._pools[small]
            for _, address in list(pool.free):
                block = pool.blocks[address]
                if block.segment.expandable:
                    self._unmap(pool, block)
                elif block.prev is None and block.next is None:
                    pool.take(block)
                    pool.reserved -= block.size

    def extents(self) -> tuple[Extent, ...]:
        """What is mapped, in order of address."""
        blocks = [*self.used.values()]
        for pool in self._pools.values():
            blocks += [block for block in pool.blocks.values() if block.mapped]
        found: list[list[Block]] = []
        for block in sorted(blocks, key=lambda block: block.address):
            if found and found[-1][-1] is block.prev:
                found[-1].append(block)
            else:
                found.append([block])
        return tuple(
            Extent(
                some[0].address,
                some[0].segment.pool.small,
                some[0].segment.expandable,
                tuple((block.size, block.used) for block in some),
            )
            for some in found
        )

    # Free blocks.

    def _best(self, pool: _Pool, size: int) -> Block | None:
        """The block that a request takes; that in front of addresses that are not mapped counts as
        long as it can become."""
        place = bisect_left(pool.free, (size, 0))
        if place == len(pool.free):
            return None
        block = pool.blocks[pool.free[place][1]]
        if not self.expandable or not block.segment.expandable:
            return block
        while place + 1 < len(pool.free):
            place += 1
            other = pool.blocks[pool.free[place][1]]
            if _possible(other) >= _possible(block):
                break
            block = other
        return block

    @staticmethod
    def _merge(pool: _Pool, block: Block) -> None:
        """With free neighbours, or with unmapped ones if it is not mapped."""
        before, after = block.prev, block.next
        take = pool.take if block.mapped else pool.take_unmapped
        if before is not None and not before.used and before.mapped == block.mapped:
            take(before)
            block.address = before.address
            block.size += before.size
            block.prev = before.prev
            if before.prev is not None:
                before.prev.next = block
        if after is not None and not after.used and after.mapped == block.mapped:
            take(after)
            block.size += after.size
            block.next = after.next
            if after.next is not None:
                after.next.prev = block

    # What is taken from the driver.

    def _segment(self, pool: _Pool, size: int) -> Block:
        if pool.small:
            whole = _SEGMENT_SMALL
        elif size < _LEAST_LARGE:
            whole = _SEGMENT_MEDIUM
        else:
            whole = -(-size // _SEGMENT_ROUND) * _SEGMENT_ROUND
        block = Block(self._end, whole, _Segment(self._end, pool, expandable=False))
        self._end += whole
        pool.reserved += whole
        return block

    def _expanded(self, pool: _Pool, size: int) -> Block:
        """At the lowest address where free blocks and addresses that are not mapped hold it."""
        block = self._candidate(pool, size)
        if not block.mapped:
            self._map(pool, block, min(block.size, size))
        while block.size < size:
            following = block.next
            assert following is not None
            self._map(pool, following, min(following.size, size - block.size))
            block = following
        pool.take(block)
        return block

    def _candidate(self, pool: _Pool, size: int) -> Block:
        for address in pool.unmapped:
            first = pool.blocks[address]
            if first.prev is not None and not first.prev.used:
                first = first.prev
            found, block = 0, first  # type: int, Block | None
            while block is not None and not block.used and found < size:
                found += block.size
                block = block.next
            if found >= size:
                return first
        segment = _Segment(self._end, pool, expandable=True)
        block = Block(self._end, _SPACE, segment)
        block.mapped = False
        self._end += _SPACE
        pool.put_unmapped(block)
        return block

    def _map(self, pool: _Pool, block: Block, size: int) -> None:
        """Maps pages at the beginning of a block, for `size` bytes."""
        page = _PAGE[pool.small]
        mapped = -(-(block.address - block.segment.address + size) // page) * page
        mapped -= block.address - block.segment.address
        pool.take_unmapped(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(block.address + mapped, block.size - mapped, block.segment)
            rest.mapped = False
            rest.put_behind(block)
            pool.put_unmapped(rest)
            block.size = mapped
        self._merge(pool, block)
        pool.put(block)
        pool.reserved += mapped

    def _unmap(self, pool: _Pool, block: Block) -> None:
        """Gives the whole pages of a free block back."""
        page, base = _PAGE[pool.small], block.segment.address
        first = -(-(block.address - base) // page) * page + base
        last = (block.address + block.size - base) // page * page + base
        if first >= last:
            return
        pool.take(block)
        end = block.address + block.size
        if block.address < first:
            before = Block(block.address, first - block.address, block.segment)
            before.prev, before.next = block.prev, block
            if block.prev is not None:
                block.prev.next = before
            block.prev = before
            pool.put(before)
        if last < end:
            after = Block(last, end - last, block.segment)
            after.put_behind(block)
            pool.put(after)
        block.address, block.size, block.mapped = first, last - first, False
        self._merge(pool, block)
        pool.put_unmapped(block)
        pool.reserved -= last - first

    # Extents.

    def _adopt(self, pool: _Pool, extents: list[Extent]) -> None:
        if not extents:
            return
        segment = _Segment(extents[0].address, pool, expandable=True)
        last = self._chain(segment, extents)
        rest = Block(last.address + last.size, _SPACE, segment)
        rest.mapped = False
        rest.put_behind(last)
        pool.put_unmapped(rest)

    def _chain(self, segment: _Segment, extents: list[Extent]) -> Block:
        """Makes the blocks of a segment, with unmapped ones between extents; returns the last."""
        last: Block | None = None
        address = segment.address

        def put(size: int) -> Block:
            nonlocal last, address
            block = Block(address, size, segment)
            if last is not None:
                block.put_behind(last)
            last, address = block, address + size
            return block

        for extent in extents:
            if extent.address > address:
                hole = put(extent.address - address)
                hole.mapped = False
                segment.pool.put_unmapped(hole)
            for size, used in extent.blocks:
                block = put(size)
                block.used = used
                if used:
                    self.used[block.address] = block
                    self.allocated += size
                else:
                    segment.pool.put(block)
            segment.pool.reserved += extent.nbytes
        assert last is not None
        return last


def _possible(block: Block) -> int:
    following = block.next
    return block.size + (0 if following is None or following.mapped else following.size)
