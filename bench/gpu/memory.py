"""Arrays in a GPU's memory, with nothing but the driver."""

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._arrays.mapped import Array

_BLOCK = 1_000_003  # elements that repeat: a prime, so that no two rows of an array are alike
_PIECE = 32 << 20  # bytes that are compared at once


def ordinal_of(device: str) -> int:
    """The number of the GPU that is called "cuda" or "cuda:1"."""
    return int(device.partition(":")[2] or 0)


class Driver:
    """The driver's functions, by name: `driver("cuInit", 0)`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")  # an error of its own where there is none

    def __call__(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name} answers {code}")


class _Side3D(ctypes.Structure):
    """One side of a CUDA_MEMCPY3D, up to its pitch and height."""

    _fields_ = (
        *((name, c_size_t) for name in ("x", "y", "z", "lod")),
        ("type", c_int),
        *((name, c_uint64) for name in ("host", "device", "array", "reserved")),
        *((name, c_size_t) for name in ("pitch", "height")),
    )


class _Copy3D(ctypes.Structure):
    """A CUDA_MEMCPY3D."""

    _fields_ = (
        ("source", _Side3D),
        ("to", _Side3D),
        *((name, c_size_t) for name in ("width", "height", "depth")),
    )


UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: any address


class Gpu:
    """A GPU's primary context, and a stream in whose order everything here happens where no other
    is named."""

    def __init__(self, ordinal: int = 0) -> None:
        self.call = call = Driver()
        device, self._context = c_int(), c_void_p()
        call("cuInit", 0)
        call("cuDeviceGet", byref(device), ordinal)
        call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self.stream = self.new_stream().value or 0
        self._blocks: dict[tuple[str, int, int], Array] = {}

    @contextmanager
    def current(self) -> Iterator[None]:
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def new_stream(self) -> c_void_p:
        """One that waits for no other."""
        stream, non_blocking = c_void_p(), 1
        with self.current():
            self.call("cuStreamCreateWithPriority", byref(stream), non_blocking, 0)
        return stream

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

    def copy_rows(
        self, to: tuple[int, int], source: tuple[int, int], width: int, count: int, stream: c_void_p
    ) -> None:
        """The same of rows of so many bytes; of either side the address, and the bytes from one row
        to the next."""
        sides = [
            _Side3D(type=UNIFIED, device=address, pitch=pitch, height=count)
            for address, pitch in (source, to)
        ]
        copy = _Copy3D(*sides, width, count, 1)
        with self.current():
            self.call("cuMemcpy3DAsync_v2", byref(copy), stream)

    def synchronize(self) -> None:
        with self.current():
            self.call("cuStreamSynchronize", c_void_p(self.stream))

    def block(self, dtype: npt.DTypeLike, largest: int, seed: int) -> Array:
        """Random integers from -largest to largest in pinned memory, which is kept."""
        key = (np.dtype(dtype).name, largest, seed)
        if key not in self._blocks:
            random = np.random.default_rng(seed)
            block = self._blocks[key] = oocdnn.empty(_BLOCK, dtype)
            block[...] = random.integers(-largest, largest, _BLOCK, np.int8, endpoint=True)
        return self._blocks[key]


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
        return self.repeat(self._gpu.block(self.dtype, largest, seed))

    def take(self, other: "DeviceArray") -> None:
        """The elements of another of its kind."""
        self._gpu.copy(self.address, other.address, self.nbytes)

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
