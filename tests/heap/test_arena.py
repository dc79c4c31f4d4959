"""The arena of a heap, which stands for the simulation of the whole allocator, and the division of
free intervals."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise

from geometry.core import library
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn._core.heap import FREE, USED, HeapBlock, HeapRules, NativeAllocator, NativeHeap

MIB = 1 << 20
PAGE = 20 * MIB
MOST = 64  # intervals of a test
NOWHERE = 1 << 61  # where an allocation would have to map more
Intervals = Sequence[tuple[int, int]]


def array(pairs: Intervals) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * (2 * len(pairs)))(*(number for pair in pairs for number in pair))


def pairs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def pointers(*lists: Intervals) -> tuple[object, object]:
    """Arrays of pairs, and their counts."""
    given_arrays = [array(pairs) for pairs in lists]
    arrays = (ctypes.POINTER(ctypes.c_int64) * len(lists))(
        *(ctypes.cast(one, ctypes.POINTER(ctypes.c_int64)) for one in given_arrays)
    )
    return arrays, (ctypes.c_int64 * len(lists))(*map(len, lists))


BASE, MAPPED = 64 * PAGE, 20 * PAGE  # of the range
FAR = [BASE + MAPPED + pages * PAGE for pages in (7, 8, 12)]  # pages in use behind it


SIZES = st.integers(2, 12) | st.integers(2, 60)  # MiB; the first fit beside what is in use far away


@given(
    actions=st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 99)), min_size=4, max_size=60),
    far=st.lists(st.sampled_from(FAR), min_size=1, unique=True),
)
@settings(max_examples=200, deadline=None)
def test_an_arena_has_the_addresses_of_the_allocator(
    actions: Sequence[tuple[bool, int, int]], far: list[int]
) -> None:
    used = [(BASE, 2 * MIB), *((page + 5 * MIB, 4 * MIB) for page in sorted(far))]
    blocks = [HeapBlock(a, n, BASE, small=False, expandable=True, state=USED) for a, n in used]
    for page in far:
        for begin, size in ((0, 5), (9, 11)):
            free = page + begin * MIB, size * MIB
            blocks.append(HeapBlock(*free, BASE, small=False, expandable=True, state=FREE))
    rules = HeapRules(MIB, 2 * MIB, PAGE)
    blocks.append(
        HeapBlock(BASE + 2 * MIB, 18 * MIB, BASE, small=False, expandable=True, state=FREE)
    )
    allocator = NativeAllocator(NativeHeap(blocks, rules, expandable=True))
    allocator.fill(BASE + MAPPED)
    reserved = allocator.totals().reserved
    assert reserved == MAPPED + len(far) * PAGE
    calls, wanted, live = [], [], []
    for takes, size, which in actions:
        if takes:
            made = allocator.allocate(size * MIB)
            calls.append((-1, made.nbytes))
            if allocator.totals().reserved > reserved:
                wanted.append((NOWHERE, made.nbytes))
                break
            live.append(made[:2])
            wanted.append(live[-1])
        elif live:
            address, nbytes = live.pop(which % len(live))
            allocator.free(address)
            calls.append((address, nbytes))
            wanted.append(calls[-1])
    ranges = [(BASE, MAPPED), *((page, PAGE) for page in sorted(far))]
    got = array(calls)
    library().oocdnn_testing_heap_arena(*pointers(ranges, used), got, ctypes.c_int64(len(calls)))
    assert pairs_of(got) == wanted


def cut(free: Intervals, holes: Intervals, ranges: Intervals) -> tuple[Intervals, Intervals]:
    """What stays open, and what is to be taken."""
    arrays, counts = pointers(free, holes, ranges)
    opened, taken = (ctypes.c_int64 * MOST)(), (ctypes.c_int64 * MOST)()
    lengths = ctypes.c_int64(), ctypes.c_int64()
    library().oocdnn_testing_heap_cut(
        arrays, counts, ctypes.c_int64(MIB),
        opened, ctypes.byref(lengths[0]), taken, ctypes.byref(lengths[1]),
    )  # fmt: skip
    return (
        pairs_of(opened[: 2 * lengths[0].value]),
        pairs_of(taken[: 2 * lengths[1].value]),
    )


@given(
    free=st.lists(st.tuples(st.integers(1, 9), st.integers(2, 40)), min_size=1, max_size=8),
    holes=st.lists(st.tuples(st.integers(0, 200), st.integers(2, 60)), max_size=6),
    end=st.integers(1, 300),
    page=st.tuples(st.integers(0, 20), st.integers(1, 60)),
)
@settings(max_examples=100, deadline=None)
def test_a_cut_divides_what_is_free(
    free: list[tuple[int, int]], holes: list[tuple[int, int]], end: int, page: tuple[int, int]
) -> None:
    intervals, cursor = [], 0
    for gap, size in free:
        cursor += gap * MIB
        intervals.append((cursor, size * MIB))
        cursor += size * MIB
    spans = [(a * MIB, n * MIB) for a, n in holes]
    behind = (end + page[0]) * MIB, page[1] * MIB
    opened, taken = cut(intervals, spans, [(0, end * MIB), behind])
    together = sorted([*opened, *taken])
    assert sum(n for _, n in together) == sum(n for _, n in intervals)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(together))
    assert all(n > MIB for _, n in taken)
    assert all(a + n <= end * MIB or behind[0] <= a < sum(behind) for a, n in taken)
    assert all(a + n <= sum(behind) for a, n in taken)
    for address, nbytes in taken:
        for a, n in spans:
            assert min(a + n, address + nbytes) - max(a, address) <= MIB
