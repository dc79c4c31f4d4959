"""Steps made by hand for the tests of the planner: chains of layers, and small random ones."""

from __future__ import annotations

import random
from dataclasses import replace

from oocdnn.network.timeline import Link, Operation, Recipe, Saved, Squeeze, Timeline

MIB = 1 << 20
LINK = Link(to_host=50e9, from_host=50e9, both=90e9, latency=5e-6)


def chain_of(sizes: list[int], seconds: list[float], *, recipes: bool, fixed: int = 0) -> Timeline:
    """conv -> norm + relu, once for each size: y is saved by the norm, r by relu and the next conv.

    r can be computed from y in a quarter of its convolution's time.
    """
    count = len(sizes)
    forward = [(f"{name}{k}", seconds[k] * cost) for k in range(count) for name, cost in _FORWARD]
    backward = [
        (f"{name}{k}", seconds[k] * cost)
        for k in reversed(range(count))
        for name, cost in _BACKWARD
    ]
    first = len(forward)
    saved = []
    for k, size in enumerate(sizes):
        norm = first + 2 * (count - 1 - k)
        saved.append(Saved(f"y{k}", size, 2 * k, 2 * k + 1, (norm,)))
        uses = (norm,) if k == count - 1 else (norm - 1, norm)
        last = min(2 * k + 2, first - 1)
        made = (Recipe((2 * k,), seconds[k] / 4),) if recipes else ()
        saved.append(Saved(f"r{k}", size, 2 * k + 1, last, uses, recipes=made))
    operations = tuple(Operation(name, cost, fixed) for name, cost in forward + backward)
    return Timeline(operations, first, tuple(saved))


_FORWARD = (("conv", 1.0), ("norm", 0.3))
_BACKWARD = (("norm_backward", 0.6), ("conv_backward", 2.0))


def random_step(seed: int, most: int = 6) -> Timeline:
    """A step of a few operations and saved tensors, some of which can be computed or squeezed."""
    draw = random.Random(seed)
    count = draw.randint(2, most)
    operations = []
    for i in range(2 * count):
        fixed = draw.randint(0, 3)
        begin = draw.choice((None, draw.randint(0, fixed) * MIB))
        seconds = draw.choice((0.0, 1e-4, 1e-3, 3e-3))
        operations.append(Operation(f"op{i}", seconds, fixed * MIB, begin))
    saved: list[Saved] = []
    for index, produced in enumerate(
        sorted(draw.randrange(count) for _ in range(draw.randint(1, most)))
    ):
        last = draw.randint(produced, count - 1)
        uses = tuple(
            sorted({draw.randint(count, 2 * count - 1) for _ in range(draw.randint(1, 3))})
        )
        size = draw.randint(1, 64) * MIB
        recipes = tuple(
            Recipe((source,), draw.choice((1e-5, 1e-3)), draw.randint(0, 2) * MIB)
            for source in range(index)
            if saved[source].produced <= produced and draw.random() < 0.4
        )
        squeeze = None
        if draw.random() < 0.3:
            squeeze = Squeeze(size // 8, draw.choice((1e-5, 1e-3)), whole=draw.random() < 0.5)
        movable = draw.random() < 0.9
        saved.append(Saved(f"t{index}", size, produced, last, uses, movable, recipes, squeeze))
    return Timeline(tuple(operations), count, tuple(saved))


HOSTED_LINK = replace(LINK, both=100e9, host=2e-4)


def hosted_step(seed: int, most: int = 6) -> Timeline:
    """A random step with times of the host, at some operations more than those of the device."""
    plain, draw = random_step(seed, most), random.Random(seed + 1)
    slow = draw.choice((1e-5, 1e-4, 1e-3))

    def host() -> float:
        return draw.choice((0.0, slow * draw.random()))

    operations = [replace(one, host=host()) for one in plain.operations]
    saved = [
        replace(
            one,
            recipes=tuple(replace(recipe, host=host()) for recipe in one.recipes),
            squeeze=None if one.squeeze is None else replace(one.squeeze, host=host()),
        )
        for one in plain.saved
    ]
    return replace(plain, operations=tuple(operations), saved=tuple(saved))
