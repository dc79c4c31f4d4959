"""Which context a gradient is computed in.

As everywhere, that of the innermost `with` block of the thread. But autograd computes gradients of
tensors on a GPU in threads of its own, which are in no block: there it is the context of the call
that is differentiated, and in compiled code, which does not know its call, that of the latest one.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from oocdnn._calls import stack
from oocdnn.context import Context


class _Latest:
    """The context of the latest call in a `with` block, as long as somebody else keeps it."""

    reference: "weakref.ref[Context] | None" = None


@contextmanager
def lend(context: Context | None) -> Iterator[None]:
    """Calls within use `context` if it is open and their thread is in no `with` block."""
    if context is None or context.closed or stack.entered_context() is not None:
        yield
        return
    stack.push(context)
    try:
        yield
    finally:
        stack.pop(context)


@contextmanager
def of_call() -> Iterator[None]:
    """Around each call of the core."""
    entered, reference = stack.entered_context(), _Latest.reference
    if entered is not None:
        _Latest.reference = weakref.ref(entered)
    latest = reference() if reference is not None and _differentiating() else None
    with lend(latest):
        yield


def _differentiating() -> bool:
    """Whether autograd runs this thread now."""
    return bool(torch._C._current_graph_task_id() != -1)
