"""Memory-mapped arrays are read from and written to their files, and nothing else is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import oracle
import pytest
from python.support import DTYPES, assert_equal, channels_last, integers

import oocdnn
from oocdnn._arrays.mapped import find

pytestmark = pytest.mark.usefixtures("ctx")


@pytest.fixture
def mapped(tmp_path):
    """Puts an array into a file, behind `offset` bytes, and maps it."""

    def make(array, mode="r+", offset=0, name="data"):
        path = tmp_path / f"{name}.bin"
        path.write_bytes(b"\xee" * offset + np.ascontiguousarray(array).tobytes() + b"\xdd" * 16)
        return np.memmap(path, array.dtype, mode, offset, array.shape)

    return make


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("offset", [0, 8, 4104])
def test_read_from_a_file(mapped, dtype, mode, offset):
    x, w = integers((2, 6, 17, 19), 1, dtype), integers((4, 6, 3, 3), 2, dtype)
    m = mapped(x, mode, offset)
    assert_equal(oocdnn.conv2d(m, w, padding=1), oracle.forward(x, w, padding=1))
    with_file = find(m, writing=False)
    assert (with_file is None) == (mode == "c")
    if with_file is not None:
        with with_file:
            assert with_file.offset == offset


@pytest.mark.parametrize("offset", [0, 8, 4104])
def test_write_to_a_file(mapped, tmp_path, offset):
    x, w = integers((2, 6, 17, 19)), integers((4, 6, 3, 3))
    out = mapped(np.zeros((2, 4, 17, 19), np.float32), "r+", offset, "out")
    assert oocdnn.conv2d(x, w, padding=1, out=out) is out
    reference = oracle.forward(x, w, padding=1)
    assert_equal(out, reference)  # through the mapping
    bytes_ = (tmp_path / "out.bin").read_bytes()
    assert bytes_[:offset] == b"\xee" * offset
    assert bytes_[-16:] == b"\xdd" * 16
    assert bytes_[offset:-16] == reference.astype(np.float32).tobytes()


CUTS = [
    np.s_[1:],
    np.s_[:, 2:5],
    np.s_[:, :, 3:],
    np.s_[:, :, ::2, 1::3],
    np.s_[1:2, ::2, 4:, :7],
]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("view", ["memmap", "ndarray", "slice of a slice"])
def test_slices_of_a_mapped_array(mapped, cut, view):
    whole = integers((3, 6, 17, 19))
    m = mapped(whole, "r", 24)
    if view == "ndarray":
        m = np.asarray(m)
    elif view == "slice of a slice":
        m = m[:, :, :, :][0:]
    x = m[cut]
    file = find(x, writing=False)
    assert file is not None
    with file:
        assert (
            file.offset - 24 == x.__array_interface__["data"][0] - m.__array_interface__["data"][0]
        )
    w = integers((4, x.shape[1], 3, 3))
    assert_equal(oocdnn.conv2d(x, w), oracle.forward(whole[cut], w))


@pytest.mark.parametrize("cut", CUTS)
def test_writing_into_a_slice_leaves_the_rest(mapped, tmp_path, cut):
    whole = integers((3, 6, 17, 19), 4)
    m = mapped(whole, "r+", 24, "out")
    out = m[cut]
    n, k, height, width = out.shape
    x, w = integers((n, 2, height + 2, width + 2)), integers((k, 2, 3, 3))
    oocdnn.conv2d(x, w, out=out)
    whole[cut] = oracle.forward(x, w)
    stored = (tmp_path / "out.bin").read_bytes()
    assert stored == b"\xee" * 24 + whole.tobytes() + b"\xdd" * 16


def test_channels_last_and_beta_in_a_file(mapped):
    x, w = integers((2, 6, 17, 19)), integers((4, 6, 3, 3))
    rows = mapped(np.ascontiguousarray(np.moveaxis(integers((2, 4, 15, 17), 3), 1, -1)))
    out = np.moveaxis(rows, -1, 1)
    expected = oracle.finish(oracle.forward(x, w), beta=2, old=np.array(out), alpha=3)
    oocdnn.conv2d(channels_last(x), w, out=out, beta=2, alpha=3)
    assert_equal(out, expected)


def test_all_gradients_with_all_operands_in_files(mapped):
    x, w = integers((2, 6, 17, 19)), integers((4, 6, 3, 3))
    dy = integers((2, 4, 15, 17), 2)
    files = {name: mapped(a, "r", 0, name) for name, a in {"x": x, "w": w, "dy": dy}.items()}
    dx = mapped(np.ones_like(x), name="dx")
    dw = mapped(np.ones_like(w), name="dw")
    db = mapped(np.ones(4, np.float32), name="db")
    oocdnn.conv_backward_data(files["dy"], files["w"], x.shape, out=dx)
    oocdnn.conv_backward_filter(files["x"], files["dy"], w.shape, out=dw)
    oocdnn.conv_backward_bias(files["dy"], out=db, beta=1)
    assert_equal(dx, oracle.backward_data(dy, w, x.shape))
    assert_equal(dw, oracle.backward_filter(x, dy, w.shape))
    assert_equal(db, oracle.backward_bias(dy) + 1)


def test_copy_on_write_changes_no_file(mapped, tmp_path):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    out = mapped(np.zeros((1, 4, 7, 7), np.float32), "c", name="out")
    oocdnn.conv2d(x, w, out=out)
    assert_equal(out, oracle.forward(x, w))
    assert not any((tmp_path / "out.bin").read_bytes()[:-16])


def test_private_changes_of_a_copy_on_write_map_are_seen(mapped):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    m = mapped(np.zeros_like(x), "c")
    m[...] = x
    assert_equal(oocdnn.conv2d(m, w), oracle.forward(x, w))


def test_a_file_that_was_replaced_is_not_taken_for_the_mapped_one(mapped, tmp_path):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    m = mapped(x, "r")
    (tmp_path / "other").write_bytes(b"\xff" * (x.nbytes + 16))
    os.replace(tmp_path / "other", tmp_path / "data.bin")
    assert find(m, writing=False) is None
    assert_equal(oocdnn.conv2d(m, w), oracle.forward(x, w))


def test_a_deleted_file_is_read_through_its_mapping(mapped, tmp_path):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    m = mapped(x, "r")
    (tmp_path / "data.bin").unlink()
    assert_equal(oocdnn.conv2d(m, w), oracle.forward(x, w))


def test_npy_files(tmp_path):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    np.save(tmp_path / "x.npy", x)
    m = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert find(m, writing=False).offset > 0
    assert_equal(oocdnn.conv2d(m, w), oracle.forward(x, w))


def test_a_file_too_short(mapped, tmp_path):
    x, w = integers((2, 3, 99, 99)), integers((4, 3, 3, 3))
    m = mapped(x, "r")
    os.truncate(tmp_path / "data.bin", x.nbytes // 2)
    with pytest.raises(oocdnn.InvalidProblem, match=f"has only {x.nbytes // 2}.*too short"):
        oocdnn.conv2d(m, w)


def test_two_maps_of_one_file_overlap(mapped, tmp_path):
    data = mapped(integers((4, 4, 9, 9)))
    again = np.memmap(tmp_path / "data.bin", np.float32, "r+", 0, (4, 4, 9, 9))
    w = integers((4, 4, 3, 3))
    with pytest.raises(oocdnn.InvalidProblem, match="out overlaps x"):
        oocdnn.conv2d(data[:2], w, padding=1, out=again[1:3])
    expected = oracle.forward(np.array(data[:2]), w, padding=1)
    oocdnn.conv2d(data[:2], w, padding=1, out=again[2:])
    assert_equal(data[2:], expected)


def test_no_descriptor_is_left_open(mapped):
    m = mapped(integers((1, 3, 9, 9)), "r")
    w = integers((4, 3, 3, 3))
    oocdnn.conv2d(m, w)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        oocdnn.conv2d(m, w)
        with pytest.raises(oocdnn.InvalidProblem):
            oocdnn.conv2d(m, w, groups=2)
    assert len(os.listdir("/proc/self/fd")) == before


FULL = """
import resource, signal, sys
import numpy as np, oocdnn
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
out = np.memmap(sys.argv[1], np.float32, "r+", 0, (1, 16, 256, 256))
x, w = np.ones((1, 4, 258, 258), np.float32), np.ones((16, 4, 3, 3), np.float32)
with oocdnn.Context("cpu", "512KiB") as ctx:
    resource.setrlimit(resource.RLIMIT_FSIZE, (out.nbytes // 2, resource.RLIM_INFINITY))
    try:
        oocdnn.conv2d(x, w, out=out)
    except oocdnn.FileError as error:
        assert isinstance(error, OSError) and isinstance(error, oocdnn.DeviceError)
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    oocdnn.conv2d(x, w, out=out)
    assert (out == 36).all()
    print("then fine")
"""


def test_a_file_that_cannot_grow(tmp_path):
    """As on a full disk: a write fails, the error says so, and the context goes on working."""
    path = tmp_path / "out.bin"
    path.touch()
    os.truncate(path, 16 * 256 * 256 * 4)
    command = [sys.executable, "-c", FULL, path]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert os.strerror(errno.EFBIG) in done.stdout
    assert "then fine" in done.stdout


EDGE = "conv3d:fwd x2x4x3x4000x5 w6x2x1x1x2 pad0x0x1 str2x1x2 grp2"
ONE_COLUMN = "direct n2 g1 k3 c2 d1 h500 w1 order gdwh slots 1,1,1"


def test_boxes_that_are_narrower_at_an_edge(tmp_path):
    """The box at the edge is one column wide. Packed with the gaps between rows it would take more
    than the others, and ran over its slab's end."""
    x, w = integers((2, 4, 3, 4000, 5)), integers((6, 2, 1, 1, 2))
    moves = {"stride": (2, 1, 2), "padding": (0, 0, 1), "groups": 2}
    stored = np.memmap(tmp_path / "x.bin", x.dtype, "w+", shape=x.shape)
    stored[...] = x
    device = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
    with oocdnn.Context(device, 30_000, profile="none", engine="direct", wrap="check") as ctx:
        ctx.use_plan(EDGE, ONE_COLUMN)
        y = ctx.conv3d(stored, w, **moves)
        assert ctx.stats.split["w"] == 3
        assert ctx.check_reports() == []
    assert_equal(y, oracle.forward(x, w, **moves))
