"""The CPU's tensors as those of a device. Copies run on threads at rates of their own, and freed
memory is overwritten, so that a missing wait and a read after the release show."""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from oocdnn.torch.limit.card import Copy
from oocdnn.torch.limit.entry import bytes_of
from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.reading import Log


class _HostCopy:
    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> None:
        self._ended.wait()


class HostCard:
    """The CPU's tensors as a device's; `rate` of each direction in bytes a second."""

    probe_bytes = 1 << 16
    borrowed: Mapping[int, int] = MappingProxyType({})
    one_stream = True

    def __init__(self, rate: float = float("inf"), least_bytes: int = 1 << 10) -> None:
        self.least_bytes = least_bytes
        self.device = torch.device("cpu")
        self._rate = rate
        self._lanes = (_Lane(rate), _Lane(rate))

    def begin(self) -> None:
        pass

    def holds(self, tensor: Tensor) -> bool:
        return bool(tensor.device.type == "cpu")

    def capturing(self) -> bool:
        return False

    def used(self) -> int:
        return 1 << 62

    def held(self) -> int:
        return 0

    def peak(self) -> int:
        return 0

    def others(self) -> int:
        return 0

    def taken(self) -> int:
        return 0

    def finish(self) -> None:
        pass  # `_HostCopy.wait` has waited

    def release(self) -> None:
        pass

    def trim(self) -> None:
        pass

    def watch(self) -> bool:
        return False

    def note(self, nbytes: int) -> int:
        del nbytes
        return 0

    def address(self, storage: Tensor) -> int:
        return int(storage.untyped_storage().data_ptr())

    def watched(self) -> Log | None:
        return None

    def heap(self) -> Heap | None:
        return None

    def take(self, nbytes: int) -> int:
        del nbytes
        return 0

    def give(self, address: int) -> None:
        del address

    def quiet(self) -> bool:
        return True

    def free_workspaces(self) -> bool:
        return False

    def allocate_workspaces(self) -> None:
        pass

    def mark(self) -> float:
        return time.perf_counter()

    def reuse(self, marks: Iterable[float]) -> None:
        del marks

    def reached(self, mark: float) -> bool:
        del mark
        return True

    def wait(self, mark: float) -> None:
        del mark

    def busy(self, seconds: float) -> None:
        del seconds  # its work is the host's

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def empty(self, nbytes: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        made = torch.empty(nbytes // dtype.itemsize, dtype=dtype)
        made.view(torch.uint8).fill_(_POISON)
        return made

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        storage.resize_(nbytes)

    def slab(self, nbytes: int) -> Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def copy_out(self, source: Tensor, target: Tensor) -> Copy:
        return self._lanes[0].push(source, target, target.nbytes)

    def copy_in(self, source: Tensor, target: Tensor) -> Copy:
        return self._lanes[1].push(source, target, source.nbytes)

    def discard(self, storage: Tensor, own: bool) -> None:
        del own
        bytes_of(storage).fill_(_POISON)

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


_POISON = 0xFF  # NaN in every floating type


class _Lane:
    """A thread that copies storages, one after the other."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def push(self, source: Tensor, target: Tensor, nbytes: int) -> Copy:
        job = _Job(source, target, nbytes)
        self._jobs.put(job)
        return job.copy

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._rate != float("inf"):
                time.sleep(job.nbytes / self._rate)
            job.run()
            del job


class _Job:
    """One copy. It makes no further tensors on the storages, whose references are counted."""

    def __init__(self, source: Tensor, target: Tensor, nbytes: int) -> None:
        self._held: tuple[Tensor, ...] = (source, target)
        self.nbytes, self.copy = nbytes, _HostCopy()
        self._from = source.untyped_storage().data_ptr()
        self._to = target.untyped_storage().data_ptr()

    def run(self) -> None:
        ctypes.memmove(self._to, self._from, self.nbytes)
        self._held = ()  # released before a waiting thread continues
        self.copy.end()
