"""Single samples that do not fit: one call of a chain over each, beside its floor.

    oocdnn bench study samples --out result.json

A slide of 3 x 16384 x 16384 through five layers of 32 channels, and a volume of 32 x 512^3 through
the two convolutions of a U-Net's level, from pinned memory and back. The floor is the longer of
what the wires take, every byte counted once, and what the device takes for the layers' products at
the best rate of the run: by torch (NCHW and channels-last) and by us, on an eighth of the rows.
Each layer has a bias and a relu cut at 6; weights are -1, 0 and 1, most of them 0, so that every
sum is exact, and windows of the result, at all corners and in between, are held to torch.
"""

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import click
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, dtype_of
from oocdnn.bench.gpu.wires import Gauge
from oocdnn.bench.studies.in_core_seconds import by_whom
from oocdnn.bench.studies.study import Run, budget, device, study
from oocdnn.bench.studies.timed import Timed, Timer
from oocdnn.bench.truth.windows import Layer, expected, windows

TOP, SOME = 6.0, 0.125  # upper bound of the relu; share of the weights that are not 0
PARTS = 8  # of the rows; layers are timed in core on one of them
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


def layers_of(card: Card, sample: Sample, dtype: torch.dtype) -> list[Layer]:
    made = []
    for seed, (c, k) in enumerate(pairwise(sample.channels)):
        rng = torch.Generator(card.device).manual_seed(seed)
        how: dict[str, Any] = {"device": card.device, "generator": rng}
        shape = (k, c) + (3,) * sample.rank
        signs = torch.randint(0, 2, shape, **how) * 2 - 1
        kept = torch.rand(shape, **how) < SOME
        b = torch.randint(-1, 3, (k,), **how)
        made.append(Layer((signs * kept).to(dtype), b.to(dtype), TOP))
    return made


def measure(card: Card, timer: Timer, room: Pinned, name: str, kind: str) -> Measured:
    torch.backends.cudnn.allow_tf32 = kind != "fp32"
    torch.backends.cudnn.benchmark = True
    sample, dtype, context = SAMPLES[name], dtype_of(kind), timer.context
    layers = layers_of(card, sample, dtype)
    x = room.tensor("x", sample.shape(sample.channels[0]), dtype)
    z = room.tensor("y", sample.shape(sample.channels[-1]), dtype)
    card.fill(x, 0)
    card.give_back()
    links = [
        oocdnn.Link(
            as_numpy(layer.w.cpu()), as_numpy(layer.b.cpu()), padding=1,
            activation=("clipped_relu", TOP),
        )
        for layer in layers
    ]  # fmt: skip
    given, out = as_numpy(x), as_numpy(z)

    def call() -> Any:
        return context.conv_chain(given, links, out=out, math=ARITHMETIC[kind].math)

    sources = [given, *(array for link in links for array in (link.w, link.b))]
    chain, _ = timer("chain", call, sources, [out])
    context.release()
    card.give_back()
    alone = [in_core(card, context, sample, layer, kind, timer.repeats) for layer in layers]
    return Measured(name, kind, chain, *check(card, x, z, layers), alone)


def in_core(
    card: Card, context: oocdnn.Context, sample: Sample, layer: Layer, kind: str, repeats: int
) -> dict[str, float]:
    """The best seconds of a layer's convolution alone, as many times those of a part."""
    shape = sample.shape(layer.w.shape[1], PARTS)
    found = by_whom(card, context, shape, layer.w, kind, repeats)
    return {who: PARTS * seconds for who, seconds in found.items()}


def check(card: Card, x: torch.Tensor, z: torch.Tensor, layers: list[Layer]) -> tuple[int, int]:
    """Elements of the windows that differ, and how many there are. TF32 is exact here."""
    wrong = looked_at = 0
    torch.backends.cudnn.allow_tf32 = True
    for window in windows(z.shape[2:], WINDOW[z.dim() - 2], BETWEEN):
        ours = z[(..., *window)].contiguous()
        wrong += card.differing(ours, expected(x, layers, window).contiguous())[0]
        looked_at += ours.numel()
    return wrong, looked_at


which = click.option("--only", multiple=True, type=click.Choice(list(SAMPLES)))


@study("samples", device, budget("4GiB"), which, repeats=3, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, only: tuple[str, ...], repeats: int
) -> None:
    done = {(row["sample"], row["math"]) for row in run.rows()}
    cases = [(name, kind) for name in only or SAMPLES for kind in SAMPLES[name].maths]
    room = Pinned()
    with Gauge(card.ordinal) as gauge, oocdnn.Context(device, budget) as context:
        timer = Timer(context, gauge, repeats, run.throttled)
        for name, kind in run.left(cases, lambda case: case, done):
            one = measure(card, timer, room, name, kind)
            row = asdict(one) | {"floors": one.floors, "ratio": one.ratio}
            run.keep(row, *one.lines())
