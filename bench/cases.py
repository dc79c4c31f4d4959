"""Which problems a benchmark runs: those of sets, sized as asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from oocdnn.bench import network
from oocdnn.bench.layers import Direction, Layer
from oocdnn.bench.sets import SETS as LAYER_SETS
from oocdnn.bench.sets import Set

QUICK_FLOPS = 1e10  # of a quick case, about


@dataclass(frozen=True)
class Case:
    """A problem of a set. The string is whole: type and layout are in it. `times` says how often it
    occurs in its network."""

    set: str
    layer: str
    problem: str
    flops: int
    times: int


@dataclass(frozen=True)
class Wish:
    """What of a set is wanted; without directions or a batch, its own. `words` are the type and the
    layout of problem strings."""

    directions: Sequence[Direction] = ()
    words: str = "f32"
    batch: int | None = None
    quick: bool = False


class Source(Protocol):
    """A set: what it is, how many problems `layers` it has, in which `directions`."""

    name: str
    about: str
    directions: Sequence[str]

    @property
    def count(self) -> int: ...

    def cases(self, wish: Wish) -> Iterator[Case]: ...


def smaller(layer: Layer, most_flops: float) -> Layer:
    """The layer with as many of its images as that many operations allow; where one is too much,
    with less of it: first lower, then narrower, down to one row or column of the result."""
    made = replace(layer, n=max(1, min(layer.n, int(layer.n * most_flops / layer.flops))))
    windows = zip(layer.taps, layer.dilation, layer.padding, strict=True)
    for axis, (taps, dilation, padding) in enumerate(windows):
        if made.flops <= most_flops:
            break
        least = max(1, (taps - 1) * dilation + 1 - 2 * padding)
        extents = list(made.extents)
        extents[axis] = max(least, int(extents[axis] * most_flops / made.flops))
        made = replace(made, extents=tuple(extents))
    return made


def _sized(layer: Layer, wish: Wish) -> Layer:
    sized = layer if wish.batch is None else replace(layer, n=wish.batch)
    return smaller(sized, QUICK_FLOPS) if wish.quick else sized


class Layers:
    """A set of layers, each a problem in each of its directions."""

    def __init__(self, one: Set) -> None:
        self._set, self.name, self.about = one, one.name, one.about
        self.directions: Sequence[str] = one.directions

    @property
    def count(self) -> int:
        return len(self._set.layers)

    def cases(self, wish: Wish) -> Iterator[Case]:
        for layer, direction in self._calls(wish.directions):
            sized = _sized(layer, wish)
            problem = f"{sized.problem(direction)} {wish.words}"
            times = self._set.times_of(layer)
            yield Case(self.name, layer.name, problem, sized.flops, times)

    def _calls(self, directions: Sequence[Direction]) -> Iterator[tuple[Layer, Direction]]:
        if not directions:
            yield from self._set.calls
            return
        yield from ((layer, one) for layer in self._set.layers for one in directions)


class Fused:
    """VGG16's convolutions with their bias, relu and pool in one pass, as they train: forward with
    the bits that backward needs, and all gradients at once; of the first layer without dx."""

    name, about = "fused", "VGG16's layers with bias, relu and pool in one pass, batch 64"
    directions: Sequence[str] = ("fwd", "bwd_data")
    _POOLED = ("conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3")

    def __init__(self) -> None:
        self._layers = LAYER_SETS["vgg16"].layers

    @property
    def count(self) -> int:
        return len(self._layers)

    def cases(self, wish: Wish) -> Iterator[Case]:
        for layer in self._layers:
            pool = " +maxpool2" if layer.name in self._POOLED else ""
            for direction in self._directions(layer, wish):
                sized, gradients = _sized(layer, wish), 1
                after = f"+bias +relu{pool} +saved"
                if direction == "bwd_filter":
                    after = f"{pool} +clipped +db"
                elif direction == "bwd_data":
                    after, gradients = f"{pool} +clipped +dw +db", 2
                problem = " ".join(f"{sized.problem(direction)} {wish.words} {after}".split())
                yield Case(self.name, layer.name, problem, gradients * sized.flops, 1)

    def _directions(self, layer: Layer, wish: Wish) -> Sequence[Direction]:
        if wish.directions:
            return wish.directions
        return ("fwd", "bwd_data") if layer.c > 3 else ("fwd", "bwd_filter")


class Networks:
    """A network's forward and backward pass by batch size."""

    name, about = "network", "VGG16 forward and backward, by batch size"
    directions: Sequence[str] = ("train",)

    @property
    def count(self) -> int:
        return len(network.BATCHES)

    def cases(self, wish: Wish) -> Iterator[Case]:
        size = network.QUICK_SIZE if wish.quick else network.SIZE
        batches = network.QUICK_BATCHES if wish.quick else network.BATCHES
        for batch in batches if wish.batch is None else (wish.batch,):
            one = network.Network(batch, size, wish.words)
            yield Case(self.name, f"vgg16 n{batch}", one.text, one.flops, 1)


SETS: dict[str, Source] = {
    **{name: Layers(one) for name, one in LAYER_SETS.items()},
    Fused.name: Fused(),
    Networks.name: Networks(),
}


def cases_of(
    names: Sequence[str],
    directions: Sequence[Direction] = (),
    words: str = "f32",
    batch: int | None = None,
    quick: bool = False,
) -> list[Case]:
    """The problems of sets, each once and with how often it occurs; the other arguments are those
    of `Wish`. Raises KeyError for a set that there is not."""
    wish = Wish(directions, words, batch, quick)
    cases: dict[tuple[str, str], Case] = {}
    for name in dict.fromkeys(names):
        for case in SETS[name].cases(wish):
            key = (name, case.problem)
            known = cases.get(key)
            cases[key] = replace(known, times=known.times + case.times) if known else case
    return list(cases.values())
