"""Plans of recorded steps, and whether the driver counts what they predict."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeGuard

from oocdnn.errors import OutOfMemory
from oocdnn.network.reserving import is_faster
from oocdnn.network.timeline import Timeline, certain_bytes
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Found, Planned
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.gaps import TRIES
from oocdnn.torch.limit.heap.background import BackgroundSearch
from oocdnn.torch.limit.heap.reservation import Reservation
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.spacers import Spacers, probed_act_seconds, probed_trim_seconds
from oocdnn.torch.limit.step_kinds import Known, settings_now
from oocdnn.torch.limit.store import Store

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan, Reserved

_STEERED = 4  # times in a row that a kind's plan is steered anew, which takes long
_BESIDE = 240  # times as long as for one plan, steering is looked for beside steps
_SEARCHES = 3  # beside the steps of a kind
_MISSES = 4  # steps that leave other memory than a search began with
_COMPARED = 4  # measured steps of a plan that took the place of another one
_RUNS = 16  # of its steps, after which it stays where none were measured
_VARYING = 1.02  # times as long, a step may take by chance

# From a timeline, bytes that may be reserved, what tells the bytes that a schedule reserves, and
# what a copy takes the host, where that is known.
Planner = Callable[[Timeline, int, "Reserved | None", float | None], "Plan | None"]


class Planning:
    """Makes and checks the plans of kinds of steps.

    Args:
        limit: Device bytes.
        steering_seconds: For the search of steering, for each plan that is looked at.
        tell: Called with what the program should know.
    """

    def __init__(
        self,
        card: Card,
        store: Store,
        limit: int,
        planner: Planner,
        steering_seconds: float,
        tell: Callable[[str], object],
    ) -> None:
        self._tell = tell
        self._card, self._store, self._planner = card, store, planner
        self.limit, self._steering_seconds = limit, steering_seconds
        self._act: float | None = None  # seconds of the host for an act of a steering
        self._trim: float | None = None  # and for each byte of a trim
        self._search: BackgroundSearch | None = None  # the latest one

    def first(
        self, recorder: Recorder, first: object, division: Division, found: Found, label: str
    ) -> Known | None:
        """A new kind, without a plan, from its first recorded step; None where the step has to be
        recorded again, or saved nothing."""
        record = recorder.first(label)
        if record is None:
            return None
        room = self.limit - self._card.others()
        if division.divides(record.timeline, room, recorder.ran):
            return None
        ran = [tuple(recorder.ran(i)) for i in range(len(record.timeline.operations))]
        known = Known(first, settings_now(), record, found, dict(division.parts), ran)
        known.templates = recorder.templates()
        return known

    def again(self, recorder: Recorder, known: Known, division: Division) -> bool:
        """Plans anew from a further recorded step. Its times are those of a step that does not swap
        everything, and its bytes include the optimizer's state. Returns True if no plan keeps to
        the limit and the step should be recorded again with operations in more parts."""
        again = recorder.again()
        if again is None:
            return False
        known.record = again
        known.allocations = (
            recorder.allocations(known.timeline, known.templates) or known.allocations
        )
        known.recorded += 1
        excess = max(certain_bytes(known.timeline)) - self._room(known)
        if excess > 0 and self._divides(known, division, excess):
            return True
        self.replan(known)
        plan = known.plan
        if plan is None or plan.reserved is None or plan.reserved <= plan.limit:
            return False
        return self._divides(known, division, plan.reserved - plan.limit)

    def check(self, known: Known, division: Division) -> bool:
        """After a step as planned: whether the driver counts more than the limit. Then plans that
        leave more are tried; if none serves, true where the step should be recorded again with
        operations in more parts, else the nearest plan stays. A step whose steering ended midway
        tells nothing of its plan, which is steered anew. A faster plan that was found beside the
        steps takes the place of the present one."""
        assert known.course is not None
        if known.slower is not None:
            self._compare(known, known.slower)
            return False
        if not known.course.spacers.lost:
            known.steered = 0
        elif known.steered < _STEERED:
            known.steered += 1
            self._steer(known)
            return False
        if not known.measured:
            return False
        if known.gaps.tried >= TRIES:
            self._search_beside(known)
            return False
        excess = self._excess()
        if excess <= 0:
            known.gaps.keeps()
            return False
        if known.gaps.passes(excess, self.limit, known.course):
            with contextlib.suppress(OutOfMemory):
                self.replan(known)
                return False
        if self._divides(known, division, known.gaps.nbytes):
            return True
        nearest = known.gaps.nearest
        assert nearest is not None
        known.course, known.plan = nearest, nearest.plan
        nearest.spacers.restore()
        self._tell(
            f"the driver counts {known.gaps.excess} bytes more than the limit of "
            f"{self.limit}: PyTorch's allocator leaves gaps between tensors; set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a lower limit"
        )
        known.gaps.tried = TRIES
        return False

    def _divides(self, known: Known, division: Division, excess: int) -> bool:
        """Whether more parts can leave so many bytes more."""
        room = self.limit - self._card.others()
        if not division.continues(known.timeline, room, excess, known.ran.__getitem__):
            return False
        self._card.trim()
        return True

    def replan(self, known: Known) -> None:
        """The steps of the plan begin without unused memory, as the simulation does. A plan that
        keeps to the limit stays where the new one does not, or takes longer: with its steering,
        where that has kept to the limit and no other is found."""
        room, kept = self._room(known), self._kept(known)
        reservation = self._reservation(known, room)
        known.forget_faster()
        known.update_event_seconds()
        timeline = known.timeline_with_runtime
        plan = self._planner(timeline, room, reservation, known.record.copying)
        latest, steered = None, False
        if known.plan is not None and plan is not None:
            latest = known.plan.retimed(timeline, plan.links)
            if reservation is not None:
                told = latest.reserving(reservation)
                steered = kept and not _keeps_to(told, room)
                latest = latest if steered else told
        stays = known.course is not None and _is_better(latest, plan, room)
        known.plan = latest if stays else plan
        if known.plan is None:
            self._card.trim()
            return
        if not stays or known.course is None:
            self._follow(known, known.plan)
        assert known.course is not None
        known.course.plan, known.course.runs = known.plan, 0
        if not (stays and steered):
            self._take_up(known.course, reservation)
        if plan is not None and plan.faster is not None:
            faster, plan.faster = plan.faster, None
            if not _keeps_to(known.plan, room) or is_faster(faster, known.plan):
                known.faster = faster

    def _search_beside(self, known: Known) -> None:
        """After a step of the final plan: has a faster one looked at beside the next steps. Once
        its steering was found it takes the place of the present plan."""
        if known.search is not None:
            if not known.search.runs:
                self._take_found(known, known.search)
            return
        if known.faster is None or (self._search is not None and self._search.runs):
            return
        faster, known.faster = known.faster, None
        reservation = self._reservation(known, self._room(known))
        if reservation is None or not reservation.heap.expandable or known.searches >= _SEARCHES:
            return
        known.searches += 1
        seconds = _BESIDE * self._steering_seconds
        known.search = self._search = BackgroundSearch(faster, reservation, seconds)

    def _take_found(self, known: Known, search: BackgroundSearch) -> None:
        """After the end of a search. Where other memory outlives the steps than it began with, a
        few more steps are looked at, then it begins anew."""
        found, heap = search.found, self._card.heap()
        if found is None or heap is None or not _keeps_to(found, self._room(known)):
            known.search = None
            return
        if not heap.is_like(search.reservation.heap):
            search.misses += 1
            if search.misses >= _MISSES:
                known.faster, known.search = search.plan, None
            return
        known.slower, known.search = known.course, None
        self._take_up(self._follow(known, found), search.reservation)

    def _compare(self, known: Known, slower: Planned) -> None:
        """After a step of a plan that took the place of a slower one. The slower plan takes its
        place again where the driver counts more than the limit, where the steering ended midway,
        and where the steps take longer than its own, if it keeps to the limit."""
        assert known.course is not None
        seconds, runs = known.course.seconds, known.course.runs
        fails = self._excess() > 0 or known.course.spacers.lost
        if not fails and len(seconds) < _COMPARED and runs < _RUNS:
            return
        known.slower = None
        keeps_to = _keeps_to(slower.plan, self._room(known))
        if fails or (keeps_to and _is_longer(seconds, slower.seconds)):
            self._store.renew()
            known.course, known.plan = slower, slower.plan
            self._steer(known)

    def _follow(self, known: Known, plan: Plan) -> Planned:
        """Has the steps of the kind follow another plan, whose course is returned."""
        self._store.renew()
        course = Planned(self._store, plan, known.found, Spacers(self._card, None))
        known.course, known.plan = course, plan
        return course

    def _kept(self, known: Known) -> bool:
        """True if whole steps ran with the steering or the trims of the plan, and the driver
        counted no more than the limit."""
        course = known.course
        if course is None or course.spacers.idle or course.spacers.lost or not course.runs:
            return False
        return self._excess() <= 0

    def _excess(self) -> int:
        """Bytes by which the driver's count passes the limit; negative below it."""
        return self._card.taken() + self._card.others() - self.limit

    def _steer(self, known: Known) -> None:
        """Steers the plan anew, from the memory that the allocator holds now."""
        assert known.course is not None
        room = self._room(known)
        reservation = self._reservation(known, room)
        if reservation is None:
            known.course.spacers.restore()
            return
        plan = known.course.plan.reserving(reservation)
        if _keeps_to(plan, room):
            known.plan = known.course.plan = plan
            self._take_up(known.course, reservation)
        else:
            with contextlib.suppress(OutOfMemory):
                self.replan(known)

    def _take_up(self, course: Planned, reservation: Reservation | None) -> None:
        """The course's steering, from a step on that begins without unused memory. Where nothing
        is known of that, it stays."""
        if reservation is None:
            course.spacers.restore()
            return
        self._card.trim()
        course.spacers = Spacers(self._card, reservation.steering(course.plan.schedule))

    def _room(self, known: Known) -> int:
        """Bytes that may be reserved."""
        return self.limit - self._card.others() - known.gaps.nbytes

    def _reservation(self, known: Known, room: int) -> Reservation | None:
        """What schedules reserve from now on, where allocations are known."""
        if known.allocations is None:
            return None
        act = self._act_seconds(known)  # may allocate
        if self._trim is None:
            self._trim = probed_trim_seconds(self._card, room)
        heap = self._card.heap()
        if heap is None:
            return None
        seconds = self._steering_seconds
        return Reservation(known.allocations, heap, room, seconds, act, self._trim)

    def _act_seconds(self, known: Known) -> float:
        """Seconds of the host for an act of a steering."""
        measured = None if known.course is None else known.course.spacers.act_seconds
        if measured is None and self._act is None:
            measured = probed_act_seconds(self._card)
        if measured is not None:
            self._act = measured
        assert self._act is not None
        return self._act


def _is_longer(some: Collection[float], others: Collection[float]) -> bool:
    """True if the median of some step times exceeds that of others by more than the variation of
    step times; False if either is empty."""
    if not some or not others:
        return False
    return statistics.median(some) > _VARYING * statistics.median(others)


def _is_better(latest: Plan | None, plan: Plan | None, room: int) -> TypeGuard[Plan]:
    """Whether the latest plan keeps to the room, and the new one does not, or is slower."""
    if not _keeps_to(latest, room):
        return False
    return not _keeps_to(plan, room) or latest.seconds <= plan.seconds


def _keeps_to(plan: Plan | None, room: int) -> TypeGuard[Plan]:
    return plan is not None and plan.reserved is not None and plan.reserved <= room
