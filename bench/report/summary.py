"""The results of a set in a few figures: how they lie over the floor, and all of them together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from oocdnn.bench.report.figures import over_floor, telling_budgets, with_budget
from oocdnn.bench.results import Row

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Summary:
    """Of one set and type by one peer: how many results count, their times over the floor, and the
    sum of the times over that of the floors, each as often as its layer occurs."""

    set: str
    who: str
    device: str
    dtype: str
    placement: str
    budget: int  # 0 where there are not several
    count: int
    median: float
    ninth: float  # nine in ten are at most this
    worst: float
    total: float

    @property
    def name(self) -> str:
        """Who, with the budget where there are several."""
        return with_budget(self.who, self.budget)


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """In the order of the rows; of sets with more than one result that counts."""
    found: list[Summary] = []
    for key, group in _groups(rows).items():
        parts: dict[int, list[Row]] = {}
        for row, budget in zip(group, telling_budgets(group), strict=True):
            parts.setdefault(budget, []).append(row)
        found += [_of(key, budget, part) for budget, part in parts.items() if len(part) > 1]
    return found


def _groups(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    """The results that count, by set and type and peer."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        key = (row["set"], row["who"], row["device"], row["dtype"], row["placement"])
        if row["set"] and over_floor(row) is not None:
            groups.setdefault(key, []).append(row)
    return groups


def _of(key: Key, budget: int, group: Sequence[Row]) -> Summary:
    ratios = sorted(over_floor(row) or math.nan for row in group)
    times, floors = (
        sum(row["times"] * (seconds or 0.0) for row, seconds in pairs)
        for pairs in (
            [(row, row["seconds"]) for row in group],
            [(row, row["floor_seconds"]) for row in group],
        )
    )
    ninth = ratios[math.ceil(0.9 * len(ratios)) - 1]
    return Summary(*key, budget, len(ratios), median(ratios), ninth, ratios[-1], times / floors)
