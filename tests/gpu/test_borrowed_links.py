"""Copies that go over the links of other GPUs too.

On a machine without a GPU test_suites.py runs this file on a fake driver of two, whose streams work
late: a piece that does not wait, or that nobody waits for, gives other values.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Iterator
from ctypes import byref, c_size_t
from pathlib import Path

import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from engine.cases import DEVICE, RandomDraw, random_case, run_case
from hypothesis import given, settings
from hypothesis import strategies as st
from python.support import assert_equal, channels_last, integers

import oocdnn
from oocdnn._core.swap import IN, OUT, NativeSwapper
from oocdnn.cli import main

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, call, driver, free_bytes, gpus
from test_swap import Stream, array_of, bytes_of, leave_and_come_back

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu", reason="runs where OOCDNN_TEST_DEVICE is cuda"),
    pytest.mark.skipif(gpus() < 2, reason="there are no two GPUs"),
]
fake_only = pytest.mark.skipif(not FAKE, reason="the fake driver counts")
PIECE = 4096


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OOCDNN_BORROW_PIECE", str(PIECE))
    monkeypatch.delenv("OOCDNN_BORROW", raising=False)
    if FAKE:
        slow(1, 1)
    yield
    if FAKE:
        slow(0, 0)


def slow(*nanoseconds: int) -> None:
    """What each byte takes that streams of GPU 0, 1 and 2 copy, in the time of the fake driver."""
    for gpu, each in enumerate((*nanoseconds, nanoseconds[-1])[:3]):
        call("fake_slow", gpu, each)


def pinned(values: np.ndarray) -> np.ndarray:
    copy = oocdnn.empty(values.shape, values.dtype)
    copy[...] = values
    return copy


def crossed() -> list[int]:
    """Bytes that each GPU has copied from or to host memory since the last call."""
    found = []
    for gpu in range(3):
        nbytes = c_size_t()
        call("fake_crossed", gpu, byref(nbytes))
        found.append(nbytes.value)
    return found


def context(**options) -> oocdnn.Context:
    given = {"borrow": ["cuda:1"], "profile": "none", "budget": "256KiB", "wrap": "check"}
    return oocdnn.Context("cuda:0", **(given | options))


@pytest.mark.parametrize("seed", range(60))
def test_random_problems(seed: int) -> None:
    case = random_case(RandomDraw(np.random.default_rng(seed)))
    outcome = run_case(case, device="cuda:0", borrow=["cuda:1"], profile="none", wrap="check")
    assert outcome.reports == []
    assert outcome.mismatches() == 0


@pytest.mark.parametrize("order", [np.array, channels_last])
@pytest.mark.parametrize("place", [np.array, pinned])
def test_operands_cross_by_both_links(order, place) -> None:
    x, w = integers((3, 16, 40, 41)), integers((12, 16, 3, 3))
    with context() as ctx:
        y = ctx.conv2d(order(place(x)), w, padding=1)
        assert ctx.check_reports() == []
        assert ctx.stats.tiles > 1
        both = crossed() if FAKE else []
        assert ctx.stats.bytes_h2d >= x.nbytes
    assert_equal(y, oracle.forward(x, w, padding=1))
    if FAKE:
        assert both[1] > x.nbytes / 8
        assert both[0] > x.nbytes / 8 or order is channels_last  # by a kernel, which is not counted
        assert both[2] == 0


@pytest.mark.parametrize("order", [np.array, channels_last])
def test_results_cross_by_both_links(order) -> None:
    x, w = integers((3, 2, 40, 41)), integers((32, 2, 1, 1))
    out = order(pinned(np.zeros((3, 32, 40, 41), np.float32)))
    with context() as ctx:
        crossed() if FAKE else None
        y = ctx.conv2d(x, w, out=out)
        both = crossed() if FAKE else []
    assert_equal(y, oracle.forward(x, w))
    if FAKE:
        # A kernel does what goes over the own link of the latter, in no time of the fake driver's.
        assert both[1] > (out.nbytes / 8 if order is np.array else 4 * PIECE)


@pytest.mark.skipif(gpus() < 3, reason="there are no three GPUs")
def test_two_gpus_lend_their_links() -> None:
    x, w = integers((3, 16, 64, 64)), integers((2, 16, 1, 1))
    with context(borrow=["cuda:2", "cuda:1"]) as ctx:
        crossed() if FAKE else None
        assert_equal(ctx.conv2d(pinned(x), w), oracle.forward(x, w))
        if FAKE:
            assert min(crossed()) > x.nbytes / 6


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_a_tile_of_another_type(dtype) -> None:
    """y in float32, whose tiles a kernel converts, or rows that skip elements."""
    x, w = integers((2, 8, 50, 60)).astype(dtype), integers((4, 8, 1, 1)).astype(dtype)
    with context() as ctx:
        y = ctx.conv2d(pinned(x)[:, :, 1:, 2:], w, stride=(1, 2))
    assert_equal(y, oracle.forward(x[:, :, 1:, 2:], w, stride=(1, 2)).astype(dtype))


def test_work_beside_copies_keeps_its_order() -> None:
    """Gradients add to what is there, which is fetched and written back by the same stream."""
    x, dy = integers((4, 8, 40, 41)), integers((4, 6, 40, 41))
    before = integers((6, 8, 3, 3))
    with context() as ctx:
        dw = ctx.conv_backward_filter(
            pinned(x), pinned(dy), before.shape, padding=1, out=before.copy(), beta=1.0
        )
        assert ctx.check_reports() == []
    expected = oracle.backward_filter(x, dy, before.shape, padding=1) + before
    assert_equal(dw, expected)


@fake_only
def test_a_slow_link_gets_less() -> None:
    x, w = pinned(integers((8, 16, 64, 64))), integers((1, 16, 1, 1))
    with context() as ctx:
        shares = []
        for nanoseconds in (1, 100, 1):
            slow(1, nanoseconds)
            for _ in range(12):
                ctx.conv2d(x, w)
            crossed()
            ctx.conv2d(x, w)
            own, other, _ = crossed()
            shares.append(other / (own + other))
    assert shares[1] < 0.1
    assert min(shares[0], shares[2]) == pytest.approx(0.5, abs=0.1)


@fake_only
def test_the_time_of_a_copy_is_that_of_all_links() -> None:
    """Which the machine's profile and timelines are made of."""
    x, w = pinned(integers((8, 16, 64, 64))), integers((1, 16, 1, 1))
    with context() as ctx:
        ctx.conv2d(x, w)
        slow(1, 1)
        ctx.conv2d(x, w)
        assert ctx.stats.tiles > 4
        one_byte = ctx.stats.fetch_seconds / x.nbytes
    assert 0.9e-9 < one_byte < 1.1e-9  # the fake driver's streams work one after the other


@fake_only
def test_a_gpu_without_memory_is_done_without(capfd: pytest.CaptureFixture[str]) -> None:
    x, w = pinned(integers((3, 8, 40, 41))), integers((12, 8, 3, 3))
    driver().fake_lendable.argtypes = [ctypes.c_size_t]
    driver().fake_lendable(1 << 8)
    try:
        with context() as ctx:
            crossed()
            y = ctx.conv2d(x, w)
            assert crossed()[1] == 0
    finally:
        driver().fake_lendable((1 << 64) - 1)
    assert_equal(y, oracle.forward(x, w))
    text = capfd.readouterr().err
    assert "GPU 0 copies without the link of GPU 1" in text
    assert f"{3 * PIECE} bytes of GPU 1, through which copies go" in text


@fake_only
def test_what_is_lent_is_given_back() -> None:
    x, w = pinned(integers((3, 8, 40, 41))), integers((12, 8, 3, 3))
    gc.collect()
    before = free_bytes()
    with context() as ctx:
        ctx.conv2d(x, w)
        assert free_bytes() < before
    gc.collect()
    assert free_bytes() == before


def test_the_variable_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bytes that GPUs lend to training, which a context does without. A context on a GPU
    that lends borrows of the others."""
    monkeypatch.setenv("OOCDNN_BORROW", "cuda:1=1GiB,cuda:0")
    x, w = pinned(integers((3, 8, 40, 41))), integers((12, 8, 3, 3))
    for device in ("cuda:0", "cuda:1", "cpu", "cuda:0,cuda:1"):
        with oocdnn.Context(device, "256KiB", profile="none", engine="direct") as ctx:
            crossed() if FAKE else None
            assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))
            if FAKE and device == "cuda:0":
                assert min(crossed()[:2]) > 0
    for piece in ("1KiB", "much"):
        monkeypatch.setenv("OOCDNN_BORROW_PIECE", piece)
        with pytest.raises(oocdnn.InvalidProblem, match=f"BORROW_PIECE is '{piece}'; 4KiB to 1GiB"):
            oocdnn.Context("cuda:0")
    for text in ("cuda:1=much", "cuda:1,", "cuda:1,cuda:1"):
        monkeypatch.setenv("OOCDNN_BORROW", text)
        with pytest.raises(oocdnn.InvalidProblem, match="OOCDNN_BORROW: borrowing"):
            oocdnn.Context("cuda:0")


@fake_only
def test_what_the_variable_names_and_is_not_reached_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OOCDNN_BORROW", "cuda:7,cuda:1")
    driver().fake_reaches(0)
    try:
        for device in ("cuda:0", "auto"):
            with oocdnn.Context(device, "256KiB", profile="none") as ctx:
                assert ctx.device == "cuda:0"
        with pytest.raises(oocdnn.Unsupported, match="GPU 0 does not reach the memory of GPU 1"):
            context()
    finally:
        driver().fake_reaches(1)
    text = capfd.readouterr().err
    assert "the link of GPU 7 is not borrowed: there is no GPU number 7" in text
    assert "the link of GPU 1 is not borrowed: GPU 0 does not reach" in text


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"borrow": ["cuda:0"]}, oocdnn.InvalidProblem, "GPU 0 borrows from other GPUs"),
        ({"borrow": ["cuda:64"]}, oocdnn.Unsupported, "there is no GPU number 64"),
        ({"borrow": ["cuda:1", "cuda:1"]}, oocdnn.InvalidProblem, "cuda:1 is there twice"),
        ({"borrow": ["gpu"]}, oocdnn.InvalidProblem, "borrowing 'gpu': device 'gpu': write"),
        ({"borrow": ["cuda:1=1GiB"]}, oocdnn.InvalidProblem, "device 'cuda:1=1GiB': write"),
        ({"borrow": [7]}, oocdnn.InvalidProblem, "borrow has 7"),
        ({"borrow": {"cuda:1": "1GiB"}}, oocdnn.InvalidProblem, "borrow is {'cuda:1': '1GiB'}"),
        ({"borrow": 1}, oocdnn.InvalidProblem, "borrow is 1; write names"),
    ],
)
def test_what_cannot_be_borrowed_is_told(options, error, told: str) -> None:
    with pytest.raises(error, match=told):
        context(**options)


def test_who_has_no_link_to_add_is_told() -> None:
    with pytest.raises(oocdnn.InvalidProblem, match="device 'cpu' borrows no links of GPUs"):
        oocdnn.Context("cpu", borrow=["cuda:1"])
    with pytest.raises(oocdnn.Unsupported, match="copy over their own links"):
        oocdnn.Context(devices=["cuda:0", "cpu"], borrow=["cuda:1"])


@given(
    sizes=st.lists(st.integers(1, 70_000), min_size=1, max_size=6),
    acts=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=40),
    lent=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_left_comes_back(
    sizes: list[int], acts: list[tuple[int, bool, bool]], lent: bool
) -> None:
    """By all links, beside slabs of the other GPU, and however late the copies run."""
    swapper = NativeSwapper(0)
    swapper.borrow_link(1)
    swapper.borrow_link(1)  # is there already
    host = {i for i in range(len(sizes)) if not (lent and i % 2)}
    slabs = [swapper.slab(n, None if i in host else 1) for i, n in enumerate(sizes)]
    leave_and_come_back(swapper, slabs, acts, host)


@fake_only
def test_swapped_bytes_go_over_both_links() -> None:
    swapper, stream = NativeSwapper(0), Stream()
    swapper.borrow_link(1)
    array, slab = array_of(64 * PIECE), swapper.slab(64 * PIECE)
    crossed()
    for way in (OUT, IN):
        ticket = swapper.start(way, stream.handle, array.pointer.value, slab, slab.nbytes)
        swapper.wait(ticket, stream.handle)
        stream.finish()
        own, other, _ = crossed()
        assert own + other == slab.nbytes
        assert min(own, other) > slab.nbytes // 4
    stream.close()


def test_the_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from oocdnn.bench.studies import links

    monkeypatch.setattr(links, "COPIED", 1 << 18)
    monkeypatch.setenv("OOCDNN_PROFILE", "none")
    out = tmp_path / "links.json"
    given = ["--images", "2", "--size", "16", "--budget", "1MiB", "--repeats", "2"]
    done = CliRunner().invoke(main, ["bench", "study", "links", *given, "--out", str(out)])
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["lists"]["rows"]
    assert [row["case"] for row in rows] == [
        "bare in",
        "bare out",
        "bare both",
        "fwd",
        "bwd_filter",
    ]
    for row in rows:
        assert row["moved_bytes"] > 0
        assert min(row["own"], row["borrowed"]) > 0


@fake_only
def test_a_lender_without_memory_does_not_stop_swapping(capfd: pytest.CaptureFixture[str]) -> None:
    swapper, stream = NativeSwapper(0), Stream()
    driver().fake_lendable.argtypes = [ctypes.c_size_t]
    driver().fake_lendable(1 << 8)
    try:
        swapper.borrow_link(1)
    finally:
        driver().fake_lendable((1 << 64) - 1)
    assert "GPU 0 copies without the link of GPU 1" in capfd.readouterr().err
    array, slab = array_of(8 * PIECE), swapper.slab(8 * PIECE)
    stream.write(array, 5)
    ticket = swapper.start(OUT, stream.handle, array.pointer.value, slab, slab.nbytes)
    swapper.wait(ticket, stream.handle)
    stream.finish()
    assert (bytes_of(slab) == 5).all()
    stream.close()
