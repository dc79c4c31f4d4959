"""How the operations of a limit's steps run that can do with less memory than PyTorch's kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Signature = tuple[object, ...]  # operation, device, types, sizes, strides and numbers

_NO_ENGINE = "unable to find an engine"  # cuDNN's, where each one lacks workspace


class Table:
    """The number of parts of each operation of a limit's steps.

    Args:
        device: Type of the device, as in `torch.device.type`.
        count: Called with the device's dispatch key and 1 where operations are looked up from now
            on, with -1 where they no longer are.

    Attributes:
        parts: By signatures; other operations run whole, as PyTorch has them.
        ran: A list to which the operations that run are added, or None.
        used: Whether operations are looked up.
        one_stream: Whether all operations of the steps run on one stream.
    """

    def __init__(self, device: str, count: Callable[[str, int], None]) -> None:
        self.parts: dict[Signature, int] = {}
        self.ran: list[Signature] | None = None
        self.used = False
        self.one_stream = True
        self._entered = False
        self._key, self._count = device.upper(), count

    def enter(self) -> None:
        """Operations of this thread may be looked up here, until `leave`."""
        self._entered = True
        _thread.tables.append(self)

    def leave(self) -> None:
        _thread.tables.remove(self)
        self._entered = False
        self.use(False)

    def use(self, used: bool) -> None:
        """Operations are looked up from here on, between `enter` and `leave`; or no longer."""
        used = used and self._entered
        if used != self.used:
            self.used = used
            self._count(self._key, 1 if used else -1)

    def serves(self) -> bool:
        """Whether nothing is to be looked up here, or this thread's backward pass does already."""
        if not self.used:
            return True
        task: int = torch._C._current_graph_task_id()
        return _thread.task == task and _thread.table is self

    def serves_backward(self) -> None:
        """Operations of the backward pass that runs on this thread are looked up here."""
        _thread.task, _thread.table = torch._C._current_graph_task_id(), self

    def may_overwrite(self, nodes: Container[str]) -> bool:
        """Whether an operation that runs now may overwrite a tensor that nobody else holds: it
        belongs to a backward pass of the steps, which is not differentiated itself, no other stream
        reads the tensor, and one of these nodes runs it. Nodes of a second derivative run the same
        operations, and read the tensor once more."""
        if not (self.used and self.serves() and self.one_stream) or torch.is_grad_enabled():
            return False
        node = torch._C._current_autograd_node()
        return node is not None and node.name() in nodes

    def run(self, signature: Signature, most: int, operation: Callable[[int], Result]) -> Result:
        """An operation in its number of parts; in more, up to `most`, where that takes more memory
        than there is, which is remembered."""
        if self.ran is not None:
            self.ran.append(signature)
        number = planned = self.parts.get(signature, 1)
        while True:
            try:
                result = operation(number)
                break
            except RuntimeError as error:
                if not _lacks_memory(error) or number >= most:
                    raise
            number *= 2
        if number != planned:
            self.parts[signature] = number
        return result


def looked_up(
    x: Tensor, run: Callable[[int], Result], key: Callable[[], tuple[Signature, int]]
) -> Result:
    """An operation on the device of a tensor, by this thread's table; whole where there is none.

    Args:
        run: Runs the operation in so many parts.
        key: Gives its signature, and the most parts that it has.
    """
    table = current()
    with torch.cuda.device_of(x):  # as PyTorch's kernel for CUDA does
        if table is None:
            return run(1)
        with torch._C.DisableTorchFunction():  # the program's modes see nothing of this
            return table.run(*key(), run)


class _Thread(threading.local):
    """A thread's tables, the innermost last, and the table of its latest backward pass."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.task = -1
        self.table: Table | None = None


_thread = _Thread()


def current() -> Table | None:
    """The table that an operation of this thread is looked up in."""
    task = torch._C._current_graph_task_id()  # -1 outside of backward
    if task != -1 and task == _thread.task:
        table = _thread.table
    else:
        table = _thread.tables[-1] if _thread.tables else None
    return table if table is not None and table.used else None


def _lacks_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError) or _NO_ENGINE in str(error)
