"""What a validation found, and the figures that sum it up."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WITHIN = 1.05  # of the best, which is good enough for a plan


@dataclass
class Measured:
    """One case: what was predicted, and what was."""

    problem: str
    budget: str
    placement: str  # of the operands: "host", "mixed", "device"
    plan: str
    engine: str
    bound: str  # the engine that is predicted to be busy longest
    predicted_seconds: float
    seconds: float  # the core's, or the device's
    whole_seconds: float  # with what Python does
    estimated_bytes: int  # while searching
    booked_bytes: int  # predicted before the call
    peak_bytes: int  # of the call
    first_seconds: float
    took: float = 0.0  # seconds, with making the arrays

    @property
    def error(self) -> float:
        return self.predicted_seconds / self.seconds - 1

    @property
    def bytes_error(self) -> float:
        off = self.booked_bytes - self.peak_bytes
        return off / max(self.peak_bytes, 1)


@dataclass
class Regret:
    """The times of one case's plans, the chosen first; seconds of each, and as predicted."""

    problem: str
    budget: str
    placement: str = "host"
    plans: list[str] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    took: float = 0.0

    @property
    def ratio(self) -> float:
        return self.seconds[0] / min(self.seconds)

    @property
    def best(self) -> str:
        return self.plans[self.seconds.index(min(self.seconds))]


def validated(
    measured: Iterable[Mapping[str, Any]], regrets: Iterable[Mapping[str, Any]]
) -> tuple[list[Measured], list[Regret]]:
    """From the rows of a journal."""
    return [Measured(**row) for row in measured], [Regret(**row) for row in regrets]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def groups(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """What is summed up apart: all, by what bounds them, and by where their operands are."""
    named = {
        "all": list(measured),
        "bound by arithmetic": [one for one in measured if one.bound == "compute"],
        "bound by wires": [one for one in measured if one.bound != "compute"],
    }
    for placement in dict.fromkeys(one.placement for one in measured):
        named[f"operands: {placement}"] = [one for one in measured if one.placement == placement]
    return {name: some for name, some in named.items() if some}


def summary(measured: Sequence[Measured], regrets: Sequence[Regret]) -> dict[str, float]:
    """Medians and 95th percentiles of what was found."""
    found: dict[str, float] = {}
    for name, some in groups(measured).items():
        errors = [abs(one.error) for one in some]
        found[f"{name}: cases"] = len(some)
        found[f"{name}: |error| median"] = statistics.median(errors)
        found[f"{name}: |error| 95th percentile"] = quantile(errors, 0.95)
        found[f"{name}: |error| worst"] = max(errors)
    if measured:
        found["bytes: |error| worst"] = max(abs(one.bytes_error) for one in measured)
        found["first call worst, s"] = max(one.first_seconds for one in measured)
    if regrets:
        ratios = [one.ratio for one in regrets]
        found["regret: cases"] = len(ratios)
        found["regret: share within 5 %"] = sum(ratio <= WITHIN for ratio in ratios) / len(ratios)
        found["regret: worst"] = max(ratios)
    return found
