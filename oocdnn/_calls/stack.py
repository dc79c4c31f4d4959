"""Which context a function uses: the innermost `with` of its thread, else one per process."""

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocdnn.context import Context


class _Entered(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Context] = []


_entered = _Entered()
_lock = threading.RLock()  # a signal handler may need the context that it finds half made
_default: "Context | None" = None
_factory: "Callable[[], Context] | None" = None  # of the default
_forgotten: "list[Context | None]" = []  # a parent's default; kept, so that nobody collects it


def set_factory(factory: "Callable[[], Context]") -> None:
    """What makes the default context. `oocdnn.context` sets it: it imports this module."""
    global _factory
    _factory = factory


def push(context: "Context") -> None:
    _entered.contexts.append(context)


def pop(context: "Context") -> None:
    """Takes the innermost entry of `context` away; blocks may end in another order than begun."""
    entered = _entered.contexts
    for i in reversed(range(len(entered))):
        if entered[i] is context:
            del entered[i]
            return


def entered_context() -> "Context | None":
    """That of the innermost `with` block of this thread."""
    return _entered.contexts[-1] if _entered.contexts else None


def known_context() -> "Context | None":
    """The same, if it has been made."""
    entered = _entered.contexts
    if entered:
        return entered[-1]
    return None if _default is None or _default.closed else _default


def current_context() -> "Context":
    """The context that the functions of this thread use now."""
    return entered_context() or _default_context()


def _default_context() -> "Context":
    global _default
    with _lock:
        if _default is None or _default.closed:
            assert _factory is not None
            made = _factory()
            if _default is not None and not _default.closed:  # made by a signal handler meanwhile
                return _default
            _default = made
            # Registered now, it runs before finalizers are shut down.
            atexit.register(_write_timeline)
        return _default


def _write_timeline() -> None:
    """At exit contexts are left to the system, but OOCDNN_TRACE is written by destroying one."""
    if _default is not None and os.environ.get("OOCDNN_TRACE"):
        _default.close()


def _after_fork_in_child() -> None:
    global _default, _lock
    _lock = threading.RLock()
    _forgotten.append(_default)
    _default = None


os.register_at_fork(after_in_child=_after_fork_in_child)
