"""A row of the study `floor`: its limits, how near the calls came, and the summary of all rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from oocdnn.bench.gpu.wires import Wires
from oocdnn.bench.layers import Direction
from oocdnn.bench.studies.study import busy_text

MUCH = 1 << 30  # bytes moved, from which on the worst ratio counts
Seconds = dict[str, Any]  # by memory order; a text where there are none, or none that count


def counting(*found: Seconds) -> list[float]:
    """The seconds that count."""
    return [one for seconds in found for one in seconds.values() if isinstance(one, float)]


@dataclass
class Measured:
    """One layer in one direction and one kind of arithmetic."""

    layer: str
    direction: Direction
    math: str
    problem: str
    bytes_in: int
    bytes_out: int
    flops: int
    torch_seconds: dict[str, Any] = field(default_factory=dict)  # both in core, where they matter
    own_seconds: dict[str, Any] = field(default_factory=dict)
    first: float = 0.0  # seconds of the first call, which plans and prepares
    seconds: list[float] = field(default_factory=list)
    dropped: int = 0  # calls that do not count
    prepared: int = 0  # of the later calls
    difference: float = 0.0
    wrong: int = 0
    stats: dict[str, Any] = field(default_factory=dict)
    plan: str = ""
    wires: Wires | None = None
    floors: dict[str, float] = field(default_factory=dict)
    duplex: float = 0.0  # seconds, see Wires
    took: float = 0.0  # seconds, with filling, torch and the comparison

    @property
    def least(self) -> float:
        """The floor, or what the wire takes where its directions share it evenly."""
        return max(self.floor[1], self.duplex)

    @property
    def floor(self) -> tuple[str, float]:
        """The name of the limit, and its seconds."""
        return max(self.floors.items(), key=lambda item: item[1])

    @property
    def ratio(self) -> float:
        return median(self.seconds) / self.floor[1]


def note_floors(one: Measured, wires: Wires) -> None:
    """Sets the seconds of each limit."""
    times = counting(one.torch_seconds, one.own_seconds)
    one.wires = wires
    one.floors = {
        **wires.floors(one.bytes_in, one.bytes_out),
        "arithmetic": min([*times, one.stats["compute_seconds"]]),
    }
    one.duplex = wires.duplex(one.bytes_in, one.bytes_out)


def line(one: Measured) -> str:
    limit, floor = one.floor
    return (
        f"{one.layer:<21} {one.direction:<10} {one.math} {median(one.seconds) * 1e3:8.2f} ms "
        f"{one.ratio:6.3f} x {limit:<10} {floor * 1e3:8.2f} ms, "
        f"{median(one.seconds) / one.least:6.3f} x shared, first {one.first:5.2f} s, "
        f"{one.stats['tiles']:4d} tiles, busy {busy_text(one.stats)}, {one.stats['engine']}"
        f"{'' if one.wrong == 0 else f', {one.wrong} DIFFER by {one.difference:g}'}"
        f"{'' if one.prepared == 0 else f', prepared {one.prepared} later'}"
    )


def summary(measured: Sequence[Measured]) -> dict[str, float]:
    """Medians and worst over all rows."""
    large = [one.ratio for one in measured if one.bytes_in + one.bytes_out >= MUCH]
    return {
        "time/floor median": median(one.ratio for one in measured),
        "time/floor worst from 1 GiB on": max(large, default=math.nan),
        "time/shared wire median": median(median(one.seconds) / one.least for one in measured),
        "first call worst, s": max(one.first for one in measured),
        "elements that differ": sum(one.wrong for one in measured),
    }


def row_of(fields: Mapping[str, Any]) -> Measured:
    """From a journal."""
    return Measured(**{**fields, "wires": Wires(**fields["wires"])})
