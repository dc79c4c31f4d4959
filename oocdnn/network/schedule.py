"""Positions of copies for given policies: released as late, fetched as early, as the limit allows.

The device never holds more than the limit, whatever the real rates of the copies are: a tensor's
bytes are free at its release position because the device waits there for the copy. Rates decide
only how long it waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from oocdnn.network.plan import KEEP, Choice, Movement, Policy, Schedule, needs
from oocdnn.network.timeline import Link, Timeline


def total_of(links: Sequence[Link]) -> Link:
    """All links as one: a copy goes over them in shares, by their rates."""
    return Link(
        to_host=sum(link.to_host for link in links),
        from_host=sum(link.from_host for link in links),
        both=sum(link.both for link in links),
        latency=max(link.latency for link in links),
        name=" + ".join(link.name for link in links),
    )


def schedule(
    timeline: Timeline, links: Sequence[Link], limit: int, choices: Sequence[Choice]
) -> Schedule:
    """The positions under which the choices wait least for copies within the limit.

    Where no positions fit, `peak_bytes` of the result passes the limit.
    """
    return _Scheduler(timeline, total_of(links), limit, list(choices)).run()


class _Scheduler:
    """One walk over the step. Times are those of a device that waits only where it has to."""

    def __init__(self, timeline: Timeline, link: Link, limit: int, choices: list[Choice]) -> None:
        self._timeline, self._saved, self._link, self._limit = timeline, timeline.saved, link, limit
        self._choices, self._needs = choices, needs(timeline, choices)
        self._bytes_at = self._least_bytes()
        self._movements: dict[int, Movement] = {}
        self._now = self._waiting = self._recomputing = 0.0
        self._out_free = self._in_free = 0.0  # end of the last copy of each direction
        self._leaving: list[tuple[int, float]] = []  # index and end of its copy, in order
        self._arrivals: dict[int, float] = {}
        self._queue = deque(self._fetches())

    def run(self) -> Schedule:
        produced: dict[int, list[int]] = {}
        needed: dict[int, list[int]] = {}
        for index, choice in enumerate(self._choices):
            if choice.policy is not Policy.KEEP:
                produced.setdefault(self._saved[index].produced, []).append(index)
                needed.setdefault(self._needs[index], []).append(index)
        for position, operation in enumerate(self._timeline.operations):
            self._release(position)
            self._fetch(position)
            self._complete(needed.get(position, []))
            self._now += operation.seconds
            self._leave(produced.get(position, []))
        return Schedule(
            self._choices,
            self._movements,
            self._bytes_at,
            self._now,
            self._waiting,
            self._recomputing,
        )

    def _least_bytes(self) -> list[int]:
        """Bytes where copies take no time: swapped tensors from production to their last use in
        forward, and from their need on."""
        steps = [0] * (len(self._timeline.operations) + 1)

        def hold(begin: int, end: int, nbytes: int) -> None:
            if begin < end:
                steps[begin] += nbytes
                steps[end] -= nbytes

        extra: dict[int, int] = {}
        for index, (one, choice) in enumerate(zip(self._saved, self._choices, strict=True)):
            need = self._needs[index]
            if choice.policy is Policy.KEEP:
                hold(one.produced, one.last_use + 1, one.nbytes)
                continue
            hold(one.produced, one.last_forward_use + 1, one.nbytes)
            hold(need, one.last_use + 1, one.nbytes)
            if choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                hold(one.produced, need + 1, one.squeeze.nbytes)
            if choice.policy is Policy.REBUILD:
                temporary = one.recipes[choice.recipe].temporary_bytes
                extra[need] = max(extra.get(need, 0), temporary)
        out, total = [], 0
        for position, operation in enumerate(self._timeline.operations):
            total += steps[position]
            out.append(operation.fixed_bytes + total + extra.get(position, 0))
        return out

    def _fetches(self) -> list[tuple[int, int]]:
        """Swapped tensors in the order of their need, each with the last position at which its copy
        may start without a wait."""
        starts, found = self._timeline.starts, []
        order = sorted(
            (self._needs[i], i) for i, c in enumerate(self._choices) if c.policy is Policy.SWAP
        )
        latest = float("inf")
        for need, index in reversed(order):
            seconds = self._saved[index].nbytes / self._link.from_host + self._link.latency
            latest = min(starts[need], latest) - seconds
            found.append((index, max(bisect_right(starts, latest) - 1, 0)))
        return found[::-1]

    def _leave(self, indices: list[int]) -> None:
        for index in indices:
            choice, one = self._choices[index], self._saved[index]
            if choice.policy is Policy.SWAP:
                begin = max(self._now, self._out_free) + self._link.latency
                self._out_free = begin + one.nbytes / self._link.to_host
                self._leaving.append((index, self._out_free))
            elif choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                self._compute(one.squeeze.seconds / 2)

    def _release(self, position: int) -> None:
        """Frees what has been copied away; waits for copies, first ones first, where the limit
        asks; counts what is still there."""
        ended = [(i, end) for i, end in self._leaving if self._done(i, position)]
        held = sum(self._saved[i].nbytes for i, _ in ended)
        for index, end in ended:
            if end > self._now and self._bytes_at[position] + held <= self._limit:
                break
            self._wait_until(end)
            held -= self._saved[index].nbytes
            self._leaving.remove((index, end))
            self._movements[index] = Movement(position, self._needs[index], self._needs[index])
        self._bytes_at[position] += held

    def _done(self, index: int, position: int) -> bool:
        """True where forward does not read the tensor any more, and backward not yet."""
        return self._saved[index].last_forward_use < position < self._needs[index]

    def _fetch(self, position: int) -> None:
        """Starts the copies whose time has come, in order, while they fit up to their need."""
        while self._queue:
            index, latest = self._queue[0]
            need, one = self._needs[index], self._saved[index]
            if need > position and latest > position:
                return
            movement = self._movements.get(index)
            if movement is None:  # not copied away yet
                if need > position:
                    return
                self._stay(index, position)
                self._queue.popleft()
                continue
            leaving = sum(self._saved[i].nbytes for i, _ in self._leaving)
            window = range(position, need)
            if any(self._bytes_at[q] + one.nbytes + leaving > self._limit for q in window):
                return
            self._queue.popleft()
            for q in window:
                self._bytes_at[q] += one.nbytes
            movement.fetch = position
            self._in_free = max(self._now, self._in_free) + self._link.latency
            self._in_free += one.nbytes / self._link.from_host
            self._arrivals[index] = self._in_free

    def _stay(self, index: int, position: int) -> None:
        self._choices[index] = KEEP
        self._leaving = [entry for entry in self._leaving if entry[0] != index]
        for q in range(position, self._needs[index]):
            self._bytes_at[q] += self._saved[index].nbytes

    def _complete(self, indices: list[int]) -> None:
        """Everything that the next operation reads: copies are waited for, recipes run."""
        for index in sorted(indices):
            choice, one = self._choices[index], self._saved[index]
            if choice.policy is Policy.SWAP:
                self._wait_until(self._arrivals[index])
            elif choice.policy is Policy.REBUILD:
                self._compute(one.recipes[choice.recipe].seconds)
            elif choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                self._compute(one.squeeze.seconds / 2)
            if choice.policy in (Policy.REBUILD, Policy.SQUEEZE):
                need = self._needs[index]
                self._movements[index] = Movement(one.last_forward_use + 1, need, need)

    def _compute(self, seconds: float) -> None:
        self._now += seconds
        self._recomputing += seconds

    def _wait_until(self, moment: float) -> None:
        if moment > self._now:
            self._waiting += moment - self._now
            self._now = moment
