"""Results share no memory with operands: element by element, and through files."""

from __future__ import annotations

import mmap
import os

import numpy as np
import oracle
import pytest
from python.support import DTYPES, assert_equal, channels_last, integers

import oocdnn

pytestmark = pytest.mark.usefixtures("ctx")
SHAPE = (2, 4, 9, 11)
W = integers((4, 4, 3, 3))


def halves(dtype=np.float32, last=False):
    """Two arrays that are the channels of one, in turn."""
    both = np.zeros((SHAPE[0], 2 * SHAPE[1], *SHAPE[2:]), dtype)
    both = channels_last(both) if last else both
    return both, both[:, : SHAPE[1]], both[:, SHAPE[1] :]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_channel_halves_of_one_array(dtype, last):
    _, x, out = halves(dtype, last)
    for _ in range(2):  # the second call is one that the context remembers
        x[...] = integers(SHAPE)
        out[...] = np.nan
        assert oocdnn.conv2d(x, W.astype(dtype), padding=1, out=out) is out
        assert_equal(x, integers(SHAPE))
        assert_equal(out, oracle.forward(x, W, padding=1))


@pytest.mark.parametrize("cut", [np.s_[:, 3:7], np.s_[:, :4], np.s_[:, 2:6]])
def test_halves_that_share_a_channel_are_refused(cut):
    both, x, out = halves()
    oocdnn.conv2d(x, W, padding=1, out=out)
    with pytest.raises(oocdnn.InvalidProblem, match="out overlaps x"):
        oocdnn.conv2d(x, W, padding=1, out=both[cut])


def test_a_dense_block_in_one_array():
    """Each layer reads the channels of all layers before it."""
    room = np.zeros((2, 12, 8, 8), np.float32)
    room[:, :4] = integers((2, 4, 8, 8))
    expected = room[:, :4].astype(np.float64)
    for channels in (4, 8):
        w = integers((4, channels, 3, 3), channels, largest=1)
        oocdnn.conv2d(room[:, :channels], w, padding=1, out=room[:, channels : channels + 4])
        expected = np.concatenate([expected, oracle.forward(expected, w, padding=1)], 1)
    assert_equal(room, expected)


def test_gradients_into_halves():
    _, x, dx = halves()
    x[...] = integers(SHAPE)
    dy = integers(SHAPE, 3)
    oocdnn.conv_backward_data(dy, W, SHAPE, padding=1, out=dx)
    assert_equal(dx, oracle.backward_data(dy, W, SHAPE, padding=1))
    with pytest.raises(oocdnn.InvalidProblem, match="out overlaps dy"):
        oocdnn.conv_backward_data(x, W, SHAPE, padding=1, out=x)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(4 * mmap.PAGESIZE))
    return file


def numpys(path, at=0, mode="r+"):
    return np.memmap(path, np.float32, mode, at, SHAPE)


def raw(path, at=0, access=mmap.ACCESS_WRITE):
    """A mapping that NumPy knows no file of."""
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=access)
    size = int(np.prod(SHAPE))
    return np.frombuffer(mapping, np.float32, size, at).reshape(SHAPE)


MAPS = {"memmap": numpys, "mmap": raw}


@pytest.mark.parametrize("far", [0, 4, 3164])
@pytest.mark.parametrize("writes", MAPS)
@pytest.mark.parametrize("reads", MAPS)
def test_two_mappings_of_one_file_are_refused(path, reads, writes, far):
    x, out = MAPS[reads](path), MAPS[writes](path, far)
    assert not np.may_share_memory(x, out)
    x[...] = integers(SHAPE)
    with pytest.raises(oocdnn.InvalidProblem, match=r"(out|y) overlaps x.*another out"):
        oocdnn.conv2d(x, W, padding=1, out=out)


@pytest.mark.parametrize("writes", MAPS)
@pytest.mark.parametrize("reads", MAPS)
def test_other_parts_of_one_file_are_served(path, reads, writes):
    x, out = MAPS[reads](path), MAPS[writes](path, 4096)
    x[...] = integers(SHAPE)
    oocdnn.conv2d(x, W, padding=1, out=out)
    assert_equal(out, oracle.forward(integers(SHAPE), W, padding=1))


def test_interleaved_parts_of_one_file_are_served(path):
    shape = (2, 8, 9, 11)
    x = np.memmap(path, np.float32, "r+", 0, shape)[:, :4]
    other = np.frombuffer(raw(path).base.base, np.float32, int(np.prod(shape))).reshape(shape)
    x[...] = integers(SHAPE)
    oocdnn.conv2d(x, W, padding=1, out=other[:, 4:])
    assert_equal(other[:, 4:], oracle.forward(integers(SHAPE), W, padding=1))


def test_what_goes_to_a_private_mapping_stays_there(path):
    x, out = raw(path), numpys(path, mode="c")
    x[...] = integers(SHAPE)
    oocdnn.conv2d(x, W, padding=1, out=out)
    assert_equal(out, oracle.forward(integers(SHAPE), W, padding=1))
    assert_equal(x, integers(SHAPE))


def test_a_private_mapping_sees_what_is_written_to_its_file(path):
    with pytest.raises(oocdnn.InvalidProblem, match="y overlaps x"):
        oocdnn.conv2d(numpys(path, mode="c"), W, padding=1, out=raw(path))


def test_shared_memory_that_is_mapped_twice():
    fd = os.memfd_create("shared")
    os.ftruncate(fd, 1 << 16)
    x, out = (
        np.frombuffer(mmap.mmap(fd, 1 << 16), np.float32, int(np.prod(SHAPE))).reshape(SHAPE)
        for _ in range(2)
    )
    os.close(fd)
    with pytest.raises(oocdnn.InvalidProblem, match="y overlaps x"):
        oocdnn.conv2d(x, W, padding=1, out=out)
    separate = np.frombuffer(mmap.mmap(-1, 1 << 16), np.float32, x.size).reshape(SHAPE)
    x[...] = integers(SHAPE)
    oocdnn.conv2d(x, W, padding=1, out=separate)
    assert_equal(separate, oracle.forward(integers(SHAPE), W, padding=1))


def test_two_files_of_one_content_are_two(path, tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(path.read_bytes())
    x, out = raw(path), raw(other)
    x[...] = integers(SHAPE)
    oocdnn.conv2d(x, W, padding=1, out=out)
    assert_equal(out, oracle.forward(integers(SHAPE), W, padding=1))


def test_a_chain_does_not_write_to_the_file_that_it_reads(path):
    links = [oocdnn.Link(W, padding=1), oocdnn.Link(W, padding=1)]
    with pytest.raises(oocdnn.InvalidProblem, match="y overlaps x"):
        oocdnn.conv_chain(raw(path), links, out=raw(path))
