"""What the performance model is judged on: layers of well-known networks, in every direction, type
and memory order, operands in host memory, on the device and on both, with budgets from far too
little to enough."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from oocdnn.bench.layers import (
    DIRECTIONS,
    GPU_LAYERS,
    LAYERS,
    ROLES,
    WORDS,
    Direction,
    Layer,
    layer,
)
from oocdnn.cli.problems import parse

Placement = Literal["host", "mixed", "device"]

BUDGETS = ("256MiB", "1GiB", "4GiB", "16GiB")
SMALL_BUDGETS = ("4MiB", "16MiB", "64MiB")
# Element types with their bytes, and about the operations per second of a card of today, to tell
# what its arithmetic bounds from what its wires do.
TYPES: Mapping[str, tuple[int, float]] = {
    "f32": (4, 4.5e13),
    "f32/tf32": (4, 3.5e14),
    "bf16": (2, 6e14),
    "f16": (2, 6e14),
}
WIRE = 5.5e10  # bytes per second in each direction
MOST_SECONDS, MOST_ELEMENTS = 0.1, 1 << 31
HEAVY = 1.2  # times as long as the wires, from which on arithmetic is thought to be the bound

# So much arithmetic that 16-bit types are bound by it too.
WIDE = (
    layer("2048 to 2048 at 512", (1, 2048, 512, 512), 2048, 3, padding=1),
    layer("1024 to 1024 5x5 at 28", (64, 1024, 28, 28), 1024, 5, padding=2),
    layer("volume 1024 to 1024 at 32", (4, 1024, 32, 32, 32), 1024, 3, padding=1),
)

# Where operands are, and whether they need much arithmetic for their bytes (None: no matter): what
# cases are drawn from in turn.
KINDS: tuple[tuple[Placement, bool | None], ...] = (
    ("host", False),
    ("host", True),
    ("mixed", False),
    ("device", None),
    ("host", False),
    ("mixed", True),
)


@dataclass(frozen=True)
class Case:
    """A problem string and a budget. The string says what lies on the device; the rest is in pinned
    host memory."""

    problem: str
    budget: str

    @property
    def placement(self) -> Placement:
        words = [word for word in self.problem.split() if "@" in word]
        return ("device" if len(words) == len(ROLES["fwd"]) else "mixed") if words else "host"

    @property
    def placed(self) -> str:
        """The problem string with the place of every operand, as its plan is asked for."""
        words = WORDS[parse(self.problem).direction]  # type: ignore[index]
        given = self.problem.split()
        pinned = [f"{word}@pin" for word in words if f"{word}@dev" not in given]
        return " ".join([self.problem, *pinned])


@dataclass(frozen=True)
class _Piece:
    """A layer in a direction, type and memory order."""

    layer: Layer
    direction: Direction
    kind: str
    order: str

    @property
    def problem(self) -> str:
        return f"{self.layer.problem(self.direction)} {self.kind}{self.order}"

    @property
    def seconds(self) -> float:
        """Of its arithmetic, about."""
        return self.layer.flops / TYPES[self.kind][1]

    def heavy(self, on_device: Sequence[str] = ()) -> bool:
        """Whether its arithmetic takes clearly longer than what crosses the wires."""
        operands = zip(ROLES[self.direction], WORDS[self.direction], strict=True)
        *sources, result = [
            0 if word in on_device else math.prod(self.layer.shape(operand))
            for operand, word in operands
        ]
        crossing = max(sum(sources), result) * TYPES[self.kind][0]
        return self.seconds > HEAVY * crossing / WIRE


def _elements(one: Layer) -> int:
    return sum(math.prod(one.shape(operand)) for operand in ROLES["fwd"])


def _pieces(layers: Sequence[Layer], types: Sequence[str]) -> Iterator[_Piece]:
    for one in layers:
        last = {1: "nwc", 2: "nhwc", 3: "ndhwc"}[one.rank]
        for direction in DIRECTIONS:
            for kind in types:
                for order in ("", f" {last}"):
                    piece = _Piece(one, direction, kind, order)
                    if piece.seconds <= MOST_SECONDS and _elements(one) <= MOST_ELEMENTS:
                        yield piece


def _on_device(direction: Direction, placement: Placement) -> list[tuple[str, ...]]:
    """What may lie on the device: by its words in problem strings."""
    first, second, out = WORDS[direction]
    if placement == "mixed":
        return [(first,), (out,), (first, second), (second, out)]
    return [()] if placement == "host" else [(first, second, out)]


def _of_kind(pieces: Sequence[_Piece], placement: Placement, heavy: bool | None) -> list[Case]:
    return [
        Case(" ".join([piece.problem, *(f"{word}@dev" for word in words)]), budget)
        for piece in pieces
        for words in _on_device(piece.direction, placement)
        if heavy is None or piece.heavy(words) == heavy
        for budget in BUDGETS
    ]


def cases(device: str, count: int, seed: int = 0) -> list[Case]:
    """`count` of all, the same for the same seed, of which the first so many are those of a smaller
    count; small ones, in host memory, for the CPU device."""
    chance = random.Random(seed)
    if device == "cpu":
        every = [
            Case(piece.problem, budget)
            for piece in _pieces(LAYERS, ["f32"])
            for budget in SMALL_BUDGETS
        ]
        return chance.sample(every, len(every))[:count]
    pieces = list(_pieces((*GPU_LAYERS, *WIDE), list(TYPES)))
    piles = {kind: _of_kind(pieces, *kind) for kind in KINDS}
    for pile in piles.values():
        chance.shuffle(pile)
    return [piles[KINDS[i % len(KINDS)]].pop() for i in range(count)]
