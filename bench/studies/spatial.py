"""Convolutions and training steps of tensors that are split over GPUs, beside one GPU.

    oocdnn bench study spatial --processes 2 --out result.json

Layers are convolutions of 64 channels of one volume, forward and backward; the training step is
that of the benchmark's 3-D U-Net on one volume. The peer is the convolution of PyTorch's DTensor,
which splits the last axis only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any

import click

from oocdnn.bench.studies.study import Run, study

CHANNELS = 64
STEPS = 20  # of training, whose losses are compared
WARMUP = 3


@dataclass(frozen=True)
class Options:
    processes: int
    size: int
    backend: str
    dtype: str
    repeats: int
    model: str


@dataclass
class Row:
    """Medians in seconds of the slowest process; peaks are bytes of PyTorch's allocator.

    whole: One GPU and plain PyTorch; None where its memory does not suffice. one_seconds: One GPU
    with the code of split tensors. differences: The largest between split and whole results and
    gradients of the input and of the filter, over the largest element of each. losses: Of the
    first steps of training, with whole and with split tensors. peer_seconds: Of DTensor's
    convolution, where it runs. peer_text: What it raised, or what of its results is missing.
    """

    case: str
    processes: int
    split_seconds: float
    split_peak_bytes: int
    whole_seconds: float | None
    whole_peak_bytes: int | None
    differences: list[float] | None = None
    one_seconds: float | None = None
    losses: tuple[list[float], list[float]] | None = None
    peer_seconds: float | None = None
    peer_text: str = ""

    def line(self) -> str:
        one = "does not fit one GPU"
        if self.whole_seconds is not None and self.whole_peak_bytes is not None:
            one = (
                f"one GPU {self.whole_seconds * 1e3:.2f} ms, {self.whole_peak_bytes / 2**30:.2f} "
                f"GiB, {self.whole_seconds / self.split_seconds:.3f} times as long"
            )
        if self.one_seconds:
            one += f"; split over one GPU {self.one_seconds * 1e3:.2f} ms"
        peer = f"; DTensor {self.peer_seconds * 1e3:.2f} ms" if self.peer_seconds else ""
        return (
            f"{self.case}: {self.processes} GPUs {self.split_seconds * 1e3:.2f} ms, "
            f"{self.split_peak_bytes / 2**30:.2f} GiB each; {one}{peer} {self.peer_text}".rstrip()
        )


class Worker:
    """One process of the group."""

    def __init__(self, rank: int, options: Options) -> None:
        import torch

        self.rank, self.options = rank, options
        self.cuda = options.backend == "nccl"
        self.device = torch.device(f"cuda:{rank}" if self.cuda else "cpu")
        self.dtype = getattr(torch, options.dtype)

    def barrier(self) -> None:
        import torch

        if self.cuda:
            torch.cuda.synchronize()
        torch.distributed.barrier()

    def seconds(self, call: Callable[[], object], alone: bool = False) -> float:
        """The median of the repeats, of the slowest process; `alone`: only the first computes."""
        import torch

        found = []
        for repeat in range(WARMUP + self.options.repeats):
            self.barrier()
            began = time.perf_counter()
            if not alone or self.rank == 0:
                call()
            if self.cuda:
                torch.cuda.synchronize()
            taken = torch.tensor([time.perf_counter() - began], device=self.device)
            torch.distributed.all_reduce(taken, torch.distributed.ReduceOp.MAX)
            found += [float(taken)] if repeat >= WARMUP else []
        return statistics.median(found)

    def peak(self) -> int:
        import torch

        if not self.cuda:
            return 0
        found = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return int(found)

    def alone(self, call: Callable[[], object]) -> tuple[float | None, int | None]:
        """Seconds and peak of the first process alone; None where its memory does not suffice."""
        import torch

        fits = torch.ones((), device=self.device)
        self.peak()
        try:
            if self.rank == 0:
                call()
        except torch.OutOfMemoryError:
            fits.zero_()
        torch.distributed.broadcast(fits, 0)
        if not fits:
            self.peak()
            return None, None
        seconds = self.seconds(call, alone=True)
        return seconds, self.peak()


def _difference(found: Any, expected: Any) -> float:
    """The largest of this process's elements, over the largest that is expected."""
    if not found.numel():
        return 0.0
    return float((found.float() - expected).abs().max() / expected.abs().max())


def _versions() -> dict[str, str]:
    import torch

    cudnn = str(torch.backends.cudnn.version())
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {"torch": torch.__version__, "cudnn": cudnn, "gpu": gpu}


def _convolution(worker: Worker, stride: int, channels_last: bool) -> Row:
    import torch
    from torch.nn import functional as F

    from oocdnn.torch import spatial

    size, device = worker.options.size, worker.device
    order = torch.channels_last_3d if channels_last else torch.contiguous_format
    torch.manual_seed(0)

    def drawn(*shape: int) -> Any:
        """Small integers, so that sums in any order are equal."""
        found = torch.randint(-1, 2, shape, device=device, dtype=torch.int8)
        return found.to(worker.dtype).to(memory_format=order)

    out = (size - 1) // stride + 1
    w = drawn(CHANNELS, CHANNELS, 3, 3, 3).requires_grad_()

    def step(x: Any, dy: Any) -> Any:
        y = F.conv3d(x, w, stride=stride, padding=1)
        return y, *torch.autograd.grad(y, (x, w), dy)

    def of_whole() -> tuple[float | None, int | None, list[Any], list[Any] | None]:
        """Seconds and peak, own rows of the operands, and those of the results."""
        x = drawn(1, CHANNELS, size, size, size).requires_grad_()
        dy = drawn(1, CHANNELS, out, out, out)
        seconds, peak = worker.alone(lambda: step(x, dy))
        own = [spatial.scatter(value.detach(), 2).to_local() for value in (x, dy)]
        if seconds is None:
            return seconds, peak, own, None
        *split, dw = step(x, dy)
        return seconds, peak, own, [
            *(spatial.scatter(value.detach(), 2).to_local() for value in split), dw,
        ]  # fmt: skip

    whole_seconds, whole_peak, own, expected = of_whole()
    x = spatial.from_local(own[0].requires_grad_(), 2)
    dy = spatial.from_local(own[1], 2)
    differences = None
    if expected is not None:
        y, dx, dw = step(x, dy)
        pairs = zip((y.to_local(), dx.to_local(), dw), expected, strict=True)
        differences = [_difference(a.detach(), b) for a, b in pairs]
        del y, dx, dw, expected
    worker.peak()
    split_seconds = worker.seconds(lambda: step(x, dy))
    name = f"{CHANNELS} channels{', channels last' * channels_last}"
    return Row(
        case=f"conv3d 3x3x3, {name}, {size}^3, stride {stride}, {worker.options.dtype}",
        processes=worker.options.processes,
        split_seconds=split_seconds,
        split_peak_bytes=worker.peak(),
        whole_seconds=whole_seconds,
        whole_peak_bytes=whole_peak,
        differences=differences,
    )


def _training(worker: Worker) -> Row:
    import torch
    from torch.nn import functional as F

    from oocdnn.bench.training.models import MODELS
    from oocdnn.torch import spatial

    options = worker.options
    model = MODELS[options.model]
    generator = torch.Generator(worker.device).manual_seed(0)
    x, target = model.batch(1, options.size, generator)
    first = torch.distributed.new_group([0])

    def training(group: Any) -> tuple[Callable[[], None], list[float]]:
        """A step, and the losses of the first ones; `group` is None where nothing is split."""
        torch.manual_seed(0)
        net = model.make().to(worker.device)
        optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        inputs = x if group is None else spatial.scatter(x, 2, group)
        classes = target if group is None else spatial.scatter(target, 1, group)
        losses: list[float] = []

        def step() -> None:
            with torch.autocast(worker.device.type, worker.dtype):
                loss = F.cross_entropy(net(inputs), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if len(losses) < STEPS:
                losses.append(float(loss.detach()))

        return step, losses

    def alone(group: Any) -> tuple[float | None, int | None, list[float]]:
        step, losses = training(group) if worker.rank == 0 else (lambda: None, [])
        seconds, peak = worker.alone(step)
        while worker.rank == 0 and seconds is not None and len(losses) < STEPS:
            step()
        return seconds, peak, losses

    whole_seconds, whole_peak, losses = alone(None)
    one_seconds, _, _ = alone(first)
    step, split_losses = training(torch.distributed.group.WORLD)
    worker.peak()
    split_seconds = worker.seconds(step)
    while len(split_losses) < STEPS:
        step()
    return Row(
        case=f"{options.model} training step, {options.size}^3, {options.dtype}",
        processes=options.processes,
        split_seconds=split_seconds,
        split_peak_bytes=worker.peak(),
        whole_seconds=whole_seconds,
        whole_peak_bytes=whole_peak,
        one_seconds=one_seconds,
        losses=(losses, split_losses),
    )


def _dtensor(worker: Worker, row: Row) -> None:
    """The convolution of PyTorch's DTensor, split along the last axis."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.nn import functional as F

    size, device, dtype = worker.options.size, worker.device, worker.dtype
    try:
        mesh = init_device_mesh(device.type, (worker.options.processes,))
        shape = (1, CHANNELS, size, size, size)
        x = distribute_tensor(torch.ones(shape, device=device, dtype=dtype), mesh, [Shard(4)])
        w = torch.ones((CHANNELS, CHANNELS, 3, 3, 3), device=device, dtype=dtype)
        filters = distribute_tensor(w, mesh, [Replicate()]).requires_grad_()
        x.requires_grad_()

        def step() -> Any:
            y = F.conv3d(x, filters, padding=1)
            return torch.autograd.grad(y, (x, filters), torch.ones_like(y), allow_unused=True)

        found = step()
        if found[0] is None:
            row.peer_text = "(without a gradient of the input)"
        row.peer_seconds = worker.seconds(step)
    except Exception as error:
        row.peer_text = f"(DTensor: {type(error).__name__}: {str(error)[:200]})"


def _work(rank: int, options: Options, store: str, queue: Any) -> None:
    import torch

    if options.backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        options.backend, init_method=f"file://{store}", rank=rank, world_size=options.processes
    )
    if options.backend == "nccl":
        torch.backends.cudnn.benchmark = True
    worker = Worker(rank, options)
    cases: tuple[Callable[[Worker], Row], ...] = (
        lambda worker: _convolution(worker, 1, channels_last=False),
        lambda worker: _convolution(worker, 1, channels_last=True),
        lambda worker: _convolution(worker, 2, channels_last=False),
        _training,
    )
    for number, case in enumerate(cases):
        row = case(worker)
        if number == 0:
            _dtensor(worker, row)
        if rank == 0:
            queue.put((asdict(row), row.line()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@study(
    "spatial",
    click.option("--processes", default=2, show_default=True, type=click.IntRange(min=1)),
    click.option("--size", default=256, show_default=True, help="Of the volumes.", type=int),
    click.option("--model", default="unet3d", show_default=True, help="Of the training benchmark."),
    click.option("--dtype", default="bfloat16", show_default=True),
    click.option(
        "--backend", default="nccl", show_default=True, type=click.Choice(["nccl", "gloo"])
    ),
    repeats=5,
    versions=_versions,
)
def command(run: Run, repeats: int, **given: Any) -> None:
    from torch import multiprocessing

    options = Options(repeats=repeats, **given)
    queue = multiprocessing.get_context("spawn").Queue()
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        workers = multiprocessing.start_processes(
            _work, (options, store, queue), options.processes, join=False, start_method="spawn"
        )
        ended = False
        while not ended:
            ended = workers.join(timeout=0.1)  # raises the error of a process
            with suppress(Empty):
                while True:
                    run.keep(*queue.get(timeout=0.1))
