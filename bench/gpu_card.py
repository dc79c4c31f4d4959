"""A GPU through torch, for the peers of `card_peers`."""

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from oocdnn._mapped import Array
from oocdnn._problem import Problem, window_of
from oocdnn.bench.amounts import groups_of
from oocdnn.bench.gpu_memory import Driver
from oocdnn.bench.gpu_peers import HOST, Managed, at
from oocdnn.bench.peers import tensor


class ManagedBlock:
    """Managed memory shaped as an array."""

    def __init__(self, torch: Any, driver: Driver, array: Array, ordinal: int) -> None:
        self._torch, self._ordinal = torch, ordinal
        self._managed = Managed(driver, array.shape, tensor(torch, array).dtype)
        self.tensor = self._managed.tensor
        bytes_ = (ctypes.c_uint8 * self._managed.size).from_address(self._managed.address.value)
        self.host: Array = np.ctypeslib.as_array(bytes_)

    def prefetch(self, to_gpu: bool) -> None:
        stream = self._torch.cuda.current_stream(self._ordinal).cuda_stream
        self._managed.prefetch(self._ordinal if to_gpu else HOST, stream)

    def close(self) -> None:
        self._managed.close()


class TorchCard:
    """The GPU that torch calls `device`."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.device = torch, device
        self._ordinal = int(device.partition(":")[2] or 0)
        torch.cuda.set_device(self._ordinal)
        self._driver = Driver()

    def reached(self, array: Array) -> Any:
        """A tensor on the GPU over an array in pinned host memory, in its memory order."""
        dtype = tensor(self.torch, array).dtype
        strides = [step // array.itemsize for step in array.strides]
        if array.flags.c_contiguous:
            return at(array.ctypes.data, array.shape, dtype)
        flat = at(array.ctypes.data, (array.size,), dtype)
        return flat.as_strided(array.shape, strides)

    def managed(self, arrays: Mapping[str, Array]) -> dict[str, ManagedBlock]:
        """Raises MemoryError where they are together more than half of what is free on the GPU:
        cuDNN wants workspace beside them, and more of it than there is can hang a card."""
        need = sum(math.prod(one.shape) * one.itemsize for one in arrays.values())
        free = self.torch.cuda.mem_get_info(self._ordinal)[0]
        if need > free // 2:
            raise MemoryError(f"{need} bytes of managed memory are over half of the {free} free")
        made = dict[str, ManagedBlock]()
        try:
            for name, array in arrays.items():
                made[name] = ManagedBlock(self.torch, self._driver, array, self._ordinal)
        except BaseException:
            for block in made.values():
                block.close()
            raise
        return made


def convolve_into(torch: Any, problem: Problem, inputs: Mapping[str, Any], out: Any) -> None:
    """Forward, by cuDNN, which writes to `out` itself."""
    window = window_of(problem)
    torch.ops.aten.cudnn_convolution.out(
        inputs["x"], inputs["w"], window.before, window.stride, window.dilation,
        groups_of(problem), False, False, torch.backends.cudnn.allow_tf32, out=out,
    )  # fmt: skip
