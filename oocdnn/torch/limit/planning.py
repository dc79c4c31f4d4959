"""Plans of recorded steps, and whether the driver counts what they predict."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

from oocdnn.errors import OutOfMemory
from oocdnn.network.reserving import is_faster
from oocdnn.network.timeline import Timeline, certain_bytes
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Found
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.faster import FasterPlans
from oocdnn.torch.limit.following import Following, keeps_to
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.step_kinds import Known, settings_now

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan, Reserved

_STEERED = 4  # times in a row that a kind's plan is steered anew, which takes long

# From a timeline, bytes that may be reserved, what tells the bytes that a schedule reserves, and
# what a copy takes the host, where that is known.
Planner = Callable[[Timeline, int, "Reserved | None", float | None], "Plan | None"]


class Planning:
    """Makes and checks the plans of kinds of steps.

    Args:
        following: Begins the courses of the plans.
        keep: Called with a plan whose faster one does not serve.
        tell: Called with what the program should know.
    """

    def __init__(
        self,
        card: Card,
        following: Following,
        planner: Planner,
        keep: Callable[[Plan], object],
        tell: Callable[[str], object],
    ) -> None:
        self._card, self.following, self._planner, self._tell = card, following, planner, tell
        self._faster_plans = FasterPlans(card, following, self._steer, keep)

    def first(
        self, recorder: Recorder, first: object, division: Division, found: Found, label: str
    ) -> Known | None:
        """A new kind, without a plan, from its first recorded step; None where the step has to be
        recorded again, or saved nothing."""
        record = recorder.first(label)
        if record is None:
            return None
        room = self.following.limit - self._card.others()
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
        excess = max(certain_bytes(known.timeline)) - self.following.room(known)
        if excess > 0 and self._divides(known, division, excess):
            return True
        self.replan(known)
        plan = known.plan
        if plan is None or plan.reserved is None or plan.reserved <= plan.limit:
            return False
        return self._divides(known, division, plan.reserved - plan.limit)

    def check(self, known: Known, division: Division) -> bool:
        """After a step as planned: acts by the state of its kind. Returns True if the step should
        be recorded again with operations in more parts.

        | state, the first that holds                        | action                         |
        |----------------------------------------------------|--------------------------------|
        | a faster plan is on trial                          | compare the two plans          |
        | steering ended midway, in `_STEERED` steps at most | steer the plan anew            |
        | further recordings are to come                     | none                           |
        | the plan is final                                  | search for a faster plan       |
        | else                                               | compare the count to the limit |
        """
        assert known.course is not None
        if known.faster.slower is not None:
            self._faster_plans.compare(known)
            return False
        lost = known.course.spacers.lost
        known.lost = known.lost + 1 if lost else 0
        if lost and known.lost <= _STEERED:
            self._steer(known)
        elif known.measured and known.gaps.settled:
            self._faster_plans.look(known)
        elif known.measured:
            return self._passes(known, division)
        return False

    def _passes(self, known: Known, division: Division) -> bool:
        """Compares the driver's count to the limit. Where it is more, plans that leave more are
        tried; if none serves, the step is recorded again with operations in more parts (True), or
        the plan that passes the limit least stays."""
        assert known.course is not None
        limit, excess = self.following.limit, self.following.excess()
        if excess <= 0:
            known.gaps.keeps()
            return False
        if known.gaps.passes(excess, limit, known.course):
            with contextlib.suppress(OutOfMemory):
                self.replan(known)
                return False
        if self._divides(known, division, known.gaps.nbytes):
            return True
        nearest = known.gaps.nearest
        assert nearest is not None
        self.following.follow_again(known, nearest)
        nearest.spacers.restore()
        known.gaps.settled = True  # a warning may be an error
        self._tell(
            f"the driver counts {known.gaps.excess} bytes more than the limit of {limit}: "
            "PyTorch's allocator leaves gaps between tensors; set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a lower limit"
        )
        return False

    def _divides(self, known: Known, division: Division, excess: int) -> bool:
        """Whether more parts can leave so many bytes more."""
        room = self.following.limit - self._card.others()
        if not division.continues(known.timeline, room, excess, known.ran.__getitem__):
            return False
        self._card.trim()
        return True

    def replan(self, known: Known) -> None:
        """Makes a new plan. The present one stays if it keeps to the limit and the new one does
        not, or is no faster; its steering stays if it has kept to the limit and no other is found.
        The steps of a plan begin without unused memory, as the simulation does."""
        room, kept = self.following.room(known), self._kept(known)
        reservation = self.following.reservation(known)
        known.faster.forget()
        known.update_host_times()
        timeline = known.timeline_with_runtime
        plan = self._planner(timeline, room, reservation, known.record.copying)
        latest, steered = None, False
        if known.plan is not None and plan is not None:
            latest = known.plan.retimed(timeline, plan.links)
            if reservation is not None:
                told = latest.reserving(reservation)
                steered = kept and not keeps_to(told, room)
                latest = latest if steered else told
        if known.course is not None and _is_better(latest, plan, room):
            course = known.course
            course.plan, course.runs = latest, 0
            known.plan = latest
        elif plan is not None:
            course, steered = self.following.follow(known, plan), False
        else:
            known.plan = None
            self._card.trim()
            return
        if not steered:
            self.following.steer(course, reservation)
        if plan is not None and plan.faster is not None:
            faster, plan.faster = plan.faster, None
            if not keeps_to(course.plan, room) or is_faster(faster, course.plan):
                known.faster.plan = faster

    def _kept(self, known: Known) -> bool:
        """True if whole steps ran with the steering or the trims of the plan, and the driver
        counted no more than the limit."""
        course = known.course
        if course is None or course.spacers.idle or course.spacers.lost or not course.runs:
            return False
        return self.following.excess() <= 0

    def _steer(self, known: Known) -> None:
        """Steers the plan anew, from the memory that the allocator holds now."""
        assert known.course is not None
        room = self.following.room(known)
        reservation = self.following.reservation(known)
        if reservation is None:
            self.following.steer(known.course, None)
            return
        plan = known.course.plan.reserving(reservation)
        if keeps_to(plan, room):
            known.plan = known.course.plan = plan
            self.following.steer(known.course, reservation)
        else:
            with contextlib.suppress(OutOfMemory):
                self.replan(known)


def _is_better(latest: Plan | None, plan: Plan | None, room: int) -> TypeGuard[Plan]:
    """Whether the latest plan keeps to the room, and the new one does not, or is slower."""
    if not keeps_to(latest, room):
        return False
    return not keeps_to(plan, room) or latest.seconds <= plan.seconds
