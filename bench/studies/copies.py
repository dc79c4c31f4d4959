"""What keeps a GPU's copy engines from their full rate: short rows, far pages, events in between.

    oocdnn bench study copies --out result.json

Rows are copied between pinned host memory and the GPU, each `pitch` bytes behind the one before, in
one direction and in both at once. Then whole pieces in both directions, with what a pipeline puts
between two pieces on the stream that drains: nothing, plain events, events that wake a sleeping
host, time stamps.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np

import oocdnn
from oocdnn.bench.gpu.memory import Gpu, ordinal_of
from oocdnn.bench.studies.study import Run, device, study

WIDTHS = (512, 1024, 2048, 4096, 5376, 8192, 16384, 65536)
PITCHES = (4096, 16384, 65536, 147456, 1 << 20, 18874368)
SIZES = (1 << 20, 3 << 20, 6 << 20, 12845056, 24 << 20)
HOST_BYTES = 4 << 30  # half of it for each direction
COPY_BYTES = 64 << 20  # of rows in one call, at most
MOST_ROWS = 65536
PIECES_BYTES = 1 << 30  # of all pieces, in each direction
SLOTS = 4  # of pieces on the GPU
# Flags of events: CU_EVENT_BLOCKING_SYNC is 1, CU_EVENT_DISABLE_TIMING 2. Two of a kind each time.
BETWEEN = {"nothing": (), "plain events": (2, 2), "waking events": (3, 3), "time stamps": (0, 0)}


class Copies:
    """Host memory and device memory for both directions, and a stream for each: first that of what
    goes in."""

    def __init__(self, run: Run, ordinal: int, repeats: int) -> None:
        self._run, self._repeats, self._gpu = run, repeats, Gpu(ordinal)
        self._memory = oocdnn.empty(HOST_BYTES, np.uint8)
        self._host = (self._memory.ctypes.data, self._memory.ctypes.data + HOST_BYTES // 2)
        room = max(COPY_BYTES, SLOTS * max(SIZES))
        self._on_gpu = [self._gpu.allocate(room) for _ in range(2)]
        self._streams = [self._gpu.new_stream() for _ in range(2)]

    def close(self) -> None:
        for stream in self._streams:
            self._gpu.call("cuStreamDestroy_v2", stream)
        for address in self._on_gpu:
            self._gpu.free(address)

    def _idle(self) -> None:
        with self._gpu.current():
            for stream in self._streams:
                self._gpu.call("cuStreamSynchronize", stream)

    def _seconds(self, work: Callable[[], None]) -> float:
        """The best of a few, from an idle GPU to an idle GPU."""

        def call() -> None:
            work()
            self._idle()

        return min(self._run.time(call, self._repeats, self._idle).warm)

    def _rows(self, width: int, pitch: int, count: int, inward: bool) -> None:
        side = int(not inward)
        host, gpu = (self._host[side], pitch), (self._on_gpu[side], width)
        to, source = (gpu, host) if inward else (host, gpu)
        self._gpu.copy_rows(to, source, width, count, self._streams[side])

    def rates(self, width: int, pitch: int) -> tuple[float, float, float]:
        """GB/s in, out, and in both directions together."""
        count = min(HOST_BYTES // 2 // pitch, COPY_BYTES // width, MOST_ROWS)
        moved = width * count / 1e9

        def both() -> None:
            self._rows(width, pitch, count, True)
            self._rows(width, pitch, count, False)

        return (
            moved / self._seconds(lambda: self._rows(width, pitch, count, True)),
            moved / self._seconds(lambda: self._rows(width, pitch, count, False)),
            2 * moved / self._seconds(both),
        )

    def pieces(self, size: int, between: str) -> float:
        """GB/s of both directions together."""
        count = PIECES_BYTES // size
        with self._events(BETWEEN[between]) as events:
            seconds = self._seconds(lambda: self._enqueue(size, count, events))
        return 2 * count * size / seconds / 1e9

    def _enqueue(self, size: int, count: int, events: Sequence[c_void_p]) -> None:
        (fetched, drained), (into, outof) = self._host, self._on_gpu
        fetch, drain = self._streams
        call, bytes_ = self._gpu.call, c_size_t(size)
        with self._gpu.current():  # once: the host must not be what is slow
            for piece in range(count):
                offset, slot = piece * size, piece % SLOTS * size
                here, there = c_uint64(fetched + offset), c_uint64(into + slot)
                call("cuMemcpyAsync", there, here, bytes_, fetch)
                here, there = c_uint64(drained + offset), c_uint64(outof + slot)
                call("cuMemcpyAsync", here, there, bytes_, drain)
                for event in events:
                    call("cuEventRecord", event, drain)

    @contextmanager
    def _events(self, flags: Sequence[int]) -> Iterator[Sequence[c_void_p]]:
        events = [c_void_p() for _ in flags]
        with self._gpu.current():
            for event, flag in zip(events, flags, strict=True):
                self._gpu.call("cuEventCreate", byref(event), flag)
        yield events
        with self._gpu.current():
            for event in events:
                self._gpu.call("cuEventDestroy_v2", event)


@study("copies", device, repeats=3, on="gpu")
def command(run: Run, device: str, repeats: int) -> None:
    copies = Copies(run, ordinal_of(device), repeats)
    run.say("rows, GB/s in/out/both; columns: bytes from one row to the next")
    run.say(f"{'width':>8} " + " ".join(f"{pitch:>16}" for pitch in PITCHES))
    done = {row["width"] for row in run.rows("rows")}
    for width in run.left(WIDTHS, int, done):
        found = {str(pitch): copies.rates(width, pitch) for pitch in PITCHES if pitch >= width}
        cells = ["/".join(f"{rate:.1f}" for rate in found.get(str(pitch), ())) for pitch in PITCHES]
        row: dict[str, Any] = {"width": width, "rates": found}
        run.keep(row, f"{width:>8} " + " ".join(f"{cell:>16}" for cell in cells))
    run.say("pieces in both directions, GB/s together; between two drains: " + ", ".join(BETWEEN))
    done = {row["size"] for row in run.rows("pieces")}
    for size in run.left(SIZES, int, done):
        together = {between: copies.pieces(size, between) for between in BETWEEN}
        text = f"{size / 1e6:8.1f} MB " + " ".join(f"{rate:6.1f}" for rate in together.values())
        run.keep({"size": size, "rates": together}, text, to="pieces")
    copies.close()
