"""A mixed integer program in the form that HiGHS takes, and its solution in bounded time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

LEAST = 0.1  # seconds, with less of which nothing is begun

Terms = Iterable[tuple[int, float]]


@dataclass
class Values:
    """A solution, its objective, and a value that no solution is below."""

    columns: np.ndarray
    objective: float
    bound: float = 0.0


def _silent() -> Any:
    """A solver of highspy's. The constructor of `Highs` writes a line to standard output, whatever
    its options; that of its base does not."""
    return highspy.Highs.__mro__[1]()


class Program:
    """Columns and rows. A row is a sum of columns within bounds; the cost is minimized."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.high: list[float] = []
        self.whole: list[int] = []
        self.row_low: list[float] = []
        self.row_high: list[float] = []
        self._begin: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []

    def column(self, high: float = np.inf, cost: float = 0.0, *, whole: bool = False) -> int:
        """A column from 0 to `high`."""
        self.cost.append(cost)
        self.high.append(high)
        if whole:
            self.whole.append(len(self.cost) - 1)
        return len(self.cost) - 1

    def row(self, terms: Terms, low: float = -np.inf, high: float = np.inf) -> int:
        """low <= sum of the terms <= high; terms of one column are added."""
        total: dict[int, float] = {}
        for column, factor in terms:
            total[column] = total.get(column, 0.0) + factor
        for column, factor in total.items():
            if factor != 0.0:
                self._index.append(column)
                self._value.append(factor)
        self._begin.append(len(self._index))
        self.row_low.append(low)
        self.row_high.append(high)
        return len(self.row_low) - 1

    def solver(self) -> Solver:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_, lp.col_upper_ = np.asarray(self.cost), np.asarray(self.high)
        lp.col_lower_ = np.zeros(len(self.cost))
        lp.row_lower_, lp.row_upper_ = np.asarray(self.row_low), np.asarray(self.row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.asarray(self._begin, dtype=np.int32)
        lp.a_matrix_.index_ = np.asarray(self._index, dtype=np.int32)
        lp.a_matrix_.value_ = np.asarray(self._value)
        return Solver(lp, np.asarray(self.whole, dtype=np.int32))


class Solver:
    """A program in HiGHS; a solution starts from the one before. All ends are of `time.monotonic`.

    Every call raises LookupError where no solution was found in time.
    """

    def __init__(self, lp: highspy.HighsLp, whole: np.ndarray) -> None:
        self.whole = whole
        self._usual = 0.0  # seconds of a relaxation from nothing
        self._highs = _silent()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("random_seed", 0)
        self._highs.passModel(lp)

    def row_bounds(self, rows: np.ndarray, high: np.ndarray) -> None:
        """sums of the rows <= high."""
        for row, most in zip(rows, high, strict=True):
            self._highs.changeRowBounds(int(row), -np.inf, float(most))

    def fix(self, columns: Sequence[int], values: Sequence[float]) -> None:
        ends = np.asarray(values, dtype=np.float64)
        self._highs.changeColsBounds(len(ends), np.asarray(columns, dtype=np.int32), ends, ends)

    def between(self, columns: Sequence[int], most: Sequence[float]) -> None:
        """Columns from 0 to `most`."""
        high = np.asarray(most, dtype=np.float64)
        numbers = np.asarray(columns, dtype=np.int32)
        self._highs.changeColsBounds(len(high), numbers, np.zeros(len(high)), high)

    def cost(self, columns: Sequence[int], costs: Sequence[float]) -> None:
        """Other costs of columns."""
        values = np.asarray(costs, dtype=np.float64)
        self._highs.changeColsCost(len(values), np.asarray(columns, dtype=np.int32), values)

    def free(self) -> None:
        """Whole columns are from 0 to 1 again."""
        count = len(self.whole)
        self._highs.changeColsBounds(count, self.whole, np.zeros(count), np.ones(count))

    def relax(self, end: float, *, afresh: bool = False) -> Values:
        """The relaxation, with what is fixed; `afresh` where much has changed."""
        began = _begin(end)
        if not afresh:
            with contextlib.suppress(LookupError):
                return self._relaxed(min(end, began + _PATIENCE * self._usual))
            if self._infeasible():
                raise LookupError("infeasible")
        self._highs.clearSolver()
        found = self._relaxed(end)
        self._usual = max(self._usual, time.monotonic() - began)
        return found

    def _relaxed(self, end: float) -> Values:
        # The clock of this limit never begins anew; that of a search for whole values does.
        found = self._run(self._highs.getRunTime() + end - time.monotonic())
        return Values(found.columns, found.objective, found.objective)

    def exact(self, end: float, enough: float, start: np.ndarray | None) -> Values:
        """Whole values within `enough` of the best."""
        _begin(end)
        highs, count = self._highs, len(self.whole)
        highs.setOptionValue("mip_abs_gap", enough)
        highs.setOptionValue("mip_rel_gap", 1e-6)
        kinds = np.asarray([highspy.HighsVarType.kInteger] * count)
        highs.changeColsIntegrality(count, self.whole, kinds)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = list(start)
            highs.setSolution(solution)
        try:
            return self._run(end - time.monotonic())
        finally:
            kinds = np.asarray([highspy.HighsVarType.kContinuous] * count)
            highs.changeColsIntegrality(count, self.whole, kinds)

    def _infeasible(self) -> bool:
        status = self._highs.getModelStatus()
        return bool(status == highspy.HighsModelStatus.kInfeasible)

    def _run(self, limit: float) -> Values:
        highs = self._highs
        highs.setOptionValue("time_limit", max(limit, 0.01))
        highs.run()
        info, status = highs.getInfo(), highs.getModelStatus()
        mixed = info.mip_dual_bound > -np.inf
        enough = mixed or status == highspy.HighsModelStatus.kOptimal
        if not enough or info.primal_solution_status != _FEASIBLE:
            raise LookupError(highs.modelStatusToString(status))
        columns = np.asarray(highs.getSolution().col_value)
        return Values(columns, info.objective_function_value, max(info.mip_dual_bound, 0.0))


def _begin(end: float) -> float:
    """The present time; LookupError where too little is left."""
    now = time.monotonic()
    if end - now < LEAST:
        raise LookupError(f"less than {LEAST} s are left")
    return now


_PATIENCE = 2.0  # times a relaxation from nothing, for one from the solution before
_FEASIBLE = highspy.SolutionStatus.kSolutionStatusFeasible
