"""What a step allocates, operation by operation, for any schedule of it.

The record of one step tells which allocations the program makes and frees between two events. What
the runtime allocates itself (fetched tensors, computed ones, temporaries) follows from the
schedule. `reading.py` makes the record from an allocator's history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oocdnn._core.heap import NativeRequests, simulated
from oocdnn.network.plan import Policy, Schedule
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.heap.allocator import Heap

Item = tuple[int, int]  # a number, and the bytes that are allocated for it, or 0: it is freed
Point = tuple[str, int]  # where the runtime acts: "fetch", "squeeze", "compute" of an entry, "run"
RESULT = 0  # the number of the result in a template; the others are temporary


class Group(NamedTuple):
    """What is allocated from one point at which the runtime acts to the next.

    Args:
        point: Where it begins; None at the beginning of a step.
        frees: Numbers that the runtime frees there.
        items: Allocations and frees after that.
    """

    point: Point | None
    frees: tuple[int, ...]
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Allocations:
    """The allocations of one step without those that the runtime makes.

    Args:
        timeline: Of the step.
        operations: For each operation, what is allocated and freed, in order. Numbers below that
            of the saved tensors are those of saved tensors; a free of one is its last.
        leading: For each operation, how many of these the runtime frees at the event before it.
        carried: What the next step frees: number and bytes.
        persistent: Addresses of what outlives every step.
        templates: What recipes allocate and free, by the numbers of the saved tensor and of its
            recipe.
    """

    timeline: Timeline
    operations: tuple[tuple[Item, ...], ...]
    leading: tuple[int, ...]
    carried: tuple[Item, ...]
    persistent: frozenset[int]
    templates: Mapping[tuple[int, int], Sequence[Item]] = field(default_factory=dict)

    def step(self, schedule: Schedule) -> Step:
        """That follows the schedule."""
        return Step(tuple(_Sequence(self, schedule).groups()), self.carried, self.persistent)


class Step:
    """The allocations of a step as planned, those that the runtime makes too."""

    def __init__(
        self, groups: tuple[Group, ...], carried: Sequence[Item], persistent: frozenset[int]
    ) -> None:
        items: list[Item] = []
        rows = []
        for point, frees, others in groups:
            items += [(number, 0) for number in frees]
            items += others
            rows.append((len(frees) + len(others), len(frees), point is not None))
        self.groups = groups
        self.requests = NativeRequests(items, rows, carried, [*persistent])

    def reserved(self, heap: Heap) -> int:
        """Most bytes taken from the driver in such steps, from this state on, with unused memory
        given back first."""
        return simulated(heap.native, self.requests).reserved + heap.elsewhere


class _Sequence:
    """Puts what the runtime does at each event between the operations of the program."""

    def __init__(self, allocations: Allocations, schedule: Schedule) -> None:
        self._record = allocations
        self._saved, self._choices = allocations.timeline.saved, schedule.choices
        self._releases: defaultdict[int, list[int]] = defaultdict(list)
        self._fetches: defaultdict[int, list[int]] = defaultdict(list)
        self._computed: defaultdict[int, list[int]] = defaultdict(list)
        self._squeezed: defaultdict[int, list[int]] = defaultdict(list)
        movements = schedule.movements
        for number in schedule.by_need():
            movement, policy = movements[number], schedule.choices[number].policy
            self._releases[movement.release].append(number)
            if policy is Policy.SWAP:
                self._fetches[movement.fetch].append(number)
            else:
                self._computed[movement.need].append(number)
            if policy is Policy.SQUEEZE:
                self._squeezed[self._saved[number].produced + 1].append(number)

    def groups(self) -> Iterator[Group]:
        for position, items in enumerate(self._record.operations):
            frees = tuple(self._releases.get(position, ()))
            for number in self._fetches.get(position, ()):
                yield Group(("fetch", number), frees, ((number, self._saved[number].nbytes),))
                frees = ()
            count = self._record.leading[position]
            for number, _ in items[:count]:
                frees += (number, *self._end(number))
            for point, some in self._made(position):
                yield Group(point, frees, some)
                frees = ()
            runs = ("run", position) if position else None
            yield Group(runs, frees, self._with_forms(items[count:]))

    def _with_forms(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """With the ends of squeezed forms behind those of what they are of."""
        if not self._squeezed:
            return items
        found: list[Item] = []
        for number, nbytes in items:
            found.append((number, nbytes))
            if nbytes == 0:
                found += [(other, 0) for other in self._end(number)]
        return tuple(found)

    def _made(self, position: int) -> Iterator[tuple[Point, tuple[Item, ...]]]:
        """What is squeezed or computed."""
        for number in self._squeezed.get(position, ()):
            squeeze = self._saved[number].squeeze
            assert squeeze is not None
            yield ("squeeze", number), ((_form(number), squeeze.nbytes),)
        for number in self._demanded(self._computed.get(position, ())):
            yield ("compute", number), self._compute(number)

    def _demanded(self, numbers: Sequence[int]) -> list[int]:
        """In the order in which they are computed: the inputs of each in front of it."""
        found: dict[int, None] = {}

        def demand(number: int) -> None:
            choice = self._choices[number]
            if choice.policy is Policy.REBUILD:
                for source in self._saved[number].recipes[choice.recipe].inputs:
                    if source in numbers and source not in found:
                        demand(source)
            found[number] = None

        for number in sorted(numbers, reverse=True):  # the last one is read, and needs the others
            if number not in found:
                demand(number)
        return list(found)

    def _compute(self, number: int) -> tuple[Item, ...]:
        """As recorded; else the operation's temporary bytes come after its result."""
        one, choice, extra = self._saved[number], self._choices[number], 0
        if choice.policy is Policy.REBUILD:
            extra = one.recipes[choice.recipe].temporary_bytes
            template = self._record.templates.get((number, choice.recipe))
            if template is not None:
                return tuple(
                    (number if local == RESULT else _temporary(number, local), nbytes)
                    for local, nbytes in template
                )
        if not extra:
            return ((number, one.nbytes),)
        temporary = _temporary(number, 1)
        return ((number, one.nbytes), (temporary, extra), (temporary, 0))

    def _end(self, number: int) -> tuple[int, ...]:
        """A squeezed form stays until the end of what it is of."""
        saved = 0 <= number < len(self._saved)
        squeezed = saved and self._choices[number].policy is Policy.SQUEEZE
        return (_form(number),) if squeezed else ()


_LOCALS = 1 << 20  # numbers of what is allocated for one saved tensor; they are negative


def _form(number: int) -> int:
    """The number of the squeezed form of a saved tensor."""
    return -_LOCALS * (number + 1)


def _temporary(number: int, local: int) -> int:
    """The number of what is temporary while a saved tensor is computed."""
    return -_LOCALS * (number + 1) - local
