"""What keeps a GPU's copy engines from their full rate: short rows, far pages, events in between.

    python -m oocdnn.bench.gpu_copies

Rows are copied between pinned host memory and the GPU, each `pitch` bytes behind the one before, in
one direction and in both at once. Then whole pieces in both directions, with what a pipeline puts
between two pieces on the stream that drains: nothing, plain events, events that wake a sleeping
host, time stamps.
"""

import time
from collections.abc import Callable

import click
import cupy
import numpy as np

import oocdnn

WIDTHS = (512, 1024, 2048, 4096, 5376, 8192, 16384, 65536)
PITCHES = (4096, 16384, 65536, 147456, 1 << 20, 18874368)
SIZES = (1 << 20, 3 << 20, 6 << 20, 12845056, 24 << 20)
HOST_BYTES = 4 << 30  # half of it for each direction
COPY_BYTES = 64 << 20  # of rows in one call, at most
MOST_ROWS = 65536
REPEATS = 3
BETWEEN = ("nothing", "plain events", "waking events", "time stamps")

TO_DEVICE, TO_HOST = 1, 2  # cudaMemcpyKind
runtime = cupy.cuda.runtime


def stream() -> cupy.cuda.Stream:
    return cupy.cuda.Stream(non_blocking=True)


def seconds(work: Callable[[], None]) -> float:
    """The best of a few, from an idle GPU to an idle GPU."""
    times = []
    for _ in range(REPEATS + 1):
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        work()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


class Copies:
    """Host memory and device memory for both directions, and a stream for each."""

    def __init__(self) -> None:
        self.memory = oocdnn.empty(HOST_BYTES, np.uint8)
        self.host = (self.memory.ctypes.data, self.memory.ctypes.data + HOST_BYTES // 2)
        self.on_gpu = (cupy.cuda.alloc(2 * COPY_BYTES), cupy.cuda.alloc(2 * COPY_BYTES))
        self.streams = (stream(), stream())

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
            moved / seconds(lambda: self.rows(width, pitch, count, True)),
            moved / seconds(lambda: self.rows(width, pitch, count, False)),
            2 * moved / seconds(both),
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

        return 2 * count * size / seconds(work) / 1e9


@click.command(help=(__doc__ or "").partition("\n")[0])
def main() -> None:
    copies = Copies()
    click.echo("rows, GB/s in/out/both; columns: bytes from one row to the next")
    click.echo(f"{'width':>8} " + " ".join(f"{pitch:>16}" for pitch in PITCHES))
    for width in WIDTHS:
        cells = []
        for pitch in PITCHES:
            rates = copies.rates(width, pitch) if pitch >= width else ()
            cells.append("/".join(f"{rate:.1f}" for rate in rates))
        click.echo(f"{width:>8} " + " ".join(f"{cell:>16}" for cell in cells))
    click.echo(
        "pieces in both directions, GB/s together; between two drains: " + ", ".join(BETWEEN)
    )
    for size in SIZES:
        found = [copies.pieces(size, between) for between in BETWEEN]
        click.echo(f"{size / 1e6:8.1f} MB " + " ".join(f"{rate:6.1f}" for rate in found))


if __name__ == "__main__":
    main()
