"""A device as the runtime of a plan needs it: bytes in use, marks on its stream, copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from oocdnn.torch.limit.heap.allocator import Heap
from oocdnn.torch.limit.heap.reading import Log


class Copy(Protocol):
    """A copy on its way."""

    def done(self) -> bool:
        """True once it has ended; does not wait."""

    def wait(self) -> None:
        """Has the compute stream wait for its end."""


class Card(Protocol):
    """A storage is given as any tensor on it; copies move all of its bytes."""

    device: torch.device
    probe_bytes: int  # of the copies that measure the link
    least_bytes: int  # a smaller storage is kept: its copy costs more than its bytes are worth
    # Bytes of other GPUs that slabs take before host memory, by the GPUs whose links are used.
    borrowed: Mapping[int, int]
    one_stream: bool  # False once `holds` has seen another stream

    def begin(self) -> None:
        """A step begins: the compute stream is the current one."""

    def holds(self, tensor: Tensor) -> bool:
        """Whether the tensor is on this device and the compute stream is the current stream."""

    def capturing(self) -> bool:
        """Whether the current stream is captured into a CUDA graph."""

    def used(self) -> int:
        """Device bytes in use now; more than any limit where they are not counted."""

    def held(self) -> int:
        """Device bytes in use now; 0 where they are not counted."""

    def peak(self) -> int:
        """Most device bytes in use since the last call, which starts anew from those in use now."""

    def others(self) -> int:
        """Device bytes besides tensors: CUDA's context and libraries."""

    def taken(self) -> int:
        """Most device bytes taken from the driver for tensors since `trim`, used or not."""

    def finish(self) -> None:
        """Waits for all that was enqueued."""

    def release(self) -> None:
        """Gives what no tensor uses back to the driver; on a GPU, that of all GPUs."""

    def trim(self) -> None:
        """`release`; `taken` begins anew."""

    def watch(self) -> bool:
        """Begins the history of allocations anew; False where there is none."""

    def note(self, nbytes: int) -> int:
        """Makes an allocation of so many bytes, to be found in the history, and frees it; its
        address."""

    def address(self, storage: Tensor) -> int:
        """Of device bytes, as the history has it."""

    def watched(self) -> Log | None:
        """Ends the history, and gives it; None where there is none."""

    def heap(self) -> Heap | None:
        """The memory that the allocator holds; None where that is not known."""

    def take(self, nbytes: int) -> int:
        """Allocates device bytes that nothing uses; their address, 0 if there are none."""

    def give(self, address: int) -> None:
        """Frees them."""

    def quiet(self) -> bool:
        """True if no backward pass, other thread, other stream or CUDA graph may use the device's
        memory now."""

    def free_workspaces(self) -> bool:
        """Frees what libraries hold for their operations, where they allocate it anew at the next
        one. Whether they held any."""

    def allocate_workspaces(self) -> None:
        """Has them allocate it, for the compute stream, on this thread and on autograd's."""

    def mark(self) -> Any:
        """The point in time at which the compute stream arrives here."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks; waits for the later one."""

    def reached(self, mark: Any) -> bool:
        """Whether the device has executed everything before a mark; does not wait."""

    def wait(self, mark: Any) -> None:
        """Waits until the device has executed everything before a mark."""

    def busy(self, seconds: float) -> None:
        """Has the device work for about so long, so that what follows is there when it ends: marks
        then tell the device's time, not the host's."""

    def reuse(self, marks: Iterable[Any]) -> None:
        """Told of marks that nobody reads any more."""

    def empty(self, nbytes: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        """Device bytes, not set, for the compute stream, as a tensor of one axis; `nbytes` is a
        multiple of the element's size."""

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Allocates other device memory for a storage, or with 0 none; what was there is lost."""

    def slab(self, nbytes: int) -> Any:
        """Bytes of exactly that size, of the host or of another device, that copies reach at the
        link's rate; its attribute `nbytes` has it."""

    def copy_out(self, source: Tensor, target: Any) -> Copy:
        """From the device to a slab, when the compute stream has arrived here."""

    def copy_in(self, source: Any, target: Tensor) -> Copy:
        """From a slab to the device, when the compute stream has arrived here."""

    def discard(self, storage: Tensor, own: bool) -> None:
        """Told before the last reference to device bytes is given up. `own`: `empty` made them, so
        that they belong to the compute stream."""
