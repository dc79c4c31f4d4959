"""Positions of copies for given policies: released as late, fetched as early, as the limit allows.

The device never holds more than the limit, whatever the real rates of the copies are: a tensor's
bytes are free at its release position because the device waits there for the copy. Rates decide
only how long it waits. The core library makes the schedules (native/network).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from oocdnn._core.network import (
    KEEP,
    RECIPE,
    SQUEEZE,
    SWAP,
    NativeScheduler,
    NativeStep,
    Totals,
)
from oocdnn.network.plan import Choice, Movement, Policy, Schedule
from oocdnn.network.timeline import Link, Saved, Timeline

_PRICE = 6.0  # for a byte above the limit: times of its copy
_DEARER = 1.05  # a schedule that passes the limit at all
_PLAIN = {Policy.KEEP: KEEP, Policy.SWAP: SWAP, Policy.SQUEEZE: SQUEEZE}


def total_of(links: Sequence[Link]) -> Link:
    """All links as one: a copy goes over them in shares, by their rates."""
    return Link(
        to_host=sum(link.to_host for link in links),
        from_host=sum(link.from_host for link in links),
        both=sum(link.both for link in links),
        latency=max(link.latency for link in links),
        host=sum(link.host for link in links),
        name=" + ".join(link.name for link in links),
    )


def schedule(
    timeline: Timeline, links: Sequence[Link], limit: int, choices: Sequence[Choice]
) -> Schedule:
    """The positions under which the choices wait least for copies within the limit.

    Where no positions fit, `peak_bytes` of the result passes the limit.
    """
    return Scheduler(timeline, total_of(links), limit).run(choices)


class Scheduler:
    """Makes schedules of one step for many choices."""

    def __init__(self, timeline: Timeline, link: Link, limit: int) -> None:
        self.timeline, self.link, self.limit = timeline, link, limit
        self._native = NativeScheduler(_step(timeline, link))

    def run(self, choices: Sequence[Choice]) -> Schedule:
        """A tensor whose smaller form a recipe would have to read is swapped instead."""
        made = self._native.schedule(self.limit, _policies(choices))
        moved = {
            index: Movement(*positions)
            for index, positions in enumerate(made.movements)
            if positions[0] >= 0
        }
        waits = {index: seconds for index, seconds in enumerate(made.waits) if seconds}
        return Schedule(_choices(made.policies), moved, made.bytes_at, *made.totals[:4], waits)

    def totals(self, choices: Sequence[Choice]) -> Totals:
        """The totals of `run`, at less cost."""
        return self._native.totals(self.limit, _policies(choices))

    def cost(self, made: Schedule) -> float:
        """Seconds; more, and more than by waiting, where the limit is passed: by the bytes of each
        peak."""
        above = [max(nbytes - self.limit, 0) for nbytes in made.bytes_at]
        if not any(above):
            return made.seconds
        excess = sum(max(after - before, 0) for before, after in pairwise([0, *above]))
        return _DEARER * made.seconds + _PRICE * excess / self.link.from_host

    def rank(self, made: Schedule) -> tuple[int, float]:
        """What orders schedules: bytes above the limit, then seconds."""
        return max(made.peak_bytes - self.limit, 0), made.seconds

    def improved(
        self,
        choices: Sequence[Choice],
        *,
        trials: int,
        warmth: float,
        seconds: float,
        seed: int = 0,
    ) -> list[Choice]:
        """The best choices that a search from these finds: those that pass the limit by the fewest
        bytes, and of them the fastest.

        Args:
            trials: Changes that are tried, a few choices at a time.
            warmth: Seconds of the step by which a change may make it worse at first.
            seconds: At most; where they end the search, its result depends on the machine.
            seed: Of its random numbers. Equal arguments give equal results.
        """
        _, policies = self._native.improved(
            self.limit,
            _policies(choices),
            trials=trials,
            seed=seed,
            warmth=warmth,
            seconds=max(seconds, 0.0),
        )
        return _choices(policies)


def _policies(choices: Sequence[Choice]) -> list[int]:
    return [
        RECIPE + choice.recipe if choice.policy is Policy.REBUILD else _PLAIN[choice.policy]
        for choice in choices
    ]


_SIMPLE = (Choice(Policy.KEEP), Choice(Policy.SWAP), Choice(Policy.SQUEEZE))


def _choices(policies: Sequence[int]) -> list[Choice]:
    return [
        _SIMPLE[policy] if policy < RECIPE else Choice(Policy.REBUILD, policy - RECIPE)
        for policy in policies
    ]


def _step(timeline: Timeline, link: Link) -> NativeStep:
    recipes = [recipe for one in timeline.saved for recipe in one.recipes]
    return NativeStep(
        [(one.seconds, one.host, one.fixed_bytes, one.first_bytes) for one in timeline.operations],
        timeline.forward,
        [_tensor(one) for one in timeline.saved],
        [(one.seconds, one.host, one.temporary_bytes, len(one.inputs)) for one in recipes],
        [source for one in recipes for source in one.inputs],
        (link.to_host, link.from_host, link.latency, link.host),
    )


def _tensor(one: Saved) -> tuple[object, ...]:
    form = one.squeeze
    squeezed = (-1, 0.0, 0.0) if form is None else (form.nbytes, form.seconds, form.host)
    return (
        one.nbytes,
        one.produced,
        one.last_forward_use,
        one.first_use,
        one.last_use,
        *squeezed,
        len(one.recipes),
        one.movable,
        form is not None and form.whole,
    )
