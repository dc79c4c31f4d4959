"""The rates of a GPU's wires to pinned host memory, with nothing but the driver."""

import time
from contextlib import ExitStack
from ctypes import byref, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

import oocdnn
from oocdnn.bench.gpu.memory import Gpu

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_SIZE, _COPIES = 256 << 20, 4


@dataclass(frozen=True)
class Wires:
    """GB/s toward the GPU, from it, and of both at once in sum."""

    inward: float
    outward: float
    both: float

    @property
    def text(self) -> str:
        return f"GB/s in {self.inward:.1f}, out {self.outward:.1f}, both {self.both:.1f}"

    def floors(self, bytes_in: int, bytes_out: int) -> dict[str, float]:
        """The least seconds in which so many bytes cross, by what limits them."""
        return {
            "in": bytes_in / self.inward / 1e9,
            "out": bytes_out / self.outward / 1e9,
            "both": (bytes_in + bytes_out) / self.both / 1e9,
        }

    def duplex(self, bytes_in: int, bytes_out: int) -> float:
        """The least seconds where the directions, while both are in use, go at half the rate of
        both each, which is how they share: less than that no one gets on a card like this."""
        together = min(bytes_in, bytes_out)
        alone = self.inward if bytes_in > bytes_out else self.outward
        rest = abs(bytes_in - bytes_out)
        return 2 * together / self.both / 1e9 + rest / alone / 1e9

    def seconds(self, bytes_in: int, bytes_out: int) -> float:
        """The least time in which so many bytes cross."""
        return max(self.floors(bytes_in, bytes_out).values())


class Gauge:
    """Copies of 256 MiB, several in a row, over memory of its own or a caller's. A context manager:
    gives its memory back."""

    def __init__(self, ordinal: int = 0) -> None:
        gpu = Gpu(ordinal)
        self._gpu, self._call, self._current = gpu, gpu.call, gpu.current
        with oocdnn.Context(f"cuda:{ordinal}", "64MiB", profile="none"):
            self._own = [oocdnn.empty(_SIZE, np.uint8) for _ in range(2)]
        self._there, self._streams = [c_uint64(), c_uint64()], [c_void_p(), c_void_p()]

    def __enter__(self) -> "Gauge":
        with self._current(), ExitStack() as made:
            made.callback(self._release)  # where not all can be made
            for i in range(2):
                self._call("cuMemAlloc_v2", byref(self._there[i]), c_size_t(_SIZE))
                self._streams[i] = self._gpu.new_stream()
            made.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._current():
            self._release()

    def _release(self) -> None:
        for pointer, stream in zip(self._there, self._streams, strict=True):
            if stream.value is not None:
                self._call("cuStreamDestroy_v2", stream)
            if pointer.value != 0:
                self._call("cuMemFree_v2", pointer)
        self._own.clear()

    @staticmethod
    def _offset(memory: Bytes, copy: int) -> int:
        """Where the copy begins: evenly over the memory, or piece by piece again and again."""
        pieces = memory.nbytes // _SIZE
        return int(_SIZE * (copy * max(pieces // _COPIES, 1) % pieces))

    def rates(
        self, source: Bytes | None = None, target: Bytes | None = None, repeats: int = 5
    ) -> Wires:
        """The best of `repeats`; the target is overwritten. Where the pages of pinned memory lie
        makes a difference of 15 percent, so it is looked at where it matters; memory of less than
        256 MiB tells nothing, and is not."""
        given = (source, target)
        host = [
            own if one is None or one.nbytes < _SIZE else one
            for one, own in zip(given, self._own, strict=True)
        ]

        def seconds(inward: bool, outward: bool) -> float:
            (here, there), (fetch, drain) = self._there, self._streams
            start = time.perf_counter()
            for i in range(_COPIES):
                a, b = (c_uint64(memory.ctypes.data + self._offset(memory, i)) for memory in host)
                if inward:
                    self._call("cuMemcpyAsync", here, a, c_size_t(_SIZE), fetch)
                if outward:
                    self._call("cuMemcpyAsync", b, there, c_size_t(_SIZE), drain)
            for stream in self._streams:
                self._call("cuStreamSynchronize", stream)
            return time.perf_counter() - start

        def rate(inward: bool, outward: bool) -> float:
            best = min(seconds(inward, outward) for _ in range(repeats))
            return (inward + outward) * _COPIES * _SIZE / best / 1e9

        with self._current():
            both = rate(True, True)  # of which each direction has half, and is no slower alone
            return Wires(max(rate(True, False), both / 2), max(rate(False, True), both / 2), both)


def measure(ordinal: int = 0) -> Wires:
    """The rates over new memory."""
    with Gauge(ordinal) as gauge:
        return gauge.rates()
