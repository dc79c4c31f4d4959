"""Addresses for all large allocations of a step such that they take few bytes.

Each is placed at the lowest address that is free during its life, in an order that is improved by
trial.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocdnn.torch.limit.heap.allocations import Group, Item, Point
from oocdnn.torch.limit.heap.allocator import is_small, rounded
from oocdnn.torch.limit.heap.arena import Interval

_SHAPES = (0.5, 1.0, 0.0, 0.25, 0.75)  # exponents of bytes beside length, in the first orders
_RANDOM = 40  # orders before the best is only changed
_ENDLESS = 1 << 62
_MOVED = 3  # allocations at the top that are moved at a time

Act = tuple[bool, int]  # True: a life begins; False: it ends. Old lives have negative numbers


@dataclass(frozen=True)
class Fixed:
    """An interval in use from one moment to another."""

    begin: int
    end: int
    address: int
    nbytes: int


@dataclass
class Part:
    """A group of allocations in terms of lives."""

    point: Point | None
    frees: list[int]
    acts: list[Act]
    ends: int = 0  # moment of its end


class Lives:
    """The large allocations of a step, in order. Moments are numbers of acts.

    Attributes:
        nbytes: Of each.
        begin, end: Moments.
        again: Moment up to which the step before has it too, where it is carried; else -1.
        part: In which it begins; `leaves` tells whether it ends in a later one.
        parts: The groups.
        old: Moment at which what is carried from the step before ends, by its place in `carried`.
    """

    def __init__(self, groups: Sequence[Group], carried: Sequence[Item]) -> None:
        self._open: defaultdict[int, deque[int | None]] = defaultdict(deque)
        self._sizes: list[int] = []
        self._moment = 0
        begins, ends, belongs, leaves = [], [], [], []  # type: list[int], list[int], list[int], list[bool]
        self.old: dict[int, int] = {}
        for place, (number, nbytes) in enumerate(carried):
            self._open[number].append(None if is_small(nbytes) else -1 - place)
        self.parts: list[Part] = []
        names: dict[int, int] = {}
        for group in groups:
            part = Part(group.point, [], [])
            for number in group.frees:
                life = self._ends(number)
                if life is not None:
                    part.frees.append(life)
                    self._end(life, ends, leaves, belongs)
            for number, nbytes in group.items:
                if nbytes == 0:
                    life = self._ends(number)
                    if life is not None:
                        part.acts.append((False, life))
                        self._end(life, ends, leaves, belongs)
                elif is_small(nbytes):
                    self._open[number].append(None)
                else:
                    self._moment += 1
                    life = len(self._sizes)
                    self._sizes.append(rounded(nbytes))
                    self._open[number].append(life)
                    names[number] = life
                    begins.append(self._moment)
                    ends.append(-1)
                    belongs.append(len(self.parts))
                    leaves.append(True)
                    part.acts.append((True, life))
            part.ends = self._moment
            self.parts.append(part)
        self.last = self._moment + 1
        self.nbytes = np.array(self._sizes, dtype=np.int64)
        self.begin = np.array(begins, dtype=np.int64)
        self.end = np.array([self.last if e < 0 else e for e in ends], dtype=np.int64)
        self.leaves = leaves
        self.again = np.full(len(begins), -1, dtype=np.int64)
        for place, (number, nbytes) in enumerate(carried):
            life = names.get(number)
            if life is not None and ends[life] < 0 and not is_small(nbytes):
                self.again[life] = self.old.get(place, 0)

    def _ends(self, number: int) -> int | None:
        known = self._open[number]
        return known.popleft() if known else None

    def _end(self, life: int, ends: list[int], leaves: list[bool], belongs: list[int]) -> None:
        self._moment += 1
        if life < 0:
            self.old[-1 - life] = self._moment
        else:
            ends[life] = self._moment
            leaves[life] = belongs[life] != len(self.parts)

    def __len__(self) -> int:
        return len(self.nbytes)


class Placement:
    """Addresses of lives from `base` on.

    Attributes:
        address: Of each life.
        top: End of the highest one.
    """

    def __init__(self, lives: Lives, base: int, seed: int = 0) -> None:
        self._lives, self._base = lives, base
        self._draw = random.Random(seed)
        self.order: list[int] = []
        self.address = np.zeros(len(lives), dtype=np.int64)
        self.top = _ENDLESS

    def improve(
        self, fixed: Sequence[Fixed], open_: Sequence[bool], limit: int, end: float, tries: int
    ) -> bool:
        """Places the open lives beside fixed ones; True once none ends behind the limit. Ends after
        so many orders, or at the moment `end` of `time.monotonic`."""
        places = [life for life in range(len(self._lives)) if open_[life]]
        best: tuple[int, list[int], np.ndarray] | None = None
        for number in range(tries):
            order = self._next(number, places, best)
            address, top = self._fit(order, fixed, open_, _ENDLESS if best is None else best[0])
            if best is None or top <= best[0]:
                best = top, order, address
            if best[0] <= limit or time.monotonic() > end:
                break
        assert best is not None
        self.top, self.order, self.address = best
        return self.top <= limit

    def _next(
        self, number: int, places: list[int], best: tuple[int, list[int], np.ndarray] | None
    ) -> list[int]:
        draw, lives = self._draw, self._lives
        if number == 0 and self.order:
            return self.order
        fresh = len(places) == len(lives) and number < _RANDOM
        if best is None or (fresh and (number < len(_SHAPES) or draw.random() < 0.5)):
            first = number < len(_SHAPES)
            shape = _SHAPES[number] if first else draw.random()
            noise = [1.0 if first else draw.lognormvariate(0, 0.3) for _ in range(len(lives))]
            length = (lives.end - lives.begin).astype(float)
            weight = lives.nbytes.astype(float) ** shape * length ** (1 - shape) * np.array(noise)
            return [int(life) for life in np.argsort(-weight, kind="stable")]
        _, order, address = best
        order = list(order)
        highest = sorted(places, key=lambda life: -int(address[life] + lives.nbytes[life]))
        for life in highest[: draw.randint(1, _MOVED)]:
            order.remove(life)
            order.insert(int(len(order) * draw.random() ** 2), life)
        return order

    def _fit(
        self, order: Sequence[int], fixed: Sequence[Fixed], open_: Sequence[bool], most: int
    ) -> tuple[np.ndarray, int]:
        """First fit in this order; ends early where it passes `most`."""
        lives, base = self._lives, self._base
        rows = len(fixed) + 2 * len(order)
        begin, end, first, size = np.empty((4, rows), dtype=np.int64)
        count = len(fixed)
        for i, one in enumerate(fixed):
            begin[i], end[i], first[i], size[i] = one.begin, one.end, one.address, one.nbytes
        found, top = self.address.copy(), base
        for life in order:
            if not open_[life]:
                continue
            again, nbytes = lives.again[life], int(lives.nbytes[life])
            beside = (begin[:count] < lives.end[life]) & (end[:count] > lives.begin[life])
            if again >= 0:
                beside |= begin[:count] < again
            places = np.flatnonzero(beside)
            places = places[np.argsort(first[places], kind="stable")]
            starts = first[places]
            stops = np.concatenate(([base], np.maximum.accumulate(starts + size[places])))
            fits = np.flatnonzero(starts - stops[:-1] >= nbytes)
            address = int(stops[fits[0]] if len(fits) else stops[-1])
            found[life] = address
            spans = [(lives.begin[life], lives.end[life])] + ([(-1, again)] if again >= 0 else [])
            for span in spans:
                begin[count], end[count] = span
                first[count], size[count] = address, nbytes
                count += 1
            top = max(top, address + nbytes)
            if top > most:
                break
        return found, top


def taken(intervals: Sequence[Interval], last: int) -> list[Fixed]:
    """Intervals in use for the whole step."""
    return [Fixed(-1, last + 1, address, nbytes) for address, nbytes in intervals]
