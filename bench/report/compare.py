"""What changed between two results of `oocdnn bench`."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from oocdnn.bench.results import Row, shown_seconds, verdict

Outcome = Literal["faster", "slower", "same"]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A problem by one peer before and after: the ratio of its seconds, after over before, and the
    interval that holds it with about 95 %, anything where either is of one call."""

    before: Row
    after: Row
    ratio: float
    low: float
    high: float

    @property
    def outcome(self) -> Outcome:
        if self.high < 1:
            return "faster"
        return "slower" if self.low > 1 else "same"


def _key(row: Row) -> Key:
    given = (row["problem"], row["who"], row["device"], row["placement"])
    return (*given, str(row["budget"]))


def _pairs(before: Sequence[Row], after: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """What both have, in the order of the second."""
    known = {_key(row): row for row in before}
    return ((known[_key(row)], row) for row in after if _key(row) in known)


def changes(before: Sequence[Row], after: Sequence[Row]) -> Iterator[Change]:
    """Of what both have with a time that is shown: that of a result that failed says nothing."""
    for old, new in _pairs(before, after):
        first, second = shown_seconds(old), shown_seconds(new)
        if first is None or second is None:
            continue
        ratio = second / first
        before_after = (old["noise"], new["noise"])
        noise = math.hypot(*(math.inf if one is None else one for one in before_after))
        yield Change(old, new, ratio, ratio * max(1 - noise, 0.0), ratio * (1 + noise))


def left_out(before: Sequence[Row], after: Sequence[Row]) -> Counter[str]:
    """How many of what both have are not compared, by their verdicts: "pass, then fail"."""
    return Counter(
        f"{verdict(old)}, then {verdict(new)}"
        for old, new in _pairs(before, after)
        if shown_seconds(old) is None or shown_seconds(new) is None
    )


def in_one_only(before: Sequence[Row], after: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What only the first has, and what only the second has."""
    old, new = {_key(row) for row in before}, {_key(row) for row in after}
    return (
        [row for row in before if _key(row) not in new],
        [row for row in after if _key(row) not in old],
    )
