"""Times of work on a GPU by its own clock."""

import math
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_void_p
from statistics import median

from oocdnn.bench.gpu.memory import Gpu

BALLAST = 256 << 20  # bytes
_MOST_BALLAST = 400  # copies, which take some tens of milliseconds


class Stopwatch:
    """Times work that calls enqueue on the GPU's stream.

    The GPU copies ballast before each call for as long as Python takes to enqueue it, so that no
    time of Python's is in the result; that also leaves nothing of the operands in its caches.
    """

    def __init__(self, gpu: Gpu, ballast: int = BALLAST) -> None:
        self._gpu, self._size = gpu, ballast
        self._places = gpu.allocate(ballast), gpu.allocate(ballast)
        self._events = c_void_p(), c_void_p()
        with gpu.current():
            for event in self._events:
                gpu.call("cuEventCreate", byref(event), 0)
        self._copy_seconds = min(self._span(self._ballast_copy) for _ in range(3))

    def close(self) -> None:
        with self._gpu.current():
            for event in self._events:
                self._gpu.call("cuEventDestroy_v2", event)
        for place in self._places:
            self._gpu.free(place)

    def _ballast_copy(self) -> None:
        self._gpu.copy(self._places[0], self._places[1], self._size)

    def _span(self, work: Callable[[], object]) -> float:
        """Seconds between events around the work, which is then done."""
        begin, end = self._events
        elapsed, stream = c_float(), c_void_p(self._gpu.stream)
        with self._gpu.current():
            self._gpu.call("cuEventRecord", begin, stream)
            work()
            self._gpu.call("cuEventRecord", end, stream)
            self._gpu.call("cuEventSynchronize", end)
            self._gpu.call("cuEventElapsedTime", byref(elapsed), begin, end)
        return elapsed.value * 1e-3

    def _copies(self, call: Callable[[], object]) -> int:
        """Of ballast, that take twice as long as it takes to enqueue the call."""
        self._gpu.synchronize()
        start = time.perf_counter()
        call()
        enqueue = time.perf_counter() - start
        return min(math.ceil(2 * enqueue / max(self._copy_seconds, 1e-6)), _MOST_BALLAST)

    def turns(self, calls: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
        """Seconds of each call, `repeats` times, after one that is not counted; they take turns."""
        for call in calls:
            call()
        copies = [self._copies(call) for call in calls]
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(repeats):
            for times, call, count in zip(seconds, calls, copies, strict=True):
                for _ in range(count):
                    self._ballast_copy()
                times.append(self._span(call))
        return seconds

    def median(self, call: Callable[[], object], repeats: int) -> float:
        return median(self.turns([call], repeats)[0])
