"""The convolutions of a network, with bias, relu and pools, depth first and layer by layer.

    oocdnn bench study chain --out result.json

Inference at batch 256 from pinned memory: one call of the whole chain, a fused call for each layer,
and beside them what the device takes at least: the sum of the layers' best times with every operand
on it, by torch (NCHW and channels-last, the engine that its own measurements choose) and by us, and
the bytes of what comes after each convolution at the device's bandwidth, all from the same run. A
floor by the wires counts every byte once. The relu is cut at 6, which takes no longer, and weights
are -1, 0 and 1: so elements stay small integers through all layers, and all ways must give the same
bits; some images' are held to torch in core.

The networks are those of `chain_networks`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, dtype_of
from oocdnn.bench.gpu.wires import Gauge
from oocdnn.bench.studies.chain_networks import NETWORKS, Spec, shapes
from oocdnn.bench.studies.in_core_seconds import by_whom
from oocdnn.bench.studies.study import Run, budget, device, images, maths, study
from oocdnn.bench.studies.timed import Timed, Timer, total

TOP = 6.0
IMAGES_CHECKED = 8
KINDS, DEFAULT = ("fp32", "tf32", "bf16"), ("tf32", "bf16")
COPIED = 1 << 30  # bytes of the copy that tells the device's bandwidth


@dataclass
class Layer:
    """One convolution: the shapes of its x, y and z; its parameters on the device, and as the
    caller has them."""

    spec: Spec
    x: tuple[int, ...]
    y: tuple[int, ...]
    z: tuple[int, ...]
    w: torch.Tensor
    b: torch.Tensor
    link: oocdnn.Link


@dataclass
class Compared:
    """All ways in one kind of arithmetic."""

    network: str
    math: str
    images: int
    chain: list[Timed] = field(default_factory=list)
    layers: list[Timed] = field(default_factory=list)
    in_core: list[dict[str, float]] = field(default_factory=list)  # seconds, by layer and by whom
    bandwidth: float = 0.0  # bytes per second, read and written
    epilogue_bytes: int = 0
    wrong: dict[str, int] = field(default_factory=dict)  # elements that differ, by what from

    @property
    def arithmetic(self) -> float:
        """The least that the device takes: best layers, and what comes after them."""
        best = sum(min(layer.values()) for layer in self.in_core)
        return best + self.epilogue_bytes / self.bandwidth

    def row(self) -> dict[str, Any]:
        return asdict(self) | {"arithmetic_seconds": self.arithmetic}

    def lines(self) -> list[str]:
        chain, apart = total(self.chain), total(self.layers)
        each = 1e3 / self.images
        return [
            f"{self.network} {self.math}: chain {chain * each:.4f} ms an image, "
            f"{chain / self.arithmetic:.3f} x {self.arithmetic * each:.4f} of the device; layer by "
            f"layer {apart * each:.4f}, {apart / chain:.2f} times as long; differ: {self.wrong}",
            *(f"  {one.line()}" for one in (*self.chain, *self.layers)),
        ]


class Bench:
    """The tensors of one network in one kind of arithmetic, and calls on them."""

    def __init__(self, card: Card, timer: Timer, network: str, kind: str, images: int) -> None:
        self.card, self.timer, self.kind = card, timer, kind
        self.context, self.math = timer.context, ARITHMETIC[kind].math
        self.dtype = dtype_of(kind)
        self.layers = list(self._layers(NETWORKS[network], images))
        self._rooms = Pinned()
        self.x = self._rooms.tensor("x", self.layers[0].x, self.dtype)
        card.fill(self.x, 0)
        self.z = self._rooms.tensor("z", self.layers[-1].z, self.dtype)

    def _layers(self, specs: Sequence[Spec], images: int) -> Iterator[Layer]:
        for seed, (spec, x, y, z) in enumerate(shapes(specs, images)):
            rng = torch.Generator(self.card.device).manual_seed(seed)
            how: dict[str, Any] = {"device": self.card.device, "generator": rng}
            taps = (spec.taps, spec.taps)
            w = torch.randint(-1, 2, (spec.k, x[1], *taps), **how).to(self.dtype)
            b = torch.randint(-2, 3, (spec.k,), **how).to(self.dtype)
            link = oocdnn.Link(
                as_numpy(w.cpu()), as_numpy(b.cpu()), stride=spec.stride, padding=spec.padding,
                activation=("clipped_relu", TOP), pool=spec.pool, residual=spec.residual,
            )  # fmt: skip
            yield Layer(spec, x, y, z, w, b, link)

    def chain(self) -> list[Timed]:
        links = [layer.link for layer in self.layers]
        x, z = as_numpy(self.x), as_numpy(self.z)
        sources = [x, *(array for link in links for array in (link.w, link.b))]

        def call() -> Any:
            return self.context.conv_chain(x, links, out=z, math=self.math)

        return [self.timer("chain", call, sources, [z])[0]]

    def layer_by_layer(self) -> tuple[list[Timed], torch.Tensor]:
        """Each reads what the one before it wrote, and an earlier one; the last result too."""
        calls, rooms = [], ["x"]  # in which lies what the chain reads, and what each layer wrote
        made = [self.x]
        for i, layer in enumerate(self.layers):
            sources = [one.spec.residual for one in self.layers[i:]]
            needed = [i, *(one + 1 for one in sources if one is not None and one < i)]
            held = {rooms[one] for one in needed}
            rooms.append(next(name for name in "abc" if name not in held))
            made.append(self._rooms.tensor(rooms[-1], layer.z, self.dtype))
            added = None if layer.spec.residual is None else made[layer.spec.residual + 1]
            calls.append(self._layer(f"layer {i + 1}", layer.link, made[i], added, made[-1]))
        return calls, made[-1]

    def _layer(
        self, name: str, link: oocdnn.Link, source: torch.Tensor, added: torch.Tensor | None,
        target: torch.Tensor,
    ) -> Timed:  # fmt: skip
        x, out = as_numpy(source), as_numpy(target)
        sources, residual = [x, link.w, link.b], None
        if added is not None:
            residual = as_numpy(added)
            sources.append(residual)

        def call() -> Any:
            made: Callable[..., Any] = self.context.conv_bias_act_pool
            return made(
                x, link.w, link.b, stride=link.stride, padding=link.padding, residual=residual,
                activation=link.activation, pool=link.pool, out=out, math=self.math,
            )  # fmt: skip

        return self.timer(name, call, sources, [out])[0]

    def in_core(self, layer: Layer) -> dict[str, float]:
        """The best seconds of the convolution alone with every operand on the device."""
        how = (self.kind, self.timer.repeats, layer.spec.stride)
        return by_whom(self.card, self.context, layer.x, layer.w, *how)

    def by_torch(self) -> torch.Tensor:
        """Some images. Integers are exact in TF32, and its engines only add products."""
        made = [self.x[:IMAGES_CHECKED].to(self.card.device).float()]
        for layer in self.layers:
            spec, moves = layer.spec, {"stride": layer.spec.stride, "padding": layer.spec.padding}
            y = torch.conv2d(made[-1], layer.w.float(), layer.b.float(), **moves)
            if spec.residual is not None:
                y = y + made[spec.residual + 1]
            made.append(spec.pooled(torch.clamp(y, 0, TOP)))
        return made[-1].to(self.dtype)

    def bandwidth(self) -> float:
        """Bytes per second that a copy inside the device reads and writes."""
        source = torch.zeros(COPIED, dtype=torch.uint8, device=self.card.device)
        target = torch.empty_like(source)
        return 2 * COPIED / self.card.best(lambda: target.copy_(source), self.timer.repeats)

    def epilogue_bytes(self) -> int:
        """Sums are read in float32, results written in the type of the elements, which what is
        added is read in."""
        total_bytes = 0
        for layer in self.layers:
            y, z = (torch.Size(shape).numel() for shape in (layer.y, layer.z))
            added = y if layer.spec.residual is not None else 0
            total_bytes += 4 * y + self.dtype.itemsize * (z + added)
        return total_bytes


def compared(card: Card, timer: Timer, network: str, kind: str, images: int) -> Compared:
    torch.backends.cudnn.allow_tf32 = kind != "fp32"
    torch.backends.cudnn.benchmark = True
    bench = Bench(card, timer, network, kind, images)
    one = Compared(network, kind, images)
    one.chain = bench.chain()
    one.wrong["torch"] = card.differing(bench.z[:IMAGES_CHECKED], bench.by_torch())[0]
    one.layers, last = bench.layer_by_layer()
    one.wrong["layer by layer"] = card.differing(bench.z, last)[0]
    timer.context.release()
    card.give_back()
    one.bandwidth = bench.bandwidth()
    one.epilogue_bytes = bench.epilogue_bytes()
    for layer in bench.layers:
        one.in_core.append(bench.in_core(layer))
        card.give_back()
    return one


which = click.option(
    "--network", "networks", multiple=True, default=("vgg16",), show_default=True,
    type=click.Choice(list(NETWORKS)),
)  # fmt: skip


@study("chain", device, budget("16GiB"), which, images, maths(KINDS), repeats=5, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, networks: Sequence[str], images: int,
    maths: Sequence[str], repeats: int,
) -> None:  # fmt: skip
    done = {(row["network"], row["math"], row["images"]) for row in run.rows()}
    cases = [(name, kind, images) for name in networks for kind in maths or DEFAULT]
    with Gauge(card.ordinal) as gauge, oocdnn.Context(device, budget) as context:
        timer = Timer(context, gauge, repeats, run.throttled)
        for case in run.left(cases, lambda case: case, done):
            one = compared(card, timer, *case)
            run.keep(one.row(), *one.lines())
