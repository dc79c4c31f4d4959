"""The rates of a GPU's wires to pinned host memory, with nothing but the driver."""

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

import oocdnn

_SIZE = 256 << 20


@dataclass(frozen=True)
class Wires:
    """GB/s toward the GPU, from it, and of both at once in sum."""

    inward: float
    outward: float
    both: float

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


class Driver:
    """The driver's functions, by name: `driver("cuInit", 0)`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")  # an error of its own where there is none

    def __call__(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name} answers {code}")


def _best(work: Callable[[], None], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(ordinal: int = 0) -> Wires:
    """Copies of 256 MiB, several in a row, the best of five."""
    call = Driver()
    device, context = c_int(), c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    with oocdnn.Context(f"cuda:{ordinal}", "64MiB", profile="none"):
        host = [oocdnn.empty(_SIZE, np.uint8) for _ in range(2)]
    memory, streams = [c_uint64(), c_uint64()], [c_void_p(), c_void_p()]
    for pointer, stream in zip(memory, streams, strict=True):
        call("cuMemAlloc_v2", byref(pointer), c_size_t(_SIZE))
        call("cuStreamCreate", byref(stream), 1)

    def copies(inward: bool, outward: bool) -> float:
        count = 4

        def work() -> None:
            for _ in range(count):
                a, b = c_uint64(host[0].ctypes.data), c_uint64(host[1].ctypes.data)
                if inward:
                    call("cuMemcpyAsync", memory[0], a, c_size_t(_SIZE), streams[0])
                if outward:
                    call("cuMemcpyAsync", b, memory[1], c_size_t(_SIZE), streams[1])
            for stream in streams:
                call("cuStreamSynchronize", stream)

        return (inward + outward) * count * _SIZE / _best(work) / 1e9

    try:
        return Wires(copies(True, False), copies(False, True), copies(True, True))
    finally:
        for pointer, stream in zip(memory, streams, strict=True):
            call("cuStreamDestroy_v2", stream)
            call("cuMemFree_v2", pointer)
        call("cuCtxPopCurrent_v2", byref(c_void_p()))
