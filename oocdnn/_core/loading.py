"""The core library, opened at first use, so that importing the package always works; and cffi's
types of what it takes."""

import functools
import os
import threading
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import cffi

from oocdnn._core.cdefs import CDEF


def library_path() -> Path:
    """Where the core library is looked for: OOCDNN_LIBRARY, else in the installed package."""
    chosen = os.environ.get("OOCDNN_LIBRARY")
    if chosen:
        return Path(chosen)
    return Path(str(resources.files("oocdnn").joinpath("lib", "liboocdnn.so")))


# What threads make once, and no fork meets half made. A signal may fork in the midst of it.
_making = threading.RLock()


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Made when it is asked for first; the same for all threads, since types of one FFI are none of
    another's."""
    made: list[Any] = []

    @functools.wraps(make)
    def get() -> Any:
        if not made:
            with _making:
                if not made:
                    made.append(make())
        return made[0]

    return get


# cffi holds a lock of its own when it looks at a type or a function for the first time, and a child
# that is forked meanwhile would wait for it for ever. So what calls need is looked at beforehand.
_TYPES_OF_CALLS = (
    "oocdnn_context **", "oocdnn_convolution", "oocdnn_convolution *", "oocdnn_operands *",
    "oocdnn_tensor", "oocdnn_tensor *", "oocdnn_options *", "oocdnn_stats *",
    "oocdnn_host_memory **", "oocdnn_progress", "void *", "uintptr_t", "uintptr_t *", "int64_t *",
    "const char **", "char[]", "oocdnn_convolution[]", "oocdnn_operands[]", "int64_t[]", "double *",
    "double[]", "oocdnn_micro_batch[]", "const oocdnn_micro_batch **", "const oocdnn_division **",
    "const int64_t **", "oocdnn_workspace_option[]", "const oocdnn_workspace_option *[]",
    "oocdnn_workspace_division *", "oocdnn_training_step *", "oocdnn_scheduler **", "int32_t[]",
    "oocdnn_step_operation[]", "oocdnn_step_tensor[]", "oocdnn_step_recipe[]",
    "oocdnn_movement[]", "oocdnn_schedule_totals *", "oocdnn_search *",
    "oocdnn_heap *", "oocdnn_heap_block *", "oocdnn_heap_block[]", "const oocdnn_heap_block **",
    "oocdnn_allocator **", "oocdnn_heap_totals *", "oocdnn_heap_step *", "oocdnn_heap_item[]",
    "oocdnn_heap_group[]", "oocdnn_steering_search *", "oocdnn_steering *",
    "oocdnn_trimming *",
)  # fmt: skip


@_once
def _ffi() -> Any:
    ffi = cffi.FFI()
    ffi.cdef(CDEF)
    for name in _TYPES_OF_CALLS:
        ffi.typeof(name)
    return ffi


@_once
def _library() -> Any:
    path = library_path()
    try:
        library = _ffi().dlopen(str(path))
        for name in dir(library):
            getattr(library, name)
        return library
    except (OSError, AttributeError) as error:  # not there, or another version's
        raise ImportError(
            f"the core library cannot be opened ({error}); `pip install .` in the source tree "
            "builds and installs it, where Python then finds it outside of that folder; or "
            "OOCDNN_LIBRARY=/path/to/liboocdnn.so names it"
        ) from error


def _after_fork_in_child() -> None:
    global _making
    _making = threading.RLock()


os.register_at_fork(
    before=lambda: _making.acquire(),
    after_in_parent=lambda: _making.release(),
    after_in_child=_after_fork_in_child,
)
