"""Convolutions of an unmodified PyTorch, one scene a process: see dropin_programs.py."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass

import torch
from dropin_scene import check, figure, main, same, taken_so_far
from torch.nn.functional import conv2d, conv3d, pad

BUDGET_GIB = 2.0  # of a call, where no variable says it
# What one rounding to a type may lose; products of TF32 and 16-bit numbers are added in float.
UNIT = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
TF32 = 2.0**-11
MANY = 20  # calls in a row that are timed
ADDING = 2.0**-23  # tensor cores cut off what they add


def bound(dtype: torch.dtype, terms: int) -> float:
    """The largest error of a sum, in parts of the sum of magnitudes, before it is stored."""
    rounded = 2 * TF32 + TF32**2 if dtype == torch.float32 else 0.0
    return rounded + terms * ADDING / (1 - terms * ADDING)


def timed(action) -> tuple[float, torch.Tensor]:
    """Seconds until the GPU is done, and what the action returns."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = action()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def sums_at(x, w, places, padding: int):
    """The exact outputs at places (rows of n, k and spatial ones), and their sums of magnitudes."""
    spatial = x.dim() - 2
    n, k, at = places[:, 0], places[:, 1], places[:, 2:]
    channels = torch.arange(x.shape[1], device=x.device)
    flat = x.reshape(-1)
    total = torch.zeros(len(places), dtype=torch.float64, device=x.device)
    magnitude = total.clone()
    for tap in torch.cartesian_prod(*(torch.arange(e) for e in w.shape[2:])).tolist():
        where = at + torch.tensor(tap, device=x.device) - padding
        extents = torch.tensor(x.shape[2:], device=x.device)
        inside = ((where >= 0) & (where < extents)).all(1)
        where = where.clamp(min=0).minimum(extents - 1)
        index = n[:, None] * x.shape[1] + channels
        for axis in range(spatial):
            index = index * x.shape[2 + axis] + where[:, axis : axis + 1]
        values = flat[index.reshape(-1)].reshape(index.shape).double() * inside[:, None]
        products = values * w[(k, slice(None), *tap)].double()
        total += products.sum(1)
        magnitude += products.abs().sum(1)
    return total, magnitude


def errors_at(x, w, y, padding: int, count: int = 10_000) -> tuple[float, float]:
    """Of random outputs: the largest error over its bound, and over the sum of magnitudes."""
    torch.manual_seed(1)
    places = torch.stack([torch.randint(0, e, (count,), device=x.device) for e in y.shape], 1)
    exact, magnitude = sums_at(x, w, places, padding)
    index = places[:, 0]
    for axis in range(1, y.dim()):
        index = index * y.shape[axis] + places[:, axis]
    error = (y.reshape(-1)[index].double() - exact).abs()
    unit = UNIT[y.dtype]
    most = bound(y.dtype, w[0].numel()) * magnitude * (1 + unit) + unit * exact.abs()
    return float((error / most).max()), float((error / magnitude).max())


def judge(x, w, y, padding: int, what: str) -> None:
    share, worst = errors_at(x, w, y, padding)
    figure(f"{what}worst-error/magnitudes", worst)
    figure(f"{what}worst-error/bound", share)
    check(share <= 1, f"{what}an output is {share:.2f} of its bound from the exact sum")


def convolved(x, w, padding: int, repeats: int):
    """y of the last call, the seconds of the best, GiB that torch held beyond x, w and y."""
    run = conv2d if x.dim() == 4 else conv3d
    best, beyond, y = float("inf"), 0.0, None
    for _ in range(repeats):
        y = None
        torch.cuda.reset_peak_memory_stats()
        seconds, y = timed(lambda: run(x, w, padding=padding))
        tensors = sum(t.numel() * t.element_size() for t in (x, w, y))
        beyond = max(beyond, (torch.cuda.max_memory_allocated() - tensors) / 2**30)
        best = min(best, seconds)
    return y, best, beyond


def every_row(x, w, y) -> float:
    """The largest error over its bound of all outputs of a 3x3 convolution with padding 1: of
    those on either side of every tile's seam too, wherever the seams are."""
    height, width = x.shape[2:]
    weights = w.double().permute(0, 2, 3, 1).reshape(w.shape[0], -1)
    limit, unit = bound(y.dtype, weights.shape[1]), UNIT[y.dtype]
    worst = torch.zeros((), dtype=torch.float64, device=x.device)
    for row in range(height):
        above, below = int(row == 0), int(row == height - 1)
        rows = x[0, :, row - 1 + above : row + 2 - below].double()
        rows = pad(rows, (1, 1, above, below))
        columns = torch.cat([rows[:, r, s : s + width] for r in range(3) for s in range(3)])
        exact = weights @ columns
        most = limit * (weights.abs() @ columns.abs()) * (1 + unit) + unit * exact.abs()
        worst = worst.maximum(((y[0, :, row].double() - exact).abs() / most).max())
    return float(worst)


def large(with_dropin: bool) -> None:
    """[1, 64, 16384, 16384] -> 64 in core, in TF32."""
    x = torch.empty(1, 64, 16384, 16384, device="cuda").uniform_(-1, 1)
    w = torch.randn(64, 64, 3, 3, device="cuda")
    y, seconds, beyond = convolved(x, w, 1, repeats=3 if with_dropin else 1)
    figure("seconds", seconds)
    figure("GiB-beyond-x+w+y", beyond)
    if not with_dropin:
        return
    check(seconds <= 0.5, f"{seconds:.3f} s, not 0.5")
    check(beyond <= BUDGET_GIB, f"{beyond:.2f} GiB beyond x + w + y")
    judge(x, w, y, 1, "")
    share = every_row(x, w, y)
    figure("all-rows-worst-error/bound", share)
    check(share <= 1, f"an output of some row is {share:.2f} of its bound from the exact sum")


@dataclass(frozen=True)
class Row:
    """One of the convolutions for which cuDNN holds much beside the tensors."""

    shape: tuple[int, ...]
    filters: int
    padding: int
    dtype: torch.dtype


ROWS = (
    Row((1, 256, 5, 1090, 1922), 64, 0, torch.float32),
    Row((1, 64, 362, 370, 251), 32, 1, torch.float16),
    Row((1, 64, 512, 512, 384), 64, 1, torch.float16),
    Row((1, 256, 4096, 4096), 256, 1, torch.bfloat16),
    Row((1, 256, 8192, 8192), 256, 1, torch.bfloat16),
    Row((1, 2048, 1024, 1024), 2048, 1, torch.float32),
)


def rows(with_dropin: bool) -> None:
    for row in ROWS:
        name = "x".join(map(str, row.shape)) + f"-{row.filters}-{str(row.dtype)[6:]} "
        x = torch.empty(row.shape, dtype=row.dtype, device="cuda").uniform_(-1, 1)
        taps = (3,) * (x.dim() - 2)
        w = torch.randn(row.filters, row.shape[1], *taps, device="cuda").to(row.dtype)
        y, seconds, beyond = convolved(x, w, row.padding, repeats=3)
        figure(f"{name.strip()}:ms", seconds * 1e3)
        figure(f"{name.strip()}:GiB-beyond-x+w+y", beyond)
        if with_dropin:
            check(beyond <= BUDGET_GIB, f"{name}holds {beyond:.2f} GiB beyond x + w + y")
            judge(x, w, y, row.padding, f"{name.strip()}:")
        del x, w, y
        torch.cuda.empty_cache()


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest()[:16]


def layer(benchmark: bool = False) -> None:
    """A layer of VGG16 whose workspace is past the budget that the scene sets."""
    torch.backends.cudnn.benchmark = benchmark
    torch.manual_seed(0)
    x = torch.empty(64, 64, 224, 224, device="cuda").uniform_(-1, 1)
    w = torch.randn(64, 64, 3, 3, device="cuda")
    y = conv2d(x, w, padding=1)
    judge(x, w, y, 1, "")
    same("bits", digest(y[::8]))
    del y

    def many() -> torch.Tensor:
        return [conv2d(x, w, padding=1) for _ in range(MANY)][-1]

    before = taken_so_far()
    figure("ms", min(timed(many)[0] for _ in range(5)) / MANY * 1e3)
    figure("share-taken", (taken_so_far() - before) / (5 * MANY))


def legacy(_: bool) -> None:
    """A tensor of 2^32 elements through the legacy interface, where cuDNN has no descriptor for it;
    called as a C program would call it."""
    from oocdnn import cudnn

    lib, ffi, side = cudnn, cudnn.ffi, 8192
    x = torch.empty(1, 64, side, side, device="cuda").uniform_(-1, 1)
    w, y = torch.randn(64, 64, 3, 3, device="cuda"), torch.empty_like(x)

    def made(kind: str):
        place = ffi.new(f"cudnn{kind} *")
        lib.check(
            getattr(lib, f"cudnnCreate{kind.removesuffix('_t').replace('Handle', '')}")(place)
        )
        return place[0]

    def data(tensor: torch.Tensor):
        return ffi.cast("void *", tensor.data_ptr())

    nchw, float32 = lib.CUDNN_TENSOR_NCHW, lib.CUDNN_DATA_FLOAT
    handle, image, filters = (
        made("Handle_t"),
        made("TensorDescriptor_t"),
        made("FilterDescriptor_t"),
    )
    window = made("ConvolutionDescriptor_t")
    lib.check(lib.cudnnSetTensor4dDescriptor(image, nchw, float32, *x.shape))
    lib.check(lib.cudnnSetFilter4dDescriptor(filters, float32, nchw, *w.shape))
    across = lib.CUDNN_CROSS_CORRELATION
    lib.check(lib.cudnnSetConvolution2dDescriptor(window, *[1] * 6, across, float32))
    size, order = ffi.new("size_t *"), (image, filters, window, image)
    lib.check(lib.cudnnGetConvolutionForwardWorkspaceSize(handle, *order, 1, size))
    workspace = torch.empty(size[0], dtype=torch.uint8, device="cuda")
    figure("workspace-GiB", size[0] / 2**30)
    one, zero = ffi.new("float *", 1.0), ffi.new("float *", 0.0)

    def forward() -> torch.Tensor:
        lib.check(
            lib.cudnnConvolutionForward(
                handle, one, image, data(x), filters, data(w), window, 1, data(workspace),
                size[0], zero, image, data(y),
            )
        )  # fmt: skip
        return y

    figure("ms", min(timed(forward)[0] for _ in range(3)) * 1e3)
    judge(x, w, y, 1, "")


def two(_: bool) -> None:
    """Two GPUs: the thread's device changes between calls, streams of the program's own, threads
    with handles of their own."""
    if torch.cuda.device_count() < 2:
        print("skipped: one GPU")
        return
    torch.manual_seed(0)
    host = torch.empty(16, 64, 112, 112).uniform_(-1, 1), torch.randn(64, 64, 3, 3)
    there = [[t.cuda(d) for t in host] for d in (0, 1)]

    def once(device: int, what: str) -> None:
        torch.cuda.set_device(device)
        x, w = there[device]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = conv2d(x * 1, w, padding=1)
        stream.synchronize()
        share, _ = errors_at(x, w, y, 1, 2000)
        check(share <= 1, f"{what} on GPU {device}: {share:.2f} of the bound")

    for turn in range(6):
        once(turn % 2, f"call {turn} of one thread")
    for turn in range(3):
        workers = [
            threading.Thread(target=once, args=(d, f"thread {turn}"))
            for d in (0, 1, turn % 2)
        ]  # fmt: skip
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    figure("calls", 15)


if __name__ == "__main__":
    main(
        {
            "large": large,
            "rows": rows,
            "layer": lambda _: layer(),
            "layer-benchmark": lambda _: layer(benchmark=True),
            "legacy": legacy,
            "two": two,
        }
    )
