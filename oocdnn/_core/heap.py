"""The core library's simulation of PyTorch's caching allocator through cffi, in plain numbers."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from oocdnn._core.cdefs import BlockState
from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import InterruptCallback, Progress, _check

FREE, USED, UNMAPPED = (int(state) for state in BlockState)


class HeapBlock(NamedTuple):
    """An oocdnn_heap_block."""

    address: int
    nbytes: int
    segment: int
    small: bool
    expandable: bool
    state: int


class HeapTotals(NamedTuple):
    """An oocdnn_heap_totals."""

    allocated: int
    reserved_small: int
    reserved_large: int
    base: int

    @property
    def reserved(self) -> int:
        return self.reserved_small + self.reserved_large


class HeapRules(NamedTuple):
    """Sizes of an oocdnn_heap."""

    small_bytes: int
    small_page: int
    large_page: int


class NativeHeap:
    """An oocdnn_heap."""

    def __init__(self, blocks: Iterable[HeapBlock], rules: HeapRules, *, expandable: bool) -> None:
        rows = sorted(blocks)
        self._kept = _ffi().new("oocdnn_heap_block[]", rows)
        self.pointer = _ffi().new(
            "oocdnn_heap *", (self._kept, len(rows), *rules, 1 if expandable else 0)
        )


class NativeRequests:
    """An oocdnn_heap_step: items and carried ones are pairs of a number and bytes, groups are
    numbers of items, and of ends in front, and whether the runtime may act."""

    def __init__(
        self,
        items: Sequence[tuple[int, int]],
        groups: Sequence[tuple[int, int, bool]],
        carried: Sequence[tuple[int, int]],
        persistent: Sequence[int],
    ) -> None:
        ffi = _ffi()
        self._kept = (
            ffi.new("oocdnn_heap_item[]", items),
            ffi.new("oocdnn_heap_group[]", groups),
            ffi.new("oocdnn_heap_item[]", carried),
            ffi.new("int64_t[]", persistent),
        )
        self.pointer = ffi.new("oocdnn_heap_step *", (*self._kept, *map(len, self._kept)))


def simulated(heap: NativeHeap, requests: NativeRequests) -> HeapTotals:
    totals = _ffi().new("oocdnn_heap_totals *")
    _check(_library().oocdnn_simulate_heap(heap.pointer, requests.pointer, totals))
    return _totals(totals)


class NativeSteering(NamedTuple):
    """An oocdnn_steering: acts are a group, an address and bytes."""

    end: int
    reserved: int
    acts: list[tuple[int, int, int]]


def steered(
    heap: NativeHeap,
    requests: NativeRequests,
    limit: int,
    seed: int,
    seconds: float,
    progress: Progress | None = None,
) -> NativeSteering | None:
    """None where none was found. Ctrl-C ends the search, and so does what `progress` raises."""
    ffi, interrupt = _ffi(), InterruptCallback()
    interrupt.watch(progress)
    search = ffi.new("oocdnn_steering_search *", (limit, seed, seconds))
    made = ffi.new("oocdnn_steering *")
    status = _library().oocdnn_steer_heap(
        heap.pointer, requests.pointer, search, interrupt.callback, ffi.NULL, made
    )
    try:
        interrupt.raise_kept()
    finally:
        interrupt.forget()
    _check(status)
    if not made.found:
        return None
    rows = [made.acts[i] for i in range(made.act_count)]
    acts = [(one.group, one.address, one.bytes) for one in rows]
    return NativeSteering(made.end, made.reserved, acts)


class NativeTrimming(NamedTuple):
    """An oocdnn_trimming: trims are a group and the bytes that are given back in it."""

    reserved: int
    trims: list[tuple[int, int]]


def trimmed(heap: NativeHeap, requests: NativeRequests, limit: int) -> NativeTrimming | None:
    """None where no trims help."""
    made = _ffi().new("oocdnn_trimming *")
    _check(_library().oocdnn_find_trims(heap.pointer, requests.pointer, limit, made))
    if not made.found:
        return None
    rows = [made.trims[i] for i in range(made.trim_count)]
    return NativeTrimming(made.reserved, [(one.group, one.bytes) for one in rows])


class NativeAllocator:
    """An oocdnn_allocator."""

    def __init__(self, heap: NativeHeap) -> None:
        made = _ffi().new("oocdnn_allocator **")
        _check(_library().oocdnn_create_allocator(heap.pointer, made))
        self._handle = made[0]
        end = weakref.finalize(self, _library().oocdnn_destroy_allocator, made[0])
        end.atexit = False  # what ends later may use it

    def allocate(self, nbytes: int) -> HeapBlock:
        block = _ffi().new("oocdnn_heap_block *")
        _check(_library().oocdnn_allocate_block(self._handle, nbytes, block))
        return _block(block)

    def free(self, address: int) -> None:
        _check(_library().oocdnn_free_block(self._handle, address))

    def trim(self) -> None:
        _check(_library().oocdnn_trim_heap(self._handle))

    def fill(self, end: int) -> list[int]:
        sizes, length = _ffi().new("const int64_t **"), _ffi().new("int64_t *")
        _check(_library().oocdnn_fill_heap(self._handle, end, sizes, length))
        return list(_ffi().unpack(sizes[0], length[0])) if length[0] else []

    def totals(self) -> HeapTotals:
        totals = _ffi().new("oocdnn_heap_totals *")
        _check(_library().oocdnn_heap_sums(self._handle, totals))
        return _totals(totals)

    def blocks(self) -> list[HeapBlock]:
        blocks, length = _ffi().new("const oocdnn_heap_block **"), _ffi().new("int64_t *")
        _check(_library().oocdnn_heap_blocks(self._handle, blocks, length))
        return [_block(blocks[0] + i) for i in range(length[0])]


def _block(one: Any) -> HeapBlock:
    return HeapBlock(
        one.address, one.bytes, one.segment, bool(one.small), bool(one.expandable), one.state
    )


def _totals(one: Any) -> HeapTotals:
    return HeapTotals(one.allocated, one.reserved_small, one.reserved_large, one.base)
