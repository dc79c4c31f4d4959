"""What each step of a tiling fetches, rolls over and drains, with a ring of slots an operand.

A box that is in no slot is fetched into the slot that was used longest ago. Where it and the box
of the step before differ in one spatial axis alone, are of one shape and overlap, the rows that
both have are rolled over inside the device and only the others are fetched.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from oocdnn.perfmodel.problem import AXES, SPATIAL, Axis, Operand
from oocdnn.perfmodel.tiling import Span, Tiling

Key = tuple[int, ...]  # the numbers of a box on the axes that move its operand


@dataclass
class Slot:
    """Room for one box. `free` is whoever walks the schedule's: what must end before the slot is
    filled again."""

    free: Any = None


@dataclass
class Entry:
    """A box that comes into a slot: how much of it is fetched in each dimension, and how many
    elements are rolled over from another slot."""

    operand: Operand
    slot: Slot
    fetched: tuple[int, ...]
    moved: int = 0
    source: Slot | None = None


@dataclass
class Exit:
    """A written operand's slot in a step, its rows in each dimension, and whether its tile begins
    there or ends, where it is drained."""

    operand: Operand
    slot: Slot
    rows: tuple[int, ...]
    begins: bool
    ends: bool


@dataclass
class Step:
    """`entries` in the order in which they are fetched. `ends`: the sum's tile; `restores`: a tile
    of dy is made."""

    index: Mapping[Axis, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    inputs: list[Slot] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    ends: bool = False
    restores: bool = False


class _Ring:
    def __init__(self, tiling: Tiling, operand: Operand, depth: int) -> None:
        self.operand = operand
        self.axes: list[Axis] = [axis for axis in tiling.problem.axes(operand) if axis]
        self._tiling = tiling
        self._depth = max(depth, 1)
        self._slots: OrderedDict[Key, Slot] = OrderedDict()  # the longest unused first
        self._last: tuple[Key, tuple[Span, ...]] | None = None

    def enter(self, index: Mapping[Axis, int]) -> tuple[Slot, Entry | None]:
        """The slot that holds the box of a step, and what is done where it was not there yet."""
        key = tuple(index[axis] for axis in self.axes)
        if key in self._slots:
            self._slots.move_to_end(key)
            if self._last is None or self._last[0] != key:
                self._last = key, self._tiling.spans(self.operand, index)
            return self._slots[key], None
        full = len(self._slots) == self._depth
        slot = self._slots.popitem(last=False)[1] if full else Slot()
        spans = self._tiling.spans(self.operand, index)
        entry = self._rolled(key, spans, slot)
        self._slots[key] = slot
        self._last = key, spans
        return slot, entry

    def _rolled(self, key: Key, spans: tuple[Span, ...], slot: Slot) -> Entry:
        whole = Entry(self.operand, slot, tuple(span.moved for span in spans))
        if self._last is None or self._last[0] not in self._slots:
            return whole
        before, old = self._last
        changed = [i for i in range(len(key)) if key[i] != before[i]]
        if len(changed) != 1 or self.axes[changed[0]] not in SPATIAL:
            return whole
        d = 3 + SPATIAL.index(self.axes[changed[0]])
        kept = old[d].origin + old[d].extent - spans[d].origin
        alike = [span.extent for span in old] == [span.extent for span in spans]
        if not (alike and self._shares_rows() and 0 < kept <= old[d].extent):
            return whole
        fetched = list(whole.fetched)
        fetched[d] = max(spans[d].end - max(spans[d].begin, spans[d].origin + kept), 0)
        others = prod(span.extent for i, span in enumerate(spans) if i != d)
        return Entry(self.operand, slot, tuple(fetched), kept * others, self._slots[before])

    def _shares_rows(self) -> bool:
        problem = self._tiling.problem
        if problem.restores and self.operand in ("z", "saved"):
            return True
        return self.operand == ("y" if problem.direction == "bwd_data" else "x")


def walk(tiling: Tiling, order: Sequence[Axis], depths: Mapping[Operand, int]) -> Iterator[Step]:
    """The steps in order, axes outermost first, with that many slots an operand (1 if missing)."""
    problem = tiling.problem
    rings = [_Ring(tiling, operand, depths.get(operand, 1)) for operand in problem.inputs]
    outs = [_Ring(tiling, operand, depths.get(operand, 1)) for operand in problem.written]
    made = _Ring(tiling, "y", depths.get("y", 1))
    summed = {out: [axis for axis in AXES if axis not in out.axes] for out in outs}
    for numbers in itertools.product(*(range(tiling.counts[axis]) for axis in order)):
        index = dict(zip(order, numbers, strict=True))
        step = Step(index)
        for ring in rings:
            slot, entry = ring.enter(index)
            step.inputs.append(slot)
            if entry is not None:
                step.entries.append(entry)
        step.restores = problem.restores and made.enter(index)[1] is not None
        for out in outs:
            slot, begun = out.enter(index)
            rows = tuple(span.moved for span in tiling.spans(out.operand, index))
            ends = all(index[axis] == tiling.counts[axis] - 1 for axis in summed[out])
            step.exits.append(Exit(out.operand, slot, rows, begun is not None, ends))
        step.ends = step.exits[0].ends
        yield step
