"""What the core says of a call without running it, through cffi, for which no context is needed;
and calls of several convolutions."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from oocdnn._core.call import Convolution, Slot, Tensor
from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import (
    NativeContext,
    Progress,
    _check,
    _idle_call,
    _text,
)


def problem_text(call: Convolution, tensors: Mapping[Slot, Tensor]) -> str:
    """The problem string of a call, as it stands in logs."""
    text = _ffi().new("const char **")
    with _idle_call() as c:
        c.fill(call, tensors)
        _check(_library().oocdnn_problem_text(c.convolution, c.operands, text))
        return _text(text[0])


def saved_bytes(call: Convolution, tensors: Mapping[Slot, Tensor]) -> int:
    """Of what a forward call saves for backward."""
    size = _ffi().new("int64_t *")
    with _idle_call() as c:
        c.fill(call, tensors)
        _check(_library().oocdnn_saved_bytes(c.convolution, c.operands, size))
        return int(size[0])


def run_chain(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
    residuals: Sequence[int],
    progress: Progress | None,
) -> None:
    """Runs convolutions one after the other. Tensors between two of them are left out; `residuals`
    says where residuals come from."""
    run = _adding(residuals, _library().oocdnn_run_chain)
    _run_links(context, calls, tensors, progress, run)


def run_chain_backward(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
    progress: Progress | None,
) -> None:
    """Computes the gradients of such a chain that are among the tensors."""
    _run_links(context, calls, tensors, progress, _library().oocdnn_run_chain_backward)


def price_chain(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
    residuals: Sequence[int],
) -> float:
    """The seconds that `run_chain` is predicted to take."""
    price = _adding(residuals, _library().oocdnn_price_chain)
    return _price_links(context, calls, tensors, price)


def price_chain_backward(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
) -> float:
    """The same of `run_chain_backward`."""
    return _price_links(context, calls, tensors, _library().oocdnn_price_chain_backward)


def _adding(residuals: Sequence[int], function: Callable[..., int]) -> Callable[..., int]:
    """What takes where residuals come from, before how many links there are."""
    sources = _ffi().new("int64_t[]", list(residuals))

    def call(handle: Any, links: Any, operands: Any, *rest: Any) -> int:
        return function(handle, links, operands, sources, *rest)

    return call


def _price_links(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
    price: Callable[..., int],
) -> float:
    seconds = _ffi().new("double *")
    _run_links(context, calls, tensors, None, lambda *chain: price(*chain, seconds))
    return float(seconds[0])


def _run_links(
    context: NativeContext,
    calls: Sequence[Convolution],
    tensors: Sequence[Mapping[Slot, Tensor]],
    progress: Progress | None,
    run: Callable[..., int],
) -> None:
    """`run` takes the context, the links, their operands, and how many there are."""
    ffi, count = _ffi(), len(calls)
    links = ffi.new("oocdnn_convolution[]", count)
    operands = ffi.new("oocdnn_operands[]", count)
    with ExitStack() as stack:
        values = [stack.enter_context(_idle_call()) for _ in calls]
        for i, c in enumerate(values):
            c.fill(calls[i], tensors[i], progress)
            links[i], operands[i] = c.convolution[0], c.operands[0]
        handle = stack.enter_context(context)
        status = run(handle, links, operands, count)
        values[0].interrupt.raise_kept()
        _check(status)
