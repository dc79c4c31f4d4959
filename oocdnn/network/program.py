"""A mixed integer program in the form that HiGHS takes, and its solution in bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import highspy
import numpy as np

_WHOLE = 1e-6  # a value of the relaxation this near to 0 or 1 is whole

Terms = Iterable[tuple[int, float]]


@dataclass
class Values:
    """A solution, its objective, and what no solution is below."""

    columns: np.ndarray
    objective: float
    bound: float


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

    def _solver(self) -> highspy.Highs:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_, lp.col_upper_ = np.asarray(self.cost), np.asarray(self.high)
        lp.col_lower_ = np.zeros(len(self.cost))
        lp.row_lower_, lp.row_upper_ = np.asarray(self.row_low), np.asarray(self.row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.asarray(self._begin, dtype=np.int32)
        lp.a_matrix_.index_ = np.asarray(self._index, dtype=np.int32)
        lp.a_matrix_.value_ = np.asarray(self._value)
        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("random_seed", 0)
        highs.passModel(lp)
        return highs

    def solve(self, seconds: float, enough: float) -> Values:
        """Whole values within `enough` of the relaxation's objective where time allows.

        First the relaxation; then its whole columns are fixed and the others decided; then, if that
        is not enough, all of them from there on. Raises LookupError where no whole solution was
        found.
        """
        end = time.monotonic() + seconds
        highs = self._solver()
        highs.setOptionValue("time_limit", seconds)
        relaxed = _run(highs)
        columns = np.asarray(self.whole, dtype=np.int32)
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
                first: Values | None = _run(highs)
            except LookupError:
                first = None
            count = int(fixed.sum())
            highs.changeColsBounds(count, columns[fixed], np.zeros(count), np.ones(count))
            if first is not None:
                if first.objective - relaxed.objective <= enough:
                    return Values(first.columns, first.objective, relaxed.objective)
                solution = highspy.HighsSolution()
                solution.col_value = list(first.columns)
                highs.setSolution(solution)
        highs.setOptionValue("time_limit", max(end - time.monotonic(), 0.1))
        last = _run(highs)
        return Values(last.columns, last.objective, max(relaxed.objective, last.bound))


def _run(highs: highspy.Highs) -> Values:
    highs.run()
    info = highs.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise LookupError(highs.modelStatusToString(highs.getModelStatus()))
    bound = max(info.mip_dual_bound, 0.0) if info.mip_dual_bound < float("inf") else 0.0
    values = np.asarray(highs.getSolution().col_value)
    return Values(values, info.objective_function_value, bound)
