"""Blocks of memory for results: the context's share, and what is used again."""

from __future__ import annotations

import numpy as np

from oocdnn._arrays import pins
from oocdnn._arrays.results import Results

LEAST = pins.LEAST_BYTES


class Block:
    """Stands in for pinned memory."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.address, self.size, self.pinned = self.bytes.ctypes.data, size, True
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Blocks:
    def __init__(self) -> None:
        self.made: list[Block] = []

    def __call__(self, size: int) -> Block:
        self.made.append(Block(size))
        return self.made[-1]

    @property
    def held(self) -> int:
        return sum(one.size for one in self.made if not one.closed)


def test_blocks_in_use_never_pass_the_share() -> None:
    blocks = Blocks()
    results = Results(blocks, 3 * LEAST)  # type: ignore[arg-type]
    kept = [results.empty((LEAST + extra,), np.dtype(np.uint8)) for extra in (0, 4096, 0, 4096)]
    assert len(blocks.made) == 2  # the third would pass the share
    assert blocks.held <= 3 * LEAST
    assert [one.nbytes for one in kept] == [LEAST, LEAST + 4096, LEAST, LEAST + 4096]


def test_an_unused_block_serves_a_result_of_about_its_size() -> None:
    blocks = Blocks()
    results = Results(blocks, 4 * LEAST)  # type: ignore[arg-type]
    first = results.empty((LEAST + 4096,), np.dtype(np.uint8))
    address = first.ctypes.data
    del first
    assert results.empty((LEAST,), np.dtype(np.uint8)).ctypes.data == address
    assert len(blocks.made) == 1


def test_unused_blocks_make_room_for_others() -> None:
    blocks = Blocks()
    results = Results(blocks, 3 * LEAST)  # type: ignore[arg-type]
    narrow = results.empty((2 * LEAST,), np.dtype(np.uint8))
    del narrow
    wide = results.empty((3 * LEAST,), np.dtype(np.uint8))
    assert wide.nbytes == 3 * LEAST
    assert [one.closed for one in blocks.made] == [True, False]
    results.close()
    assert blocks.held == 3 * LEAST  # the result still lies in it
    del wide
    assert blocks.held == 0
