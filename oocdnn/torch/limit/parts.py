"""Convolutions in parts along the batch, forward and backward.

The operands, results and workspace of one convolution together may pass the limit. In parts the
workspace is that of one part. Results and the input's gradient have the arithmetic of the whole;
the filter's gradient is a sum over the parts, in float32 where it is narrower.

Kernels of `aten::convolution` and `aten::convolution_backward` take the place of PyTorch's for a
device type while a limit needs them. They run below autograd: the graph and what it saves are as
without them, and no other operation is slower.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

MOST = 16  # parts of a convolution

Result = TypeVar("Result")
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]  # of input, filter and bias
Signature = tuple[object, ...]  # direction, types, sizes, strides and numbers of a convolution

_NAMES = ("convolution", "convolution_backward")
_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default
# PyTorch's own kernels of both, which serve every device.
_OWN = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
_NO_ENGINE = "unable to find an engine"  # cuDNN's, where each one lacks workspace
_NARROW = (torch.float16, torch.bfloat16)


class Table:
    """In how many parts convolutions of a limit's steps run.

    Args:
        device: Type of the device, as in `torch.device.type`.
    """

    def __init__(self, device: str) -> None:
        self.parts: dict[Signature, int] = {}  # others run whole
        self.ran: list[Signature] | None = None  # a list: those that run are added to it
        self.used = False
        self._entered = False
        self._key = device.upper()

    def enter(self) -> None:
        """Convolutions of this thread may be looked up here, until `leave`."""
        self._entered = True
        _thread.tables.append(self)

    def leave(self) -> None:
        _thread.tables.remove(self)
        self._entered = False
        self.use(False)

    def use(self, used: bool) -> None:
        """Convolutions are looked up from here on, between `enter` and `leave`; or no longer."""
        used = used and self._entered
        if used != self.used:
            self.used = used
            _kernels.count(self._key, 1 if used else -1)

    def serves(self) -> bool:
        """Whether nothing is to be looked up here, or this thread's backward pass does already."""
        if not self.used:
            return True
        task: int = torch._C._current_graph_task_id()
        return _thread.task == task and _thread.table is self

    def serves_backward(self) -> None:
        """Convolutions of the backward pass that runs on this thread are looked up here."""
        _thread.task, _thread.table = torch._C._current_graph_task_id(), self

    def run(self, signature: Signature, x: Tensor, operation: Callable[[int], Result]) -> Result:
        """A convolution of `x` in its number of parts; in more where that takes more memory than
        there is, which is remembered."""
        if self.ran is not None:
            self.ran.append(signature)
        number = planned = self.parts.get(signature, 1)
        while True:
            try:
                result = operation(number)
                break
            except RuntimeError as error:
                if not _lacks_memory(error) or number >= min(MOST, x.size(0)):
                    raise
            number *= 2
        if number != planned:
            self.parts[signature] = number
        return result


class _Thread(threading.local):
    """A thread's tables, the innermost last, and the table of its latest backward pass."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self.task = -1
        self.table: Table | None = None


_thread = _Thread()


def _table() -> Table | None:
    task = torch._C._current_graph_task_id()  # -1 outside of backward
    if task != -1 and task == _thread.task:
        table = _thread.table
    else:
        table = _thread.tables[-1] if _thread.tables else None
    return table if table is not None and table.used else None


class _Kernels:
    """The kernels that take the place of PyTorch's, for each device type that is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, int] = {}
        self._libraries: dict[str, Any] = {}

    def count(self, key: str, more: int) -> None:
        """So many tables more use the dispatch key."""
        with self._lock:
            uses = self._uses[key] = self._uses.get(key, 0) + more
            library = self._libraries.get(key)
            if uses and library is None and not _taken(key):
                self._libraries[key] = _registered(key)
            elif not uses and library is not None:
                self._libraries.pop(key)._destroy()


_kernels = _Kernels()


def _registered(key: str) -> Any:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has a kernel of its own for CUDA
        for name, kernel in zip(_NAMES, (_convolution, _convolution_backward), strict=True):
            library.impl(name, kernel, key)
    return library


def _taken(key: str) -> bool:
    """Whether another library has a kernel there; it is left alone."""
    return any(f"aten/{name}/{key}" in torch.library._impls for name in _NAMES)


def _convolution(x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    def run(parts: int) -> Tensor:
        return forward(parts, x, w, bias, *options)

    return _looked_up("forward", run, x, w, options)


def _convolution_backward(
    dy: Tensor, x: Tensor, w: Tensor, bias: Sequence[int] | None, *options: Any
) -> Gradients:
    def run(parts: int) -> Gradients:
        return backward(parts, dy, x, w, bias, *options)

    return _looked_up("backward", run, x, w, options)


def _looked_up(
    direction: str, run: Callable[[int], Result], x: Tensor, w: Tensor, options: Sequence[Any]
) -> Result:
    table = _table()
    with torch.cuda.device_of(x):  # as PyTorch's kernel for CUDA does
        if table is None:
            return run(1)
        with torch._C.DisableTorchFunction():  # the program's modes see nothing of this
            return table.run(_signature(direction, x, w, options), x, run)


def _signature(direction: str, x: Tensor, w: Tensor, options: Sequence[Any]) -> Signature:
    numbers = tuple([tuple(one) if isinstance(one, list) else one for one in options])
    place = x.get_device()
    return direction, place, x.dtype, x.size(), x.stride(), w.size(), w.stride(), numbers


def _lacks_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError) or _NO_ENGINE in str(error)


def forward(parts: int, x: Tensor, w: Tensor, bias: Tensor | None, *options: Any) -> Tensor:
    """`aten.convolution` with its arguments, in so many parts at most."""
    if parts == 1 or x.size(0) < 2:
        whole: Tensor = _FORWARD.redispatch(_OWN, x, w, bias, *options)
        return whole
    y: Tensor | None = None
    for rows in _rows(x.size(0), parts):
        y = _written(y, x.size(0), rows, _FORWARD.redispatch(_OWN, x[rows], w, bias, *options))
    assert y is not None
    return y


def backward(
    parts: int, dy: Tensor, x: Tensor, w: Tensor, bias: Sequence[int] | None, *options: Any
) -> Gradients:
    """`aten.convolution_backward` with its arguments, in so many parts at most."""
    if parts == 1 or x.size(0) < 2:
        gradients: Gradients = _BACKWARD.redispatch(_OWN, dy, x, w, bias, *options)
        return gradients
    dx: Tensor | None = None
    sums: list[Tensor | None] = [None, None]
    for rows in _rows(x.size(0), parts):
        one, *others = _BACKWARD.redispatch(_OWN, dy[rows], x[rows], w, bias, *options)
        if one is not None:
            dx = _written(dx, x.size(0), rows, one)
        del one
        sums = [_added(total, more) for total, more in zip(sums, others, strict=True)]
    dw, db = (
        None if total is None else total.to(kind)
        for total, kind in zip(sums, (w.dtype, dy.dtype), strict=True)
    )
    return dx, dw, db


def _rows(batch: int, parts: int) -> Iterator[slice]:
    step = -(-batch // parts)
    return (slice(begin, min(begin + step, batch)) for begin in range(0, batch, step))


def _written(whole: Tensor | None, batch: int, rows: slice, part: Tensor) -> Tensor:
    """The whole with a part's rows; the first part gives its layout."""
    if whole is None:
        size = (batch, *part.size()[1:])
        dense = part.stride(0) * part.size(0) == part.numel()  # one sample after the other
        whole = part.new_empty_strided(size, part.stride()) if dense else part.new_empty(size)
    whole[rows].copy_(part)
    return whole


def _added(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if more is None:
        return None
    if total is None:
        return more.float() if more.dtype in _NARROW else more
    return total.add_(more)
