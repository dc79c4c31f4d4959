"""Calls over host memory, timed beside the least time by the wires."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Protocol

import numpy as np

import oocdnn
from oocdnn.bench.gpu.wires import Bytes, Wires
from oocdnn.bench.measure import Patience, time_calls
from oocdnn.bench.studies.study import busy_text


class Gauging(Protocol):
    """A `Gauge`, or what stands in for one."""

    def rates(self, source: Bytes, target: Bytes, repeats: int) -> Wires: ...


@dataclass
class Timed:
    """One way to call; `bytes_in` and `bytes_out` count every byte once. `dropped`: calls that do
    not count, see `measure.Times`."""

    name: str
    bytes_in: int
    bytes_out: int
    wires: Wires
    seconds: list[float]
    stats: dict[str, Any]
    dropped: int = 0

    @property
    def floor(self) -> float:
        return self.wires.seconds(self.bytes_in, self.bytes_out)

    @property
    def ratio(self) -> float:
        return median(self.seconds) / self.floor

    def line(self) -> str:
        stats = self.stats
        return (
            f"{self.name:15} {median(self.seconds) * 1e3:8.2f} ms {self.ratio:6.3f} x "
            f"{self.floor * 1e3:7.2f} ms, {self.bytes_in / 1e9:.3f} GB in, "
            f"{self.bytes_out / 1e9:.3f} out, {stats['tiles']:4d} tiles, busy {busy_text(stats)}, "
            f"{stats['engine']}, predicted {stats['predicted_seconds'] * 1e3:.2f}"
        )


def total(calls: Sequence[Timed]) -> float:
    """Seconds of all, one after the other."""
    return sum(median(one.seconds) for one in calls)


@dataclass(frozen=True)
class Timer:
    """Times calls on a context, `repeats` times each."""

    context: oocdnn.Context
    gauge: Gauging
    repeats: int
    throttled: Callable[[], bool] = lambda: False

    def __call__(
        self, name: str, call: Callable[[], Any], sources: Sequence[Any], targets: Sequence[Any]
    ) -> tuple[Timed, Any]:
        """The call, after one that does not count, and its last result. `sources` and `targets` are
        the arrays that it reads and writes: the wires are those of the largest of either, and what
        the latter held is overwritten. The figures of the last call go with it."""
        source, target = (max(arrays, key=_size) for arrays in (sources, targets))
        wires = self.gauge.rates(_bytes_of(source), _bytes_of(target), repeats=3)
        made: list[Any] = [None]

        def work() -> None:
            made[0] = call()

        times = time_calls(work, Patience.exactly(self.repeats), throttled=self.throttled)
        bytes_in, bytes_out = (sum(map(_size, arrays)) for arrays in (sources, targets))
        stats = asdict(self.context.stats)
        return Timed(name, bytes_in, bytes_out, wires, times.warm, stats, times.dropped), made[0]


def _bytes_of(array: Any) -> Bytes:
    """The memory of a contiguous array."""
    found: Bytes = array.reshape(-1).view(np.uint8)
    return found


def _size(array: Any) -> int:
    return int(array.nbytes)
