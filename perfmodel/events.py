"""A discrete-event simulation in small: processes that wait for signals and for time to pass.

A process is a generator. It yields seconds, and goes on when they have passed; a Signal, and goes
on a hop after that was sent, at once where that is past; or Crossing, which takes longer while
another process crosses.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, Union

Process: TypeAlias = Iterator[Union[float, "Signal", "Crossing"]]


@dataclass
class Signal:
    """Something that ends once."""

    sent: float | None = None  # seconds
    waiting: list[Process] = field(default_factory=list)


class Crossing(NamedTuple):
    """So many seconds of work, where nobody else crosses."""

    seconds: float


@dataclass
class _UnderWay:
    process: Process
    left: float  # seconds of its crossing, alone


class Simulation:
    """A clock and the processes that live by it. `hop`: seconds from a signal to who waits.
    `together`: how fast each of two processes crosses that do so at the same time; alone: 1."""

    def __init__(self, hop: float, together: float = 1.0) -> None:
        self.now = 0.0
        self._hop, self._together = hop, together
        self._events: list[tuple[float, int, Process]] = []
        self._next: dict[int, int] = {}  # the number of the event that each process waits for
        self._numbers = itertools.count()
        self._crossing: list[_UnderWay] = []
        self._looked = 0.0  # when it was last seen how far those are

    def start(self, process: Process) -> None:
        self._at(self.now, process)

    def send(self, signal: Signal) -> None:
        """Called by a process when what the signal stands for has ended."""
        signal.sent = self.now
        for process in signal.waiting:
            self._at(self.now + self._hop, process)
        signal.waiting.clear()

    def run(self) -> None:
        """Until nothing happens any more. Raises RuntimeError for a process that waits for ever."""
        started = {id(process): process for _, _, process in self._events}
        while self._events:
            time, number, process = heapq.heappop(self._events)
            if self._next[id(process)] != number:
                continue  # it crosses, and another has come or gone since
            self.now = time
            crossed = next((one for one in self._crossing if one.process is process), None)
            if crossed is not None:
                self._change(without=crossed)
            try:
                self._wait(process, next(process))
            except StopIteration:
                del started[id(process)]
        if started:
            raise RuntimeError(f"{len(started)} processes wait for what never ends")

    def _wait(self, process: Process, what: "float | Signal | Crossing") -> None:
        if isinstance(what, Crossing):
            self._change(also=_UnderWay(process, what.seconds))
        elif isinstance(what, Signal):
            if what.sent is None:
                what.waiting.append(process)
            else:
                self._at(max(self.now, what.sent + self._hop), process)
        else:
            self._at(self.now + what, process)

    def _change(self, also: _UnderWay | None = None, without: _UnderWay | None = None) -> None:
        """Someone begins to cross, or has crossed: the others go at another speed from now on."""
        passed = (self.now - self._looked) * self._speed()
        for one in self._crossing:
            one.left = max(one.left - passed, 0.0)
        self._looked = self.now
        self._crossing = [one for one in self._crossing if one is not without]
        if also is not None:
            self._crossing.append(also)
        for one in self._crossing:
            self._at(self.now + one.left / self._speed(), one.process)

    def _speed(self) -> float:
        return 1.0 if len(self._crossing) < 2 else self._together

    def _at(self, time: float, process: Process) -> None:
        number = self._next[id(process)] = next(self._numbers)
        heapq.heappush(self._events, (time, number, process))
