"""A convolution with its bias, relu and pool in one pass, against a call for each of them.

    python -m oocdnn.bench.gpu_fused --out result.json

VGG16's conv1_2 in pinned memory: forward without and with what backward needs, and the four calls
that a program without fused passes makes, each out of core too (bias and relu as what comes after a
convolution of every channel with 1). A floor is the least time by the wires, every byte counted
once, at the rates of the memory that the operands lie in. Elements are small integers: all ways
must give the same bits, and some images' are held to torch in core.
"""

import ctypes
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import torch

import oocdnn
from oocdnn.bench.busy import busy_text
from oocdnn.bench.gpu_floor import (
    MATHS,
    Pinned,
    as_numpy,
    bytes_of,
    compare,
    fill,
    provenance_on_gpu,
)
from oocdnn.bench.gpu_wires import Gauge, Wires

CHANNELS, SIZE = 64, 224
IMAGES_CHECKED = 8
EXACT = ("fp32", "tf32")  # in bf16 separate calls round y, and one pass does not


@dataclass
class Timed:
    """One way to call, or one call of several."""

    name: str
    bytes_in: int
    bytes_out: int
    wires: Wires
    seconds: list[float]
    stats: dict[str, Any]

    @property
    def floor(self) -> float:
        return self.wires.seconds(self.bytes_in, self.bytes_out)

    @property
    def ratio(self) -> float:
        return median(self.seconds) / self.floor


@dataclass
class Compared:
    """All ways in one kind of arithmetic."""

    math: str
    images: int
    fused: list[Timed] = field(default_factory=list)  # without and with saved bits
    separate: list[Timed] = field(default_factory=list)
    wrong: dict[str, int] = field(default_factory=dict)  # elements that differ, by what from

    @property
    def times_faster(self) -> float:
        return sum(median(one.seconds) for one in self.separate) / median(self.fused[0].seconds)


class Bench:
    """The tensors of one kind of arithmetic, and calls on them."""

    def __init__(self, context: oocdnn.Context, gauge: Gauge, math_name: str, images: int) -> None:
        self.context, self.gauge = context, gauge
        dtype, _, self.math = MATHS[math_name]
        shape = (images, CHANNELS, SIZE, SIZE)
        pinned, other, pooled = Pinned(), Pinned(), Pinned()
        self.x = pinned.tensor("x", shape, dtype)
        self.y = [pinned.tensor("y", shape, dtype), other.tensor("y", shape, dtype)]
        half = (images, CHANNELS, SIZE // 2, SIZE // 2)
        self.z = [place.tensor("x", half, dtype) for place in (pooled, other)]
        fill(self.x, 0)
        weights = pinned.tensor("w", (CHANNELS, CHANNELS, 3, 3), dtype)
        self.here = [fill(weights, 1), fill(torch.empty(CHANNELS, dtype=dtype), 2)]
        self.w = as_numpy(weights)
        self.b = as_numpy(self.here[1].cpu())
        self.ones = np.ones((CHANNELS, 1, 1, 1), self.w.dtype)

    def timed(
        self, name: str, source: torch.Tensor, out: torch.Tensor, repeats: int, **how: Any
    ) -> Timed:
        """Calls the one function that serves them all."""
        weights = how.pop("w", self.ones)
        groups = 1 if weights is self.w else CHANNELS
        values = {"x": as_numpy(source), "w": weights, "out": as_numpy(out)}
        wires = self.gauge.rates(bytes_of(source), bytes_of(out), repeats=3)
        call: Callable[..., Any] = self.context.conv_bias_act_pool
        seconds, saved = list[float](), 0
        for _ in range(repeats + 1):
            start = time.perf_counter()
            made = call(**values, groups=groups, math=self.math, **how)
            seconds.append(time.perf_counter() - start)
            saved = made[1].nbytes if isinstance(made, tuple) else 0
        small = weights.nbytes + (self.b.nbytes if how.get("b") is not None else 0)
        stats = asdict(self.context.stats)
        return Timed(name, source.nbytes + small, out.nbytes + saved, wires, seconds[1:], stats)

    def separate(self, repeats: int) -> list[Timed]:
        """Each reads what the one before it wrote."""
        first, second = self.y
        return [
            self.timed("convolution", self.x, first, repeats, w=self.w, padding=1),
            self.timed("bias", first, second, repeats, b=self.b),
            self.timed("relu", second, first, repeats, activation="relu"),
            self.timed("pool", first, self.z[1], repeats, pool=2),
        ]

    def fused(self, repeats: int) -> list[Timed]:
        how: dict[str, Any] = {
            "w": self.w,
            "b": self.b,
            "padding": 1,
            "activation": "relu",
            "pool": 2,
        }
        return [
            self.timed("forward", self.x, self.z[0], repeats, **how),
            self.timed("and saved bits", self.x, self.z[0], repeats, save_for_backward=True, **how),
        ]

    def in_core(self) -> torch.Tensor:
        """Some images by torch. Integers are exact in TF32, and its engines only add products."""
        torch.backends.cudnn.allow_tf32 = True
        some = self.x[:IMAGES_CHECKED].cuda()
        y = torch.conv2d(some, self.here[0], self.here[1], padding=1)
        return torch.max_pool2d(torch.relu(y), 2)


def run(context: oocdnn.Context, gauge: Gauge, name: str, images: int, repeats: int) -> Compared:
    bench = Bench(context, gauge, name, images)
    one = Compared(name, images)
    one.separate = bench.separate(repeats)
    one.fused = bench.fused(repeats)
    fused, apart = bench.z
    one.wrong["separate calls"] = compare(fused, apart.cuda())[0]
    one.wrong["torch"] = compare(fused[:IMAGES_CHECKED], bench.in_core())[0]
    return one


def line(one: Timed) -> str:
    stats = one.stats
    return (
        f"{one.name:15} {median(one.seconds) * 1e3:8.2f} ms {one.ratio:6.3f} x "
        f"{one.floor * 1e3:7.2f} ms, {one.bytes_in / 1e9:.3f} GB in, {one.bytes_out / 1e9:.3f} "
        f"out, {stats['tiles']:4d} tiles, busy {busy_text(stats)}, {stats['engine']}, "
        f"predicted {stats['predicted_seconds'] * 1e3:.2f}"
    )


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--budget", default="2GiB", show_default=True)
@click.option("--images", default=256, show_default=True, type=click.IntRange(min=1))
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--math", "maths", multiple=True, type=click.Choice(EXACT))
@click.option("--seconds", default=math.inf, help="Begin no kind of arithmetic after so many.")
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
def main(
    device: str,
    budget: str,
    images: int,
    repeats: int,
    maths: tuple[str, ...],
    seconds: float,
    out: Path | None,
) -> None:
    ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
    start, rows = time.perf_counter(), list[Compared]()
    about = provenance_on_gpu("oocdnn.bench.gpu_fused", repeats, device, None)
    with Gauge(torch.device(device).index or 0) as gauge, oocdnn.Context(device, budget) as context:
        for name in maths or EXACT:
            if time.perf_counter() - start > seconds:
                break
            one = run(context, gauge, name, images, repeats)
            rows.append(one)
            click.echo(
                f"{name}: {one.times_faster:.2f} times faster than four calls; differ: {one.wrong}"
            )
            for each in (*one.fused, *one.separate):
                click.echo(f"  {line(each)}")
            if out is not None:
                document = {**about, "rows": [asdict(row) for row in rows]}
                out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
