"""Arrays in a GPU's memory and times by its clock, with nothing but the driver."""

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._mapped import Array

_BLOCK = 1_000_003  # elements that repeat: a prime, so that no two rows of an array are alike
_PIECE = 32 << 20  # bytes that are compared at once
_BALLAST = 256 << 20
_MOST_BALLAST = 400  # copies, which take some tens of milliseconds


class Driver:
    """The driver's functions, by name: `driver("cuInit", 0)`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")  # an error of its own where there is none

    def __call__(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name} answers {code}")


class Gpu:
    """A GPU's primary context, and a stream in whose order everything here happens."""

    def __init__(self, ordinal: int = 0) -> None:
        self.call = call = Driver()
        device, self._context, stream = c_int(), c_void_p(), c_void_p()
        call("cuInit", 0)
        call("cuDeviceGet", byref(device), ordinal)
        call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        non_blocking = 1
        with self.current():
            call("cuStreamCreateWithPriority", byref(stream), non_blocking, 0)
        self.stream = stream.value or 0

    @contextmanager
    def current(self) -> Iterator[None]:
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def allocate(self, size: int) -> int:
        """An address. Raises RuntimeError where there is no room."""
        pointer = c_uint64()
        with self.current():
            self.call("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 1)))
        return pointer.value

    def free(self, address: int) -> None:
        with self.current():
            self.call("cuMemFree_v2", c_uint64(address))

    def copy(self, to: int, source: int, size: int) -> None:
        """Enqueued; the memory of both is the GPU's, or pinned."""
        with self.current():
            addresses = c_uint64(to), c_uint64(source)
            self.call("cuMemcpyAsync", *addresses, c_size_t(size), c_void_p(self.stream))

    def synchronize(self) -> None:
        with self.current():
            self.call("cuStreamSynchronize", c_void_p(self.stream))


class DeviceArray:
    """An array that the functions of oocdnn take. Strides in bytes; None: row-major."""

    def __init__(
        self,
        gpu: Gpu,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        strides: Sequence[int] | None = None,
    ) -> None:
        self._gpu, self.shape, self.dtype = gpu, tuple(shape), np.dtype(dtype)
        self.strides = None if strides is None else tuple(strides)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self.address = gpu.allocate(self.nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._gpu.free(self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # NumPy has no bfloat16 of its own: it travels as bytes.
        name = "|V2" if self.dtype.name == "bfloat16" else self.dtype.str
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": name,
            "data": (self.address, False),
            "version": 3,
            "stream": self._gpu.stream,
        }

    @classmethod
    def like(cls, gpu: Gpu, values: Array) -> "DeviceArray":
        """A copy of an array in pinned memory without gaps, in its memory order."""
        made = cls(gpu, values.shape, values.dtype, values.strides)
        if made.nbytes:
            gpu.copy(made.address, values.ctypes.data, made.nbytes)
            gpu.synchronize()
        return made

    def repeat(self, block: Array) -> "DeviceArray":
        """Fills the memory with a block of pinned memory, again and again."""
        done = min(block.nbytes, self.nbytes)
        if done == 0:
            return self
        self._gpu.copy(self.address, block.ctypes.data, done)
        while done < self.nbytes:
            size = min(done, self.nbytes - done)
            self._gpu.copy(self.address + done, self.address, size)
            done += size
        self._gpu.synchronize()
        return self

    def integers(self, largest: int, seed: int) -> "DeviceArray":
        """Fills it with random integers from -largest to largest."""
        random, block = np.random.default_rng(seed), oocdnn.empty(_BLOCK, self.dtype)
        block[...] = random.integers(-largest, largest, _BLOCK, np.int8, endpoint=True)
        return self.repeat(block)

    def spoil(self) -> None:
        """Leaves no number in it."""
        with self._gpu.current():
            size, stream = c_size_t(self.nbytes), c_void_p(self._gpu.stream)
            self._gpu.call("cuMemsetD8Async", c_uint64(self.address), 0xFF, size, stream)

    def differing(self, other: "DeviceArray") -> int:
        """How many elements are not those of the other, which has the same memory order."""
        here = [oocdnn.empty(min(_PIECE, self.nbytes), np.uint8) for _ in range(2)]
        wrong = 0
        for begin in range(0, self.nbytes, _PIECE):
            size = min(_PIECE, self.nbytes - begin)
            for block, array in zip(here, (self, other), strict=True):
                self._gpu.copy(block.ctypes.data, array.address + begin, size)
            self._gpu.synchronize()
            mine, theirs = (block[:size].view(self.dtype) for block in here)
            wrong += int(np.count_nonzero(mine != theirs))
        return wrong


class Stopwatch:
    """Times work that calls enqueue on the GPU's stream.

    The GPU copies ballast before each call for as long as Python takes to enqueue it, so that no
    time of Python's is in the result; that also leaves nothing of the operands in its caches.
    """

    def __init__(self, gpu: Gpu, ballast: int = _BALLAST) -> None:
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
