"""A GPU of PyTorch as a plan's device."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils._python_dispatch import _disable_current_modes

from oocdnn._core.swap import IN, OUT, NativeSwapper, Slab
from oocdnn.errors import DeviceError, OutOfMemory
from oocdnn.torch.limit.card import Copy
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.history import History, has_pools, heap_of
from oocdnn.torch.limit.heap.reading import Log
from oocdnn.torch.limit.lenders import Lenders


class _CudaCopy:
    """Waited for once."""

    __slots__ = ("_card", "_ticket")

    def __init__(self, card: CudaCard, ticket: int) -> None:
        self._card, self._ticket = card, ticket

    def done(self) -> bool:
        return self._card.swapper.done(self._ticket)

    def wait(self) -> None:
        self._card.wait_for(self._ticket)


def driver_bytes(device: torch.device) -> tuple[int, int]:
    """Bytes of a GPU that are free, and all, as the driver counts them. Under `oocdnn run --limit`
    the runtime, which `torch.cuda.mem_get_info` asks, answers for the limit."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with torch.cuda.device(device):
        status = _driver().cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if status != 0:
        raise DeviceError(f"cuMemGetInfo fails with CUDA error {status}")
    return free.value, total.value


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def use_cublas(device: torch.device) -> None:
    """Runs a matrix product with its backward pass: cuBLAS allocates its workspaces on this thread
    and on autograd's, where it has none yet."""
    matrix = torch.ones(8, 8, device=device, requires_grad=True)
    linear(matrix, matrix, matrix[0]).backward(matrix.detach())


_CYCLES = 2e9  # of a GPU in a second, or a little less


class CudaCard:
    """A GPU: copies run beside the current stream.

    Args:
        borrowed: The numbers of other GPUs whose links copies with host memory use too, and bytes
            of their memory that slabs take before that.
        swapper: Another card's, whose links are used as they are.
    """

    probe_bytes = 1 << 27  # two copies at a time are measured
    least_bytes = 1 << 18

    def __init__(
        self,
        device: torch.device,
        borrowed: Mapping[int, int] | None = None,
        swapper: NativeSwapper | None = None,
    ) -> None:
        self.device = device
        torch.cuda.init()
        self.borrowed = borrowed or {}
        self.swapper = NativeSwapper(device.index) if swapper is None else swapper
        if swapper is None:
            for number in self.borrowed:
                self.swapper.borrow_link(number)
        self._lenders = Lenders(self.swapper, self.borrowed)
        self._marks: list[torch.cuda.Event] = []  # not in use
        self._history = History(device)
        self._index = int(device.index)
        self.one_stream = True
        self._streams: dict[int, torch.cuda.Stream] = {}  # compute streams so far, by raw pointer
        self.begin()

    def begin(self) -> None:
        self._raw = self._current()
        known = self._streams.get(self._raw)
        if known is None:
            known = self._streams[self._raw] = torch.cuda.current_stream(self.device)
        self._compute = known

    def _current(self) -> int:
        """The raw pointer of the current stream."""
        return int(torch._C._cuda_getCurrentRawStream(self._index))

    def holds(self, tensor: Tensor) -> bool:
        if tensor.get_device() != self._index:
            return False
        if self._current() == self._raw:
            return True
        self.one_stream = False
        return False

    def capturing(self) -> bool:
        return bool(torch._C._cuda_isCurrentStreamCapturing())

    def slab(self, nbytes: int) -> Slab:
        lent = self._lenders.slab(nbytes)
        if lent is not None:
            return lent
        try:
            return self.swapper.slab(nbytes)
        except OutOfMemory as error:
            raise OutOfMemory(
                f"{error}, for what leaves the GPU; raise the limit, or free host memory"
            ) from error

    def used(self) -> int:
        return self._allocated("current")

    def held(self) -> int:
        return self.used()

    def peak(self) -> int:
        most = self._allocated("peak")
        torch._C._cuda_resetPeakMemoryStats(self.device.index)
        return most

    def _allocated(self, which: str) -> int:
        """As `torch.cuda.memory_allocated` has it, in less time."""
        return int(torch._C._cuda_memoryStats(self.device.index)["allocated_bytes"]["all"][which])

    def others(self) -> int:
        free, total = driver_bytes(self.device)
        return total - free - int(torch.cuda.memory_reserved(self.device))

    def taken(self) -> int:
        return int(torch.cuda.max_memory_reserved(self.device))

    def finish(self) -> None:
        torch.cuda.synchronize(self.device)

    def release(self) -> None:
        torch.cuda.empty_cache()

    def trim(self) -> None:
        self.release()
        torch.cuda.reset_peak_memory_stats(self.device)

    def watch(self) -> bool:
        return self._history.start()

    def note(self, nbytes: int) -> int:
        return self.address(self.empty(nbytes))

    def address(self, storage: Tensor) -> int:
        return int(storage.untyped_storage().data_ptr())

    def watched(self) -> Log | None:
        return self._history.stop(self._raw)

    def heap(self) -> Heap | None:
        if torch.cuda.get_allocator_backend() != "native":
            return None
        return heap_of(self.device, self._raw)

    def take(self, nbytes: int) -> int:
        try:
            if torch._C._cuda_getDevice() == self._index:
                return int(torch._C._cuda_cudaCachingAllocator_raw_alloc(nbytes, self._raw))
            with torch.cuda.device(self._index):
                return int(torch._C._cuda_cudaCachingAllocator_raw_alloc(nbytes, self._raw))
        except torch.cuda.OutOfMemoryError:
            return 0

    def give(self, address: int) -> None:
        torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    def quiet(self) -> bool:
        in_backward = torch._C._current_graph_task_id() != -1
        aside = in_backward or self.capturing() or self._current() != self._raw
        return not (aside or _has_threads() or has_pools() or _has_graphs())

    def free_workspaces(self) -> bool:
        if not self.quiet():
            return False
        before = self.used()
        torch._C._cuda_clearCublasWorkspaces()  # of all threads, streams and devices
        return self.used() < before

    def allocate_workspaces(self) -> None:
        if not self.quiet():
            return
        # In a program that asks for deterministic operations cuBLAS's may raise: its workspaces
        # are allocated where the program comes to them.
        with contextlib.suppress(RuntimeError), self._plain():
            use_cublas(self.device)

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        """Autograd as it is by default, whatever the program is within."""
        with (
            torch.cuda.device(self._index),
            torch.cuda.stream(self._compute),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cuda", enabled=False),
            torch.autograd.graph.saved_tensors_hooks(_same, _same),
            _disable_current_modes(),
            torch._C.DisableTorchFunction(),
        ):
            yield

    def mark(self) -> torch.cuda.Event:
        event = self._marks.pop() if self._marks else torch.cuda.Event(enable_timing=True)
        event.record(self._compute)
        return event

    def reuse(self, marks: Iterable[torch.cuda.Event]) -> None:
        self._marks.extend(marks)

    def reached(self, mark: torch.cuda.Event) -> bool:
        return bool(mark.query())

    def wait(self, mark: torch.cuda.Event) -> None:
        mark.synchronize()

    def busy(self, seconds: float) -> None:
        torch.cuda._sleep(int(seconds * _CYCLES))

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return max(float(begin.elapsed_time(end)) * 1e-3, 0.0)

    def empty(self, nbytes: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        count = nbytes // dtype.itemsize
        if self._current() != self._raw:
            with torch.cuda.stream(self._compute):
                return torch.empty(count, dtype=dtype, device=self.device)
        return torch.empty(count, dtype=dtype, device=self.device)

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        storage.resize_(nbytes)

    def wait_for(self, ticket: int) -> None:
        """Makes the compute stream wait for the copy with this ticket."""
        self.swapper.wait(ticket, self._raw)

    def copy_out(self, source: Tensor, target: Slab) -> Copy:
        return self._copy(OUT, source, target)

    def copy_in(self, source: Slab, target: Tensor) -> Copy:
        return self._copy(IN, target, source)

    def discard(self, storage: Tensor, own: bool) -> None:
        if not own:
            storage.record_stream(self._compute)  # it may have been allocated for another one

    def _copy(self, way: int, storage: Tensor, slab: Slab) -> Copy:
        address = storage.untyped_storage().data_ptr()
        return _CudaCopy(self, self.swapper.start(way, self._raw, address, slab, slab.nbytes))


# Modules of threads that compute nothing on a GPU.
_IDLE = ("torch.utils.data.", "torch._inductor.", "multiprocessing.queues", "tqdm.", "oocdnn.")


def _has_threads() -> bool:
    """True if another Python thread may use a GPU. Autograd's threads are not counted: they run
    only what a Python thread waits for."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    return not all(isinstance(one, threading._DummyThread) or _is_idle(one) for one in others)


def _is_idle(thread: threading.Thread) -> bool:
    runs = getattr(thread, "_target", None) or type(thread)
    return str(runs.__module__).startswith(_IDLE)


def _has_graphs() -> bool:
    return any(issubclass(type(one), torch.cuda.CUDAGraph) for one in gc.get_objects())


def _same(tensor: Tensor) -> Tensor:
    return tensor
