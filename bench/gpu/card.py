"""A GPU as torch sees it: all that benchmarks ask of `torch.cuda` about memory and time."""

import gc
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

import oocdnn
from oocdnn._arrays.mapped import Array
from oocdnn.bench.gpu.managed import ManagedBlock, at
from oocdnn.bench.gpu.memory import Driver, ordinal_of
from oocdnn.bench.layers import LARGEST
from oocdnn.bench.tensor import tensor as tensor_of

_PIECE = 1 << 28  # elements that are made, or compared, at once
Result = TypeVar("Result")


class Card:
    """The GPU that torch calls `device`."""

    def __init__(self, device: str) -> None:
        self.torch: Any = torch
        self.device, self.ordinal = device, ordinal_of(device)
        torch.cuda.set_device(self.ordinal)

    @property
    def name(self) -> str:
        return str(torch.cuda.get_device_name(self.ordinal))

    def free_bytes(self) -> int:
        """As the driver sees it."""
        return int(torch.cuda.mem_get_info(self.ordinal)[0])

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.ordinal)

    def give_back(self) -> None:
        """Returns the memory that nobody holds any more, and torch keeps for itself."""
        gc.collect()
        self.synchronize()
        torch.cuda.empty_cache()

    def span(self, work: Callable[[], object]) -> float:
        """Seconds of the work, by the GPU's clock."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def best(self, work: Callable[[], object], repeats: int) -> float:
        """The least of `repeats` spans, at least one, after one that does not count."""
        return min([self.span(work) for _ in range(repeats + 1)][1:])

    def best_with_room(self, work: Callable[[], object], repeats: int) -> float:
        """The same; infinity where the GPU has no memory for it."""
        try:
            return self.best(work, repeats)
        except (torch.cuda.OutOfMemoryError, oocdnn.OutOfMemory):
            return math.inf

    def kernels(self, work: Callable[[], object]) -> str:
        """The names of those that the work runs, in small letters."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            self.synchronize()
        return " ".join(event.key.lower() for event in profile.key_averages())

    def first_call(self, work: Callable[[], Result]) -> tuple[Result, float, int]:
        """What a call returns, its seconds by the clock, and the memory that it took at most."""
        self.synchronize()
        with _Watch(self) as watch:
            start = time.perf_counter()
            result = work()
            self.synchronize()
            seconds = time.perf_counter() - start
        return result, seconds, watch.taken

    def integers(self, shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
        """A tensor on the GPU of small random integers."""
        made = torch.empty(shape, dtype=dtype, device=self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        flat, ends = made.view(-1), (-LARGEST, LARGEST + 1)
        how: dict[str, Any] = {"device": self.device, "dtype": torch.int8, "generator": generator}
        for begin in range(0, flat.numel(), _PIECE):
            part = flat[begin : begin + _PIECE]
            part.copy_(torch.randint(*ends, part.shape, **how))
        return made

    def fill(self, tensor: torch.Tensor, seed: int) -> torch.Tensor:
        """Fills a tensor in host memory with such integers; returns them on the GPU too."""
        here = self.integers(tensor.shape, tensor.dtype, seed)
        tensor.copy_(here)
        return here

    def differing(self, result: torch.Tensor, expected: torch.Tensor) -> tuple[int, float]:
        """Elements that differ, and by how much at most; piece by piece on the GPU. One that is no
        number differs from every other."""
        wrong, most = 0, 0.0
        ours, theirs = result.reshape(-1), expected.reshape(-1)
        for begin in range(0, ours.numel(), _PIECE):
            pieces = (one[begin : begin + _PIECE].to(self.device) for one in (ours, theirs))
            mine, other = (piece.float() for piece in pieces)
            difference = (mine - other).abs()
            wrong += int((difference != 0).sum())
            most = max(most, float(difference.max()))
        return wrong, most

    def reached(self, array: Array) -> Any:
        """A tensor on the GPU over an array in pinned host memory, in its memory order."""
        dtype = tensor_of(torch, array).dtype
        strides = [step // array.itemsize for step in array.strides]
        if array.flags.c_contiguous:
            return at(array.ctypes.data, array.shape, dtype)
        flat = at(array.ctypes.data, (array.size,), dtype)
        return flat.as_strided(array.shape, strides)

    def managed(self, arrays: Mapping[str, Array]) -> dict[str, ManagedBlock]:
        """Managed memory shaped as arrays. Raises MemoryError where they are together more than
        half of what is free on the GPU: cuDNN wants workspace beside them, and more of it than
        there is can hang a card."""
        need = sum(math.prod(one.shape) * one.itemsize for one in arrays.values())
        free = self.free_bytes()
        if need > free // 2:
            raise MemoryError(f"{need} bytes of managed memory are over half of the {free} free")
        driver, made = Driver(), dict[str, ManagedBlock]()
        try:
            for name, array in arrays.items():
                dtype = tensor_of(torch, array).dtype
                made[name] = ManagedBlock(driver, array.shape, dtype, self.ordinal)
        except BaseException:
            for block in made.values():
                block.close()
            raise
        return made


class _Watch:
    """The least memory that was free while it watched."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._before = self._least = card.free_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(0.0005):
            self._look()

    def _look(self) -> None:
        self._least = min(self._least, self._card.free_bytes())

    @property
    def taken(self) -> int:
        return self._before - self._least

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
