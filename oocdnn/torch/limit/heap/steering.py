"""Has PyTorch's allocator put a step's allocations where they leave few gaps.

The allocator takes the smallest free block that holds a request. Where the runtime acts it can take
free blocks itself, so that what is allocated next goes into the holes that it leaves, and give them
back when it acts again. Which holes these are is found in simulation, one group of allocations
after the other: nothing is taken where the allocator's own choice does no harm; else holes are left
at the addresses that a placement of the whole step has for them. Where a group ends up elsewhere,
the rest of the step is placed anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocdnn.network.plan import Schedule
from oocdnn.torch.limit.heap.allocations import Allocations, Point
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.arena import LEAST, Arena, Interval, cut, within
from oocdnn.torch.limit.heap.frame import Act, Frame, Steering
from oocdnn.torch.limit.heap.placement import Fixed, Part, Placement, taken

_ORDERS = 400  # of the first placement
_AGAIN = 25  # orders of a placement of the rest
_HOLES = 12  # random sets of holes of a group
_ENDS = 6  # different outcomes of a group that are followed
_SEEDS = 64


def steer(
    allocations: Allocations,
    schedule: Schedule,
    heap: Heap,
    limit: int,
    end: float,
    number: int = 0,
) -> Steering | None:
    """Steering under which no more than `limit` bytes are reserved; None if none was found by the
    moment `end` of `time.monotonic`, or the allocator has no expandable segments. Each `number`
    looks elsewhere."""
    if not heap.expandable:
        return None
    frame = Frame(allocations, schedule, heap, limit)
    if not frame.possible:
        return None
    for seed in range(number * _SEEDS, (number + 1) * _SEEDS):
        found = _Search(frame, seed, end).run()
        steering = None if found is None else frame.checked(found)
        if steering is not None:
            return steering
        if time.monotonic() > end:
            break
    return None


@dataclass
class _Outcome:
    """A group's allocations with certain holes.

    Args:
        beyond: Allocations that end behind the range.
        conflicts: Later allocations whose places are taken.
        address: Of all lives so far.
        arena: After the group.
        took: Intervals that the runtime took.
        opened: Free intervals before the group, those of `took` left out.
    """

    beyond: int
    conflicts: int
    address: list[int]
    arena: Arena
    took: list[Interval] = field(default_factory=list)
    opened: list[Interval] = field(default_factory=list)

    @property
    def cost(self) -> tuple[int, int]:
        return self.beyond, self.conflicts


class _Search:
    """One walk over the step, with random holes where those of the placement do not serve."""

    def __init__(self, frame: Frame, seed: int, end: float) -> None:
        self._frame, self._lives, self._end = frame, frame.lives, end
        self._draw = random.Random(seed)
        self._placement = Placement(frame.lives, frame.base, seed)
        self._open = [True] * len(frame.lives)
        self._at = [-1] * len(frame.lives)
        self._arena = Arena.around(frame.used, frame.base, frame.pages)
        self._took: list[Interval] = []

    def run(self) -> dict[Point, tuple[Act, ...]] | None:
        frame = self._frame
        if not self._placed(self._at, 0, _ORDERS):
            return None
        acts: dict[Point, tuple[Act, ...]] = {}
        for part in frame.lives.parts:
            for interval in self._took:
                self._arena.give(*interval)
            self._took = []
            for life in part.frees:
                self._arena.give(*self._interval(life, self._at))
            if not part.acts:
                continue
            free = list(self._arena.free)
            outcome = self._best(part)
            if outcome is None:
                return None
            self._arena, self._at, self._took = outcome.arena, outcome.address, outcome.took
            for begins, life in part.acts:
                if begins:
                    self._open[life] = False
            if outcome.took:
                assert part.point is not None
                acts[part.point] = tuple(_acts(free, outcome.opened, outcome.took, frame.ranges))
        return acts

    def _interval(self, life: int, at: Sequence[int]) -> Interval:
        if life < 0:
            return self._frame.old[-1 - life]
        return at[life], int(self._lives.nbytes[life])

    def _placed(self, at: Sequence[int], moment: int, tries: int) -> bool:
        """Places what is open beside what is not."""
        lives, frame = self._lives, self._frame
        fixed = taken(frame.stays, lives.last)
        fixed += [
            Fixed(-1, lives.old.get(place, lives.last), *interval)
            for place, interval in frame.old.items()
        ]
        for life in range(len(lives)):
            if self._open[life]:
                continue
            address, nbytes = self._interval(life, at)
            if lives.end[life] > moment:
                fixed.append(Fixed(0, int(lives.end[life]), address, nbytes))
            if lives.again[life] >= 0:
                fixed.append(Fixed(-1, int(lives.again[life]), address, nbytes))
        if not any(self._open):
            return True
        return self._placement.improve(fixed, self._open, frame.end, self._end, tries)

    def _best(self, part: Part) -> _Outcome | None:
        """The outcome after which the rest of the step has a place; None if none has."""
        first = self._outcome(part, None)
        if first.cost == (0, 0):
            return first
        outcomes = [first]
        if part.point is not None:
            for holes in self._holes(part):
                outcomes.append(self._outcome(part, holes))
                if outcomes[-1].cost == (0, 0):
                    return outcomes[-1]
        mine = [life for begins, life in part.acts if begins]
        known = (self._placement.order, self._placement.address)
        seen: set[tuple[int, ...]] = set()
        for outcome in sorted(outcomes, key=lambda one: one.cost):
            places = tuple(outcome.address[life] for life in mine)
            if places in seen:
                continue
            seen.add(places)
            if outcome.beyond or len(seen) > _ENDS or time.monotonic() > self._end:
                return None
            self._placement.order, self._placement.address = known
            for life in mine:
                self._open[life] = False
            if self._placed(outcome.address, part.ends, _AGAIN):
                return outcome
            for life in mine:
                self._open[life] = True
        return None

    def _holes(self, part: Part) -> Iterable[list[Interval]]:
        """Sets of holes: the places of all, those of what outlives the group with other free
        intervals for the rest, and random ones."""
        draw, lives = self._draw, self._lives
        mine = [life for begins, life in part.acts if begins]
        places = {
            life: (int(self._placement.address[life]), int(lives.nbytes[life])) for life in mine
        }
        outlive = [places[life] for life in mine if lives.leaves[life]]
        short = [places[life] for life in mine if not lives.leaves[life]]
        _, clear = cut(self._arena.free, outlive, self._frame.ranges[:1])
        clear = sorted((one for one in clear if one[1] > 2 * LEAST), key=lambda one: -one[1])
        yield [*places.values()]
        yield outlive + clear
        yield outlive + clear[:1]
        yield outlive + clear[:2]
        for _ in range(_HOLES):
            holes = list(outlive)
            holes += [one for one in short if draw.random() < 0.5]
            for address, nbytes in clear:
                if draw.random() < 0.4:
                    chance = draw.random()
                    if chance < 0.3 and nbytes > 4 * LEAST:
                        address, nbytes = address + 2 * LEAST, nbytes - 2 * LEAST
                    elif chance < 0.5 and short:
                        size = -(-draw.choice(short)[1] // LEAST) * LEAST
                        if size < nbytes:
                            address += (nbytes - size) * draw.randint(0, 1)
                            nbytes = size
                    holes.append((address, nbytes))
            yield holes

    def _outcome(self, part: Part, holes: list[Interval] | None) -> _Outcome:
        opened, took = list(self._arena.free), []  # type: list[Interval], list[Interval]
        if holes is not None:
            opened, took = cut(opened, holes, self._frame.ranges)
        arena, at, beyond, conflicts = Arena(list(opened)), list(self._at), 0, 0
        lives = self._lives
        mine = []
        for begins, life in part.acts:
            if begins:
                nbytes = int(lives.nbytes[life])
                at[life] = arena.allocate(nbytes)
                beyond += not self._frame.mapped(at[life], nbytes)
                mine.append(life)
            else:
                arena.give(*self._interval(life, at))
        for life in mine:
            if lives.leaves[life]:
                conflicts += self._conflicts(life, at[life], mine)
        return _Outcome(beyond, conflicts, at, arena, took, opened)

    def _conflicts(self, life: int, address: int, mine: Sequence[int]) -> int:
        """Later lives whose places it takes."""
        lives, places = self._lives, self._placement.address
        if address == places[life]:
            return 0
        later = np.array(self._open)
        later[list(mine)] = False
        overlaps = (places < address + lives.nbytes[life]) & (places + lives.nbytes > address)
        beside = (lives.begin < lives.end[life]) & (lives.end > lives.begin[life])
        if lives.again[life] >= 0:
            beside |= lives.begin < lives.again[life]
        beside |= (lives.again >= 0) & (lives.begin[life] < lives.again)
        return int((later & overlaps & beside).sum())


def _acts(
    free: Sequence[Interval],
    opened: Sequence[Interval],
    took: Sequence[Interval],
    ranges: Sequence[Interval],
) -> Iterable[Act]:
    """Takes all free intervals, the largest first, which no other can be taken for; then of those
    with holes everything again in parts."""
    whole = [one for one in within(free, ranges) if one[1] > LEAST]
    whole.sort(key=lambda one: (-one[1], one[0]))
    yield from whole
    gaps: list[Interval] = []
    for address, nbytes in whole:
        if (address, nbytes) in took:
            continue
        yield address, 0
        stop = address + nbytes
        parts = [(a, n, False) for a, n in took if address <= a < stop]
        parts += [(a, min(n, stop - a), True) for a, n in opened if address <= a < stop]
        for first, size, hole in sorted(parts):
            if size > LEAST:
                yield first, size
                if hole:
                    gaps.append((first, size))
    for first, _ in gaps:
        yield first, 0
