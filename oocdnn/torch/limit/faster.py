"""Faster plans for kinds of steps whose steering is not found in time. The search for it runs
beside the steps of another plan, whose place the faster plan takes then."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oocdnn.torch.limit.following import Following, keeps_to
from oocdnn.torch.limit.heap.background import BackgroundSearch

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan
    from oocdnn.torch.limit.card import Card
    from oocdnn.torch.limit.courses import Planned
    from oocdnn.torch.limit.step_kinds import Known

_BESIDE = 240  # times as long as for one plan, steering is looked for
_SEARCHES = 3  # beside the steps of a kind
_MISSES = 4  # steps that leave other memory than a search began with
_COMPARED = 4  # measured steps of each of two plans that are compared
_RUNS = 16  # steps of one plan, after which it is no longer measured
_VARYING = 1.02  # times as long, a step may take by chance
_WAITS = 64  # steps that a search waits at most for another kind, which may run no more


@dataclass
class Faster:
    """The state of the search for a faster plan of one kind.

    Args:
        plan: The plan whose steering is searched for next.
        search: The search for its steering.
        searches: The number of searches so far.
        timed_from: Whole steps of the present plan before it is timed without the search.
        timed: Whether it is timed so.
        slower: The course whose place the present one took, until the two are compared.
        waits: Steps in which the search waited for the steps of another kind.
    """

    plan: Plan | None = None
    search: BackgroundSearch | None = None
    searches: int = 0
    timed_from: int | None = None
    timed: bool = False
    slower: Planned | None = None
    waits: int = 0

    @property
    def measures(self) -> bool:
        """True from the beginning of a search until the plan that it found was compared with the
        present one: steps are measured that no other search should delay."""
        return self.search is not None or self.slower is not None

    @property
    def pending(self) -> bool:
        """True while a search is pending or running, and until the plan that it found was compared
        with the present one."""
        return self.plan is not None or self.measures

    def stop(self) -> None:
        """Has a search that runs end; its plan is to be looked at again."""
        search = self.search
        if search is not None and search.runs:
            search.stop()
            self.plan, self.search = search.plan, None
            self.searches -= 1

    def forget(self) -> None:
        """Ends what an earlier plan led to."""
        self.stop()
        self.plan = self.search = self.slower = None


class FasterPlans:
    """Searches for the steering of faster plans, one search at a time, and compares the plans.

    Args:
        steer: Steers the plan of a kind anew.
        keep: Called with the present plan where the faster one does not serve.
    """

    def __init__(
        self,
        card: Card,
        following: Following,
        steer: Callable[[Known], object],
        keep: Callable[[Plan], object],
    ) -> None:
        self._card, self._following = card, following
        self._steer, self._keep = steer, keep
        self._latest: BackgroundSearch | None = None
        self._searched: Faster | None = None  # the state of the kind that it is of

    def look(self, known: Known) -> None:
        """After a step of the final plan: starts the search for a faster plan's steering. After its
        end, and some steps that are timed without it, the faster plan takes the place of the
        present one."""
        state = known.faster
        if state.search is not None:
            if not state.search.runs:
                self._look_at_found(known, state.search)
            return
        if state.plan is None or self._waits(state):
            return
        plan, state.plan = state.plan, None
        reservation = self._following.reservation(known)
        expandable = reservation is not None and reservation.heap.expandable
        if reservation is None or not expandable or state.searches >= _SEARCHES:
            return
        state.searches += 1
        state.waits = 0
        state.timed_from, state.timed = None, False
        seconds = _BESIDE * self._following.steering_seconds
        state.search = self._latest = BackgroundSearch(plan, reservation, seconds)
        self._searched = state

    def _waits(self, state: Faster) -> bool:
        """True while another search runs, and while steps of another kind are measured because of
        one, for `_WAITS` steps at most."""
        if self._latest is None or self._searched is None:
            return False
        if self._latest.runs:
            return True
        if self._searched is state or not self._searched.measures:
            return False
        state.waits += 1
        return state.waits <= _WAITS

    def _look_at_found(self, known: Known, search: BackgroundSearch) -> None:
        """After the end of a search."""
        state, course = known.faster, known.course
        assert course is not None
        if search.found is None:
            state.search = None
            self._keep(course.plan)
        elif state.timed_from is None:
            state.timed_from = course.runs + 1  # this step ran beside the search
        elif not state.timed:
            if course.runs >= state.timed_from:
                course.seconds.clear()
                state.timed = True
        elif _is_enough(course, state.timed_from):
            self._take(known, search, search.found)

    def _take(self, known: Known, search: BackgroundSearch, found: Plan) -> None:
        """Has the steps follow a plan that was found. Where other memory outlives the steps than
        the search began with, a few more steps are looked at, then it begins anew."""
        heap, state = self._card.heap(), known.faster
        if heap is None or not keeps_to(found, self._following.room(known)):
            state.search = None
            return
        if not heap.is_like(search.reservation.heap):
            search.misses += 1
            if search.misses >= _MISSES:
                state.plan, state.search = search.plan, None
            return
        state.slower, state.search = known.course, None
        self._following.steer(self._following.follow(known, found), search.reservation)

    def compare(self, known: Known) -> None:
        """After a step of a plan that took the place of a slower one. The slower plan takes its
        place again where the driver counts more than the limit, where the steering ended midway,
        and where the steps take longer than its own, if it keeps to the limit."""
        course, slower = known.course, known.faster.slower
        assert course is not None
        assert slower is not None
        fails = self._following.excess() > 0 or course.spacers.lost
        if not fails and not _is_enough(course, 0):
            return
        known.faster.slower = None
        keeps = keeps_to(slower.plan, self._following.room(known))
        if fails or (keeps and _is_longer(course.seconds, slower.seconds)):
            try:
                self._keep(slower.plan)
            finally:  # a warning may be an error
                self._following.follow_again(known, slower)
                self._steer(known)


def _is_enough(course: Planned, runs_before: int) -> bool:
    """True if enough steps of the course were measured, or it is no longer measured."""
    return len(course.seconds) >= _COMPARED or course.runs - runs_before >= _RUNS


def _is_longer(some: Collection[float], others: Collection[float]) -> bool:
    """True if the median of some step times exceeds that of others by more than the variation of
    step times; False if either is empty."""
    if not some or not others:
        return False
    return statistics.median(some) > _VARYING * statistics.median(others)
