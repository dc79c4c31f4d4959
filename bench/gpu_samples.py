"""Single samples that do not fit: one call of a chain over each, beside its floor.

    python -m oocdnn.bench.gpu_samples --out result.json

A slide of 3 x 16384 x 16384 through five layers of 32 channels, and a volume of 32 x 512^3 through
the two convolutions of a U-Net's level, from pinned memory and back. The floor is the longer of
what the wires take, every byte counted once, and what the device takes for the layers' products at
the best rate of the run: by torch (NCHW and channels-last) and by us, on an eighth of the rows.
Each layer has a bias and a relu cut at 6; weights are -1, 0 and 1, most of them 0, so that every
sum is exact, and windows of the result, at all corners and in between, are held to torch.
"""

import ctypes
import math
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

import click
import torch

import oocdnn
from oocdnn.bench.gpu_chain import seconds_of
from oocdnn.bench.gpu_floor import MATHS, Pinned, as_numpy, compare, fill, provenance_on_gpu
from oocdnn.bench.gpu_wires import Gauge
from oocdnn.bench.journal import Journal
from oocdnn.bench.timed import Timed, timed
from oocdnn.bench.windows import Layer, expected, windows

TOP, SOME = 6.0, 0.125  # the relu's end; of the weights that are not 0
PARTS = 8  # of the rows, on one of which layers are timed in core
WINDOW, BETWEEN = {2: 256, 3: 48}, 12


@dataclass(frozen=True)
class Sample:
    """`channels`: of x, and of each layer's result."""

    rank: int
    channels: tuple[int, ...]
    extent: int
    maths: tuple[str, ...]

    def shape(self, channels: int, parts: int = 1) -> tuple[int, ...]:
        return (1, channels, self.extent // parts, *(self.extent for _ in range(self.rank - 1)))


SAMPLES = {
    "slide": Sample(2, (3, 32, 32, 32, 32, 32), 16384, ("fp32", "tf32")),
    "volume": Sample(3, (32, 32, 32), 512, ("bf16",)),
}


@dataclass
class Measured:
    sample: str
    math: str
    chain: Timed
    wrong: int  # elements of all windows
    looked_at: int
    in_core: list[dict[str, float]] = field(default_factory=list)  # seconds, by layer and by whom

    @property
    def floors(self) -> dict[str, float]:
        return {
            **self.chain.wires.floors(self.chain.bytes_in, self.chain.bytes_out),
            "arithmetic": sum(min(layer.values()) for layer in self.in_core),
        }

    @property
    def ratio(self) -> float:
        return median(self.chain.seconds) / max(self.floors.values())

    def lines(self) -> list[str]:
        peak = self.chain.stats["peak_device_bytes"] / 2**30
        floors = ", ".join(f"{name} {1e3 * value:.1f}" for name, value in self.floors.items())
        return [
            f"{self.sample} {self.math}: {self.ratio:.3f} of the floor (ms: {floors}); "
            f"{self.wrong} of {self.looked_at} elements differ; {peak:.2f} GiB on the device",
            f"  {self.chain.line()}",
        ]


def layers_of(sample: Sample, dtype: torch.dtype) -> list[Layer]:
    made = []
    for seed, (c, k) in enumerate(pairwise(sample.channels)):
        rng = torch.Generator("cuda").manual_seed(seed)
        shape = (k, c) + (3,) * sample.rank
        signs = torch.randint(0, 2, shape, device="cuda", generator=rng) * 2 - 1
        kept = torch.rand(shape, device="cuda", generator=rng) < SOME
        b = torch.randint(-1, 3, (k,), device="cuda", generator=rng)
        made.append(Layer((signs * kept).to(dtype), b.to(dtype), TOP))
    return made


def in_core(
    context: oocdnn.Context, sample: Sample, layer: Layer, math_name: str, repeats: int
) -> dict[str, float]:
    """The best seconds of a layer's convolution alone, with every operand on the device."""
    dtype = MATHS[math_name][0]
    mode: Literal["fp32", "tf32"] = "tf32" if math_name == "tf32" else "fp32"
    shape = sample.shape(layer.w.shape[1], PARTS)
    x = torch.randint(0, 7, shape, device="cuda", dtype=torch.int8).to(dtype)
    last = torch.channels_last if sample.rank == 2 else torch.channels_last_3d
    seconds = {}
    for name, order in (("", torch.contiguous_format), (" channels last", last)):
        given = x.to(memory_format=order), layer.w.to(memory_format=order)
        by_torch = torch.conv2d if sample.rank == 2 else torch.conv3d
        ours = context.conv2d if sample.rank == 2 else context.conv3d
        ways = {
            f"torch{name}": partial(by_torch, *given, padding=1),
            f"own{name}": partial(ours, *given, padding=1, math=mode),
        }
        for who, call in ways.items():
            seconds[who] = PARTS * seconds_of(call, repeats)
            torch.cuda.empty_cache()
    return seconds


def run(
    context: oocdnn.Context, gauge: Gauge, room: Pinned, name: str, math_name: str, repeats: int
) -> Measured:
    torch.backends.cudnn.allow_tf32 = math_name != "fp32"
    torch.backends.cudnn.benchmark = True
    sample, dtype = SAMPLES[name], MATHS[math_name][0]
    mode: Literal["fp32", "tf32"] = "tf32" if math_name == "tf32" else "fp32"
    layers = layers_of(sample, dtype)
    x = room.tensor("x", sample.shape(sample.channels[0]), dtype)
    z = room.tensor("y", sample.shape(sample.channels[-1]), dtype)
    fill(x, 0)
    torch.cuda.empty_cache()
    links = [
        oocdnn.Link(
            as_numpy(layer.w.cpu()), as_numpy(layer.b.cpu()), padding=1,
            activation=("clipped_relu", TOP),
        )
        for layer in layers
    ]  # fmt: skip
    given, out = as_numpy(x), as_numpy(z)

    def call() -> Any:
        return context.conv_chain(given, links, out=out, math=mode)

    sources = [given, *(array for link in links for array in (link.w, link.b))]
    chain, _ = timed(context, gauge, "chain", call, sources, [out], repeats)
    context.release()
    torch.cuda.empty_cache()
    alone = [in_core(context, sample, layer, math_name, repeats) for layer in layers]
    return Measured(name, math_name, chain, *check(x, z, layers), alone)


def check(x: torch.Tensor, z: torch.Tensor, layers: list[Layer]) -> tuple[int, int]:
    """Elements of the windows that differ, and how many there are. TF32 is exact here."""
    wrong = looked_at = 0
    torch.backends.cudnn.allow_tf32 = True
    for window in windows(z.shape[2:], WINDOW[z.dim() - 2], BETWEEN):
        ours = z[(..., *window)].contiguous()
        wrong += compare(ours, expected(x, layers, window).contiguous())[0]
        looked_at += ours.numel()
    return wrong, looked_at


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="4GiB", show_default=True)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, type=click.Choice(list(SAMPLES)))
@click.option("--seconds", default=math.inf, help="Begin no sample after so many.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
@click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
def main(
    device: str, budget: str, repeats: int, only: tuple[str, ...], seconds: float,
    out: Path | None, resume: bool,
) -> None:  # fmt: skip
    ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
    start = time.perf_counter()
    journal = Journal(
        out, provenance_on_gpu("oocdnn.bench.gpu_samples", repeats, device, None), resume
    )
    done = {(row["sample"], row["math"]) for row in journal.rows("rows")}
    room = Pinned()
    with Gauge(torch.device(device).index or 0) as gauge, oocdnn.Context(device, budget) as context:
        for name in only or tuple(SAMPLES):
            for math_name in SAMPLES[name].maths:
                if (name, math_name) in done or time.perf_counter() - start > seconds:
                    continue
                one = run(context, gauge, room, name, math_name, repeats)
                journal.add("rows", asdict(one) | {"floors": one.floors, "ratio": one.ratio})
                click.echo("\n".join(one.lines()))


if __name__ == "__main__":
    main()
