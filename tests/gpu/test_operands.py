"""Operands wherever they live: pageable, pinned, in files, on the GPU, and any mix of them.

On a machine without a GPU test_suites.py runs this file on the fake driver.
"""

from __future__ import annotations

import gc
import itertools
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from python.support import DTYPES, assert_equal, channels_last, integers

import oocdnn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import FAKE, DeviceArray, Part, driver

SMALL = "256KiB"


@pytest.fixture
def ctx():
    try:
        context = oocdnn.Context("cuda", SMALL, wrap="check")
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with context:
        yield context
        assert context.check_reports() == []


@pytest.fixture
def cupy(ctx):
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def torch(ctx):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return torch


def pinned(values):
    copy = oocdnn.empty(values.shape, values.dtype)
    copy[...] = values
    return copy


def in_file(tmp_path, name):
    def place(values):
        array = np.memmap(tmp_path / f"{name}.bin", values.dtype, "w+", shape=values.shape)
        array[...] = values
        return array

    return place


def places(tmp_path, name):
    return {
        "pageable": np.array,
        "pinned": pinned,
        "device": DeviceArray,
        "file": in_file(tmp_path, name),
    }


def host(array):
    return array.get() if isinstance(array, DeviceArray) else np.asarray(array)


@pytest.mark.parametrize("operand", ["x", "w", "y"])
@pytest.mark.skipif(not FAKE, reason="the fake driver has a second GPU where it is asked for one")
def test_an_operand_on_another_gpu_is_refused(monkeypatch, operand):
    monkeypatch.setenv("OOC_FAKE_TWO_GPUS", "1")
    arrays = {"x": np.ones((1, 4, 9, 9), "f4"), "w": np.ones((4, 4, 3, 3), "f4")}
    arrays["y"] = np.zeros((1, 4, 7, 7), "f4")
    arrays[operand] = DeviceArray(arrays[operand])
    message = f"{operand} lies on GPU 0, and this context computes on cuda:1: copy it there"
    with (
        oocdnn.Context("cuda:1", SMALL) as context,
        pytest.raises(oocdnn.Unsupported, match=message),
    ):
        context.conv2d(arrays["x"], arrays["w"], out=arrays["y"])


TIERS = ("pageable", "pinned", "device", "file")


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, repeat=3)), ids="-".join)
def test_any_mix_of_places(ctx, tmp_path, tiers):
    x, w = integers((3, 8, 30, 41)), integers((12, 8, 3, 3))
    reference = oracle.forward(x, w, padding=1)
    placed = [
        places(tmp_path, name)[tier](values)
        for tier, name, values in zip(
            tiers, "xwy", (x, w, np.full(reference.shape, np.nan, np.float32)), strict=True
        )
    ]
    assert ctx.conv2d(*placed[:2], padding=1, out=placed[2]) is placed[2]
    assert_equal(host(placed[2]), reference)
    assert ctx.stats.tiles > 1 or set(tiers) == {"device"}
    assert ctx.stats.peak_device_bytes <= 256 << 10
    inward = sum(a.nbytes for a, tier in zip((x, w), tiers, strict=False) if tier != "device")
    assert ctx.stats.bytes_h2d >= inward
    assert ctx.stats.bytes_d2h == (0 if tiers[2] == "device" else reference.size * 4)
    assert inward > 0 or ctx.stats.bytes_h2d == 0


@pytest.mark.skipif(not FAKE, reason="the fake driver counts what it is asked")
@pytest.mark.parametrize("tier", TIERS)
def test_locations_are_looked_up_once_for_a_call(ctx, tmp_path, tier):
    x, w = integers((24, 8, 30, 41)), integers((12, 8, 3, 3))
    reference = oracle.forward(x, w, padding=1)
    at = (places(tmp_path, name)[tier] for name in "xwy")
    x, w, y = (
        place(one)
        for place, one in zip(at, (x, w, np.zeros(reference.shape, np.float32)), strict=True)
    )
    options = {"padding": 1, "out": y}
    with oocdnn.Context("cuda", SMALL, engine="direct") as small:
        small.conv2d(x, w, **options)
        before = driver().fake_questions()
        small.conv2d(x, w, **options)
        assert driver().fake_questions() - before <= 6  # both ends of each operand
        assert small.stats.tiles >= 24 or tier == "device"
    assert_equal(host(y), reference)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_direction_and_type(ctx, tmp_path, tier, name):
    dtype = DTYPES[name]
    x, w = integers((2, 6, 25, 33), 1, dtype), integers((8, 3, 3, 3), 2, dtype)
    moves = {"stride": 2, "padding": 1, "groups": 2}
    y = oracle.forward(x, w, **moves)
    dy = integers(y.shape, 3, dtype)
    at = places(tmp_path, "a")[tier], places(tmp_path, "b")[tier], places(tmp_path, "c")[tier]

    def check(function, operands, reference, *shape, **keywords):
        old = integers(reference.shape, 4, dtype)
        inputs = [place(operand) for place, operand in zip(at, operands, strict=False)]
        out = at[2](old)
        function(*inputs, *shape, out=out, beta=1, **keywords)
        assert_equal(host(out), reference + old.astype(np.float64))

    check(ctx.conv2d, (x, w), y, **moves)
    dx = oracle.backward_data(dy, w, x.shape, **moves)
    check(ctx.conv_backward_data, (dy, w), dx, x.shape, **moves)
    dw = oracle.backward_filter(x, dy, w.shape, **moves)
    check(ctx.conv_backward_filter, (x, dy), dw, w.shape, **moves)
    check(ctx.conv_backward_bias, (dy,), oracle.backward_bias(dy))


@pytest.mark.parametrize("order", [np.ascontiguousarray, channels_last])
def test_memory_orders_on_the_device(ctx, order):
    x, w = order(integers((2, 6, 25, 33))), order(integers((8, 6, 3, 3)))
    reference = oracle.forward(x, w)
    out = DeviceArray(order(np.zeros(reference.shape, np.float32)))
    ctx.conv2d(DeviceArray(x), DeviceArray(w), out=out)
    assert_equal(out.get(), reference)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_core_the_arrays_are_used_where_they_lie(ctx, dtype):
    """No second copy of x and y: the budget is a tenth of each."""
    x, w = integers((2, 8, 64, 65), 1, dtype), integers((8, 8, 3, 3), 2, dtype)
    reference = oracle.forward(x, w)
    a, b = DeviceArray(x), DeviceArray(w)
    out = DeviceArray(np.full(reference.shape, np.nan, dtype))
    with oocdnn.Context("cuda", x.nbytes // 10, engine="direct", wrap="check") as small:
        for _ in range(3):
            small.conv2d(a, b, out=out)
        assert small.stats.tiles == 1
        assert small.stats.peak_device_bytes <= x.nbytes // 10
        assert_equal(out.get(), reference)
        assert small.check_reports() == []


@pytest.mark.parametrize(
    "keywords",
    [
        {"padding": 1},
        {"beta": 1.0},
        {"alpha": 2.0, "activation": "relu"},
        {"mode": "convolution"},
        {"stride": 2, "groups": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("budget", [64 << 10, 64 << 20])
def test_what_cannot_stay_in_place_is_tiled_on_the_device(ctx, keywords, budget):
    moves = {key: keywords[key] for key in ("padding", "stride", "groups") if key in keywords}
    x = integers((2, 8, 40, 41), 1)
    w = integers((8, 8 // moves.get("groups", 1), 3, 3), 2)
    total = oracle.forward(x, w, flip="mode" in keywords, **moves)
    old = integers(total.shape, 3)
    reference = oracle.finish(
        total, alpha=keywords.get("alpha", 1), beta=keywords.get("beta", 0), old=old
    )
    if "activation" in keywords:
        reference = np.maximum(reference, 0)
    with oocdnn.Context("cuda", budget, wrap="check") as context:
        a, b, out = DeviceArray(x), DeviceArray(w), DeviceArray(old)
        context.conv2d(a, b, out=out, **keywords)
        assert_equal(out.get(), reference)
        assert context.check_reports() == []


def test_a_residual_on_the_device_may_be_the_output(ctx):
    x, w = integers((1, 4, 40, 41)), integers((4, 4, 1, 1))
    old = integers((1, 4, 40, 41), 5)
    out = DeviceArray(old)
    ctx.conv2d(DeviceArray(x), DeviceArray(w), residual=out, out=out)
    assert_equal(out.get(), oracle.finish(oracle.forward(x, w), residual=old))


def test_calls_that_follow_one_another_without_waiting(ctx):
    """Each reads what the one before has written, in place, in tiles and from the host."""
    w = np.zeros((4, 4, 1, 1), np.float32)
    w[range(4), range(4)] = 2
    b = DeviceArray(w)
    values = integers((2, 4, 60, 61))
    arrays = [DeviceArray(values), DeviceArray(np.zeros_like(values))]
    for i in range(6):
        ctx.conv2d(arrays[i % 2], b, out=arrays[1 - i % 2])
        if i == 3:
            ctx.conv2d(values, w)
    np.testing.assert_array_equal(arrays[0].get(), values * 2**6)


@pytest.mark.parametrize("tier", TIERS)
def test_an_empty_batch_scales_the_old_gradient(ctx, tmp_path, tier):
    x, dy = np.empty((0, 3, 9, 9), np.float32), np.empty((0, 4, 7, 7), np.float32)
    old = integers((4, 3, 3, 3), 5)
    for beta in (0.0, 2.0):
        out = places(tmp_path, "w")[tier](old)
        ctx.conv_backward_filter(x, dy, old.shape, out=out, beta=beta)
        np.testing.assert_array_equal(host(out), beta * old)


def test_gaps_and_mirrored_filters_are_staged(ctx):
    store = integers((2, 9, 40, 90))
    x, w = store[:, 1::2, 3:-2, 1::2], integers((5, 4, 3, 3))
    out = np.full((2, 7, 40, 90), 77, np.float32)
    view = out[:, 1:6, 1:34, ::3][..., :30][..., :]
    want = oracle.forward(x, w, flip=True)[..., :]
    view = out[:, 1:6, 2 : 2 + want.shape[2], 1 : 1 + 2 * want.shape[3] : 2]
    ctx.conv2d(x, w, mode="convolution", out=view)
    assert_equal(view, want)
    view[...] = 77
    assert (out == 77).all()


def test_memory_that_is_freed_and_made_again(ctx):
    w = integers((4, 3, 3, 3))
    for seed in range(6):
        x = integers((2, 3, 64, 64), seed)
        with oocdnn.pin(x) if seed % 2 else oocdnn.pin(w):
            assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))
        del x
        gc.collect()


def test_pinned_memory_outlives_its_context():
    try:
        with oocdnn.Context("cuda", SMALL):
            x = oocdnn.empty((2, 3, 20, 20))
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    x[...] = integers(x.shape)
    w = integers((4, 3, 3, 3))
    with oocdnn.Context("cuda", SMALL) as ctx:
        assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))


def test_pinning_twice_is_harmless(ctx):
    x, w = integers((2, 3, 64, 64)), integers((4, 3, 3, 3))
    with oocdnn.pin(x):
        assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))
    with oocdnn.pin(x) as same, oocdnn.pin(x):
        assert same is x
        assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))
    assert_equal(ctx.conv2d(x, w), oracle.forward(x, w))


@pytest.mark.parametrize("cap", [64 << 10, 160 << 10, 1 << 20])
@pytest.mark.parametrize("order", [np.ascontiguousarray, channels_last])
@pytest.mark.parametrize("budget", ["96KiB", "8MiB"])
def test_tiles_are_staged_in_pieces(ctx, budget, order, cap):
    """Pieces of tiles that are rolled, padded, moved back or added to, in little staging memory."""
    x, w = order(integers((3, 6, 41, 40))), order(integers((8, 3, 3, 3)))
    moves = {"stride": 2, "padding": ((2, 1), (0, 3)), "groups": 2}
    y = oracle.forward(x, w, **moves)
    dy, old = order(integers(y.shape, 3)), order(integers(y.shape, 4, np.float32))
    with oocdnn.Context("cuda", budget, host_cap=cap, wrap="check") as small:
        out = np.full((3, 8, y.shape[2] + 2, 2 * y.shape[3]), 77, np.float32)
        view = out[:, :, 1:-1, ::2]
        view[...] = old
        assert small.conv2d(x, w, residual=dy, out=view, beta=1, **moves) is view
        assert_equal(view, oracle.finish(y, beta=1, old=old, residual=dy))
        view[...] = 77
        assert (out == 77).all()
        dx = small.conv_backward_data(dy, w, x.shape, **moves)
        assert_equal(dx, oracle.backward_data(dy, w, x.shape, **moves))
        dw = small.conv_backward_filter(x, dy, w.shape, **moves)
        assert_equal(dw, oracle.backward_filter(x, dy, w.shape, **moves))
        assert_equal(small.conv_backward_bias(dy), oracle.backward_bias(dy))
        assert small.check_reports() == []


def test_staging_memory_does_not_make_smaller_tiles(ctx):
    """Tiles are larger than all of it."""
    x, w = integers((1, 8, 200, 200)), integers((8, 8, 3, 3))
    with oocdnn.Context("cuda", "8MiB", host_cap=64 << 10) as small:
        assert_equal(small.conv2d(x, w), oracle.forward(x, w))
        assert small.stats.tiles * (64 << 10) < x.nbytes


def test_what_cannot_be_written_or_shared(ctx):
    x, w = integers((1, 3, 9, 9)), integers((4, 3, 3, 3))
    out = DeviceArray(np.zeros((1, 4, 7, 7), np.float32), read_only=True)
    with pytest.raises(oocdnn.InvalidProblem, match="read-only"):
        ctx.conv2d(x, w, out=out)
    on_device = DeviceArray(x)
    with pytest.raises(oocdnn.Unsupported, match="out="):
        ctx.conv2d(on_device, w)
    with oocdnn.Context("cpu") as cpu, pytest.raises(oocdnn.Unsupported, match="on the CPU"):
        cpu.conv2d(on_device, w, out=np.zeros((1, 4, 7, 7), np.float32))
    with pytest.raises(oocdnn.InvalidProblem, match="overlaps"):
        ctx.conv2d(on_device, integers((3, 3, 1, 1)), out=on_device)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_channel_halves_of_one_array(ctx, last, large):
    """On the GPU, where they are used in place, and in host memory."""
    extent = 65 if large else 9
    both = np.zeros((2, 16, extent, extent), np.float32)
    both[:, :8] = integers((2, 8, extent, extent))
    both = channels_last(both) if last else both
    w = integers((8, 8, 3, 3))
    expected = oracle.forward(both[:, :8], w, padding=1)
    device, pinned_both = DeviceArray(both), pinned(both)
    for x, out in (
        (Part(device, np.s_[:8]), Part(device, np.s_[8:])),
        (pinned_both[:, :8], pinned_both[:, 8:]),
        (both[:, :8], both[:, 8:]),
    ):
        ctx.conv2d(x, w, padding=1, out=out)
    for whole in (device.get(), pinned_both, both):
        assert_equal(whole[:, :8], integers((2, 8, extent, extent)))
        assert_equal(whole[:, 8:], expected)
    with pytest.raises(oocdnn.InvalidProblem, match="overlaps"):
        ctx.conv2d(Part(device, np.s_[:8]), w, padding=1, out=Part(device, np.s_[7:15]))


def test_auto_is_the_gpu():
    try:
        with oocdnn.Context("cuda", SMALL) as ctx:
            device = ctx.device
    except oocdnn.Unsupported as error:
        pytest.skip(str(error))
    with oocdnn.Context("auto", SMALL) as ctx:
        assert ctx.device == device == "cuda:0"
    with pytest.raises(oocdnn.Unsupported, match="no GPU number 99"):
        oocdnn.Context("cuda:99")
    with pytest.raises(oocdnn.InvalidProblem, match="cuda:x"):
        oocdnn.Context("cuda:x")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_cupy_in_cupy_out(ctx, cupy, dtype):
    x, w = integers((2, 6, 25, 33), 0, dtype), integers((8, 6, 3, 3), 0, dtype)
    moves = {"stride": 2, "padding": 1}
    reference = oracle.forward(x, w, **moves)
    try:
        a, b = cupy.asarray(x), cupy.asarray(w)
    except (TypeError, ValueError) as error:
        pytest.skip(f"CuPy {cupy.__version__} has no {dtype.name}: {error}")
    y = ctx.conv2d(a, b, **moves)
    assert isinstance(y, cupy.ndarray)
    assert y.flags.c_contiguous
    assert_equal(cupy.asnumpy(y), reference)
    rows = cupy.ascontiguousarray(cupy.moveaxis(a, 1, -1))
    y = ctx.conv2d(cupy.moveaxis(rows, -1, 1), b, **moves)
    assert cupy.moveaxis(y, 1, -1).flags.c_contiguous
    assert_equal(cupy.asnumpy(y), reference)
    mixed = ctx.conv2d(a, w, **moves)
    assert_equal(cupy.asnumpy(mixed), reference)
    y = ctx.conv2d(x, b, **moves)
    assert isinstance(y, np.ndarray)
    assert_equal(y, reference)


@pytest.mark.gpu
def test_cupy_streams_and_pools(ctx, cupy):
    """Each call's input is written on the stream just before it, and freed just after it."""
    w = cupy.asarray(integers((8, 6, 3, 3)))
    first = cupy.asarray(integers((2, 6, 25, 33)))
    reference = oracle.forward(cupy.asnumpy(first), cupy.asnumpy(w))
    for stream in (
        cupy.cuda.Stream.null,
        cupy.cuda.Stream(non_blocking=True),
        cupy.cuda.Stream.ptds,
    ):
        with stream:
            results = []
            for i in range(1, 9):
                noise = cupy.random.standard_normal((2048, 2048), dtype=np.float32)
                for _ in range(4):
                    noise = noise @ noise * 1e-3  # keeps the stream busy
                x = first * i
                results.append(ctx.conv2d(x, w) + 1)
                del x, noise
            for i, y in enumerate(results, 1):
                assert_equal(cupy.asnumpy(y), reference * i + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("pool", ["MemoryPool", "MemoryAsyncPool"])
def test_cupy_memory_pools(ctx, cupy, pool):
    """What is freed on a stream is the next array on it, while calls are in flight."""
    made = getattr(cupy.cuda, pool)()
    w = integers((8, 6, 3, 3))
    with cupy.cuda.using_allocator(made.malloc), cupy.cuda.Stream(non_blocking=True):
        b, results = cupy.asarray(w), []
        for seed in range(20):
            a = cupy.asarray(integers((2, 6, 64, 65), seed))
            y = ctx.conv2d(a, b)
            del a
            results.append(ctx.conv2d(y * 1, b.transpose(1, 0, 2, 3).copy()))
            del y
        for seed, result in enumerate(results):
            y = oracle.forward(integers((2, 6, 64, 65), seed), w)
            assert_equal(cupy.asnumpy(result), oracle.forward(y, w.transpose(1, 0, 2, 3)))
        del results, result, b


@pytest.mark.gpu
def test_a_capture_is_refused_and_stays_valid(ctx, cupy):
    x, w = cupy.asarray(integers((2, 6, 25, 33))), cupy.asarray(integers((8, 6, 3, 3)))
    out = ctx.conv2d(x, w)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        twice = x * 2
        stream.begin_capture()
        with pytest.raises(oocdnn.Unsupported, match="captur"):
            ctx.conv2d(x, w, out=out)
        cupy.multiply(x, 3, out=twice)
        graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    assert (twice == x * 3).all()
    ctx.conv2d(x, w, out=out)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_torch_on_the_gpu(ctx, torch, name):
    x, w = integers((2, 6, 25, 33)), integers((8, 6, 3, 3))
    reference = oracle.forward(x, w, padding=1)
    a = torch.from_numpy(x).cuda().to(getattr(torch, name))
    b = torch.from_numpy(w).cuda().to(getattr(torch, name))
    for memory in (torch.contiguous_format, torch.channels_last):
        y = ctx.conv2d(a.to(memory_format=memory), b, padding=1)
        assert y.device == a.device
        assert y.is_contiguous(memory_format=memory)
        assert torch.equal(y.cpu().double(), torch.from_numpy(reference).to(a.dtype).double())
