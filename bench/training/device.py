"""The device of the measurements of `memory_limit`: its bytes and time, a GPU's or counted ones.

`Gpu` is PyTorch's current GPU. `Host` takes the CPU's tensors for a device's and counts their
bytes, so that every script of these measurements also runs where there is no GPU; it has no
allocator that reserves, no context, and copies at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from oocdnn._core.swap import NativeSwapper, Slab
from oocdnn.bench.training.counting import Counter, CountingCard
from oocdnn.errors import InvalidProblem
from oocdnn.torch import memory_limit


class Device(Protocol):
    """Bytes are those of this process on the device."""

    kind: str  # as PyTorch calls it

    def name(self) -> str: ...

    def limit(self, nbytes: int, planning: float, borrow: Mapping[str, int]) -> memory_limit:
        """`borrow`: as `memory_limit` has it."""

    def total(self) -> int: ...

    def others(self) -> int:
        """Bytes besides tensors: the context and libraries."""

    def allocated(self) -> int: ...

    def most_allocated(self) -> int:
        """Since `restart`, as the following."""

    def most_reserved(self) -> int: ...

    def most_driver(self) -> int:
        """As the driver counts: the context, and all that the allocator reserved."""

    def restart(self) -> None: ...

    def cap(self, nbytes: int | None) -> None:
        """No more bytes for tensors from here on; None: no cap."""

    def trim(self) -> None: ...

    def finish(self) -> None: ...

    def counters(self) -> dict[str, int]:
        """Calls that grow from one measurement to the next where a step allocates."""

    def counted(self) -> contextlib.AbstractContextManager[Any]:
        """Entered around everything that is measured."""


class Gpu:
    kind = "cuda"

    def __init__(self) -> None:
        self._registrations = 0

    def name(self) -> str:
        return str(torch.cuda.get_device_name())

    def limit(self, nbytes: int, planning: float, borrow: Mapping[str, int]) -> memory_limit:
        return memory_limit(nbytes, planning=planning, borrow=borrow)

    def total(self) -> int:
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)

    def others(self) -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total) - int(free) - int(torch.cuda.memory_reserved())

    def allocated(self) -> int:
        return int(torch.cuda.memory_allocated())

    def most_allocated(self) -> int:
        return int(torch.cuda.max_memory_allocated())

    def most_reserved(self) -> int:
        return int(torch.cuda.max_memory_reserved())

    def most_driver(self) -> int:
        return self.others() + self.most_reserved()

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def cap(self, nbytes: int | None) -> None:
        share = 1.0 if nbytes is None else min(max(nbytes / self.total(), 0.0), 1.0)
        torch.cuda.set_per_process_memory_fraction(share)

    def trim(self) -> None:
        torch._C._cuda_clearCublasWorkspaces()  # they would keep pages, and divide what is free
        torch.cuda.empty_cache()
        if hasattr(torch._C, "_host_emptyCache"):
            torch._C._host_emptyCache()  # page-locked memory of PyTorch's own
        self.restart()

    def finish(self) -> None:
        torch.cuda.synchronize()

    def counters(self) -> dict[str, int]:
        stats = torch.cuda.memory_stats()
        names = {
            "retries": "num_alloc_retries",
            "device_allocations": "num_device_alloc",
            "device_frees": "num_device_free",
            "reserved_bytes": "reserved_bytes.all.allocated",
        }
        counted = {name: int(stats.get(key, 0)) for name, key in names.items()}
        return counted | {"host_registrations": self._registrations}

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts the slabs of page-locked memory."""
        slab = NativeSwapper.slab

        def counting(swapper: NativeSwapper, nbytes: int, lender: int | None = None) -> Slab:
            self._registrations += lender is None
            return slab(swapper, nbytes, lender)

        NativeSwapper.slab = counting  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            NativeSwapper.slab = slab  # type: ignore[method-assign]


class _Capped(Counter):
    """Raises PyTorch's error where more bytes live than the cap."""

    def __init__(self) -> None:
        super().__init__()
        self.cap: int | None = None

    def add(self, tensor: torch.Tensor) -> None:
        super().add(tensor)
        if self.cap is not None and self.live() > self.cap:
            raise torch.OutOfMemoryError(f"more than {self.cap} bytes")


class Host:
    kind = "cpu"

    def __init__(self, total: int = 1 << 40) -> None:
        self._counter = _Capped()
        self._card = CountingCard(self._counter)
        self._total = total

    def name(self) -> str:
        return "CPU, counted"

    def limit(self, nbytes: int, planning: float, borrow: Mapping[str, int]) -> memory_limit:
        if borrow:
            raise InvalidProblem("the CPU borrows no memory from GPUs; leave --borrow out")
        return memory_limit(nbytes, planning=planning, card=self._card)

    def total(self) -> int:
        return self._total

    def others(self) -> int:
        return 0

    def allocated(self) -> int:
        return self._counter.live()

    def most_allocated(self) -> int:
        return max(self._counter.most, self._counter.live())

    def most_reserved(self) -> int:
        return self.most_allocated()

    def most_driver(self) -> int:
        return self.most_allocated()

    def restart(self) -> None:
        self._counter.most = self._counter.live()

    def cap(self, nbytes: int | None) -> None:
        self._counter.cap = nbytes

    def trim(self) -> None:
        self.restart()

    def finish(self) -> None:
        pass

    def counters(self) -> dict[str, int]:
        return {}

    def counted(self) -> contextlib.AbstractContextManager[Any]:
        return self._counter


def device_of(kind: str) -> Device:
    return Gpu() if kind == "cuda" else Host()


def resident_bytes() -> int:
    """Of this process, in host memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def loop_seconds() -> float:
    """Host time of a fixed loop. It shows the speed of the host, which varies by a factor of two on
    a shared machine."""
    began = time.perf_counter()
    for _ in range(_LOOP):
        pass
    return time.perf_counter() - began


_LOOP = 100_000  # rounds


def seconds_of(device: Device, work: Callable[[], Any]) -> tuple[float, Any]:
    """What it took until the device had ended, and its result."""
    device.finish()
    began = time.perf_counter()
    result = work()
    device.finish()
    return time.perf_counter() - began, result
