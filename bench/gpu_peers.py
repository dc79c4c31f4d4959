"""What else runs a convolution of arrays in host memory on a GPU: beside ours, in one run.

    python -m oocdnn.bench.gpu_peers --out result.json

- *zero copy*: cuDNN, through torch, on pinned host memory as it is; its kernels read and write over
  the wire. Where torch makes the output itself (backward), it makes it on the GPU.
- *managed*: x, w and y in managed memory, prefetched to the GPU before and to the host after the
  call. Everything together stays below a quarter of what is free on the GPU.
- *ours*: pinned memory, with a budget of 2 GiB.

Floors and elements are those of `gpu_floor`; every result is compared with torch's in core.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import click
import torch

import oocdnn
from oocdnn.bench.cpu import call_of
from oocdnn.bench.gpu_floor import (
    MATHS,
    Pinned,
    as_numpy,
    compare,
    event_seconds,
    fill,
    in_core,
    provenance_on_gpu,
)
from oocdnn.bench.gpu_memory import Driver
from oocdnn.bench.gpu_wires import Wires
from oocdnn.bench.gpu_wires import measure as measure_wires
from oocdnn.bench.layers import DIRECTIONS, GPU_LAYERS, ROLES, Direction, Layer

CASES = ("VGG16 conv1_2", "VGG16 conv3_2", "VGG16 conv4_2", "ResNet-50 1x1", "depthwise 3x3")
LEAST_SHARE = 4  # managed memory takes at most so small a part of what is free
HOST = -1  # its number among the targets of prefetches


class _Interface:
    """An address as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def at(address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that torch takes to be on the GPU, at an address that the GPU reaches."""
    size = math.prod(shape) * dtype.itemsize
    flat = torch.as_tensor(_Interface(address, size), device="cuda")
    if flat.data_ptr() != address:
        raise RuntimeError("torch copied the array")
    return flat.view(dtype).view(*shape)


class Managed:
    """Managed memory for one operand, until `close`."""

    def __init__(self, driver: Driver, shape: Sequence[int], dtype: torch.dtype) -> None:
        self._driver, self.address = driver, c_uint64()
        self.size = math.prod(shape) * dtype.itemsize
        free = torch.cuda.mem_get_info()[0]
        if self.size > free // LEAST_SHARE:
            raise MemoryError(f"{self.size} bytes of managed memory, {free} are free")
        attach_global = 1
        driver("cuMemAllocManaged", byref(self.address), c_size_t(self.size), attach_global)
        self.tensor = at(self.address.value, shape, dtype)

    def prefetch(self, device: int, stream: int) -> None:
        to, size = c_int(device), c_size_t(self.size)
        self._driver("cuMemPrefetchAsync", self.address, size, to, c_void_p(stream))

    def close(self) -> None:
        self._driver("cuMemFree_v2", self.address)


@dataclass
class Row:
    """Seconds of each way, and how many elements of its result differ; or why it did not run."""

    problem: str
    bytes_in: int
    bytes_out: int
    floors: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def clock_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median, by the clock, after a call that is not counted."""
    times: list[float] = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times[1:])


class Bench:
    def __init__(self, context: oocdnn.Context, wires: Wires, repeats: int) -> None:
        self.context, self.wires, self.repeats = context, wires, repeats
        self.pinned, self.driver = Pinned(), Driver()

    def measure(self, case: Layer, direction: Direction, name: str) -> Row:
        dtype, word, self.allowed = MATHS[name]
        torch.backends.cudnn.allow_tf32 = name == "tf32"
        self.case, self.direction, self.dtype = case, direction, dtype
        *sources, target = ROLES[direction]
        self.host = [self.pinned.tensor(operand, case.shape(operand), dtype) for operand in sources]
        self.here = [fill(tensor, seed) for seed, tensor in enumerate(self.host)]
        self.out = self.pinned.tensor(target, case.shape(target), dtype)
        self.call = in_core(case, direction)
        self.result = self.call(*self.here)
        row = Row(
            f"{case.problem(direction)} {word}",
            sum(tensor.nbytes for tensor in self.host),
            self.out.nbytes,
        )
        row.floors = {
            **self.wires.floors(row.bytes_in, row.bytes_out),
            "in core": event_seconds(lambda: self.call(*self.here), self.repeats),
        }
        self._run(row, "ours", self.ours)
        self._run(row, "zero copy", self.zero_copy)
        self._run(row, "managed", self.managed)
        self.here, self.result = [], torch.empty(0)
        torch.cuda.empty_cache()
        return row

    def _run(self, row: Row, way: str, run: Callable[[], tuple[float, torch.Tensor]]) -> None:
        try:
            row.seconds[way], result = run()
            row.wrong[way] = compare(result, self.result)[0]
        except (RuntimeError, ValueError, TypeError, MemoryError) as error:
            row.failed[way] = str(error).splitlines()[0]

    def ours(self) -> tuple[float, torch.Tensor]:
        self.out.zero_()
        inputs, out = (as_numpy(self.host[0]), as_numpy(self.host[1])), as_numpy(self.out)
        call = call_of(self.context, self.case, self.direction, inputs, out, math=self.allowed)
        return clock_seconds(call, self.repeats), self.out

    def zero_copy(self) -> tuple[float, torch.Tensor]:
        self.out.zero_()
        inputs = [at(tensor.data_ptr(), tensor.shape, self.dtype) for tensor in self.host]
        out = at(self.out.data_ptr(), self.out.shape, self.dtype)
        return clock_seconds(lambda: self._into(out, inputs), self.repeats), self.out

    def _into(self, out: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
        """cuDNN writes to `out` itself where torch has a function for that: forward."""
        case, (first, second) = self.case, inputs
        if self.direction != "fwd":
            out.copy_(self.call(first, second))
            return
        torch.ops.aten.cudnn_convolution.out(
            first, second, case.padding, case.stride, case.dilation, case.groups, False, False,
            torch.backends.cudnn.allow_tf32, out=out,
        )  # fmt: skip

    def managed(self) -> tuple[float, torch.Tensor]:
        operands = [*self.host, self.out]
        blocks: list[Managed] = []
        try:
            blocks += [Managed(self.driver, each.shape, self.dtype) for each in operands]
            for block, tensor in zip(blocks, self.host, strict=False):
                block.tensor.copy_(tensor)
            stream = torch.cuda.current_stream().cuda_stream

            def call() -> None:
                for block in blocks:
                    block.prefetch(0, stream)
                self._into(blocks[-1].tensor, [block.tensor for block in blocks[:-1]])
                for block in blocks:
                    block.prefetch(HOST, stream)

            return clock_seconds(call, self.repeats), blocks[-1].tensor.clone()
        finally:
            torch.cuda.synchronize()
            for block in blocks:
                block.close()


def line(row: Row) -> str:
    limit, floor = max(row.floors.items(), key=lambda item: item[1])
    ways = [
        f"{way} {seconds * 1e3:8.2f} ms {seconds / floor:6.2f} x"
        f"{f' ({row.wrong[way]} DIFFER)' if row.wrong[way] else ''}"
        for way, seconds in row.seconds.items()
    ]
    ways += [f"{way}: {reason}" for way, reason in row.failed.items()]
    return f"{row.problem}: floor {floor * 1e3:.2f} ms ({limit}); " + "; ".join(ways)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--budget", default="2GiB", show_default=True)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--direction", "directions", multiple=True, type=click.Choice(DIRECTIONS))
@click.option("--math", "maths", multiple=True, type=click.Choice(list(MATHS)))
@click.option("--seconds", default=math.inf, help="Begin no case after so many seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def main(
    budget: str,
    repeats: int,
    directions: tuple[Direction, ...],
    maths: tuple[str, ...],
    seconds: float,
    out: Path | None,
) -> None:
    start = time.perf_counter()
    wires, rows = measure_wires(0), list[Row]()
    click.echo(f"GB/s in {wires.inward:.1f}, out {wires.outward:.1f}, both {wires.both:.1f}")
    about = provenance_on_gpu("oocdnn.bench.gpu_peers", repeats, "cuda:0", wires)
    with oocdnn.Context("cuda:0", budget) as context:
        bench = Bench(context, wires, repeats)
        for case in (case for case in GPU_LAYERS if case.name in CASES):
            for direction in directions or ("fwd",):
                for name in maths or ("tf32",):
                    if time.perf_counter() - start > seconds:
                        return
                    rows.append(bench.measure(case, direction, name))
                    click.echo(line(rows[-1]))
                    if out is not None:
                        document = {**about, "rows": [asdict(row) for row in rows]}
                        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
