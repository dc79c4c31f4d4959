"""Addresses for a step's allocations, and how the runtime has the allocator choose them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oocdnn.torch.limit.heap.allocator import Allocator, Block, is_small, rounded

GRANULE = 2 << 20
LARGE = 1 << 20


@dataclass
class Life:
    number: int
    nbytes: int
    group: int
    begin: int
    end: int = -1
    address: int = -1
    again: int = -1  # carried: time of the free in the next step


def lives_of(groups: Sequence[Sequence[tuple[int, int]]], carried):
    """Instances of large allocations in order of time, their carried frees."""
    open_: defaultdict[int, deque] = defaultdict(deque)
    found, old, t = [], [], 0
    for number, nbytes in carried:
        open_[number].append(None if is_small(nbytes) else Life(number, nbytes, -1, -1))
        if not is_small(nbytes):
            old.append(open_[number][-1])
    for g, items in enumerate(groups):
        for number, nbytes in items:
            t += 1
            if nbytes:
                life = None if is_small(nbytes) else Life(number, nbytes, g, t)
                open_[number].append(life)
                if life is not None:
                    found.append(life)
            elif open_[number]:
                life = open_[number].popleft()
                if life is not None:
                    life.end = t
    return found, old, t


def offline(lives, spans, fixed, limit, base):
    """First fit by `spans` order; fixed: (begin,end,address,size)."""
    n = 2 * len(lives) + len(fixed)
    B, E, A, S = (np.empty(n, dtype=np.int64) for _ in range(4))
    k = 0
    for b, e, a, s in fixed:
        B[k], E[k], A[k], S[k] = b, e, a, s
        k += 1
    top = 0
    for i in spans:
        one = lives[i]
        size = -(-one.nbytes // GRANULE) * GRANULE
        mask = (B[:k] < one.end) & (E[:k] > one.begin)
        if one.again >= 0:
            mask |= B[:k] < one.again
        busy = np.flatnonzero(mask)
        order = busy[np.argsort(A[busy], kind="stable")]
        a = base
        starts, ends = A[order].tolist(), (A[order] + S[order]).tolist()
        for lo, hi in zip(starts, ends):
            if lo - a >= size:
                break
            if hi > a:
                a = -(-(hi - base) // GRANULE) * GRANULE + base
        one.address = a
        B[k], E[k], A[k], S[k] = one.begin, one.end, a, size
        k += 1
        if one.again >= 0:
            B[k], E[k], A[k], S[k] = -1, one.again, a, size
            k += 1
        top = max(top, a + size)
    return top


def fill(allocator: Allocator, holes: Sequence[tuple[int, int]]):
    """Takes all free blocks but the holes (begin, end). Returns spacers and number of actions."""
    pool = allocator._pools[False]
    taken, spacers, actions = [], [], 0
    for size in sorted((size for size, _ in pool.free if size > LARGE), reverse=True):
        taken.append(allocator.allocate(size))  # the largest is the only one of its size or more
        actions += 1
    temporary = []
    for block in taken:
        pieces = cut(block.address, block.address + block.size, holes)
        if not any(hole for _, hole in pieces):
            spacers.append(block)
            continue
        allocator.free(block)
        actions += 1
        for size, hole in pieces:
            if size > LARGE:
                (temporary if hole else spacers).append(allocator.allocate(size))
                actions += 1
    for block in temporary:
        allocator.free(block)
        actions += 1
    return spacers, actions


def cut(begin: int, end: int, holes: Sequence[tuple[int, int]]):
    """Sizes of the parts of a range, and whether each is a hole."""
    found = []
    for first, last in sorted(holes):
        first, last = max(first, begin), min(last, end)
        if first >= last:
            continue
        if first > begin:
            found.append((first - begin, False))
        found.append((last - first, True))
        begin = last
    if begin < end:
        found.append((end - begin, False))
    return found
