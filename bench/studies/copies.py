"""What keeps a GPU's copy engines from their full rate: short rows, far pages, events in between.

    oocdnn bench study copies --out result.json

Rows are copied between pinned host memory and the GPU, each `pitch` bytes behind the one before, in
one direction and in both at once. Then whole pieces in both directions, with what a pipeline puts
between two pieces on the stream that drains: nothing, plain events, events that wake a sleeping
host, time stamps.
"""

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

import oocdnn
from oocdnn.bench.studies.study import Run, study

WIDTHS = (512, 1024, 2048, 4096, 5376, 8192, 16384, 65536)
PITCHES = (4096, 16384, 65536, 147456, 1 << 20, 18874368)
SIZES = (1 << 20, 3 << 20, 6 << 20, 12845056, 24 << 20)
HOST_BYTES = 4 << 30  # half of it for each direction
COPY_BYTES = 64 << 20  # of rows in one call, at most
MOST_ROWS = 65536
BETWEEN = ("nothing", "plain events", "waking events", "time stamps")

TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
runtime = cupy.cuda.runtime


def stream() -> cupy.cuda.Stream:
    return cupy.cuda.Stream(non_blocking=True)


class Copies:
    """Host memory and device memory for both directions, and a stream for each."""

    def __init__(self, run: Run, repeats: int) -> None:
        self._run, self._repeats = run, repeats
        self.memory = oocdnn.empty(HOST_BYTES, np.uint8)
        self.host = (self.memory.ctypes.data, self.memory.ctypes.data + HOST_BYTES // 2)
        self.on_gpu = (cupy.cuda.alloc(2 * COPY_BYTES), cupy.cuda.alloc(2 * COPY_BYTES))
        self.streams = (stream(), stream())

    def _seconds(self, work: Callable[[], None]) -> float:
        """The best of a few, from an idle GPU to an idle GPU."""
        idle = cupy.cuda.Device().synchronize

        def call() -> None:
            work()
            idle()

        return min(self._run.time(call, self._repeats, idle).warm)

    def rows(self, width: int, pitch: int, count: int, inward: bool) -> None:
        host, gpu = self.host[not inward], self.on_gpu[not inward].ptr
        there, here = ((gpu, width), (host, pitch))[:: 1 if inward else -1]
        kind = TO_DEVICE if inward else TO_HOST
        runtime.memcpy2DAsync(*there, *here, width, count, kind, self.streams[not inward].ptr)

    def rates(self, width: int, pitch: int) -> tuple[float, float, float]:
        """GB/s in, out, and in both directions together."""
        count = min(HOST_BYTES // 2 // pitch, COPY_BYTES // width, MOST_ROWS)
        moved = width * count / 1e9

        def both() -> None:
            self.rows(width, pitch, count, True)
            self.rows(width, pitch, count, False)

        return (
            moved / self._seconds(lambda: self.rows(width, pitch, count, True)),
            moved / self._seconds(lambda: self.rows(width, pitch, count, False)),
            2 * moved / self._seconds(both),
        )

    def pieces(self, size: int, between: str) -> float:
        """GB/s of both directions together."""
        count = (1 << 30) // size
        plain = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]
        waking = [cupy.cuda.Event(block=True, disable_timing=True) for _ in range(2)]
        stamps = [cupy.cuda.Event() for _ in range(2)]
        events = {"plain events": plain, "waking events": waking, "time stamps": stamps}
        inward, outward = self.streams

        def work() -> None:
            for piece in range(count):
                offset, slot = piece * size, piece % 4 * size
                runtime.memcpyAsync(
                    self.on_gpu[0].ptr + slot, self.host[0] + offset, size, TO_DEVICE, inward.ptr
                )
                runtime.memcpyAsync(
                    self.host[1] + offset, self.on_gpu[1].ptr + slot, size, TO_HOST, outward.ptr
                )
                for event in events.get(between, ()):
                    event.record(outward)

        return 2 * count * size / self._seconds(work) / 1e9


@study("copies", repeats=3, on="gpu")
def command(run: Run, repeats: int) -> None:
    copies = Copies(run, repeats)
    run.say("rows, GB/s in/out/both; columns: bytes from one row to the next")
    run.say(f"{'width':>8} " + " ".join(f"{pitch:>16}" for pitch in PITCHES))
    done = {row["width"] for row in run.rows("rows")}
    for width in run.left(WIDTHS, int, done):
        found = {pitch: copies.rates(width, pitch) for pitch in PITCHES if pitch >= width}
        cells = ["/".join(f"{rate:.1f}" for rate in found.get(pitch, ())) for pitch in PITCHES]
        row: dict[str, Any] = {"width": width, "rates": found}
        run.keep(row, f"{width:>8} " + " ".join(f"{cell:>16}" for cell in cells))
    run.say("pieces in both directions, GB/s together; between two drains: " + ", ".join(BETWEEN))
    done = {row["size"] for row in run.rows("pieces")}
    for size in run.left(SIZES, int, done):
        together = {between: copies.pieces(size, between) for between in BETWEEN}
        text = f"{size / 1e6:8.1f} MB " + " ".join(f"{rate:6.1f}" for rate in together.values())
        run.keep({"size": size, "rates": together}, text, to="pieces")
