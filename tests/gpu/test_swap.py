"""Copies between the GPU and slabs of page-locked host memory.

On a machine without a GPU test_suites.py runs this file on the fake driver. Its streams work late:
copies that do not wait, and those that nobody waits for, give other bytes.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_ubyte, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn._core.swap import IN, OUT, NativeSwapper, Slab
from oocdnn.errors import InvalidProblem, OutOfMemory, Unsupported

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, DeviceArray, InContext, call, driver, free_bytes, gpus

pytestmark = pytest.mark.skipif(
    os.environ.get("OOCDNN_TEST_DEVICE") != "cuda", reason="runs where OOCDNN_TEST_DEVICE is cuda"
)
two_gpus = pytest.mark.skipif(gpus() < 2, reason="there are no two GPUs")
fake_only = pytest.mark.skipif(not FAKE, reason="the fake driver counts")


class Stream:
    """A stream, and what a program does on it."""

    def __init__(self) -> None:
        self._handle = c_void_p()
        with InContext():
            call("cuStreamCreateWithPriority", byref(self._handle), 1, 0)

    @property
    def handle(self) -> int:
        return self._handle.value or 0

    def write(self, array: DeviceArray, byte: int) -> None:
        size = c_size_t(array.like.nbytes)
        with InContext():
            call("cuMemsetD8Async", array.pointer, c_ubyte(byte), size, self._handle)

    def finish(self) -> None:
        with InContext():
            call("cuStreamSynchronize", self._handle)

    def close(self) -> None:
        with InContext():
            call("cuStreamDestroy_v2", self._handle)


@pytest.fixture(scope="module")
def swapper() -> NativeSwapper:
    return NativeSwapper(0)


@pytest.fixture
def stream() -> Iterator[Stream]:
    made = Stream()
    yield made
    made.close()


def array_of(nbytes: int) -> DeviceArray:
    return DeviceArray(np.zeros(nbytes, np.uint8))


def bytes_of(slab: Slab) -> np.ndarray:
    return np.frombuffer((c_ubyte * slab.nbytes).from_address(slab.address), np.uint8)


def leave_and_come_back(
    swapper: NativeSwapper, slabs: list[Slab], acts: list[tuple[int, bool, bool]], host: set[int]
) -> None:
    """Copies arrays to slabs and back. An act has the number of an array, whether its copy is
    waited for at once, and whether the array is written before it leaves. `host`: the numbers of
    the slabs in host memory, whose bytes are compared too."""
    stream, arrays = Stream(), [array_of(slab.nbytes) for slab in slabs]
    wanted, away, byte = [0] * len(slabs), [False] * len(slabs), 0
    coming: dict[int, int] = {}  # tickets
    for number, waits, writes in acts:
        i, byte = number % len(slabs), byte % 255 + 1
        address = arrays[i].pointer.value
        if i in coming:
            swapper.wait(coming.pop(i), stream.handle)
        if not away[i] and writes:
            stream.write(arrays[i], byte)  # the copy has what was enqueued before it
            wanted[i] = byte
        way = IN if away[i] else OUT
        ticket = swapper.start(way, stream.handle, address, slabs[i], slabs[i].nbytes)
        if waits or not away[i]:
            swapper.wait(ticket, stream.handle)
        else:
            coming[i] = ticket
        away[i] = not away[i]
        if away[i]:
            stream.write(arrays[i], 0)
    for ticket in coming.values():
        swapper.wait(ticket, stream.handle)
    stream.finish()
    for i, array in enumerate(arrays):
        assert (array.get() == (0 if away[i] else wanted[i])).all()
        assert not (away[i] and i in host) or (bytes_of(slabs[i]) == wanted[i]).all()
    stream.close()


@given(
    sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=6),
    acts=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_what_left_comes_back(sizes: list[int], acts: list[tuple[int, bool]]) -> None:
    """Whatever is under way beside it, and however late the copies run."""
    swapper = NativeSwapper(0)
    slabs = [swapper.slab(n) for n in sizes]
    written = [(number, waits, True) for number, waits in acts]
    leave_and_come_back(swapper, slabs, written, set(range(len(slabs))))


def test_a_copy_begins_where_its_stream_is(swapper: NativeSwapper, stream: Stream) -> None:
    """Whatever other streams have waited for."""
    array, slab, other = array_of(4096), swapper.slab(4096), Stream()
    for byte in (7, 9):
        stream.write(array, byte)
        ticket = swapper.start(OUT, stream.handle, array.pointer.value, slab, 4096)
        swapper.wait(ticket, other.handle)
        other.finish()
        assert (bytes_of(slab) == byte).all()
    other.close()


def test_a_copy_tells_whether_it_has_ended(swapper: NativeSwapper, stream: Stream) -> None:
    array, slab = array_of(1 << 20), swapper.slab(1 << 20)
    ticket = swapper.start(OUT, stream.handle, array.pointer.value, slab, 1 << 20)
    if FAKE:
        assert not swapper.done(ticket)
    swapper.wait(ticket, stream.handle)
    stream.finish()
    again = swapper.start(OUT, stream.handle, array.pointer.value, slab, 1 << 20)
    assert again == ticket  # no further event was made
    other = swapper.start(OUT, stream.handle, array.pointer.value, slab, 1 << 20)
    swapper.wait(other, stream.handle)
    stream.finish()
    assert swapper.done(again)  # copies of a direction end in their order
    swapper.wait(again, stream.handle)


@pytest.mark.parametrize("ticket", [-1, 1 << 40, 77])
def test_what_is_no_copy_is_refused(swapper: NativeSwapper, stream: Stream, ticket: int) -> None:
    with pytest.raises(InvalidProblem, match=f"no copy has the ticket {ticket}"):
        swapper.wait(ticket, stream.handle)
    with pytest.raises(InvalidProblem, match=f"no copy has the ticket {ticket}"):
        swapper.done(ticket)


def test_a_copy_is_waited_for_once(swapper: NativeSwapper, stream: Stream) -> None:
    array, slab = array_of(64), swapper.slab(64)
    ticket = swapper.start(OUT, stream.handle, array.pointer.value, slab, 64)
    swapper.wait(ticket, stream.handle)
    with pytest.raises(InvalidProblem, match="it was waited for"):
        swapper.wait(ticket, stream.handle)
    stream.finish()


def test_a_copy_keeps_to_its_slab(swapper: NativeSwapper, stream: Stream) -> None:
    array, slab = array_of(128), swapper.slab(64)
    for nbytes in (65, 128):
        with pytest.raises(InvalidProblem, match=f"of {nbytes} bytes needs a slab of as many"):
            swapper.start(IN, stream.handle, array.pointer.value, slab, nbytes)
    for nbytes in (0, -1):
        with pytest.raises(InvalidProblem):
            swapper.start(IN, stream.handle, array.pointer.value, slab, nbytes)
    with pytest.raises(InvalidProblem, match="no direction 2"):
        swapper.start(2, stream.handle, array.pointer.value, slab, 64)
    for nbytes in (0, -1):
        with pytest.raises(InvalidProblem):
            swapper.slab(nbytes)


def test_there_is_no_such_gpu() -> None:
    for ordinal in (-1, 64):
        with pytest.raises(Unsupported, match=f"there is no GPU number {ordinal}"):
            NativeSwapper(ordinal)


@two_gpus
@given(sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_memory_of_another_gpu_holds_what_left(sizes: list[int]) -> None:
    swapper, stream = NativeSwapper(0), Stream()
    arrays = [array_of(nbytes) for nbytes in sizes]
    slabs = [swapper.slab(nbytes, 1) for nbytes in sizes]
    for way, byte in ((OUT, 0), (IN, 1)):
        for number, (array, slab) in enumerate(zip(arrays, slabs, strict=True)):
            stream.write(array, byte or 10 + number)
            address = array.pointer.value
            swapper.wait(
                swapper.start(way, stream.handle, address, slab, slab.nbytes), stream.handle
            )
    stream.finish()
    for number, array in enumerate(arrays):
        assert (array.get() == 10 + number).all()
    stream.close()


@two_gpus
@fake_only
def test_what_another_gpu_cannot_lend_is_told(swapper: NativeSwapper) -> None:
    with pytest.raises(InvalidProblem, match="GPU 0 borrows from other GPUs"):
        swapper.slab(64, 0)
    with pytest.raises(Unsupported, match="there is no GPU number 2"):
        swapper.slab(64, 2)
    with pytest.raises(InvalidProblem):
        swapper.slab(0, 1)
    driver().fake_reaches(0)
    try:
        with pytest.raises(Unsupported, match="GPU 0 does not reach the memory of GPU 1"):
            NativeSwapper(0).slab(64, 1)
    finally:
        driver().fake_reaches(1)
    driver().fake_lendable.argtypes = [ctypes.c_size_t]
    driver().fake_lendable(1 << 12)
    try:
        with pytest.raises(OutOfMemory, match="GPU 1 has no 8000 bytes left to lend"):
            swapper.slab(8000, 1)
        assert swapper.slab(4096, 1).nbytes == 4096
    finally:
        driver().fake_lendable((1 << 64) - 1)


@two_gpus
@fake_only
def test_borrowed_memory_is_given_back(stream: Stream) -> None:
    array, swapper = array_of(1 << 20), NativeSwapper(0)
    gc.collect()
    before = free_bytes()
    slab = swapper.slab(1 << 20, 1)
    assert before - free_bytes() == 1 << 20
    swapper.start(OUT, stream.handle, array.pointer.value, slab, 1 << 20)
    del slab  # its copy is under way
    gc.collect()
    assert free_bytes() == before
    kept = swapper.slab(64, 1)
    del swapper
    gc.collect()
    assert free_bytes() < before
    del kept
    gc.collect()
    assert free_bytes() == before


@fake_only
def test_slabs_are_page_locked_as_long_as_they_are_held(stream: Stream) -> None:
    gc.collect()
    before, swapper = driver().fake_registered(), NativeSwapper(0)
    array, slab = array_of(4096), swapper.slab(4096)
    held = driver().fake_registered() - before
    assert held == 2  # the array has memory to copy from, too
    swapper.start(OUT, stream.handle, array.pointer.value, slab, 4096)
    del slab  # its copy is under way
    gc.collect()
    assert driver().fake_registered() - before == held - 1
    kept = swapper.slab(64)
    del swapper
    gc.collect()
    assert bytes_of(kept).nbytes == 64
    del kept, array
    gc.collect()
    assert driver().fake_registered() == before


@fake_only
def test_memory_that_cannot_be_page_locked_is_told(swapper: NativeSwapper) -> None:
    driver().fake_registrable.argtypes = [ctypes.c_size_t]
    driver().fake_registrable(1 << 12)
    try:
        with pytest.raises(OutOfMemory, match="pinning 8192 bytes of host memory"):
            swapper.slab(8000)
    finally:
        driver().fake_registrable((1 << 64) - 1)
    assert c_uint64(swapper.slab(8000).address).value
