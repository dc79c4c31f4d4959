"""Arrays in a GPU's memory with nothing but the driver, which may be the fake one."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

import numpy as np

import oocdnn

FAKE = "fake_cuda" in os.environ.get("LD_LIBRARY_PATH", "")


@functools.cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *args: object) -> None:
    code = getattr(driver(), name)(*args)
    assert code == 0, f"{name} answers {code}"


class InContext:
    """The primary context of GPU 0, current in a `with` block."""

    def __enter__(self) -> None:
        device, context = c_int(), c_void_p()
        call("cuInit", 0)
        call("cuDeviceGet", byref(device), 0)
        call("cuDevicePrimaryCtxRetain", byref(context), device)
        call("cuCtxPushCurrent_v2", context)

    def __exit__(self, *error: object) -> None:
        call("cuCtxPopCurrent_v2", byref(c_void_p()))


def gpus() -> int:
    """The number of GPUs for tests that run on one; 0 without a driver."""
    count = c_int()
    if os.environ.get("OOCDNN_TEST_DEVICE") != "cuda":
        return 0
    try:
        call("cuInit", 0)
        call("cuDeviceGetCount", byref(count))
    except (OSError, AssertionError):
        return 0
    return count.value


def free_bytes() -> int:
    """Of GPU 0, as the driver says."""
    free, total = c_size_t(), c_size_t()
    with InContext():
        call("cuMemGetInfo_v2", byref(free), byref(total))
    return free.value


class DeviceArray:
    """What speaks `__cuda_array_interface__`, with the elements and the strides of `values`, which
    must fill their memory."""

    def __init__(self, values: np.ndarray, stream: int | None = None, read_only: bool = False):
        self.like = np.empty_like(values)
        assert self.like.strides == values.strides
        self.stream, self.read_only = stream, read_only
        self.pinned = oocdnn.empty(values.nbytes, np.uint8)
        self.pointer = c_uint64()
        with InContext():
            call("cuMemAlloc_v2", byref(self.pointer), c_size_t(max(values.nbytes, 1)))
        self.fill(values)

    def fill(self, values: np.ndarray) -> None:
        same = np.lib.stride_tricks.as_strided(
            self.pinned.view(values.dtype), values.shape, values.strides
        )
        same[...] = values
        self._copy(self.pointer.value, self.pinned.ctypes.data)

    def get(self) -> np.ndarray:
        self._copy(self.pinned.ctypes.data, self.pointer.value)
        view = self.pinned.view(self.like.dtype)
        return np.lib.stride_tricks.as_strided(view, self.like.shape, self.like.strides).copy()

    def _copy(self, to: int, source: int) -> None:
        if self.like.nbytes == 0:
            return
        with InContext():
            size = c_size_t(self.like.nbytes)
            call("cuMemcpyAsync", c_uint64(to), c_uint64(source), size, c_void_p())
            call("cuStreamSynchronize", c_void_p())

    @property
    def dtype(self) -> np.dtype:
        return self.like.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        name = "|V2" if self.dtype.name == "bfloat16" else self.dtype.str
        return {
            "shape": self.like.shape,
            "strides": None if self.like.flags.c_contiguous else self.like.strides,
            "typestr": name,
            "data": (self.pointer.value, self.read_only),
            "version": 3,
            "stream": self.stream,
        }

    def __del__(self) -> None:
        with InContext():
            call("cuMemFree_v2", self.pointer)


class Part:
    """Some channels of an array on the GPU."""

    def __init__(self, whole: DeviceArray, channels: slice) -> None:
        self.whole = whole
        part = whole.like[:, channels]
        begin = part.__array_interface__["data"][0] - whole.like.__array_interface__["data"][0]
        interface = whole.__cuda_array_interface__
        self.__cuda_array_interface__ = {
            **interface,
            "shape": part.shape,
            "strides": part.strides,
            "data": (interface["data"][0] + begin, False),
        }
