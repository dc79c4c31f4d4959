"""Managed memory, and addresses that a GPU reaches, as torch takes them."""

import ctypes
import math
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

import numpy as np
import torch

from oocdnn._arrays.mapped import Array
from oocdnn.bench.gpu.memory import Driver

HOST = -1  # its number among the targets of prefetches


class _Interface:
    """An address as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def at(address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor that torch takes to be on the GPU, at an address that the GPU reaches."""
    size = math.prod(shape) * dtype.itemsize
    flat = torch.as_tensor(_Interface(address, size), device="cuda")
    if flat.data_ptr() != address:
        raise RuntimeError("torch copied the array")
    return flat.view(dtype).view(*shape)


class ManagedBlock:
    """Managed memory until `close`: as a tensor on the GPU, and as bytes for the host."""

    def __init__(
        self, driver: Driver, shape: Sequence[int], dtype: torch.dtype, ordinal: int
    ) -> None:
        self._driver, self._ordinal, self._address = driver, ordinal, c_uint64()
        self._size = math.prod(shape) * dtype.itemsize
        attach_global = 1
        driver("cuMemAllocManaged", byref(self._address), c_size_t(self._size), attach_global)
        self.tensor = at(self._address.value, shape, dtype)
        bytes_ = (ctypes.c_uint8 * self._size).from_address(self._address.value)
        self.host: Array = np.ctypeslib.as_array(bytes_)

    def prefetch(self, to_gpu: bool) -> None:
        """In the order of torch's current stream."""
        stream = c_void_p(torch.cuda.current_stream(self._ordinal).cuda_stream)
        to = c_int(self._ordinal if to_gpu else HOST)
        self._driver("cuMemPrefetchAsync", self._address, c_size_t(self._size), to, stream)

    def close(self) -> None:
        self._driver("cuMemFree_v2", self._address)
