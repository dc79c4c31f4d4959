"""The search for the steering of a plan, on a thread of its own while steps follow another plan."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time

from oocdnn.network.planner import Plan
from oocdnn.torch.limit.heap.reservation import Reservation

_ROUNDS = 64  # searches, each of which looks elsewhere
_NICENESS = 10  # of its threads: training goes first


class _Stopped(Exception):
    """The search is to end."""


class BackgroundSearch:
    """One search. Its threads have a lower priority than those of the program.

    Args:
        plan: Whose schedule is to be steered.
        reservation: Of the memory that steps begin with. Nobody else uses it from here on.
        seconds: After which the search ends.

    Attributes:
        found: The plan with its steering, once it was found.
    """

    def __init__(self, plan: Plan, reservation: Reservation, seconds: float) -> None:
        self.found: Plan | None = None
        self.plan, self.reservation = plan, reservation
        self._end = time.monotonic() + seconds
        self._stopped = False
        reservation.progress = self._goes_on
        self._thread = threading.Thread(target=self._run, name="oocdnn-steering", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system refuses threads
            self._thread.start()
            atexit.register(self.stop)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ends the search."""
        self._stopped = True
        atexit.unregister(self.stop)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # Of this thread and of those that it starts.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        with contextlib.suppress(_Stopped):
            for _ in range(_ROUNDS):
                left = self._end - time.monotonic()
                if left <= 0:
                    return
                made = self.plan.reserving(self.reservation, left)
                assert made.reserved is not None
                if made.reserved <= self.reservation.limit:
                    self.found = made
                    return

    def _goes_on(self, _done: int, _total: int) -> None:
        if self._stopped:
            raise _Stopped
