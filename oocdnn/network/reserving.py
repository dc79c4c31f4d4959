"""Plans within a limit for the bytes that an allocator reserves: it leaves gaps between tensors.

A plan's own limit is for tensors. Plans leave more and more of it to the gaps, until one fits.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from oocdnn.errors import OutOfMemory
from oocdnn.network.plan import Schedule

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

# Parts of the limit that plans leave, one after the other; where the least limit leaves fewer,
# equal steps to that.
_PARTS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.11, 0.15, 0.2, 0.27, 0.35)
_STEPS = 8
_FIRST_SHARE = 0.55  # of the time, for the plan that leaves none
_NEXT_SHARE, _LEAST_SHARE = 0.08, 0.04  # of the time, which each other has at most, at least
_MOST = 2.0  # times as much time, until one fits
_ALONE_SHARE = 0.3  # of the time, for plans that leave the allocator alone
_FASTER = 1.1  # times as fast as the best: a plan that does not fit is looked at for longer
_HALVINGS = 3  # of the bytes between the best and such a plan
_LONG_SHARE, _LONGEST = 0.5, 1.0  # of the time, for one longer look, and for all of them


class Reserved(Protocol):
    """Tells how many bytes a schedule makes an allocator reserve."""

    def __call__(self, schedule: Schedule, /) -> int:
        """At least the schedule's peak; the gaps between tensors are in it."""

    def searched(self, schedule: Schedule, seconds: float, /) -> int:
        """The same, looked for once more and for so many seconds."""

    def trimmed(self, schedule: Schedule, /) -> int | None:
        """These bytes where unused ones are given back in the midst of the step, which takes time
        that `stalls` tells from here on; None where that does not keep to the limit."""

    def acting(self, schedule: Schedule, /) -> Mapping[int, float]:
        """Seconds of the host at positions, for what keeps the allocator to these bytes, of a
        schedule that it was asked about."""

    def stalls(self, schedule: Schedule, /) -> Mapping[int, float]:
        """Seconds at positions for which the device waits until unused bytes are given back, of
        such a schedule."""


# The plan within so many bytes for tensors that is found by a moment of `time.monotonic`, from
# another one on.
Within = Callable[[int, float, "Plan | None"], "Plan"]


class Reserving:
    """One search. The plan that leaves nothing has most of the time; where it is not enough for all
    the others, some are left out.

    Args:
        least: Bytes for tensors below which no plan is.
        limit: Bytes that may be reserved.
        seconds: Time of the search; twice as much until a plan fits, and as much again for fast
            plans that nearly fit.
    """

    def __init__(
        self, within: Within, reserved: Reserved, least: int, limit: int, seconds: float
    ) -> None:
        self._within, self._reserved = within, reserved
        self._limit, self._seconds = limit, seconds
        self._parts = _parts(limit, least)
        self._began = time.monotonic()
        self._telling = 0.0  # seconds that the last answer of `reserved` took
        self._all: list[Plan] = []
        self._faster: Plan | None = None  # the latest one that was looked at for longer, in vain

    def run(self) -> Plan:
        """The first plan that fits, or a faster one that leaves as much or more; where none fits,
        the fastest that fits if unused memory is given back in the midst of the step, else the one
        that reserves least. It has a faster one that nearly fits, if there is one."""
        limit, part = self._limit, 0.0
        best = last = self._made(limit, _FIRST_SHARE * self._seconds, None)
        while not self._fits(best) and self._parts:
            tries, seconds = self._tries()
            half = part + (_bytes(last) - limit) / limit / 2
            part = self._next(tries, half)
            room = limit - int(part * limit)
            start = last if last.peak_bytes > room else None  # else it would be the best again
            with contextlib.suppress(OutOfMemory):
                last = self._made(room, seconds, start)
                best = min(best, last, key=_bytes)
        best = self._longer(best)
        if not self._fits(best):
            best = self._trimmed(best)
        elif best.acting:
            best = self._alone(best)
        best = self._again(best)
        best.limit, best.planning = limit, time.monotonic() - self._began
        faster = self._faster
        if faster is None or faster is best:
            return best
        if not self._fits(best) or is_faster(faster, best):
            best.faster = replace(faster, limit=limit, planning=best.planning)
        return best

    def _tries(self) -> tuple[int, float]:
        """The number of further plans that the time allows, and the seconds for each."""
        least, most = _LEAST_SHARE * self._seconds, _NEXT_SHARE * self._seconds
        left = self._began + _MOST * self._seconds - time.monotonic()
        tries = min(max(int(left / (least + self._telling)), 1), len(self._parts))
        return tries, min(max(left / tries - self._telling, least), most)

    def _next(self, tries: int, half: float) -> float:
        """The next part. Of those below `half` some are left out where the tries are too few."""
        too_many = -(-len(self._parts) // tries) - 1
        left_out = [one for one in self._parts[:too_many] if one < half]
        part, *self._parts = self._parts[len(left_out) :]
        return part

    def _again(self, best: Plan) -> Plan:
        """Searches once more at the best plan's limit, in the time that is left."""
        now = time.monotonic()
        left = self._began + self._seconds - now - self._telling
        if not self._fits(best) or best.fits or left <= _LEAST_SHARE * self._seconds:
            return best
        made = self._within(best.limit, now + left, best)
        if made.seconds >= best.seconds:
            return best
        made = self._told(made)
        return min(best, made, key=_seconds) if self._fits(made) else best

    def _alone(self, best: Plan) -> Plan:
        """The fastest of this plan and of those that leave more, up to the first that leaves the
        allocator alone, in part of the time."""
        end = time.monotonic() + _ALONE_SHARE * self._seconds
        for part in self._parts:
            if time.monotonic() > end:
                break
            room = self._limit - int(part * self._limit)
            start = best if best.peak_bytes > room else None
            try:
                made = self._within(room, time.monotonic() + _LEAST_SHARE * self._seconds, start)
            except OutOfMemory:
                break
            if made.seconds >= best.seconds:
                break  # as are those that leave more
            made = self._told(made)
            if self._fits(made):
                best = min(best, made, key=_seconds)
                if not made.acting:
                    break
        return best

    def _longer(self, best: Plan) -> Plan:
        """Near the least limit a few bytes more make plans much faster, and fill the memory so far
        that what keeps the allocator to them takes longer to find. Two of such plans are looked at
        again: the one with the fewest bytes, and of the fastest ones that with the fewest."""
        end, looked = time.monotonic() + _LONGEST * self._seconds, None
        for choose in (_smallest, _fastest):
            fast = [one for one in self._all if not self._fits(one)]
            fast = [one for one in fast if not self._fits(best) or is_faster(one, best)]
            if not fast or choose(fast) is looked:
                break
            looked = made = choose(fast)
            if self._fits(best):
                made = self._halved(best, made)
            made = self._looked(made, end)
            if not self._fits(made):
                self._faster = made
            elif not self._fits(best) or made.seconds < best.seconds:
                best = made
        return best

    def _looked(self, made: Plan, end: float) -> Plan:
        """The plan with what it reserves, looked for until then."""
        seconds = _LONG_SHARE * self._seconds
        while not self._fits(made) and time.monotonic() < end:
            began = time.monotonic()
            look = min(seconds, end - began)
            made = made.reserving(self._reserved, look)
            if time.monotonic() - began < look / 2:
                break  # found, or there is nothing more to look for
        return made

    def _halved(self, best: Plan, fast: Plan) -> Plan:
        """A plan about as fast with fewer bytes, of those between the two."""
        low, high, most = best.limit, fast.limit, fast.seconds * _FASTER
        for _ in range(_HALVINGS):
            room = (low + high) // 2
            made = None
            with contextlib.suppress(OutOfMemory):
                made = self._made(room, _NEXT_SHARE * self._seconds, None)
            if made is None or made.seconds > most or not is_faster(made, best):
                low = room
                continue
            high, fast = room, made
            if self._fits(made):
                break
        return fast

    def _trimmed(self, best: Plan) -> Plan:
        """Looks at the fastest plans first, for half as long as the search may take."""
        end, found = time.monotonic() + self._seconds / 2, None
        for made in sorted(self._all, key=_seconds):
            if time.monotonic() > end or (found is not None and made.seconds >= found.seconds):
                break
            told = made.trimming(self._reserved)
            if told is not None and (found is None or told.seconds < found.seconds):
                found = told
        return best if found is None else found

    def _fits(self, made: Plan) -> bool:
        return _bytes(made) <= self._limit

    def _made(self, room: int, seconds: float, start: Plan | None) -> Plan:
        return self._told(self._within(room, time.monotonic() + seconds, start))

    def _told(self, made: Plan) -> Plan:
        """With what it reserves."""
        began = time.monotonic()
        told = made.reserving(self._reserved)
        self._telling = time.monotonic() - began
        self._all.append(told)
        return told


def is_faster(plan: Plan, other: Plan) -> bool:
    """True if a plan is so much faster than another one that it is looked at for longer."""
    return plan.seconds * _FASTER < other.seconds


def _parts(limit: int, least: int) -> list[float]:
    """Parts of the limit to leave, the smallest first."""
    most = 1 - least / limit
    if most > _PARTS[-1]:
        return list(_PARTS)
    return [most * i / _STEPS for i in range(1, _STEPS + 1)] if most > 0 else []


def _bytes(made: Plan) -> int:
    assert made.reserved is not None
    return made.reserved


def _seconds(made: Plan) -> float:
    return made.seconds


def _smallest(plans: Iterable[Plan]) -> Plan:
    return min(plans, key=lambda one: one.peak_bytes)


def _fastest(plans: Sequence[Plan]) -> Plan:
    """The one with the fewest bytes of those that are about as fast as the fastest."""
    least = min(one.seconds for one in plans)
    return _smallest(one for one in plans if one.seconds <= least * _FASTER)
