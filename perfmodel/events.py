"""A discrete-event simulation in small: processes that wait for signals and for time to pass.

A process is a generator. It yields seconds, and goes on when they have passed; or a Signal, and
goes on a hop after that was sent, at once where that is past.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, Union

Process: TypeAlias = Iterator[Union[float, "Signal"]]


@dataclass
class Signal:
    """Something that ends once."""

    sent: float | None = None  # seconds
    waiting: list[Process] = field(default_factory=list)


class Simulation:
    """A clock and the processes that live by it. `hop`: seconds from a signal to who waits."""

    def __init__(self, hop: float) -> None:
        self.now = 0.0
        self._hop = hop
        self._events: list[tuple[float, int, Process]] = []
        self._numbers = itertools.count()

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
            self.now, _, process = heapq.heappop(self._events)
            try:
                self._wait(process, next(process))
            except StopIteration:
                del started[id(process)]
        if started:
            raise RuntimeError(f"{len(started)} processes wait for what never ends")

    def _wait(self, process: Process, what: float | Signal) -> None:
        if isinstance(what, Signal):
            if what.sent is None:
                what.waiting.append(process)
            else:
                self._at(max(self.now, what.sent + self._hop), process)
        else:
            self._at(self.now + what, process)

    def _at(self, time: float, process: Process) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), process))
