"""What a user would get otherwise: adapters of a few lines, each with the arrays of a `Task`.

A peer that is not there says why (`Absent`), and stands in the results so.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import ml_dtypes
import numpy as np

import oocdnn
from oocdnn._mapped import Array
from oocdnn.bench.amounts import operand_bytes
from oocdnn.bench.measure import Task
from oocdnn.bench.torch_call import convolution
from oocdnn.cli.common import bytes_text, free_host_bytes


class Absent(Exception):
    """Why a peer is not measured."""


# A call that leaves the result in the task's `out`; what it needs goes at the end of the block.
Ready = AbstractContextManager[Callable[[], object]]


@contextmanager
def whole(task: Task, device: str) -> Iterator[Callable[[], object]]:
    """Ours with room for everything: one tile, where the engines allow it."""
    need = 4 * operand_bytes(task.problem) + (64 << 20)
    if device == "cpu" and need > free_host_bytes():
        raise Absent(f"needs {bytes_text(need)} of host memory")
    with oocdnn.Context(device, need if device == "cpu" else "90%") as context:
        yield task.call(context)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Absent("torch is not installed") from None
    return torch


def _tensor(torch: Any, array: Array) -> Any:
    """The array's memory as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@contextmanager
def torch_in_core(task: Task, device: str) -> Iterator[Callable[[], object]]:
    """torch with its arrays where it computes: a GPU's time is without the wires."""
    torch = _torch()
    where = "cpu" if device == "cpu" else device
    if where != "cpu" and not torch.cuda.is_available():
        raise Absent("torch sees no GPU")
    torch.backends.cudnn.allow_tf32 = task.problem.keywords.get("math") == "tf32"
    torch.backends.cudnn.benchmark = False
    first, second = (_tensor(torch, array).to(where) for array in (task.first, task.second))
    try:
        work = convolution(task.problem)
    except ValueError as error:
        raise Absent(str(error)) from None

    def call() -> None:
        result = work(first, second)
        if where != "cpu":
            torch.cuda.synchronize(where)
        held.append(result)
        del held[:-1]

    held = list[Any]()
    try:
        yield call
    except RuntimeError as error:  # out of memory among them
        raise Absent(str(error).splitlines()[0]) from error
    out = _tensor(torch, task.out)
    out.copy_(held.pop())


PEERS: dict[str, Callable[[Task, str], Ready]] = {"whole": whole, "torch": torch_in_core}
