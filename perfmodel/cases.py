"""What the performance model is judged on: layers of well-known networks, in every direction, type
and memory order, with budgets from far too little to enough."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oocdnn.bench.layers import DIRECTIONS, GPU_LAYERS, LAYERS, Layer

BUDGETS = ("256MiB", "1GiB", "4GiB", "16GiB")
SMALL_BUDGETS = ("4MiB", "16MiB", "64MiB")
TYPES = ("f32", "f32/tf32", "bf16", "f16")
MOST_FLOPS, MOST_ELEMENTS = 2e13, 1 << 31


@dataclass(frozen=True)
class Case:
    """A problem string and a budget."""

    problem: str
    budget: str


def _elements(layer: Layer) -> int:
    return sum(math.prod(layer.shape(operand)) for operand in ("x", "w", "y"))


def _all(layers: Sequence[Layer], types: Sequence[str], budgets: Sequence[str]) -> Iterator[Case]:
    for layer in layers:
        if layer.flops > MOST_FLOPS or _elements(layer) > MOST_ELEMENTS:
            continue
        last = {1: "nwc", 2: "nhwc", 3: "ndhwc"}[layer.rank]
        for direction in DIRECTIONS:
            for kind in types:
                for order in ("", f" {last}"):
                    for budget in budgets:
                        yield Case(f"{layer.problem(direction)} {kind}{order}", budget)


def cases(device: str, count: int, seed: int = 0) -> list[Case]:
    """`count` of all, the same for the same seed; small ones for the CPU device."""
    gpu = device != "cpu"
    every = list(
        _all(GPU_LAYERS, TYPES, BUDGETS) if gpu else _all(LAYERS, TYPES[:1], SMALL_BUDGETS)
    )
    return random.Random(seed).sample(every, min(count, len(every)))
