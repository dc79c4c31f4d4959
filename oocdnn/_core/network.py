"""The core library's schedules of training steps through cffi, in plain numbers."""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from oocdnn._core.cdefs import Policy
from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import InterruptCallback, Progress, _check

KEEP, SWAP, SQUEEZE, RECIPE = (int(policy) for policy in Policy)


class Totals(NamedTuple):
    """An oocdnn_schedule_totals."""

    seconds: float
    waiting: float
    recomputing: float
    late: float
    peak_bytes: int


class Made(NamedTuple):
    """A schedule: totals, policies as they became, release, fetch and need of each tensor, bytes at
    each position, and seconds of waiting for each tensor."""

    totals: Totals
    policies: list[int]
    movements: list[tuple[int, int, int]]
    bytes_at: list[int]
    waits: list[float]


class NativeStep(NamedTuple):
    """An oocdnn_training_step: rows of its arrays, and the link."""

    operations: list[tuple[float, float, int, int]]
    forward: int
    tensors: list[tuple[Any, ...]]
    recipes: list[tuple[float, float, int, int]]
    inputs: list[int]
    link: tuple[float, float, float, float]


class NativeScheduler:
    """An oocdnn_scheduler. Policies are integers: KEEP, SWAP, SQUEEZE, RECIPE + number."""

    def __init__(self, step: NativeStep) -> None:
        ffi = _ffi()
        given, made = ffi.new("oocdnn_training_step *"), ffi.new("oocdnn_scheduler **")
        kept = (
            ffi.new("oocdnn_step_operation[]", step.operations),
            ffi.new("oocdnn_step_tensor[]", step.tensors),
            ffi.new("oocdnn_step_recipe[]", step.recipes),
            ffi.new("int64_t[]", step.inputs),
        )
        given.operations, given.tensors, given.recipes, given.inputs = kept
        given.operation_count, given.tensor_count, given.recipe_count, given.input_count = (
            len(rows) for rows in kept
        )
        given.forward = step.forward
        given.to_host, given.from_host, given.latency, given.host = step.link
        _check(_library().oocdnn_create_scheduler(given, made))
        self._handle = made[0]
        end = weakref.finalize(self, _library().oocdnn_destroy_scheduler, made[0])
        end.atexit = False  # what ends later may use it
        self._positions, self._count = len(step.operations), len(step.tensors)

    def totals(self, limit: int, policies: Sequence[int]) -> Totals:
        ffi = _ffi()
        given, totals = ffi.new("int32_t[]", policies), ffi.new("oocdnn_schedule_totals *")
        self._make(limit, given, totals, ffi.NULL, ffi.NULL, ffi.NULL)
        return _totals(totals)

    def schedule(self, limit: int, policies: Sequence[int]) -> Made:
        ffi = _ffi()
        given, totals = ffi.new("int32_t[]", policies), ffi.new("oocdnn_schedule_totals *")
        movements = ffi.new("oocdnn_movement[]", self._count)
        bytes_at = ffi.new("int64_t[]", self._positions)
        waits = ffi.new("double[]", self._count)
        self._make(limit, given, totals, movements, bytes_at, waits)
        found = ffi.unpack(ffi.cast("int64_t *", movements), 3 * self._count) if self._count else []
        rows = list(zip(found[::3], found[1::3], found[2::3], strict=True))
        return Made(_totals(totals), list(given), rows, list(bytes_at), list(waits))

    def _make(self, limit: int, *given: Any) -> None:
        _check(_library().oocdnn_make_schedule(self._handle, limit, *given))

    def improved(
        self,
        limit: int,
        policies: Sequence[int],
        *,
        trials: int,
        seed: int,
        warmth: float,
        seconds: float,
        progress: Progress | None = None,
    ) -> tuple[Totals, list[int]]:
        """The best policies that a search finds from these; Ctrl-C ends it."""
        ffi, interrupt = _ffi(), InterruptCallback()
        given, totals = ffi.new("int32_t[]", policies), ffi.new("oocdnn_schedule_totals *")
        search = ffi.new("oocdnn_search *", (limit, trials, seed, warmth, seconds))
        interrupt.watch(progress)
        status = _library().oocdnn_improve_policies(
            self._handle, search, interrupt.callback, ffi.NULL, given, totals
        )
        interrupt.raise_kept()
        _check(status)
        return _totals(totals), list(given)


def _totals(made: Any) -> Totals:
    return Totals(made.seconds, made.waiting, made.recomputing, made.late, made.peak_bytes)
