"""Choice of policies by a mixed integer program, solved by HiGHS.

Minimized: seconds in which the device waits for copies or for the host, and seconds of recipes.
Constrained: device bytes at every position of forward and backward, and that the host has enqueued
what the device runs. Copies are fluid here: a backlog grows by what is produced and shrinks at the
link's rate, forward in time for copies away and backward in time for copies back. `search.py`
gives the positions and corrects what the fluid view misses by margins.

A tensor that is not kept has one column for each way to have it again and each position at which it
may be needed first: its own first use, or that of a tensor that is computed from it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oocdnn.network.alike import alike
from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Policy
from oocdnn.network.program import LEAST, Program, Values
from oocdnn.network.timeline import Link, Saved, Timeline, available, certain_bytes

_NEAR = 5e-4  # of the step: a solution this near to the bound is enough
_MOST_NEEDS = 8  # positions in backward at which one tensor may be wanted first
_EXCESS = 300.0  # steps and copies of the largest tensor, for passing the limit by its bytes
_WHOLE = 1 - 1e-6  # weight of a choice that is certain
_PART_SECONDS = 1.0  # for the best choices of a part of the tensors
_TICKS = 1e3  # in a step: the unit of time, so that costs are near 1
_TIE = 1e-2  # ticks for copying the whole step's bytes: keep rather than swap where equal


@dataclass
class Solution:
    """Choices, the seconds of the step that the program gives them, its lower bound, and bytes by
    which the choices pass the limit."""

    choices: list[Choice]
    seconds: float
    bound: float
    excess: float
    columns: np.ndarray


@dataclass
class _Tensor:
    """Columns of one saved tensor: by choice, and by choice and position of its need.

    Those of a position are 1 where the choice is taken and the tensor is needed there or before.
    """

    one: Saved
    needs: list[int]
    policies: dict[Choice, int] = field(default_factory=dict)
    back: dict[Choice, list[int]] = field(default_factory=dict)  # by the number of the need

    def first_at(self, number: int, factor: float, choice: Choice) -> list[tuple[int, float]]:
        """Terms whose sum is `factor` where the choice is taken and this is the first need."""
        columns = self.back[choice]
        if number == 0:
            return [(columns[0], factor)]
        return [(columns[number], factor), (columns[number - 1], -factor)]

    def absent(self, position: int) -> list[tuple[int, float]]:
        """Terms whose sum is 1 where the tensor is not there at the position, a need or not."""
        number = bisect_right(self.needs, position) - 1
        terms = [(column, 1.0) for column in self.policies.values()]
        if number >= 0:
            terms += [(columns[number], -1.0) for columns in self.back.values()]
        return terms


def options(timeline: Timeline, one: Saved) -> list[Choice]:
    """The policies of a saved tensor, besides keeping it."""
    if not one.movable or one.nbytes == 0:
        return []
    squeeze = [SQUEEZE] if one.squeeze is not None else []
    recipes = [Choice(Policy.REBUILD, number) for number in available(timeline, one)]
    return [SWAP, *squeeze, *recipes]


def candidates(timeline: Timeline) -> list[list[int]]:
    """For each saved tensor the positions at which it may be needed first, ascending; the last is
    its own first use, the others those of tensors that may be computed from it."""
    found: list[set[int]] = [{one.first_use} for one in timeline.saved]
    for index in reversed(range(len(found))):
        one = timeline.saved[index]
        found[index] = set(sorted(found[index])[-_MOST_NEEDS:])
        for number in available(timeline, one):
            for source in one.recipes[number].inputs:
                first = timeline.saved[source].first_use
                found[source] |= {p for p in found[index] if p < first}
    return [sorted(positions) for positions in found]


@dataclass(frozen=True)
class _Cell:
    """Positions that the program sees as one. The limit is checked where it is a single one."""

    first: int
    last: int
    checked: bool


def _cells(checked: Sequence[int]) -> list[_Cell]:
    found: list[_Cell] = []
    for position, other in enumerate(checked):
        if other != position and found and not found[-1].checked:
            found[-1] = _Cell(found[-1].first, position, False)
        else:
            found.append(_Cell(position, position, other == position))
    return found


_Terms = list[tuple[int, float]]


class Model:
    """The program of one step. Bytes are in units of `unit`, so that numbers are near 1.

    A limit may be passed at a price above that of waiting, so that a first choice is never without
    a solution; `bound` is right all the same.
    """

    def __init__(self, timeline: Timeline, link: Link) -> None:
        self.timeline, self.link = timeline, link
        self.unit = float(max((one.nbytes for one in timeline.saved), default=1) or 1)
        self._total = sum(one.nbytes for one in timeline.saved) or 1
        self.tick = timeline.seconds / _TICKS or 1.0
        self.program = Program()
        same = alike(timeline)
        self._cells = _cells(same.checked)
        self._checked = np.asarray(same.checked)
        self.count = len(self._cells)
        self._cell = np.zeros(len(timeline.operations) + 1, dtype=np.int64)
        for number, cell in enumerate(self._cells):
            self._cell[cell.first : cell.last + 1] = number
        self._cell[-1] = self.count
        seconds = itertools.accumulate((one.seconds for one in timeline.operations), initial=0.0)
        self._starts = tuple(seconds)  # of the operations where the device waits for nothing
        self.waits = [self.program.column(cost=1.0) for _ in range(self.count)]
        self.computing: list[_Terms] = [[] for _ in range(self.count)]
        self.tensors = [
            _Tensor(one, needs)
            for one, needs in zip(timeline.saved, candidates(timeline), strict=True)
        ]
        self._decide(same.decided)
        self._input_rows: set[tuple[tuple[int, float], ...]] = set()
        for tensor in self.tensors:
            self._inputs(tensor)
        self._certain = np.asarray(certain_bytes(timeline), dtype=np.float64)
        self._positions = np.asarray([cell.first for cell in self._cells if cell.checked])
        self._rows = self._limits()
        self._host()
        self._solver = self.program.solver()

    def _decide(self, decided: list[int]) -> None:
        """Columns of each tensor; those that are decided together share them."""
        self.parts: list[list[int]] = []  # tensors that share columns
        shared: dict[tuple[int, int, tuple[Choice, ...]], int] = {}
        for index, tensor in enumerate(self.tensors):
            own = tuple(options(self.timeline, tensor.one))
            number = shared.setdefault((decided[index], len(tensor.needs), own), len(self.parts))
            if number == len(self.parts):
                self.parts.append([])
                self._policies(tensor)
            else:
                first = self.tensors[self.parts[number][0]]
                tensor.policies, tensor.back = first.policies, first.back
            self.parts[number].append(index)
            for choice in tensor.back:
                seconds = _seconds(tensor.one, choice)
                if choice.policy is Policy.REBUILD:
                    for number_, need in enumerate(tensor.needs):
                        terms = tensor.first_at(number_, seconds, choice)
                        self.computing[self._cell[need]] += terms
                self.program.cost[tensor.policies[choice]] += seconds / self.tick

    def _policies(self, tensor: _Tensor) -> None:
        one, program = tensor.one, self.program
        for choice in options(self.timeline, one):
            policy = program.column(1.0, _TIE * one.nbytes / self._total, whole=True)
            columns = [program.column(1.0) for _ in tensor.needs[:-1]] + [policy]
            tensor.policies[choice], tensor.back[choice] = policy, columns
            for before, after in itertools.pairwise(columns):
                program.row([(after, 1.0), (before, -1.0)], low=0.0)
        if len(tensor.policies) > 1:
            program.row([(column, 1.0) for column in tensor.policies.values()], high=1.0)

    def _inputs(self, tensor: _Tensor) -> None:
        """A tensor that is computed where it is needed has its inputs there, and in full."""
        readers: dict[int, list[list[int]]] = {}
        for choice, columns in tensor.back.items():
            if choice.policy is Policy.REBUILD:
                for read in tensor.one.recipes[choice.recipe].inputs:
                    readers.setdefault(read, []).append(columns)
        for index, ways in readers.items():
            source = self.tensors[index]
            squeeze = source.one.squeeze
            if SQUEEZE in source.policies and squeeze is not None and not squeeze.whole:
                together = [(columns[-1], 1.0) for columns in ways]
                self._apart([(source.policies[SQUEEZE], 1.0), *together])
            for number, need in enumerate(tensor.needs):
                if source.back and need < source.one.first_use:
                    here = [(columns[number], 1.0) for columns in ways]
                    self._apart([*source.absent(need), *here])

    def _apart(self, terms: _Terms) -> None:
        """At most one of them, each such row once."""
        key = tuple(sorted(terms))
        if key not in self._input_rows:
            self._input_rows.add(key)
            self.program.row(key, high=1.0)

    def _limits(self) -> np.ndarray:
        """Rows for every position: bytes, backlog of copies away, bytes fetched ahead."""
        held = [self._gap_bytes(), self._leaving_bytes(), self._ahead_bytes()]
        temporary = self._temporary_bytes()
        price = _EXCESS * (self.timeline.seconds + self.unit / self.link.from_host)
        self._excess = self.program.column(cost=price / self.tick)
        rows = []
        for number, cell in enumerate(self._cells):
            if cell.checked:
                terms = [(columns[number], 1.0) for columns in held]
                terms += [(column, 1.0) for column in temporary.get(number, ())]
                rows.append(self.program.row([*terms, (self._excess, -1.0)]))
        return np.asarray(rows)

    def limit(self, nbytes: int, margins: np.ndarray) -> None:
        """Allows `nbytes` less the margin of each position."""
        most = margins.copy()
        np.maximum.at(most, self._checked, margins)
        room = (nbytes - most - self._certain) / self.unit
        self._solver.row_bounds(self._rows, room[self._positions])

    def dearer(self, seconds: dict[int, float]) -> None:
        """Swapping costs these seconds more, by saved tensor."""
        columns = [column for t in self.tensors if (column := t.policies.get(SWAP)) is not None]
        costs = {column: self.program.cost[column] for column in columns}
        for index, more in seconds.items():
            costs[self.tensors[index].policies[SWAP]] += more / self.tick
        self._solver.cost(list(costs), list(costs.values()))

    def _host(self) -> None:
        """The time by which the host is ahead of the device before each cell, and at the end, is
        not negative. A sum that never falls needs no columns."""
        changes: list[_Terms] = [*([(wait, 1.0)] for wait in self.waits), []]
        constants, falls = [0.0] * (self.count + 1), False
        for number, cell in enumerate(self._cells):
            for operation in self.timeline.operations[cell.first : cell.last + 1]:
                constants[number + 1] += (operation.seconds - operation.host) / self.tick
            falls = falls or constants[number + 1] < 0.0
        for tensor in self.tensors:
            after = self._cell[tensor.one.produced + 1]
            for choice, policy in tensor.policies.items():
                made, back = (ahead / self.tick for ahead in self._ahead(tensor.one, choice))
                changes[after].append((policy, made))
                for number, need in enumerate(tensor.needs):
                    changes[self._cell[need]] += tensor.first_at(number, back, choice)
                falls = falls or made < 0.0 or back < 0.0
        if falls:
            self._running(changes, constants)

    def _ahead(self, one: Saved, choice: Choice) -> tuple[float, float]:
        """Seconds by which the host is further ahead after what a choice enqueues behind the
        production, and before the need."""
        if choice.policy is Policy.REBUILD:
            recipe = one.recipes[choice.recipe]
            return 0.0, recipe.seconds - recipe.host
        if choice.policy is Policy.SQUEEZE and one.squeeze is not None:
            half = (one.squeeze.seconds - one.squeeze.host) / 2
            return half, half
        return -self.link.host, -self.link.host

    def _running(
        self, changes: list[_Terms], constants: Sequence[float] | None = None
    ) -> list[int]:
        """Columns of running sums: each is the one before, plus the terms and the constant."""
        columns: list[int] = []
        for position, change in enumerate(changes):
            column = self.program.column()
            terms = [(column, 1.0)]
            if columns:
                terms.append((columns[-1], -1.0))
            terms += [(term, -factor) for term, factor in change]
            constant = constants[position] if constants is not None else 0.0
            self.program.row(terms, constant, constant)
            columns.append(column)
        return columns

    def _gap_bytes(self) -> list[int]:
        """Bytes held between the last use in forward and the first in backward."""
        changes: list[_Terms] = [[] for _ in range(self.count + 1)]
        constants, cell = [0.0] * (self.count + 1), self._cell
        for tensor in self.tensors:
            if not tensor.back:
                continue
            one, size = tensor.one, tensor.one.nbytes / self.unit
            first, last = cell[one.last_forward_use + 1], cell[one.first_use]
            constants[first] += size
            constants[last] -= size
            for choice, policy in tensor.policies.items():
                changes[first].append((policy, -size))
                for number, need in enumerate(tensor.needs):
                    changes[cell[need]] += tensor.first_at(number, size, choice)
                if choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                    small = one.squeeze.nbytes / self.unit
                    changes[cell[one.produced + 1]].append((policy, small))
                    changes[cell[one.last_use + 1]].append((policy, -small))
        return self._running(changes[: self.count], constants[: self.count])

    def _temporary_bytes(self) -> dict[int, list[int]]:
        """By cell, a column not below the temporary bytes of any recipe that runs there."""
        found: dict[int, list[int]] = {}
        for tensor in self.tensors:
            for number, need in enumerate(tensor.needs):
                terms = [
                    term
                    for choice in tensor.back
                    for term in tensor.first_at(
                        number, -self._temporary(tensor.one, choice, need), choice
                    )
                ]
                cell = int(self._cell[need])
                if self._cells[cell].checked and any(factor for _, factor in terms):
                    if cell not in found:
                        found[cell] = [self.program.column()]
                    self.program.row([(found[cell][0], 1.0), *terms], low=0.0)
        return found

    def _temporary(self, one: Saved, choice: Choice, need: int) -> float:
        if choice.policy is not Policy.REBUILD:
            return 0.0
        operation = self.timeline.operations[need]
        return operation.extra_bytes(one.recipes[choice.recipe]) / self.unit

    def _copied(self, number: int, rate: float) -> tuple[_Terms, float]:
        """Bytes that a direction copies before and during a cell: terms and a constant."""
        speed, cell = rate / self.unit, self._cells[number]
        terms = [(self.waits[number], speed * self.tick)]
        terms += [(column, speed * seconds) for column, seconds in self.computing[number]]
        return terms, speed * (self._starts[cell.last + 1] - self._starts[cell.first])

    def _leaving_bytes(self) -> list[int]:
        """A column for each cell: bytes that forward does not read any more and whose copy away has
        not ended."""
        program = self.program
        new: list[_Terms] = [[] for _ in range(self.count + 1)]  # before the cell
        read: list[_Terms] = [[] for _ in range(self.count + 1)]
        for tensor in self.tensors:
            column = tensor.policies.get(SWAP)
            if column is not None:
                one, size = tensor.one, tensor.one.nbytes / self.unit
                new[self._cell[one.produced + 1]].append((column, size))
                if one.last_forward_use > one.produced:
                    read[self._cell[one.produced + 1]].append((column, size))
                    read[self._cell[one.last_forward_use + 1]].append((column, -size))
        still_read = self._running(read[: self.count])
        held: list[int] = []
        after = -1
        for number in range(self.count):
            before = [(column, -size) for column, size in new[number]]
            if after >= 0:
                before.append((after, -1.0))
            held.append(program.column())
            program.row([(held[-1], 1.0), (still_read[number], 1.0), *before], low=0.0)
            copied, constant = self._copied(number, self.link.to_host)
            after = program.column()
            program.row([(after, 1.0), *copied, *before], low=-constant)
        return held

    def _ahead_bytes(self) -> list[int]:
        """Bytes that have to be back by the end of each cell, for later ones."""
        program = self.program
        wanted: list[_Terms] = [[] for _ in range(self.count)]
        for tensor in self.tensors:
            for number, need in enumerate(tensor.needs if SWAP in tensor.back else ()):
                terms = tensor.first_at(number, -tensor.one.nbytes / self.unit, SWAP)
                wanted[self._cell[need]] += terms
        ahead = [program.column() for _ in range(self.count)]
        for number in range(self.count - 1):
            # The wait of the next cell and its time serve what comes after it; what it needs itself
            # has to be there, but for the wait.
            copied, constant = self._copied(number + 1, self.link.from_host)
            here, later = (ahead[number], 1.0), (ahead[number + 1], -1.0)
            program.row([here, later, *copied, *wanted[number + 1]], low=-constant)
            if wanted[number + 1] and self._cells[number + 1].checked:
                wait = (self.waits[number + 1], self.link.from_host * self.tick / self.unit)
                program.row([here, wait, *wanted[number + 1]], low=0.0)
        return ahead

    def bound(self, end: float) -> float:
        """Seconds of the step that no plan is below, by the relaxation."""
        self._solver.free()
        return self._step(self._solver.relax(end, afresh=True).bound)

    def _step(self, ticks: float) -> float:
        return self._starts[-1] + self.tick * ticks

    def dive(self, end: float, share: float) -> Solution:
        """Choices from the relaxation: the ones that are nearest to whole are fixed, `share` of
        them at a time, and the others solved again; where these contradict each other, one.
        """
        self._solver.free()
        found = self._solver.relax(end, afresh=True)
        bound = self._step(found.bound)
        left = [self.tensors[part[0]] for part in self.parts if self.tensors[part[0]].policies]
        while left:
            near = sorted(((*_nearest(x, found.columns), x) for x in left), key=lambda e: -e[0])
            whole = sum(entry[0] >= _WHOLE for entry in near)
            if whole == len(near):
                break
            count = max(1, int((len(near) - whole) * share))
            fixed = near[: whole + count]
            self._solver.fix(*_values(fixed))
            try:
                found = self._solver.relax(end)
            except LookupError:
                if time.monotonic() > end - LEAST:
                    raise
                columns, values = _values(fixed)
                self._solver.between(columns, [1.0] * len(values))
                fixed = near[whole : whole + 1]
                found = self._alone(end, fixed[0][2], found)
            done = {id(tensor) for _, _, tensor in fixed}
            left = [tensor for tensor in left if id(tensor) not in done]
        return self._solution(found, bound)

    def _alone(self, end: float, tensor: _Tensor, found: Values) -> Values:
        """The relaxation where of one tensor the choice of most weight is fixed that contradicts no
        other."""
        weights = _weights(tensor, found.columns)
        for choice in sorted(weights, key=weights.__getitem__, reverse=True):
            self._solver.fix(*_values([(1.0, choice, tensor)]))
            with contextlib.suppress(LookupError):
                return self._solver.relax(end)
        raise LookupError("no choice of a tensor is possible with the others")

    def again(self, end: float, known: Solution) -> Solution:
        """The same choices under the present limit and margins."""
        self._solver.free()
        self._fix(known, free=set())
        found = self._solver.relax(end, afresh=True)
        return self._solution(found, known.bound)

    def improved(self, end: float, known: Solution, free: set[int]) -> Solution:
        """The best choices for the tensors of these parts, all others as they are."""
        self._solver.free()
        self._fix(known, free)
        most = min(end, time.monotonic() + _PART_SECONDS)
        found = self._solver.exact(most, _NEAR * _TICKS, known.columns)
        return self._solution(found, known.bound)

    def exact(self, end: float, known: Solution) -> Solution:
        """The best choices, or the best found by `end`, and a bound for all."""
        self._solver.free()
        found = self._solver.exact(end, _NEAR * _TICKS, known.columns)
        bound = max(self._step(found.bound), known.bound)
        return self._solution(found, bound)

    def _fix(self, known: Solution, free: set[int]) -> None:
        columns, values = [], []
        for number, part in enumerate(self.parts):
            if number not in free:
                policies, choice = self.tensors[part[0]].policies, known.choices[part[0]]
                columns += list(policies.values())
                values += [float(other == choice) for other in policies]
        self._solver.fix(columns, values)

    def _solution(self, found: Values, bound: float) -> Solution:
        choices = [_nearest(tensor, found.columns)[1] for tensor in self.tensors]
        excess = found.columns[self._excess] * self.unit
        return Solution(choices, self._step(found.objective), bound, excess, found.columns)


def _values(fixed: list[tuple[float, Choice, _Tensor]]) -> tuple[list[int], list[float]]:
    """Columns of choices, and their values."""
    pairs = [
        (column, float(other == choice))
        for _, choice, tensor in fixed
        for other, column in tensor.policies.items()
    ]
    return [column for column, _ in pairs], [value for _, value in pairs]


def _nearest(tensor: _Tensor, values: np.ndarray) -> tuple[float, Choice]:
    """The choice of most weight, and its weight."""
    weights = _weights(tensor, values)
    choice = max(weights, key=weights.__getitem__)
    return weights[choice], choice


def _weights(tensor: _Tensor, values: np.ndarray) -> dict[Choice, float]:
    weights = {choice: values[column] for choice, column in tensor.policies.items()}
    weights[KEEP] = 1.0 - sum(weights.values())
    return weights


def _seconds(one: Saved, choice: Choice) -> float:
    if choice.policy is Policy.REBUILD:
        return one.recipes[choice.recipe].seconds
    return one.squeeze.seconds if choice.policy is Policy.SQUEEZE and one.squeeze else 0.0
