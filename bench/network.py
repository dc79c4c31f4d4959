"""VGG16's convolutions forward and backward, every layer's gradients of its filters and biases.

Problem strings of the whole network are of its own notation: `vgg16:train x64x3x224x224 f32/tf32`.
Each layer is a `ConvBiasActPool` of `oocdnn.nn`, all of them a `Chain` of it; images and gradients
are in host memory, and the device holds no more than the budget. What is between layers is
computed again where backward needs it, or is kept in host memory too: layer by layer. The
classifier is left out: dz of the last layer is given.

So that results can be held to true sums, filters have one tap that is not 0: elements stay small
integers through all layers, in both directions. An image of the batch is one of few, in an order
drawn by lot, so that the true sums of a batch of any size are quickly made.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn import nn
from oocdnn._arrays.mapped import Array
from oocdnn._calls.operation import MathName
from oocdnn._shown import bytes_text
from oocdnn.bench.task import alike, apart, placed, worst
from oocdnn.bench.truth.passes import Pass
from oocdnn.cli.common import free_host_bytes
from oocdnn.cli.problems import Problem, parse
from oocdnn.context import Stats
from oocdnn.errors import InvalidProblem
from oocdnn.nn.chain import Recompute
from oocdnn.plans import Plan

SIZE, BATCHES = 224, (64, 128, 256, 512, 1024)
QUICK_SIZE, QUICK_BATCHES = 64, (1, 2, 4)
# The channels of each layer's result, and whether it is pooled.
VGG16 = (
    (64, False), (64, True),
    (128, False), (128, True),
    (256, False), (256, False), (256, True),
    (512, False), (512, False), (512, True),
    (512, False), (512, False), (512, True),
)  # fmt: skip
DIVISOR = 32  # of heights and widths: five pools halve them
TEXT = re.compile(r"vgg16:train x(\d+)x3x(\d+)x\2 (f32(?:/tf32|/fp32x3)?)")
DIFFERENT = 3  # images
EXACT = 2**24  # sums up to here are exact in float32
REROUTED = 8.0  # times as large as the true gradients, or as small, are those of others in pools
ROOM = 2.0  # of the bytes that a step keeps: what backward makes beside them
LARGEST = 2  # of the elements of x and dz


@dataclass(frozen=True)
class Layer:
    """A convolution with what comes after it; c, k and size of x; padding keeps the size."""

    c: int
    k: int
    size: int
    pooled: bool

    @property
    def z_size(self) -> int:
        return self.size // 2 if self.pooled else self.size

    def problems(self, batch: int, words: str) -> tuple[str, str]:
        """Forward, and all gradients that are needed; of the first layer none of x."""
        shapes = f"x{batch}x{self.c}x{self.size}x{self.size} w{self.k}x{self.c}x3x3 pad1 {words}"
        pool = " +maxpool2" if self.pooled else ""
        backward = ("bwd_filter", "+db") if self.c == 3 else ("bwd_data", "+dw +db")
        return (
            f"conv2d:fwd {shapes} +bias +relu{pool} +saved",
            f"conv2d:{backward[0]} {shapes}{pool} +clipped {backward[1]}",
        )


def layers(size: int) -> Iterator[Layer]:
    for (c, before), (k, pooled) in pairwise(((3, False), *VGG16)):
        size = size // 2 if before else size
        yield Layer(c, k, size, pooled)


class Parameters:
    """Filters and biases of each layer, float32, and images of which batches are made."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(7)
        self.w, self.b = list[Array](), list[Array]()
        for layer in layers(size):
            w = np.zeros((layer.k, layer.c, 9), np.float32)
            # Every channel is read, so that gradients reach all of them.
            channel = random.permutation(layer.k) % layer.c
            tap = random.integers(0, 9, layer.k)
            w[np.arange(layer.k), channel, tap] = random.choice((1, 1, 1, -1), layer.k)
            self.w.append(w.reshape(layer.k, layer.c, 3, 3))
            self.b.append(random.integers(0, 2, layer.k).astype(np.float32))
        self.x = self._integers(random, (DIFFERENT, 3, size, size))
        self.dz = self._integers(random, (DIFFERENT, layer.k, layer.z_size, layer.z_size))

    @staticmethod
    def _integers(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        made: Array = random.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(np.float32)
        return made


class Network:
    """A batch through VGG16 and back. `words` are "f32" or "f32/tf32"; `size` a multiple of 32.

    Raises InvalidProblem for others."""

    def __init__(self, batch: int, size: int, words: str) -> None:
        self.batch, self.size, self.words = batch, size, words
        self.text = f"vgg16:train x{batch}x3x{size}x{size} {words}"
        if TEXT.fullmatch(self.text) is None or size % DIVISOR or batch < 1:
            raise InvalidProblem(
                f"{self.text!r} is no network; write vgg16:train x8x3x224x224 f32, "
                "f32/tf32 or f32/fp32x3, with a height and width that 32 divides"
            )
        self.layers = tuple(layers(size))

    @property
    def math(self) -> MathName:
        named = self.words.partition("/")[2] or "fp32"
        return cast(MathName, named)

    @property
    def flops(self) -> int:
        """Forward, dw of every layer and dx of all but the first; padding counts as data."""
        once = [18 * self.batch * one.c * one.k * one.size**2 for one in self.layers]
        return 3 * sum(once) - once[0]

    @property
    def data_bytes(self) -> int:
        """Of what every layer reads, and of the last one's z: what a step keeps; filters apart."""
        kept = sum(one.c * one.size**2 for one in self.layers)
        return 4 * self.batch * (kept + self.layers[-1].k * self.layers[-1].z_size ** 2)

    def objection(self) -> str | None:
        """Of recomputing; see `needs`."""
        return needs(int(ROOM * self.image_bytes))

    @property
    def image_bytes(self) -> int:
        """Of x and z, and as much of their gradients."""
        first, last = self.layers[0], self.layers[-1]
        both = first.c * first.size**2 + last.k * last.z_size**2
        return 2 * 4 * self.batch * both

    def floor_seconds(self, context: oocdnn.Context, pinned: bool) -> float:
        """The arithmetic of all layers: what they make of the images need not cross any wire, and
        the images take a small part of it."""
        return sum(plan.floor_compute_seconds for plan in self._plans(context, pinned))

    def layers_floor_seconds(self, context: oocdnn.Context, pinned: bool) -> float:
        """Of all layers, one after the other, with their arrays in host memory in between."""
        return sum(plan.floor_seconds for plan in self._plans(context, pinned))

    def _plans(self, context: oocdnn.Context, pinned: bool) -> list[Plan]:
        """Some plan of every call, whose floors are those of all: no search."""
        texts = [text for one in self.layers for text in one.problems(self.batch, self.words)]
        return [context.price(placed(text, pinned), "n1") for text in texts]

    def task(self, context: oocdnn.Context, pinned: bool) -> "Training":
        return Training(self, pinned)


def needs(host_bytes: int) -> str | None:
    """The objection to a way that takes so much host memory; None where it is free."""
    free = free_host_bytes()
    if host_bytes <= free:
        return None
    return f"needs {bytes_text(host_bytes)} of host memory, {bytes_text(free)} are free"


Results = Mapping[str, Array]


class Training:
    """The arrays of a batch. `results` are z, and gradients by the names of their parameters; a
    call leaves there what it made."""

    def __init__(self, network: Network, pinned: bool) -> None:
        self.network, self.pinned = network, pinned
        self.parameters = Parameters(network.size)
        self._which = np.random.default_rng(11).integers(0, DIFFERENT, network.batch)
        self.x, self.dz = (self._batch(one) for one in (self.parameters.x, self.parameters.dz))
        self.results: Results = {}
        self.budget = 0  # of ours
        self._true: dict[str, Array] = {}
        self._most = 0.0

    def _batch(self, images: Array) -> Array:
        shape = (self.network.batch, *images.shape[1:])
        made: Array = oocdnn.empty(shape, np.float32, self.pinned)
        np.take(images, self._which, axis=0, out=made)
        return made

    def call(self, context: oocdnn.Context, recompute: Recompute = True) -> Callable[[], object]:
        """A step by ours, on a context whose block is entered."""
        made = self.parameters
        chain = nn.Chain(*(_layer(one) for one in self.network.layers), recompute=recompute)
        for layer, w, b in zip(chain, made.w, made.b, strict=True):
            layer.load_state_dict({"weight": w, "bias": b})

        def step() -> None:
            chain.zero_grad()
            z = chain(self.x)
            chain.backward(self.dz, needs_dx=False)
            self.results = {"z": z} | {n: p.grad for n, p in chain.named_parameters()}

        return step

    def stats(self, context: oocdnn.Context) -> Stats:
        """Of the whole step: only what a context keeps over calls. What follows is within its
        budget."""
        self.budget = context.stats.budget_bytes
        return Stats(peak_device_bytes=context.stats.peak_device_bytes)

    def spoil(self) -> None:
        self.results = {}

    def choose(self, context: oocdnn.Context) -> None:
        """Makes the true sums; all elements are compared."""
        true = _true(self.network, np.bincount(self._which, minlength=DIFFERENT))
        self._most = max(float(np.abs(one).max()) for one in true.values())
        self._true = true

    def check(self, rounding: float = 0.0) -> str:
        """The worst verdict of all results: what excuses one of them may not excuse the next."""
        rounds = rounding > 0 and self._rounds()
        return worst(self._verdict(name, rounding, rounds) for name in self._true)

    def _verdict(self, name: str, rounding: float, rounds: bool) -> str:
        """Of one result; `rounds` says that z is rounded."""
        true, seen = self._true[name], self.results[name]
        wanted = true[self._which] if name == "z" else true
        wrong = np.argwhere(apart(seen, wanted, rounding))
        if len(wrong) == 0:
            return "pass"
        at = tuple(int(i) for i in wrong[0])
        text = (
            f"{len(wrong)} of {wanted.size} elements of {name} differ, the first at {at}: "
            f"{seen[at]:g}, not {wanted[at]:g}"
        )
        if self._most > EXACT and alike(seen, wanted):
            return f"mistrusted: sums of up to {self._most:g} may be rounded, and {text}"
        if name != "z" and rounds and _as_large(seen, wanted):
            return f"mistrusted: z is rounded, so that others are largest in pools, and {text}"
        return f"fail: {text}"

    def _rounds(self) -> bool:
        """Whether z is near to the true one, but not equal."""
        return bool((self.results["z"] != self._true["z"][self._which]).any())


def _as_large(seen: Array, true: Array) -> bool:
    """Neither nothing nor far beyond the true elements. Where others are largest in pools gradients
    go other ways, and those of the first layers, behind all pools, may have nothing in common."""
    size, wanted = (float(np.linalg.norm(one.astype(np.float64))) for one in (seen, true))
    return wanted / REROUTED < size < wanted * REROUTED


def _layer(one: Layer) -> nn.Layer:
    pool = 2 if one.pooled else None
    return nn.ConvBiasActPool(one.c, one.k, 3, padding=1, activation="relu", pool=pool)


def _true(network: Network, often: npt.NDArray[np.int64]) -> dict[str, Array]:
    """z of the different images, and the gradients of a batch that has each of them so often."""
    z, gradients = _of_images(network.size, VGG16)
    sums = {
        name: sum(count * one[name] for count, one in zip(often, gradients, strict=True))
        for name in gradients[0]
    }
    return {"z": z, **sums}


@functools.cache
def _of_images(size: int, _: tuple[tuple[int, bool], ...]) -> tuple[Array, list[dict[str, Array]]]:
    """z, and the gradients of each image alone, which are the same for any batch."""
    one, made = Network(DIFFERENT, size, "f32"), Parameters(size)
    passes, x, images = list[Pass](), made.x, range(DIFFERENT)
    gradients: list[dict[str, Array]] = [{} for _ in images]
    dz = made.dz
    with ThreadPoolExecutor(DIFFERENT) as threads:
        for layer, w, b in zip(one.layers, made.w, made.b, strict=True):
            passes.append(_pass(parse(layer.problems(DIFFERENT, "f32")[0]), layer, x, w, b))
            x = np.stack(list(threads.map(passes[-1].z_image, images)))
        for i, of in reversed(list(enumerate(passes))):
            filters = range(one.layers[i].k)
            made_of = [threads.submit(of.dw_db, dz, filters, [n]) for n in images]
            before = [threads.submit(of.dx_image, dz, n) for n in images if i > 0]
            for found, future in zip(gradients, made_of, strict=True):
                dw, db = future.result()
                found |= {f"{i}.weight": dw, f"{i}.bias": db}
            if before:
                dz = np.stack([future.result() for future in before])
    return x, gradients


def _pass(problem: Problem, one: Layer, x: Array, w: Array, b: Array) -> Pass:
    window = (2, 2) if one.pooled else (1, 1)
    return Pass(problem, x, w, b, relu=True, window=window, dtype=np.float32)


def read(text: str) -> Network | None:
    """The network that a string names; None for one that begins like no network."""
    if not text.startswith("vgg16:"):
        return None
    found = TEXT.fullmatch(" ".join(text.split()))
    if found is None:
        raise InvalidProblem(f"{text!r} is no network; write vgg16:train x8x3x224x224 f32")
    return Network(int(found[1]), int(found[2]), found[3])
