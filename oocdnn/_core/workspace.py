"""The core library's workspace functions through cffi, in plain numbers.

What the core hands out belongs to the thread until its next call, so it is copied at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oocdnn._core.cdefs import BatchPolicy
from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import NativeContext, _check, _Frame

Choice = tuple[int, float, int]  # samples, seconds, workspace bytes
Option = tuple[float, int]  # seconds, workspace bytes


class Division(NamedTuple):
    """An oocdnn_division; its parts are indices of choices with counts."""

    seconds: float
    workspace_bytes: int
    parts: list[tuple[int, int]]


def _division(c: Any) -> Division:
    parts = [(c.parts[i].choice, c.parts[i].count) for i in range(c.length)]
    return Division(c.seconds, c.workspace_bytes, parts)


def measure_parts(
    context: NativeContext, problem: str, policy: BatchPolicy
) -> tuple[list[Choice], int]:
    """What was timed on the context's device; and the batch."""
    frame, count, batch = _Frame(), _ffi().new("int64_t *"), _ffi().new("int64_t *")
    made = _ffi().new("const oocdnn_micro_batch **")
    text = frame.string("problem", problem)
    with context as handle:
        _check(_library().oocdnn_measure_parts(handle, text, policy, made, count, batch))
    choices = [made[0][i] for i in range(count[0])]
    return [(one.samples, one.seconds, one.workspace_bytes) for one in choices], int(batch[0])


def micro_batch_sizes(policy: BatchPolicy, batch: int) -> list[int]:
    sizes, length = _ffi().new("const int64_t **"), _ffi().new("int64_t *")
    _check(_library().oocdnn_micro_batch_sizes(policy, batch, sizes, length))
    return list(sizes[0][0 : length[0]])


def _front(function: Any, choices: Sequence[Choice], batch: int) -> list[Division]:
    given = _ffi().new("oocdnn_micro_batch[]", choices)
    found, length = _ffi().new("const oocdnn_division **"), _ffi().new("int64_t *")
    _check(function(given, len(choices), batch, found, length))
    return [_division(found[0][i]) for i in range(length[0])]


def pareto_divisions(choices: Sequence[Choice], batch: int) -> list[Division]:
    return _front(_library().oocdnn_pareto_divisions, choices, batch)


def even_divisions(choices: Sequence[Choice], batch: int) -> list[Division]:
    return _front(_library().oocdnn_even_divisions, choices, batch)


def divide_batch(choices: Sequence[Choice], batch: int, limit: int) -> Division:
    given = _ffi().new("oocdnn_micro_batch[]", choices)
    found = _ffi().new("const oocdnn_division **")
    _check(_library().oocdnn_divide_batch(given, len(choices), batch, limit, found))
    return _division(found[0][0])


def divide_workspace(
    kernels: Sequence[Sequence[Option]], total: int
) -> tuple[list[int], float, float]:
    """The option of each kernel, the seconds of all, and the seconds that no division undercuts."""
    ffi = _ffi()
    lists = [ffi.new("oocdnn_workspace_option[]", options) for options in kernels]
    options = ffi.new("const oocdnn_workspace_option *[]", lists)
    counts = ffi.new("int64_t[]", [len(options) for options in kernels])
    chosen = ffi.new("int64_t[]", len(kernels))
    made = ffi.new("oocdnn_workspace_division *")
    _check(_library().oocdnn_divide_workspace(options, counts, len(kernels), total, chosen, made))
    return list(chosen), made.seconds, made.least_seconds
