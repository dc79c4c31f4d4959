"""What else computes a convolution on a GPU whose arrays are in host memory, by torch and cuDNN.

- *copies*: the inputs are copied to the GPU, the result is computed and copied back, one after the
  other.
- *zero-copy*: cuDNN reads and writes pinned host memory over the wire. Where torch makes the result
  itself, as of gradients, it is made on the GPU and copied.
- *managed*: arrays in managed memory, in the host's at first, which the kernels and then the host
  fetch page by page; *prefetch*: the same, told beforehand where it will be needed.

Managed memory is never more than half of what is free on the GPU. Moving it back before the next
call is not timed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np

from oocdnn._arrays.mapped import Array
from oocdnn.bench.peers.peer import (
    Absent,
    Peer,
    Ready,
    allows_tf32,
    failing_as_absent,
    finish,
    peak_of,
    put,
    torch_for,
)
from oocdnn.bench.peers.torch_call import RESULTS, convolve_into, prepared
from oocdnn.bench.task import Task
from oocdnn.bench.tensor import tensor
from oocdnn.bench.truth.passes import is_pass
from oocdnn.cli.problems import Problem

PAGE = 4096  # bytes: the host reads one of each page


class Block(Protocol):
    """Managed memory: as a tensor on the GPU, and as bytes for the host."""

    tensor: Any
    host: Array

    def prefetch(self, to_gpu: bool) -> None: ...

    def close(self) -> None: ...


class Card(Protocol):
    """What the peers need of a GPU."""

    torch: Any
    device: str

    def reached(self, array: Array) -> Any:
        """A tensor on the GPU over an array in pinned host memory."""

    def managed(self, arrays: Mapping[str, Array]) -> Mapping[str, Block]:
        """Blocks with room for arrays. Raises MemoryError where they are too large together."""


def card_of(device: str, tf32: bool) -> Card:
    """The GPU of that name. Raises Absent where there is none."""
    if device == "cpu":
        raise Absent("it is for GPUs, and the device is the CPU")
    torch_for(device, tf32)
    from oocdnn.bench.gpu import card

    made: Card = card.Card(device)
    return made


@contextmanager
def copies(task: Task, device: str) -> Iterator[Ready]:
    card = card_of(device, allows_tf32(task))
    torch = card.torch

    def call() -> None:
        inputs = {n: tensor(torch, one).to(card.device) for n, one in task.inputs.items()}
        put(torch, task, prepared(task.problem, inputs)())
        finish(torch, card.device)

    with failing_as_absent():
        yield Ready(call, peak=peak_of(torch, card.device))


@contextmanager
def zero_copy(task: Task, device: str) -> Iterator[Ready]:
    card = card_of(device, allows_tf32(task))
    if not task.pinned:
        raise Absent("its arrays have to be pinned: --placement pinned")
    with failing_as_absent():
        inputs = {name: card.reached(one) for name, one in task.inputs.items()}
        outs = {name: card.reached(one) for name, one in task.outs.items()}
        work = into(card, task.problem, inputs, outs)

        def call() -> None:
            work()
            finish(card.torch, card.device)

        yield Ready(call, peak=peak_of(card.torch, card.device))


def into(
    card: Card, problem: Problem, inputs: Mapping[str, Any], outs: Mapping[str, Any]
) -> Callable[[], None]:
    """Work that writes to `outs`: cuDNN itself where torch has a function for that, forward."""
    work = prepared(problem, inputs)
    if problem.direction == "fwd" and not is_pass(problem) and card.device != "cpu":
        return lambda: convolve_into(problem, inputs, outs[RESULTS["fwd"]])

    def copying() -> None:
        for name, result in work().items():
            outs[name].copy_(result.detach())

    return copying


def _managed(prefetch: bool) -> Peer:
    @contextmanager
    def peer(task: Task, device: str) -> Iterator[Ready]:
        card = card_of(device, allows_tf32(task))
        with ExitStack() as stack:
            try:
                blocks = card.managed({**task.inputs, **task.outs})
            except MemoryError as error:
                raise Absent(str(error)) from error
            for block in blocks.values():
                stack.callback(block.close)
            stack.callback(finish, card.torch, card.device)
            with failing_as_absent():
                yield _managed_call(card, task, blocks, prefetch)
            for name, out in task.outs.items():
                tensor(card.torch, out).copy_(blocks[name].tensor)

    return peer


def _managed_call(card: Card, task: Task, blocks: Mapping[str, Block], prefetch: bool) -> Ready:
    for name, array in task.inputs.items():
        blocks[name].tensor.copy_(tensor(card.torch, array))
    outs = [blocks[name] for name in task.outs]
    inputs = {name: blocks[name].tensor for name in task.inputs}
    work = into(card, task.problem, inputs, {name: blocks[name].tensor for name in task.outs})

    def to_host(moved: Sequence[Block]) -> None:
        for block in moved:
            block.prefetch(to_gpu=False)
        finish(card.torch, card.device)

    def call() -> None:
        for block in blocks.values() if prefetch else ():
            block.prefetch(to_gpu=True)
        work()
        if prefetch:
            to_host(outs)
        finish(card.torch, card.device)
        for block in outs:
            np.add.reduce(block.host[::PAGE], dtype=np.uint64)  # the host reads what it has got

    return Ready(call, reset=lambda: to_host(list(blocks.values())))


CARD_PEERS: dict[str, Peer] = {
    "copies": copies,
    "prefetch": _managed(prefetch=True),
    "managed": _managed(prefetch=False),
    "zero-copy": zero_copy,  # last: a kernel that reads often may take very long
}
