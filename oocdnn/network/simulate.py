"""Event simulation of a schedule: one compute stream, one queue of copies for each direction, and
the host that enqueues what they do.

It shares no arithmetic with the scheduler. Copies of both directions share the link while both are
in use, and memory is counted by events: taken at production and at fetch, free at release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from oocdnn.network.plan import Policy, Schedule
from oocdnn.network.schedule import total_of
from oocdnn.network.timeline import Link, Timeline


@dataclass
class Simulation:
    """What a schedule does: seconds of the step, of waiting for copies, of waiting for the host and
    of each direction's copies; the peak in bytes and the operation at which it occurs."""

    seconds: float = 0.0
    waiting: float = 0.0
    late: float = 0.0
    peak_bytes: int = 0
    peak_at: int = 0
    to_host_seconds: float = 0.0
    from_host_seconds: float = 0.0
    host_before_last: float = 0.0  # host time before the last operation
    begins: list[float] = field(default_factory=list)  # of each operation
    copies: list[tuple[int, bool, float, float]] = field(default_factory=list)  # index, out, span


class _Lane:
    """Copies of one direction, one after the other."""

    def __init__(self, alone: float, shared: float, latency: float) -> None:
        self.alone, self.shared, self.latency = alone, shared, latency
        self.queue: deque[tuple[int, float, float]] = deque()  # with the earliest beginning
        self.left = 0.0  # bytes of the first
        self.delay = 0.0  # seconds until its first byte
        self.began = 0.0
        self.ended: dict[int, float] = {}

    def push(self, index: int, nbytes: float, now: float, earliest: float) -> None:
        self.queue.append((index, nbytes, earliest))
        if len(self.queue) == 1:
            self._start(now)

    def _start(self, now: float) -> None:
        _, self.left, earliest = self.queue[0]
        self.began = max(now, earliest)
        self.delay = self.began - now + self.latency

    @property
    def moving(self) -> bool:
        return bool(self.queue)

    def rate(self, other: _Lane) -> float:
        return self.shared if other.moving else self.alone

    def remaining(self, other: _Lane) -> float:
        return self.delay + self.left / self.rate(other) if self.queue else float("inf")

    def advance(self, seconds: float, rate: float) -> None:
        late = min(seconds, self.delay)
        self.delay -= late
        self.left -= (seconds - late) * rate

    def finish(self, now: float) -> tuple[int, float]:
        index, *_ = self.queue.popleft()
        self.ended[index], took = now, now - self.began
        if self.queue:
            self._start(now)
        return index, took


class _Machine:
    def __init__(self, timeline: Timeline, links: Sequence[Link]) -> None:
        link = total_of(links)
        share = min(link.both / (link.to_host + link.from_host), 1.0)
        self.saved = timeline.saved
        self.out = _Lane(link.to_host, link.to_host * share, link.latency)
        self.in_ = _Lane(link.from_host, link.from_host * share, link.latency)
        self.now = 0.0
        self.host = 0.0  # up to which it has enqueued
        self.copy_host = link.host
        self.result = Simulation()

    def copy(self, lane: _Lane, index: int) -> None:
        """The host enqueues it."""
        self.host += self.copy_host
        lane.push(index, self.saved[index].nbytes, self.now, self.host)

    def compute(self, seconds: float, host: float) -> None:
        """The device begins no earlier than the host begins to enqueue it, nor ends earlier."""
        self.wait_for_host()
        self.host += host
        self.pass_to(self.now + seconds)
        self.wait_for_host()

    def wait_for_host(self) -> None:
        self.result.late += max(self.host - self.now, 0.0)
        self.pass_to(max(self.host, self.now))

    def pass_to(self, moment: float) -> None:
        """Lets the lanes work until then."""
        while self.now < moment:
            self._step(moment - self.now)
        self.now = moment

    def wait_for(self, lane: _Lane, index: int) -> None:
        began = self.now
        while index not in lane.ended:
            if not lane.moving:
                raise AssertionError(f"saved tensor {index} is waited for and not on its way")
            self._step(float("inf"))
        self.result.waiting += self.now - began

    def _step(self, most: float) -> None:
        lanes = ((self.out, self.in_), (self.in_, self.out))
        rates = [lane.rate(other) for lane, other in lanes]
        rest = [lane.remaining(other) for lane, other in lanes]
        seconds = min(most, *rest)
        for (lane, _), rate in zip(lanes, rates, strict=True):
            if lane.moving:
                lane.advance(seconds, rate)
        self.now += seconds
        for (lane, _), left in zip(lanes, rest, strict=True):
            if left <= seconds:
                index, took = lane.finish(self.now)
                out = lane is self.out
                self.result.copies.append((index, out, self.now - took, self.now))
                if out:
                    self.result.to_host_seconds += took
                else:
                    self.result.from_host_seconds += took


def simulate(timeline: Timeline, links: Sequence[Link], plan: Schedule) -> Simulation:
    """Runs the schedule's positions; the rates decide how long the device waits."""
    machine = _Machine(timeline, links)
    result, saved = machine.result, timeline.saved
    at: dict[str, dict[int, list[int]]] = {"release": {}, "fetch": {}, "need": {}, "made": {}}
    for index, movement in plan.movements.items():
        at["need"].setdefault(movement.need, []).append(index)
        at["made"].setdefault(saved[index].produced, []).append(index)
        if plan.choices[index].policy is Policy.SWAP:
            at["release"].setdefault(movement.release, []).append(index)
            at["fetch"].setdefault(movement.fetch, []).append(index)
    order = {index: i for i, index in enumerate(plan.by_need())}
    for position, operation in enumerate(timeline.operations):
        for index in at["release"].get(position, ()):
            machine.wait_for(machine.out, index)
        for index in sorted(at["fetch"].get(position, ()), key=order.__getitem__):
            machine.copy(machine.in_, index)
        for index in sorted(at["need"].get(position, ())):
            choice, one = plan.choices[index], saved[index]
            if choice.policy is Policy.SWAP:
                machine.wait_for(machine.in_, index)
            elif choice.policy is Policy.REBUILD:
                recipe = one.recipes[choice.recipe]
                machine.compute(recipe.seconds, recipe.host)
            elif one.squeeze is not None:
                machine.compute(one.squeeze.seconds / 2, one.squeeze.host / 2)
        machine.wait_for_host()
        result.begins.append(machine.now)
        result.host_before_last = machine.host
        machine.compute(operation.seconds, operation.host)
        for index in at["made"].get(position, ()):
            choice, one = plan.choices[index], saved[index]
            if choice.policy is Policy.SWAP:
                machine.copy(machine.out, index)
            elif choice.policy is Policy.SQUEEZE and one.squeeze is not None:
                machine.compute(one.squeeze.seconds / 2, one.squeeze.host / 2)
    result.seconds = machine.now
    _count_memory(timeline, plan, result)
    return result


def _count_memory(timeline: Timeline, plan: Schedule, result: Simulation) -> None:
    """By events in the runtime's order: frees, then takes, then the operation."""
    count = len(timeline.operations)
    takes, frees, extra = [0] * (count + 1), [0] * (count + 1), [0] * (count + 1)
    for index, (one, choice) in enumerate(zip(timeline.saved, plan.choices, strict=True)):
        takes[one.produced] += one.nbytes
        frees[one.last_use + 1] += one.nbytes
        movement = plan.movements.get(index)
        if movement is None:
            continue
        frees[movement.release] += one.nbytes
        takes[movement.fetch] += one.nbytes
        if choice.policy is Policy.SQUEEZE and one.squeeze is not None:
            takes[one.produced + 1] += one.squeeze.nbytes
            frees[one.last_use + 1] += one.squeeze.nbytes
        elif choice.policy is Policy.REBUILD:
            more = timeline.operations[movement.need].extra_bytes(one.recipes[choice.recipe])
            extra[movement.need] = max(extra[movement.need], more)
    held = 0
    for position, operation in enumerate(timeline.operations):
        held += takes[position] - frees[position]
        total = held + operation.fixed_bytes + extra[position]
        if total > result.peak_bytes:
            result.peak_bytes, result.peak_at = total, position
