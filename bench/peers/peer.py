"""What a user would get otherwise: adapters of a few lines, each with the arrays of a task.

A peer that is not there says why (`Absent`), and stands in the results so.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import oocdnn
from oocdnn._shown import bytes_text
from oocdnn.bench.amounts import operand_bytes
from oocdnn.bench.peers.torch_call import prepared
from oocdnn.bench.task import Task
from oocdnn.bench.tensor import tensor
from oocdnn.cli.common import free_host_bytes


class Absent(Exception):
    """Why a peer is not measured."""


@dataclass(frozen=True)
class Ready:
    """A call that leaves its results in the task, at the latest when the peer's block ends; `reset`
    brings back what was before it, and is not timed. `peak` gives the most bytes of the device that
    were allocated, 0 where that is unknown. `floor_seconds` where the floor of ours is not that of
    the peer's way."""

    call: Callable[[], object]
    reset: Callable[[], object] = lambda: None
    peak: Callable[[], int] = lambda: 0
    floor_seconds: Callable[[], float | None] = lambda: None


# With a task and a device; what it needs goes at the end of the block.
Peer = Callable[[Any, str], AbstractContextManager[Ready]]


@contextmanager
def whole(task: Task, device: str) -> Iterator[Ready]:
    """Ours with room for everything: one tile, where the engines allow it."""
    with roomy(device, operand_bytes(task.problem)) as context:
        yield Ready(task.call(context), peak=lambda: context.stats.peak_device_bytes)


def roomy(device: str, data_bytes: int, **how: Any) -> oocdnn.Context:
    """A context with room for so much data. Raises Absent where there is none."""
    need = 4 * data_bytes + (64 << 20)
    if device == "cpu" and need > free_host_bytes():
        raise Absent(f"needs {bytes_text(need)} of host memory")
    return oocdnn.Context(device, need if device == "cpu" else "90%", **how)


def torch_for(device: str, tf32: bool) -> Any:
    """torch, set to compute there. Raises Absent where it cannot."""
    try:
        import torch
    except ImportError:
        raise Absent("torch is not installed") from None
    if device != "cpu" and not torch.cuda.is_available():
        raise Absent("torch sees no GPU")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    torch.empty(1, device=device)  # torch knows nothing of a GPU that it has not used
    return torch


def finish(torch: Any, device: str) -> None:
    """Waits for what runs there."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def peak_of(torch: Any, device: str) -> Callable[[], int]:
    """From here on."""
    if device == "cpu":
        return lambda: 0
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: int(torch.cuda.max_memory_allocated(device))


def give_back(device: str) -> None:
    """Has torch, where a peer used it, return the GPU's memory that it keeps for itself."""
    if device != "cpu" and "torch" in sys.modules:
        gc.collect()
        sys.modules["torch"].cuda.empty_cache()


@contextmanager
def failing_as_absent() -> Iterator[None]:
    """What torch cannot do, or has no memory for, is a reason."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise Absent(str(error).partition("\n")[0]) from error


def put(torch: Any, task: Task, results: Mapping[str, Any]) -> None:
    """Copies results into the task's."""
    for name, result in results.items():
        tensor(torch, task.outs[name]).copy_(result.detach())


def allows_tf32(task: Task) -> bool:
    return task.problem.keywords.get("math") == "tf32"


@contextmanager
def torch_in_core(task: Task, device: str) -> Iterator[Ready]:
    """torch with its arrays where it computes: a GPU's time is without the wires."""
    torch = torch_for(device, allows_tf32(task))
    held = dict[str, Any]()
    with failing_as_absent():
        peak = peak_of(torch, device)
        inputs = {name: tensor(torch, one).to(device) for name, one in task.inputs.items()}
        work = prepared(task.problem, inputs)

        def call() -> None:
            held.clear()  # so that two results are never there at once
            held.update(work())
            finish(torch, device)

        yield Ready(call, peak=peak)
    put(torch, task, held)


PEERS: dict[str, Peer] = {"whole": whole, "torch": torch_in_core}
