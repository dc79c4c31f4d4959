"""The simulation of PyTorch's caching allocator, beside results worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn._core.heap import FREE, USED, NativeRequests, simulated
from oocdnn.errors import InvalidProblem
from oocdnn.torch.limit.heap.allocator import Allocator, Block, Extent, Heap, rounded

MIB = 1 << 20
BOTH = pytest.mark.parametrize("expandable", [False, True])


def run(allocator: Allocator, program: Sequence[int]) -> tuple[list[int], dict[int, Block]]:
    """Positive numbers allocate MiB, negative ones free the n-th allocation; bytes reserved after
    each, and the blocks in use by number."""
    blocks: dict[int, Block] = {}
    made, reserved = 0, []
    for one in program:
        if one > 0:
            made += 1
            blocks[made] = allocator.allocate(one * MIB)
        else:
            allocator.free(blocks.pop(-one))
        reserved.append(allocator.reserved // MIB)
    return reserved, blocks


@pytest.mark.parametrize(
    ("nbytes", "taken"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB)]
)
def test_sizes_are_multiples_of_512(nbytes: int, taken: int) -> None:
    assert rounded(nbytes) == taken
    assert Allocator(expandable=False).allocate(nbytes).size == taken


@BOTH
def test_small_requests_share_segments_of_2_mib(expandable: bool) -> None:
    allocator = Allocator(expandable=expandable)
    reserved = []
    for _ in range(5):
        allocator.allocate(MIB)
        reserved.append(allocator.reserved // MIB)
    assert reserved == [2, 2, 4, 4, 6]
    assert allocator.allocated == 5 * MIB


@pytest.mark.parametrize(
    ("nbytes", "segment"),
    [(MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (21 * MIB + 1, 22), (64 * MIB, 64)],
)
def test_large_requests_take_segments(nbytes: int, segment: int) -> None:
    allocator = Allocator(expandable=False)
    allocator.allocate(nbytes)
    assert allocator.reserved == segment * MIB


def test_a_segment_is_split_where_more_than_1_mib_is_left() -> None:
    allocator = Allocator(expandable=False)
    reserved, blocks = run(allocator, [20, -1, 19, 2, -2, 18, 2])
    # 20 MiB serve 19 whole, since 1 MiB is not split off; 2 need a segment of 20 of their own.
    assert reserved == [20, 20, 20, 40, 40, 40, 40]
    # 18 take the rest of that segment, and the last 2 the free 20 MiB.
    assert [blocks[n].size // MIB for n in (3, 4, 5)] == [2, 18, 2]
    assert blocks[3].address + blocks[3].size == blocks[4].address
    _, blocks = run(Allocator(expandable=False), [20, -1, 19])
    assert blocks[2].size == 20 * MIB


def test_pages_are_mapped_at_the_end() -> None:
    allocator = Allocator(expandable=True)
    reserved, blocks = run(allocator, [30, 30, 15])
    assert reserved == [40, 60, 80]
    base = blocks[1].address
    assert [blocks[n].address - base for n in (1, 2, 3)] == [0, 30 * MIB, 60 * MIB]


def test_the_last_free_block_grows() -> None:
    allocator = Allocator(expandable=True)
    reserved, blocks = run(allocator, [40, 30, -2, 50])
    assert reserved == [40, 80, 80, 100]
    assert blocks[3].address - blocks[1].address == 40 * MIB


def test_a_block_that_can_grow_is_taken_last() -> None:
    allocator = Allocator(expandable=True)
    # Free: 60 MiB in front, and 40 at the end which may become longer; 30 take the former.
    _, blocks = run(allocator, [60, 20, 40, -1, -3, 30])
    assert blocks[4].address < blocks[2].address


@BOTH
def test_of_equal_blocks_the_lowest_address_is_taken(expandable: bool) -> None:
    allocator = Allocator(expandable=expandable)
    _, blocks = run(allocator, [20, 20, 20, 20, 20, 20, -1, -3, -5, 20, 20])
    assert blocks[7].address < blocks[2].address < blocks[8].address < blocks[4].address


def test_gaps_between_kept_tensors_are_lost() -> None:
    allocator = Allocator(expandable=True)
    reserved, _ = run(allocator, [20, 20, 20, 20, 20, 20, -1, -3, -5, 40])
    assert reserved[-1] == 160
    assert allocator.allocated == 100 * MIB


def test_pages_without_blocks_go_back_and_are_mapped_again() -> None:
    allocator = Allocator(expandable=True)
    run(allocator, [30, 30, 40, -1, -3])
    assert allocator.reserved == 100 * MIB
    allocator.trim()
    # 20 to 60 MiB have a block; the page from 20 on is half free.
    assert allocator.reserved == 40 * MIB
    block = allocator.allocate(30 * MIB)
    assert allocator.reserved == 60 * MIB
    other = allocator.allocate(20 * MIB)
    assert allocator.reserved == 80 * MIB
    assert block.address < other.address


def test_segments_without_blocks_go_back() -> None:
    allocator = Allocator(expandable=False)
    run(allocator, [30, 4, 4, -1, -2])
    allocator.trim()
    assert allocator.reserved == 20 * MIB


def test_extents_are_taken_over() -> None:
    base = 1 << 40
    extents = [
        Extent(base, False, True, ((30 * MIB, True), (10 * MIB, False))),
        Extent(base + 80 * MIB, False, True, ((20 * MIB, True),)),
        Extent(base - 64 * MIB, True, True, ((MIB, True), (MIB, False))),
    ]
    allocator = Allocator(expandable=True, extents=extents)
    assert allocator.reserved == 62 * MIB
    assert allocator.allocated == 51 * MIB
    assert [block.address - base for block in allocator.used()] == [-64 * MIB, 0, 80 * MIB]
    assert allocator.allocate(10 * MIB).address == base + 30 * MIB
    assert allocator.allocate(40 * MIB).address == base + 40 * MIB
    assert allocator.reserved == 102 * MIB
    allocator.free(Block(base, 30 * MIB))
    assert allocator.allocate(30 * MIB).address == base


def test_memory_is_mapped_from_the_free_block_in_front_on() -> None:
    base = 1 << 40
    extent = Extent(base, False, True, ((30 * MIB, True), (10 * MIB, False)))
    allocator = Allocator(expandable=True, extents=[extent])
    assert allocator.fill(base + 80 * MIB) == [50 * MIB]
    assert allocator.reserved == 80 * MIB


def check(allocator: Allocator, blocks: Sequence[Block]) -> None:
    """Blocks do not overlap, those in use are these, and everything that is free is in one piece
    with its free neighbours."""
    ordered = sorted(blocks)
    assert allocator.allocated == sum(block.size for block in blocks) <= allocator.reserved
    found = allocator.blocks()
    assert [(one.address, one.nbytes) for one in found if one.state == USED] == ordered
    free = sum(one.nbytes for one in found if one.state == FREE)
    assert free == allocator.reserved - allocator.allocated
    for one, after in pairwise(found):
        assert one.address + one.nbytes <= after.address
        if one.segment == after.segment:
            assert one.address + one.nbytes == after.address
            assert one.state == USED or one.state != after.state


SIZES = st.one_of(
    st.integers(0, 4096), st.integers(MIB - 1024, MIB + 1024), st.integers(0, 70 * MIB)
)
ACTIONS = st.lists(st.tuples(SIZES, st.integers(0, 9), st.integers(0, 1 << 30)), max_size=60)


@BOTH
@given(actions=ACTIONS)
@settings(max_examples=150, deadline=None)
def test_whatever_is_asked_for(expandable: bool, actions: list[tuple[int, int, int]]) -> None:
    allocator = Allocator(expandable=expandable)
    blocks: list[Block] = []
    for nbytes, what, which in actions:
        if what < 5:
            block = allocator.allocate(nbytes)
            assert nbytes <= block.size
            blocks.append(block)
        elif what < 9 and blocks:
            allocator.free(blocks.pop(which % len(blocks)))
        elif what == 9:
            before = allocator.reserved
            allocator.trim()
            assert allocator.reserved <= before
        check(allocator, blocks)
    for block in blocks:
        allocator.free(block)
    check(allocator, [])
    allocator.trim()
    assert allocator.reserved == 0


@pytest.mark.parametrize("end", [0, 1 << 40, (1 << 60) + 1])
def test_a_large_pool_without_memory_is_filled_from_its_beginning_on(end: int) -> None:
    """There is nothing to map in front of it."""
    extents = [Extent(1 << 50, True, True, ((2 * MIB, True),))]
    allocator = Allocator(expandable=True, extents=extents)
    base = allocator.base
    assert len(allocator.fill(base + 1 if end > base else end)) == (end > base)
    assert allocator.reserved == (22 if end > base else 2) * MIB


@BOTH
@given(actions=ACTIONS)
@settings(max_examples=100, deadline=None)
def test_steps_are_simulated_request_by_request(
    expandable: bool, actions: list[tuple[int, int, int]]
) -> None:
    """Numbers recur, and what a step leaves is there in the next one."""
    items = [(which % 7, nbytes if what < 6 else 0) for nbytes, what, which in actions]
    allocator = Allocator(expandable=expandable)
    live: defaultdict[int, list[Block]] = defaultdict(list)
    for number, nbytes in 2 * items:
        if nbytes:
            live[number].append(allocator.allocate(nbytes))
        elif live[number]:
            allocator.free(live[number].pop(0))
    found = simulated(Heap((), expandable).native, NativeRequests(items, (), (), ()))
    assert found[:3] == (
        allocator.allocated,
        allocator.reserved_of(small=True),
        allocator.reserved_of(small=False),
    )


def test_what_is_not_possible_raises() -> None:
    allocator = Allocator(expandable=False)
    for nbytes in (-1, (1 << 43) + 1):
        with pytest.raises(InvalidProblem, match="2\\^43"):
            allocator.allocate(nbytes)
    block = allocator.allocate(MIB)
    allocator.free(block)
    with pytest.raises(InvalidProblem, match="no block in use"):
        allocator.free(block)
    with pytest.raises(InvalidProblem, match="expandable segments"):
        allocator.fill(1 << 50)
    with pytest.raises(InvalidProblem, match="multiples of 512"):
        Allocator(expandable=True, extents=[Extent(1, False, True, ((20 * MIB, True),))])
    twice = Extent(1 << 40, False, True, ((20 * MIB, True),))
    with pytest.raises(InvalidProblem, match="behind one that ends"):
        Allocator(expandable=True, extents=[twice, twice])


LATE = """
from oocdnn.torch.limit.heap.allocator import Allocator

class Late:
    def __init__(self):
        self.allocator, self.me = Allocator(expandable=True), self
        self.blocks = [self.allocator.allocate(n << 20) for n in range(1, 20)]

    def __del__(self):
        for block in self.blocks:
            self.allocator.free(block)
        assert self.allocator.allocated == 0
        print("freed")

late = Late()
"""


def test_an_allocator_serves_what_ends_with_the_interpreter(tmp_path: Path) -> None:
    variables = {**os.environ, "MALLOC_PERTURB_": "165"}  # freed memory is overwritten
    command = [sys.executable, "-c", LATE]
    ended = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "freed\n")
