"""The scheduler by its definition, in Python; the core library's is compared with it."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Movement, Policy, Schedule, needs
from oocdnn.network.timeline import Link, Timeline, kept_bytes


class Scheduler:
    """Makes schedules of one step for many choices."""

    def __init__(self, timeline: Timeline, link: Link, limit: int) -> None:
        self.timeline, self.link, self.limit = timeline, link, limit
        self.kept = np.asarray(kept_bytes(timeline), dtype=np.int64)
        self._readers = _readers(timeline)

    def run(self, choices: Sequence[Choice]) -> Schedule:
        """A tensor whose smaller form a recipe would have to read is swapped instead."""
        settled = list(choices)
        for source, readers in self._readers.items():
            if settled[source] == SQUEEZE and any(settled[i] == choice for i, choice in readers):
                settled[source] = SWAP
        return _Walk(self, settled).run()


def _readers(timeline: Timeline) -> dict[int, list[tuple[int, Choice]]]:
    """By tensor with a form that recipes cannot read: the choices whose recipes read it."""
    found: dict[int, list[tuple[int, Choice]]] = {
        index: []
        for index, one in enumerate(timeline.saved)
        if one.squeeze is not None and not one.squeeze.whole
    }
    for index, one in enumerate(timeline.saved):
        for number, recipe in enumerate(one.recipes):
            for source in found.keys() & set(recipe.inputs):
                found[source].append((index, Choice(Policy.REBUILD, number)))
    return found


class _Walk:
    """One walk over the step. Times are those of a device that waits only where it has to."""

    def __init__(self, scheduler: Scheduler, choices: list[Choice]) -> None:
        self._saved, self._link = scheduler.timeline.saved, scheduler.link
        self._operations = scheduler.timeline.operations
        self._starts, self._limit = scheduler.timeline.starts, scheduler.limit
        self._choices = choices
        self._needs = needs(scheduler.timeline, choices)
        self._movements: dict[int, Movement] = {}
        self._produced: dict[int, list[int]] = {}  # by position, as the next two
        self._ended: dict[int, list[int]] = {}
        self._needed: dict[int, list[int]] = {}
        self._bytes_at = self._least_bytes(scheduler.kept)
        self._now = self._host = 0.0
        self._waiting = self._recomputing = self._late = 0.0
        self._waits: dict[int, float] = {}  # seconds, by the tensor that is waited for
        self._out_free = self._in_free = 0.0  # end of the last copy of each direction
        self._leaving: dict[int, float] = {}  # end of the copy of what is not released yet
        self._leaving_bytes = 0
        self._ready: list[tuple[float, int]] = []  # of those, what forward does not read any more
        self._ready_bytes = 0
        self._arrivals: dict[int, float] = {}
        self._queue = deque(self._fetches())
        self._blocked = 0  # position before which the next fetch does not fit

    def run(self) -> Schedule:
        for position, operation in enumerate(self._operations):
            for index in self._ended.get(position, ()):
                heappush(self._ready, (self._leaving[index], index))
                self._ready_bytes += self._saved[index].nbytes
            if position in self._needed and self._leaving:
                self._stay(self._needed[position])
            if self._ready:
                self._release(position)
            if self._queue:
                self._fetch(position)
            if position in self._needed:
                self._complete(self._needed[position])
            self._do(operation.seconds, operation.host)
            if position in self._produced:
                self._leave(self._produced[position])
        return Schedule(
            self._choices,
            self._movements,
            self._bytes_at.tolist(),
            self._now,
            self._waiting,
            self._recomputing,
            self._late,
            self._waits,
        )

    def _least_bytes(self, kept: np.ndarray) -> np.ndarray:
        """Bytes where copies take no time: what is not kept is absent from its last use in forward
        to its need."""
        steps = [0] * (len(kept) + 1)
        extra: dict[int, int] = {}
        for index, (one, choice) in enumerate(zip(self._saved, self._choices, strict=True)):
            if choice.policy is Policy.KEEP:
                continue
            need, ended = self._needs[index], one.last_forward_use + 1
            self._needed.setdefault(need, []).append(index)
            steps[ended] -= one.nbytes
            steps[need] += one.nbytes
            if choice.policy is Policy.REBUILD:
                more = self._operations[need].extra_bytes(one.recipes[choice.recipe])
                extra[need] = max(extra.get(need, 0), more)
                self._movements[index] = Movement(ended, need, need)
                continue
            self._produced.setdefault(one.produced, []).append(index)
            if choice.policy is Policy.SWAP:
                self._ended.setdefault(ended, []).append(index)
            elif one.squeeze is not None:
                steps[one.produced + 1] += one.squeeze.nbytes
                steps[one.last_use + 1] -= one.squeeze.nbytes
                self._movements[index] = Movement(ended, need, need)
        found = kept + np.cumsum(np.asarray(steps[:-1], dtype=np.int64))
        for position, more in extra.items():
            found[position] += more
        return found

    def _fetches(self) -> list[tuple[int, int]]:
        """Swapped tensors in the order of their need, each with the last position at which its copy
        may start without a wait."""
        found = []
        order = sorted(
            (self._needs[i], i) for i, c in enumerate(self._choices) if c.policy is Policy.SWAP
        )
        latest = float("inf")
        for need, index in reversed(order):
            seconds = self._saved[index].nbytes / self._link.from_host + self._link.latency
            latest = min(self._starts[need], latest) - seconds
            found.append((index, max(bisect_right(self._starts, latest) - 1, 0)))
        return found[::-1]

    def _leave(self, indices: list[int]) -> None:
        """After the operation that writes them: the copy away begins, or the squeezing runs."""
        for index in indices:
            one = self._saved[index]
            if self._choices[index].policy is Policy.SWAP:
                self._out_free = self._copied(self._out_free, one.nbytes / self._link.to_host)
                self._leaving[index] = self._out_free
                self._leaving_bytes += one.nbytes
            elif one.squeeze is not None:
                self._compute(one.squeeze.seconds / 2, one.squeeze.host / 2)

    def _stay(self, indices: list[int]) -> None:
        """What is needed before it has been copied away is kept."""
        for index in indices:
            if index in self._leaving:
                self._choices[index] = KEEP
                self._gone(index)

    def _gone(self, index: int) -> None:
        """The copy is not waited for any more."""
        del self._leaving[index]
        self._leaving_bytes -= self._saved[index].nbytes
        self._ready_bytes -= self._saved[index].nbytes

    def _release(self, position: int) -> None:
        """Frees what has been copied away; waits for copies, first ones first, where the limit
        asks; counts what is still there."""
        free = self._limit - int(self._bytes_at[position])
        while self._ready:
            end, index = self._ready[0]
            if index in self._leaving:
                if end > self._now and self._ready_bytes <= free:
                    break
                self._wait_for(index, end)
                self._gone(index)
                need = self._needs[index]
                self._movements[index] = Movement(position, need, need)
            heappop(self._ready)
        self._bytes_at[position] += self._ready_bytes

    def _fetch(self, position: int) -> None:
        """Starts the copies whose time has come, in order, while they fit up to their need."""
        while self._queue:
            index, latest = self._queue[0]
            need, one = self._needs[index], self._saved[index]
            if self._choices[index] is KEEP:
                self._queue.popleft()
                continue
            if need > position and max(latest, self._blocked) > position:
                return
            movement = self._movements.get(index)
            if movement is None:  # not copied away yet
                return
            window = self._bytes_at[position:need]
            if len(window):
                free = self._limit - one.nbytes - self._leaving_bytes
                if window.max() > free:
                    if not self._leaving:
                        full = np.flatnonzero(window > free)
                        self._blocked = position + int(full[-1]) + 1
                    return
                window += one.nbytes
            self._queue.popleft()
            movement.fetch = position
            self._in_free = self._copied(self._in_free, one.nbytes / self._link.from_host)
            self._arrivals[index] = self._in_free

    def _complete(self, indices: list[int]) -> None:
        """Everything that the next operation reads: copies are waited for, recipes run."""
        for index in indices:
            choice, one = self._choices[index], self._saved[index]
            if choice.policy is Policy.SWAP:
                self._wait_for(index, self._arrivals[index])
            elif choice.policy is Policy.REBUILD:
                recipe = one.recipes[choice.recipe]
                self._compute(recipe.seconds, recipe.host)
            elif choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                self._compute(one.squeeze.seconds / 2, one.squeeze.host / 2)

    def _copied(self, free: float, seconds: float) -> float:
        """The end of a copy that the host enqueues now, behind the one that ends at `free`."""
        self._do(0.0, self._link.host)
        return max(self._now, free) + self._link.latency + seconds

    def _compute(self, seconds: float, host: float) -> None:
        self._do(seconds, host)
        self._recomputing += seconds

    def _do(self, seconds: float, host: float) -> None:
        """The device begins no earlier than the host begins to enqueue it, nor ends earlier."""
        self._host += host
        self._now += seconds
        if self._host > self._now:
            self._late += self._host - self._now
            self._now = self._host

    def _wait_for(self, index: int, moment: float) -> None:
        if moment > self._now:
            self._waiting += moment - self._now
            self._waits[index] = self._waits.get(index, 0.0) + (moment - self._now)
            self._now = moment
