"""Simulation of PyTorch's caching allocator for CUDA, for one stream, with default settings.

The core library simulates it (native/heap). The allocator is deterministic: which bytes it takes
from the driver follows from the order and the sizes of allocations and frees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from oocdnn._core.heap import (
    FREE,
    UNMAPPED,
    USED,
    HeapBlock,
    HeapRules,
    NativeAllocator,
    NativeHeap,
)

_MIB = 1 << 20
_ALIGNMENT = 512
LARGE_PAGE = 20 * _MIB  # bytes that the allocator takes from the driver at a time, at least
_RULES = HeapRules(small_bytes=_MIB, small_page=2 * _MIB, large_page=LARGE_PAGE)


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

    @property
    def addresses(self) -> list[int]:
        """Of blocks in use."""
        return [one.address for one in _blocks(self) if one.state == USED]


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

    def is_like(self, other: Heap) -> bool:
        """True if both have the same used blocks in the large pool and as many bytes elsewhere."""
        return (self._used, self.elsewhere) == (other._used, other.elsewhere)

    @property
    def _used(self) -> list[tuple[int, int]]:
        """Addresses and bytes of these blocks."""
        extents = [one for one in self.extents if not one.small]
        blocks = [block for extent in extents for block in _blocks(extent)]
        return sorted((one.address, one.nbytes) for one in blocks if one.state == USED)

    @cached_property
    def native(self) -> NativeHeap:
        """The same heap in the core library."""
        blocks = [block for extent in self.extents for block in _blocks(extent)]
        return NativeHeap(blocks, _RULES, expandable=self.expandable)


class Block(NamedTuple):
    """A range of addresses in use."""

    address: int
    size: int


def rounded(nbytes: int) -> int:
    """Bytes that a request takes."""
    return max(-(-nbytes // _ALIGNMENT), 1) * _ALIGNMENT


def is_small(nbytes: int) -> bool:
    """True for a request of the small pool."""
    return rounded(nbytes) <= _RULES.small_bytes


class Allocator:
    """An allocator with the given extents; those of an expandable segment are one segment for each
    pool.

    Raises InvalidProblem where extents overlap.
    """

    def __init__(self, *, expandable: bool, extents: Iterable[Extent] = ()) -> None:
        self.expandable = expandable
        self._native = NativeAllocator(Heap(tuple(extents), expandable).native)

    @property
    def allocated(self) -> int:
        """Bytes of blocks in use."""
        return self._native.totals().allocated

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return self._native.totals().reserved

    def reserved_of(self, *, small: bool) -> int:
        """Of one pool."""
        totals = self._native.totals()
        return totals.reserved_small if small else totals.reserved_large

    @property
    def base(self) -> int:
        """Address of the large pool's first expandable segment."""
        return self._native.totals().base

    def blocks(self) -> list[HeapBlock]:
        """All blocks in order of address, free and unmapped ones too."""
        return self._native.blocks()

    def used(self) -> list[Block]:
        """The blocks in use, in order of address."""
        return [Block(one.address, one.nbytes) for one in self.blocks() if one.state == USED]

    def takeable(self) -> list[int]:
        """Bytes of the large pool's free blocks that requests can take, the largest first."""
        free = [one.nbytes for one in self.blocks() if one.state == FREE and not one.small]
        return sorted((nbytes for nbytes in free if not is_small(nbytes)), reverse=True)

    def fill(self, end: int) -> list[int]:
        """Maps the large pool up to an address, by requests that are freed again; their bytes.

        Raises InvalidProblem without expandable segments, and where the address is more than 2^43
        behind the base.
        """
        return self._native.fill(end)

    def allocate(self, nbytes: int) -> Block:
        """A block of at least so many bytes.

        Raises InvalidProblem for more than 2^43, or fewer than 0.
        """
        made = self._native.allocate(nbytes)
        return Block(made.address, made.nbytes)

    def free(self, block: Block) -> None:
        """Raises InvalidProblem where no block in use is at its address."""
        self._native.free(block.address)

    def trim(self) -> None:
        """Gives segments and pages without a block in use back to the driver."""
        self._native.trim()

    def extents(self) -> tuple[Extent, ...]:
        """What is mapped, in order of address."""
        found: list[list[HeapBlock]] = []
        for one in self.blocks():
            if one.state == UNMAPPED:
                continue
            last = found[-1][-1] if found else None
            if last and last.segment == one.segment and last.address + last.nbytes == one.address:
                found[-1].append(one)
            else:
                found.append([one])
        return tuple(_extent(some) for some in found)


def _blocks(extent: Extent) -> Iterator[HeapBlock]:
    address = extent.address
    for size, used in extent.blocks:
        state = USED if used else FREE
        yield HeapBlock(address, size, extent.address, extent.small, extent.expandable, state)
        address += size


def _extent(blocks: list[HeapBlock]) -> Extent:
    first = blocks[0]
    sizes = tuple((one.nbytes, one.state == USED) for one in blocks)
    return Extent(first.address, first.small, first.expandable, sizes)
