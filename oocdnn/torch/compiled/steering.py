"""Has PyTorch's allocator put the tensors of a compiled step where they leave few gaps.

The first steps show what is allocated between the points of the graphs. Where the allocator's own
choices would pass the limit, later steps are steered as those of `memory_limit` are.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from oocdnn.network.plan import Schedule
from oocdnn.network.timeline import Operation, Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.reading import Note, read
from oocdnn.torch.limit.heap.steering import steer
from oocdnn.torch.limit.low_memory import LowMemory
from oocdnn.torch.limit.spacers import Spacers

_log = logging.getLogger(__name__)
_SECONDS = 2.0  # for one search
_LOSSES = 3  # successive steps that went otherwise than watched
_TRIES = 3  # steps that are watched
_LOOKED_AT = 3  # the step without steering at whose beginning the driver's count is looked at


class _State(Protocol):
    """A state of the steering, which follows the points of a step."""

    def at(self, number: int) -> None:
        """A point is reached, after all before it."""

    def interrupt(self) -> None:
        """A point is reached out of order: backward runs twice, or not at all."""

    def next(self, whole: bool) -> _State:
        """The step is over, and the next one begins.

        Args:
            whole: Whether it had all points, in order.
        """

    def stop(self) -> None:
        """There is no next step."""


@dataclass
class _Steps:
    """Settings and counts of the steps of a pair of graphs.

    Args:
        card: Of the device.
        limit: Device bytes of the process.
        points: Of a step.
        watched: How many were watched.
        margin: Bytes that steps reserved beyond what was expected.
    """

    card: Card
    limit: int
    points: int
    watched: int = 0
    margin: int = 0


class Steered:
    """The steps of a pair of graphs. A step is from forward's first point to the next time.

    Args:
        card: Of the device.
        limit: Device bytes of the process.
        points: Of a step.
        steers: Whether the allocator can be steered.

    Attributes:
        number: Names it in the graphs.
    """

    def __init__(self, card: Card, limit: int, points: int, *, steers: bool = True) -> None:
        self.number = next(_numbers)
        self._steps = _Steps(card, limit, points)
        self._next = 0  # the point that is expected
        self._state: _State = _First(self._steps)
        if not steers:
            hint = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            self._state = _Unsteered(self._steps, "the allocator cannot be steered", hint)
        others = [one for one in _steered.values() if one._steps.card is card]
        _steered[self.number] = self
        if others:
            for one in (self, *others):
                one.stop("each would have to know what the others do")

    @property
    def is_unsteered(self) -> bool:
        """True if the allocator is left alone."""
        return isinstance(self._state, _Unsteered)

    def at(self, number: int) -> None:
        """A point is reached. What fails here ends the steering, not the program."""
        try:
            if number == 0:
                self._state = self._state.next(whole=self._next == self._steps.points)
            if number in (0, self._next):
                self._state.at(number)
            else:
                self._state.interrupt()
            self._next = number + 1
        except Exception as error:
            _log.warning("oocdnn: steps are not steered: %s: %s", type(error).__name__, error)
            self.stop("it failed")

    def stop(self, reason: str) -> None:
        """Nothing is steered from here on."""
        if not self.is_unsteered:
            state, self._state = self._state, _Unsteered(self._steps, reason)
            with suppress(Exception):
                state.stop()

    def __del__(self) -> None:
        if hasattr(self, "_state") and not sys.is_finalizing():  # in the midst of a step, perhaps
            with suppress(Exception):
                self._state.stop()


class _First:
    """Until a whole step has allocated what optimizers keep: at low addresses, out of the way of
    what comes and goes."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._hook: RemovableHandle | None = None
        self._low = LowMemory(steps.card)

    def at(self, number: int) -> None:
        if number == self._steps.points - 1:
            self._hook = register_optimizer_step_pre_hook(self._optimizes)

    def _optimizes(self, *_: Any) -> None:
        self._low.open()

    def interrupt(self) -> None:
        self.stop()

    def stop(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()
        self._low.give()

    def next(self, whole: bool) -> _State:
        self.stop()
        if not whole:
            return self
        self._steps.card.begin()
        return _watching(self._steps)


def _watching(steps: _Steps) -> _State:
    """The step that begins is watched, without unused memory."""
    steps.card.trim()
    steps.watched += 1
    if steps.watched > _TRIES:
        return _Unsteered(steps, f"{_TRIES} steps were watched, and later ones went otherwise")
    if not steps.card.watch():
        return _Unsteered(steps, "the program records the history of allocations itself")
    return _Watching(steps)


class _Watching:
    """A step whose allocations are recorded."""

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self._notes: list[Note] = []
        self._on = True

    def at(self, number: int) -> None:
        if number and self._on:
            self._notes += [self._note(), self._note()]

    def _note(self) -> Note:
        nbytes = 257 + len(self._notes) % 251  # which tensors rarely have
        return Note(self._steps.card.note(nbytes), nbytes)

    def interrupt(self) -> None:
        self.stop()

    def stop(self) -> None:
        if self._on:
            self._on = False
            self._steps.card.watched()

    def next(self, whole: bool) -> _State:
        steps = self._steps
        steps.card.begin()
        if not whole or not self._on:
            self.stop()
            return _watching(steps)
        self._on = False
        log = steps.card.watched()
        operations = (Operation("", 0.0),) * steps.points
        found = None if log is None else read(log, self._notes, Timeline(operations, steps.points))
        steps.card.trim()
        heap = steps.card.heap()
        if found is None or heap is None:
            return _Unsteered(steps, "the history of allocations does not have a whole step")
        step = found.step(Schedule([]))
        room = steps.limit - steps.card.others() - steps.margin
        reserved = step.reserved(heap)
        if reserved <= room:
            reason = f"steps reserve {reserved} bytes of {room}"
            return _Unsteered(steps, reason, expected=reserved)
        steering = steer(step, heap, room, time.monotonic() + _SECONDS, steps.watched)
        if steering is None and steps.watched < _TRIES:
            return _watching(steps)  # the next search goes elsewhere
        if steering is None:
            return _Unsteered(steps, f"no steering was found in which steps reserve {room} bytes")
        return _Steering(steps, Spacers(steps.card, steering))


class _Steering:
    """Steps that are steered."""

    def __init__(self, steps: _Steps, spacers: Spacers) -> None:
        self._steps, self._spacers = steps, spacers
        self._losses = 0

    def at(self, number: int) -> None:
        if number:
            self._spacers.at(("run", number))

    def interrupt(self) -> None:
        self._spacers.stop()

    def stop(self) -> None:
        self._spacers.stop()

    def next(self, whole: bool) -> _State:
        """Goes on where a step went otherwise than watched; watches anew after several."""
        del whole
        self._steps.card.begin()
        self._spacers.ends()
        self._losses = self._losses + 1 if self._spacers.lost else 0
        if self._losses >= _LOSSES:
            return _watching(self._steps)
        if self._spacers.lost:
            self._spacers.restore()
        return self


class _Unsteered:
    """Steps that are left alone. Tells once where the driver counts more than the limit.

    Args:
        reason: For who looks for it.
        hint: What to do about the gaps.
        expected: Bytes that steps are to reserve, if these are within the limit. If the driver
            counts more than the limit, steps are watched again.
    """

    def __init__(
        self,
        steps: _Steps,
        reason: str,
        hint: str = "compile with a limit that is so much less",
        *,
        expected: int | None = None,
    ) -> None:
        self._steps, self._hint, self._expected = steps, hint, expected
        self._begun = 0  # steps
        _log.debug("oocdnn: steps are not steered: %s", reason)

    def at(self, number: int) -> None: ...

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def next(self, whole: bool) -> _State:
        del whole
        steps = self._steps
        self._begun += 1
        if self._begun == 1:
            steps.card.trim()
        elif self._begun == _LOOKED_AT:
            taken = steps.card.taken()
            excess = taken + steps.card.others() - steps.limit
            if excess > 0 and self._expected is not None and steps.watched < _TRIES:
                steps.margin += taken - self._expected
                return _watching(steps)
            if excess > 0:
                self._tell(excess)
        return self

    def _tell(self, excess: int) -> None:
        _log.warning(
            "oocdnn: the driver counts %d bytes more than the limit of %d: PyTorch's allocator "
            "leaves gaps between tensors; %s",
            excess, self._steps.limit, self._hint,
        )  # fmt: skip


_numbers = itertools.count()
_steered: WeakValueDictionary[int, Steered] = WeakValueDictionary()


def steered_step(number: int) -> Steered | None:
    """The `Steered` of this number, while its graphs exist; None afterwards."""
    return _steered.get(number)
