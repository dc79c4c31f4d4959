"""The search for the steering of a plan, on a thread of its own while steps follow another plan."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref

from oocdnn.errors import DeviceError, InvalidProblem
from oocdnn.network.planner import Plan
from oocdnn.torch.limit.heap.reservation import Reservation

_ROUNDS = 64  # searches, each of which looks elsewhere
_NICENESS = 10  # of its threads: training goes first


class _Stopped(Exception):
    """Raised in a search that is to end."""


class BackgroundSearch:
    """One search. Its threads have a lower priority than those of the program. Its errors end it.

    Args:
        plan: Whose schedule is to be steered.
        reservation: Of the memory that steps begin with. Nobody else uses it from here on.
        seconds: After which the search ends.

    Attributes:
        found: The plan with its steering, once it was found.
        misses: Steps after the search that left other memory than it began with.
    """

    def __init__(self, plan: Plan, reservation: Reservation, seconds: float) -> None:
        self.found: Plan | None = None
        self.misses = 0
        self.plan, self.reservation = plan, reservation
        self._end = time.monotonic() + seconds
        self._stopped = False
        reservation.progress = self._goes_on
        self._thread = threading.Thread(target=self._run, name="oocdnn-steering", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system refuses threads
            self._thread.start()
            _searches.add(self)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Has the search end soon. It does not wait: the collector of garbage may run on the
        search's thread, and wait there for a lock that the caller holds."""
        self._stopped = True

    def join(self) -> None:
        """Waits for the end. The caller holds no lock."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # Threads that this thread starts inherit its priority.
            niceness = max(os.getpriority(os.PRIO_PROCESS, 0), _NICENESS)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        with contextlib.suppress(_Stopped, DeviceError, InvalidProblem, MemoryError):
            for _ in range(_ROUNDS):
                left = self._end - time.monotonic()
                if self._stopped or left <= 0:
                    return
                made = self.plan.reserving(self.reservation, left)
                assert made.reserved is not None
                if made.reserved <= self.reservation.limit:
                    self.found = made
                    return

    def _goes_on(self, _done: int, _total: int) -> None:
        if self._stopped:
            raise _Stopped


_searches: weakref.WeakSet[BackgroundSearch] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    """Ends all searches before the interpreter does."""
    for one in list(_searches):
        one.stop()
        one.join()
