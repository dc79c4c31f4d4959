"""Ours, with cuDNN or our own kernels, where the arrays are on the GPU: its time without the wires.

Nothing is needed for it but the driver. Bits that a forward pass has saved stay in host memory, so
such problems are left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import oocdnn
from oocdnn._arrays.mapped import Array
from oocdnn.bench.gpu.memory import DeviceArray, Gpu, ordinal_of
from oocdnn.bench.peers.peer import Absent, Ready
from oocdnn.bench.task import Task
from oocdnn.bench.truth.passes import is_pass


@dataclass(frozen=True)
class _Moved:
    """Copies of a task's arrays on a GPU, each made once."""

    gpu: Gpu
    arrays: dict[int, DeviceArray]

    def __call__(self, array: Array) -> DeviceArray:
        if id(array) not in self.arrays:
            self.arrays[id(array)] = DeviceArray.like(self.gpu, array)
        return self.arrays[id(array)]

    def fetch(self, array: Array) -> None:
        """Copies back what the GPU has."""
        there = self(array)
        self.gpu.copy(array.ctypes.data, there.address, there.nbytes)
        self.gpu.synchronize()


@contextmanager
def in_core(task: Task, device: str) -> Iterator[Ready]:
    if device == "cpu":
        raise Absent("it is for GPUs, and the device is the CPU")
    if is_pass(task.problem):
        raise Absent("only plain convolutions are computed so here")
    gpu = Gpu(ordinal_of(device))
    moved = _Moved(gpu, {})
    with oocdnn.Context(device, "80%") as context:
        try:
            work = task.call(context, moved)
        except RuntimeError as error:  # no room
            raise Absent(str(error)) from error

        def call() -> None:
            work()
            gpu.synchronize()

        yield Ready(call, peak=lambda: _peak(context, moved))
        for out in task.outs.values():
            moved.fetch(out)


def _peak(context: oocdnn.Context, moved: _Moved) -> int:
    """The arrays too."""
    arrays = sum(one.nbytes for one in moved.arrays.values())
    return int(context.stats.peak_device_bytes + arrays)
