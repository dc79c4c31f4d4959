"""Courses of plans: the bytes that they may reserve, and the steering that keeps them to these."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Planned
from oocdnn.torch.limit.heap.reservation import Reservation
from oocdnn.torch.limit.spacers import Spacers, probed_act_seconds, probed_trim_seconds
from oocdnn.torch.limit.store import Store

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan
    from oocdnn.torch.limit.step_kinds import Known


class Following:
    """Begins courses of plans, and their steering.

    Args:
        limit: Device bytes.
        steering_seconds: For the search of steering, for each plan that is looked at.
    """

    def __init__(self, card: Card, store: Store, limit: int, steering_seconds: float) -> None:
        self._card, self._store = card, store
        self.limit, self.steering_seconds = limit, steering_seconds
        self._act: float | None = None  # seconds of the host for an act of a steering
        self._trim: float | None = None  # and for each byte of a trim

    def room(self, known: Known) -> int:
        """Bytes that may be reserved."""
        return self.limit - self._card.others() - known.gaps.nbytes

    def excess(self) -> int:
        """Bytes by which the driver's count passes the limit; negative below it."""
        return self._card.taken() + self._card.others() - self.limit

    def follow(self, known: Known, plan: Plan) -> Planned:
        """Has the steps of the kind follow another plan, whose course is returned."""
        self._store.renew()
        course = Planned(self._store, plan, known.found, Spacers(self._card, None))
        known.course, known.plan = course, plan
        return course

    def follow_again(self, known: Known, course: Planned) -> None:
        """Has the steps of the kind follow an earlier course. The caller steers it."""
        self._store.renew()
        known.course, known.plan = course, course.plan

    def steer(self, course: Planned, reservation: Reservation | None) -> None:
        """Steers the course, from a step on that begins without unused memory. Without a
        reservation the steering stays."""
        if reservation is None:
            course.spacers.restore()
            return
        self._card.trim()
        course.spacers = Spacers(self._card, reservation.steering(course.plan.schedule))

    def reservation(self, known: Known) -> Reservation | None:
        """The simulation of what schedules reserve from now on; None where allocations are not
        known."""
        if known.allocations is None:
            return None
        room = self.room(known)
        act = self._act_seconds(known)  # may allocate
        if self._trim is None:
            self._trim = probed_trim_seconds(self._card, room)
        heap = self._card.heap()
        if heap is None:
            return None
        seconds = self.steering_seconds
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


def keeps_to(plan: Plan | None, room: int) -> TypeGuard[Plan]:
    """True if the plan reserves no more than `room` bytes; False if that is not known."""
    return plan is not None and plan.reserved is not None and plan.reserved <= room
