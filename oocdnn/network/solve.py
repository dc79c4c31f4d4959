"""Choice of policies by a mixed integer program, solved by HiGHS.

Minimized: seconds in which the device waits for copies, and seconds of recipes. Constrained: device
bytes at every position of forward and backward. Copies are fluid here: a backlog grows by what is
produced and shrinks at the link's rate, forward in time for copies away and backward in time for
copies back. `planner.py` gives the positions and corrects what the fluid view misses by margins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import highspy
import numpy as np

from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Policy
from oocdnn.network.timeline import Link, Saved, Timeline, available, resident_bytes

_NEAR = 5e-4  # of the step: a solution this near to the bound is enough
_MOST_NEEDS = 6  # positions in backward at which one tensor may be wanted first
_WHOLE = 1e-6  # a value of the relaxation this near to 0 or 1 is whole
_TIE = 1e-6  # seconds for copying the whole step's bytes: keep rather than swap where equal


@dataclass
class Solution:
    """Choices, the seconds of the step that the program gives them, and its lower bound."""

    choices: list[Choice]
    seconds: float
    bound: float


class _Program:
    """Columns and rows in the form that HiGHS takes. A row is a sum of columns within bounds."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.whole: list[bool] = []
        self.row_low: list[float] = []
        self.row_high: list[float] = []
        self.begin: list[int] = [0]
        self.index: list[int] = []
        self.value: list[float] = []

    def column(
        self, low: float = 0.0, high: float = 1.0, cost: float = 0.0, whole: bool = False
    ) -> int:
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: dict[int, float], low: float, high: float) -> None:
        for column, factor in terms.items():
            if factor != 0.0:
                self.index.append(column)
                self.value.append(factor)
        self.begin.append(len(self.index))
        self.row_low.append(low)
        self.row_high.append(high)

    def solver(self) -> highspy.Highs:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = map(
            np.asarray, (self.cost, self.low, self.high)
        )
        lp.row_lower_, lp.row_upper_ = np.asarray(self.row_low), np.asarray(self.row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.asarray(self.begin, dtype=np.int32)
        lp.a_matrix_.index_ = np.asarray(self.index, dtype=np.int32)
        lp.a_matrix_.value_ = np.asarray(self.value)
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("random_seed", 0)
        highs.passModel(lp)
        return highs

    def solve(self, seconds: float, enough: float) -> _Values:
        """Whole values within `enough` of the relaxation's objective where time allows.

        First the relaxation; then its whole columns are fixed and the others decided; then, if that
        is not enough, all of them from there on. Raises LookupError where no whole solution was
        found.
        """
        end = time.monotonic() + seconds
        highs = self.solver()
        highs.setOptionValue("time_limit", seconds)
        relaxed = _run(highs)
        columns = np.flatnonzero(self.whole).astype(np.int32)
        values = relaxed.columns[columns]
        fixed = (values < _WHOLE) | (values > 1 - _WHOLE)
        highs.setOptionValue("mip_abs_gap", enough)
        highs.setOptionValue("mip_rel_gap", 1e-6)
        kinds = [highspy.HighsVarType.kInteger] * len(columns)
        highs.changeColsIntegrality(len(columns), columns, np.asarray(kinds))
        if fixed.any() and not fixed.all():
            ends = np.round(values[fixed])
            highs.changeColsBounds(int(fixed.sum()), columns[fixed], ends, ends)
            highs.setOptionValue("time_limit", max(0.5 * (end - time.monotonic()), 0.1))
            try:
                first: _Values | None = _run(highs)
            except LookupError:
                first = None
            count = int(fixed.sum())
            highs.changeColsBounds(count, columns[fixed], np.zeros(count), np.ones(count))
            if first is not None:
                if first.objective - relaxed.objective <= enough:
                    return _Values(first.columns, first.objective, relaxed.objective)
                solution = highspy.HighsSolution()
                solution.col_value = list(first.columns)
                highs.setSolution(solution)
        highs.setOptionValue("time_limit", max(end - time.monotonic(), 0.1))
        last = _run(highs)
        return _Values(last.columns, last.objective, max(relaxed.objective, last.bound))


@dataclass
class _Values:
    """A solution, its objective, and what no solution is below."""

    columns: np.ndarray
    objective: float
    bound: float


def _run(highs: highspy.Highs) -> _Values:
    highs.run()
    info = highs.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise LookupError(highs.modelStatusToString(highs.getModelStatus()))
    bound = max(info.mip_dual_bound, 0.0) if info.mip_dual_bound < float("inf") else 0.0
    values = np.asarray(highs.getSolution().col_value)
    return _Values(values, info.objective_function_value, bound)


@dataclass
class _Columns:
    """Columns of one saved tensor."""

    swap: int = -1
    squeeze: int = -1
    recipes: dict[int, int] = field(default_factory=dict)
    early: dict[int, int] = field(default_factory=dict)  # by position: needed there already
    held: dict[int, int] = field(default_factory=dict)  # by position: in memory there, not kept

    @property
    def gone(self) -> list[int]:
        """Columns whose sum is 1 where the tensor is not kept."""
        one = [column for column in (self.swap, self.squeeze) if column >= 0]
        return one + list(self.recipes.values())


def candidates(timeline: Timeline) -> list[list[int]]:
    """For each saved tensor the positions at which it may be needed first, ascending; the last is
    its own first use, the others those of tensors that may be computed from it."""
    found: list[set[int]] = [{one.first_use} for one in timeline.saved]
    for index in reversed(range(len(found))):
        one = timeline.saved[index]
        for recipe in one.recipes:
            for source in recipe.inputs:
                first = timeline.saved[source].first_use
                found[source] |= {p for p in found[index] if p < first}
        own = sorted(found[index])
        found[index] = set(own[-_MOST_NEEDS:])
    return [sorted(positions) for positions in found]


class _Model:
    """The program of one step. Bytes are in units of `unit`, so that numbers are near 1."""

    def __init__(self, timeline: Timeline, link: Link) -> None:
        self.timeline, self.link = timeline, link
        self.saved = timeline.saved
        self.unit = float(max((one.nbytes for one in self.saved), default=1) or 1)
        self.program = _Program()
        self.count = len(timeline.operations)
        self.needs = candidates(timeline)
        self.columns = [_Columns() for _ in self.saved]
        self.waits = [self.program.column(high=np.inf, cost=1.0) for _ in range(self.count)]
        self._policies()
        self._early_needs()

    def _bytes(self, nbytes: float) -> float:
        return nbytes / self.unit

    def _policies(self) -> None:
        total = sum(one.nbytes for one in self.saved) or 1
        for one, columns in zip(self.saved, self.columns, strict=True):
            if not one.movable or one.nbytes == 0:
                continue
            columns.swap = self.program.column(cost=_TIE * one.nbytes / total, whole=True)
            if one.squeeze is not None:
                columns.squeeze = self.program.column(cost=one.squeeze.seconds, whole=True)
            for number in available(self.timeline, one):
                cost = one.recipes[number].seconds
                columns.recipes[number] = self.program.column(cost=cost, whole=True)
            if len(columns.gone) > 1:
                self.program.row(dict.fromkeys(columns.gone, 1.0), -np.inf, 1.0)

    def _early_needs(self) -> None:
        for columns, positions in zip(self.columns, self.needs, strict=True):
            before = -1
            for position in positions[:-1] if columns.gone else ():
                early = columns.early[position] = self.program.column()
                held = columns.held[position] = self.program.column()
                # held >= early - kept
                terms = {held: 1.0, early: -1.0} | dict.fromkeys(columns.gone, -1.0)
                self.program.row(terms, -1.0, np.inf)
                if before >= 0:
                    self.program.row({early: 1.0, before: -1.0}, 0.0, np.inf)
                    last = columns.held[positions[positions.index(position) - 1]]
                    self.program.row({held: 1.0, last: -1.0}, 0.0, np.inf)
                before = early
        for index, (one, columns) in enumerate(zip(self.saved, self.columns, strict=True)):
            for number, column in columns.recipes.items():
                for source in one.recipes[number].inputs:
                    self._inputs_in_time(index, column, source)

    def _inputs_in_time(self, index: int, column: int, source: int) -> None:
        """A tensor that is computed where it is needed has its input there."""
        columns, inputs = self.columns[index], self.columns[source]
        for position in self.needs[index]:
            if position >= self.saved[source].first_use or not inputs.gone:
                continue
            terms = {column: -1.0}
            low = 0.0
            if position in columns.early:
                terms[columns.early[position]] = -1.0
                low = -1.0
            if position in inputs.early:
                terms[inputs.early[position]] = 1.0
                self.program.row(terms, low, np.inf)
            else:  # this need is not among the input's: then the input is kept, or no recipe
                for gone in inputs.gone:
                    terms[gone] = -1.0
                self.program.row(terms, low - 1.0, np.inf)

    def constrain(self, limit: float, margins: Sequence[float]) -> None:
        """Rows for every position: bytes, backlog of copies away, bytes fetched ahead."""
        gap = self._gap_bytes()
        leaving = self._leaving_bytes()
        ahead = self._ahead_bytes()
        fixed = self._certain_bytes()
        for position in range(self.count):
            terms: dict[int, float] = {gap[position]: 1.0}
            for column in (leaving[position], ahead[position]):
                terms[column] = 1.0
            most = limit - margins[position] - fixed[position]
            self.program.row(terms, -np.inf, self._bytes(most))

    def _certain_bytes(self) -> list[int]:
        """Bytes whatever the policies are: fixed ones, tensors while forward or backward reads
        them."""
        spans = [
            ((one.produced, one.last_forward_use), (one.first_use, one.last_use))
            if columns.gone
            else ((one.produced, one.last_use),)
            for one, columns in zip(self.saved, self.columns, strict=True)
        ]
        return resident_bytes(self.timeline, spans)

    def _running(self, changes: list[dict[int, float]], constants: list[float]) -> list[int]:
        """Columns of running sums: each is the one before, plus the terms and the constant."""
        columns: list[int] = []
        for position in range(self.count):
            column = self.program.column(high=np.inf)
            terms = {column: 1.0}
            if columns:
                terms[columns[-1]] = -1.0
            for term, factor in changes[position].items():
                terms[term] = terms.get(term, 0.0) - factor
            self.program.row(terms, constants[position], constants[position])
            columns.append(column)
        return columns

    def _gap_bytes(self) -> list[int]:
        """Bytes held between the last use in forward and the first in backward."""
        changes: list[dict[int, float]] = [{} for _ in range(self.count + 1)]
        constants = [0.0] * (self.count + 1)

        def change(position: int, column: int, by: float) -> None:
            changes[position][column] = changes[position].get(column, 0.0) + by

        for one, columns, positions in zip(self.saved, self.columns, self.needs, strict=True):
            size = self._bytes(one.nbytes)
            if not columns.gone:
                continue
            first, last = one.last_forward_use + 1, one.first_use
            constants[first] += size
            constants[last] -= size
            for column in columns.gone:  # not there
                change(first, column, -size)
                change(last, column, size)
            if one.squeeze is not None and columns.squeeze >= 0:
                small = self._bytes(one.squeeze.nbytes)
                change(one.produced, columns.squeeze, small)
                change(last + 1, columns.squeeze, -small)
            before = -1
            for position in positions[:-1]:  # there again before its own use
                held = columns.held[position]
                change(position, held, size)
                if before >= 0:
                    change(position, before, -size)
                before = held
            if before >= 0:
                change(last, before, -size)
            for number, column in columns.recipes.items():
                small = self._bytes(one.recipes[number].temporary_bytes)
                change(last, column, small)
                change(last + 1, column, -small)
        return self._running(changes[: self.count], constants[: self.count])

    def _copied(self, position: int, rate: float) -> tuple[dict[int, float], float]:
        """Bytes that a direction copies before and during an operation: columns and a constant."""
        speed = rate / self.unit
        terms = {self.waits[position]: speed}
        for columns, one in self._computed_at.get(position, ()):
            for number, column in columns.recipes.items():
                terms[column] = terms.get(column, 0.0) + speed * one.recipes[number].seconds
        return terms, speed * self.timeline.operations[position].seconds

    @cached_property
    def _computed_at(self) -> dict[int, list[tuple[_Columns, Saved]]]:
        found: dict[int, list[tuple[_Columns, Saved]]] = {}
        for one, columns in zip(self.saved, self.columns, strict=True):
            if columns.recipes:
                found.setdefault(one.first_use, []).append((columns, one))
        return found

    def _leaving_bytes(self) -> list[int]:
        """Bytes that forward does not read any more and whose copy away has not ended."""
        program, produced = self.program, self._swapped_by(lambda one: one.produced)
        ended = self._swapped_by(lambda one: one.last_forward_use)
        inside: list[dict[int, float]] = [{} for _ in range(self.count)]
        for position, terms in produced.items():
            for column, size in terms.items():
                inside[position][column] = inside[position].get(column, 0.0) + size
        for position, terms in ended.items():
            if position + 1 < self.count:
                for column, size in terms.items():
                    entry = inside[position + 1]
                    entry[column] = entry.get(column, 0.0) - size
        still_read = self._running(inside, [0.0] * self.count)
        backlog, held = -1, []
        for position in range(self.count):
            column = program.column(high=np.inf)
            held.append(column)
            if backlog >= 0:
                # Of the backlog at the beginning, without what is read at this position.
                program.row({column: 1.0, backlog: -1.0, still_read[position]: 1.0}, 0.0, np.inf)
            after = program.column(high=np.inf)
            copied, constant = self._copied(position, self.link.to_host)
            terms = {after: 1.0, **copied}
            if backlog >= 0:
                terms[backlog] = terms.get(backlog, 0.0) - 1.0
            program.row(terms, -constant, np.inf)
            backlog = program.column(high=np.inf)
            terms = {backlog: 1.0, after: -1.0}
            for swap, size in produced.get(position, {}).items():
                terms[swap] = terms.get(swap, 0.0) - size
            program.row(terms, 0.0, 0.0)
        return held

    def _swapped_by(self, key: object) -> dict[int, dict[int, float]]:
        found: dict[int, dict[int, float]] = {}
        for one, columns in zip(self.saved, self.columns, strict=True):
            if columns.swap >= 0:
                position = key(one)  # type: ignore[operator]
                found.setdefault(position, {})[columns.swap] = self._bytes(one.nbytes)
        return found

    def _ahead_bytes(self) -> list[int]:
        """Bytes that have to be back by the end of each operation, for later ones."""
        program = self.program
        wanted = self._wanted()
        ahead = [program.column(high=np.inf) for _ in range(self.count)]
        for position in range(self.count - 1):
            copied, constant = self._copied(position + 1, self.link.from_host)
            # The wait of the next operation and its time serve what comes after it; what it needs
            # itself has to be there, but for the wait.
            terms = {ahead[position]: 1.0, ahead[position + 1]: -1.0}
            for column, factor in copied.items():
                terms[column] = terms.get(column, 0.0) + factor
            for column, size in wanted.get(position + 1, {}).items():
                terms[column] = terms.get(column, 0.0) - size
            program.row(terms, -constant, np.inf)
            if position + 1 in wanted:
                strict = {
                    ahead[position]: 1.0,
                    self.waits[position + 1]: self.link.from_host / self.unit,
                }
                for column, size in wanted[position + 1].items():
                    strict[column] = strict.get(column, 0.0) - size
                program.row(strict, 0.0, np.inf)
        return ahead

    def _wanted(self) -> dict[int, dict[int, float]]:
        """Bytes of swapped tensors by the position at which they are needed first."""
        found: dict[int, dict[int, float]] = {}
        for one, columns, positions in zip(self.saved, self.columns, self.needs, strict=True):
            if columns.swap < 0:
                continue
            size, before = self._bytes(one.nbytes), -1
            for position in positions[:-1]:
                early = columns.early[position]
                here = self.program.column()
                # here >= swap + early - before - 1
                terms = {here: 1.0, columns.swap: -1.0, early: -1.0}
                if before >= 0:
                    terms[before] = 1.0
                self.program.row(terms, -1.0, np.inf)
                found.setdefault(position, {})[here] = size
                before = early
            last = self.program.column()
            terms = {last: 1.0, columns.swap: -1.0}
            if before >= 0:
                terms[before] = 1.0
            self.program.row(terms, 0.0, np.inf)
            found.setdefault(positions[-1], {})[last] = size
        return found

    def choices(self, values: np.ndarray) -> list[Choice]:
        found = []
        for columns in self.columns:
            choice = KEEP
            if columns.swap >= 0 and values[columns.swap] > 0.5:
                choice = SWAP
            elif columns.squeeze >= 0 and values[columns.squeeze] > 0.5:
                choice = SQUEEZE
            else:
                for number, column in columns.recipes.items():
                    if values[column] > 0.5:
                        choice = Choice(Policy.REBUILD, number)
            found.append(choice)
        return found


def solve(
    timeline: Timeline, link: Link, limit: int, margins: Sequence[float], seconds: float
) -> Solution:
    """Policies within `limit` less the margin of each position, in at most `seconds`.

    Raises LookupError where the program has no solution or none was found in time.
    """
    model = _Model(timeline, link)
    model.constrain(float(limit), margins)
    found = model.program.solve(seconds, _NEAR * timeline.seconds)
    step = timeline.seconds
    return Solution(model.choices(found.columns), step + found.objective, step + found.bound)
