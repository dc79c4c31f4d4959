"""A faster plan for a kind of step. Near the least limit its steering may take long to find: it is
searched for beside the steps of another plan, whose place the faster one takes then."""

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
_RUNS = 16  # of its steps, after which a plan is not measured any longer
_VARYING = 1.02  # times as long, a step may take by chance


@dataclass
class Faster:
    """How far the search for a faster plan of one kind is.

    Args:
        plan: That is to be looked at beside the steps.
        search: For its steering.
        searches: The number of them so far.
        slower: Whose place the present course took, until they are compared.
    """

    plan: Plan | None = None
    search: BackgroundSearch | None = None
    searches: int = 0
    slower: Planned | None = None

    @property
    def pending(self) -> bool:
        """True while a search is pending or running, and during the comparison of the plan that it
        found."""
        return not (self.plan is None and self.search is None and self.slower is None)

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
    """Searches for faster plans, one search at a time, and compares them with the present ones.

    Args:
        steer: Steers the plan of a kind anew.
        keep: Called with a plan that turned out to be the best one.
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

    def look(self, known: Known) -> None:
        """After a step of the final plan: has a faster one looked at beside the next steps. Once
        its steering was found it takes the place of the present plan."""
        faster = known.faster
        if faster.search is not None:
            if not faster.search.runs and self._is_timed(known, faster.search):
                self._take_found(known, faster.search)
            return
        if faster.plan is None or (self._latest is not None and self._latest.runs):
            return
        plan, faster.plan = faster.plan, None
        reservation = self._following.reservation(known)
        expandable = reservation is not None and reservation.heap.expandable
        if reservation is None or not expandable or faster.searches >= _SEARCHES:
            return
        faster.searches += 1
        seconds = _BESIDE * self._following.steering_seconds
        faster.search = self._latest = BackgroundSearch(plan, reservation, seconds)

    def _is_timed(self, known: Known, search: BackgroundSearch) -> bool:
        """Whether steps of the present plan were measured without the search beside them."""
        course = known.course
        assert course is not None
        if search.found is None:
            return True
        if search.runs_before is None:
            course.seconds.clear()
            search.runs_before = course.runs
        return _is_enough(course, search.runs_before)

    def _take_found(self, known: Known, search: BackgroundSearch) -> None:
        """After the end of a search. Where other memory outlives the steps than it began with, a
        few more steps are looked at, then it begins anew."""
        found, heap, faster = search.found, self._card.heap(), known.faster
        if found is None or heap is None or not keeps_to(found, self._following.room(known)):
            faster.search = None
            return
        if not heap.is_like(search.reservation.heap):
            search.misses += 1
            if search.misses >= _MISSES:
                faster.plan, faster.search = search.plan, None
            return
        faster.slower, faster.search = known.course, None
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
        longer = keeps_to(slower.plan, self._following.room(known)) and _is_longer(
            course.seconds, slower.seconds
        )
        if not fails:
            self._keep(slower.plan if longer else course.plan)
        if fails or longer:
            self._following.follow_again(known, slower)
            self._steer(known)


def _is_enough(course: Planned, runs_before: int) -> bool:
    """Whether enough steps of a plan were measured, or too many were not."""
    return len(course.seconds) >= _COMPARED or course.runs - runs_before >= _RUNS


def _is_longer(some: Collection[float], others: Collection[float]) -> bool:
    """True if the median of some step times exceeds that of others by more than the variation of
    step times; False if either is empty."""
    if not some or not others:
        return False
    return statistics.median(some) > _VARYING * statistics.median(others)
