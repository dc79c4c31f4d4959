"""One thread's training steps under a limit: the first of each kind is recorded, the following ones
go as planned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from oocdnn.errors import OutOfMemory
from oocdnn.torch._warning import warn
from oocdnn.torch.limit.backward import Backward
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.collector import collector
from oocdnn.torch.limit.entry import Held, Kept, Packed
from oocdnn.torch.limit.following import Following
from oocdnn.torch.limit.forward import Forward
from oocdnn.torch.limit.low_memory import LowMemory
from oocdnn.torch.limit.mode import Mode
from oocdnn.torch.limit.overrides import overrides
from oocdnn.torch.limit.planning import Planner, Planning
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.step import Step
from oocdnn.torch.limit.step_kinds import RECORDED, WATCHED, Kinds, Known, first_of
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.table import Table

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

__all__ = ["Mode", "Steps"]

From = TypeVar("From")
To = TypeVar("To")

_WATCHED = 4  # steps whose allocations are recorded for the sake of one kind


class Steps:
    """Packs and unpacks what autograd saves. Forward and backward may run on different threads.

    Args:
        limit: Device bytes.
        steering_seconds: For the search of steering, for each plan that is looked at.
        keep: Called with the current plan where its faster alternative is rejected.
        raises: Whether a step that no plan fits raises OutOfMemory; else such steps are swapped.
        tell: Called with what the program should know.
    """

    def __init__(
        self,
        card: Card,
        limit: int,
        planner: Planner,
        steering_seconds: float = 0.5,
        keep: Callable[[Plan], object] = lambda plan: None,
        raises: bool = True,
        tell: Callable[[str], object] = warn,
    ) -> None:
        self._raises, self._tell = raises, tell
        self._card, self._store = card, Store(card, raises)
        following = Following(card, self._store, limit, steering_seconds)
        self.planning = Planning(card, following, planner, keep, tell)
        self.table = Table(card.device.type, overrides.count)
        self.kinds = Kinds()
        self.steps = 0
        self._low = LowMemory(card)
        self._lock = threading.RLock()
        self._ended = 0.0  # when the latest step ended, where it was one of `_ending`
        self._ending: Known | None = None
        self._begin(Mode.RECORD)

    @property
    def plan(self) -> Plan | None:
        """Of the kind of step that ran last."""
        return None if self.kinds.latest is None else self.kinds.latest.plan

    @property
    def mode(self) -> Mode:
        """Of the step, else of the latest one."""
        return self._step.mode

    # The hooks.

    def pack(self, tensor: Tensor) -> Source:
        step = self._step
        return self._pack(tensor) if step.clock is None else self._timed(step, self._pack, tensor)

    def unpack(self, packed: Source) -> Tensor:
        step = self._step
        if step.clock is None:
            return self._unpack(packed)
        return self._timed(step, self._unpack, packed)

    def _timed(self, step: Step, hook: Callable[[From], To], given: From) -> To:
        """A hook in a step whose host times are measured."""
        with self._lock:  # hooks of several threads run one after the other
            began = time.perf_counter()
            result = hook(given)
            if step.clock is not None:
                step.clock.ran(step.event, began)
            return result

    def _pack(self, tensor: Tensor) -> Source:
        saved = self._forward.try_short_path(tensor)
        if saved is not None:
            return saved
        if self._card.capturing():
            return Kept(tensor)
        with self._lock:
            step = self._step
            if step.backward:
                if self._forward.holds or torch._C._current_graph_task_id() != -1:
                    return Kept(tensor)  # what backward saves stays: it is not for long
                self._finish()
            elif self._forward.over:
                step.leave()
                self._begin(step.mode)
            step = self._step
            if not step.selected:
                self._card.begin()
                if self._forward.moves(tensor):
                    self._select(tensor)
            return self._forward.keeps(tensor) or self._forward.save(tensor)

    def _unpack(self, packed: Source) -> Tensor:
        if type(packed) is Kept:
            if self._step.backward and self.table.serves():
                return packed.tensor()  # no event, and nothing to prepare
            if self._card.capturing():
                return packed.tensor()
        with self._lock:
            backward = self._backward
            if type(packed) is Held and self.table.serves() and backward.try_short_path(packed):
                return packed.tensor()
            if not self._step.backward:
                backward.begin()
            backward.runs()
            if self.table.used:
                self.table.one_stream = self._card.one_stream
                self.table.serves_backward()
            if isinstance(packed, Packed):
                return backward.tensor(packed)
            if isinstance(packed, Held):
                backward.read_held(packed)
            return packed.tensor()

    def optimizes(self) -> None:
        """An optimizer is about to step. In a kind's first step it allocates what it keeps."""
        with self._lock:
            first = self._step.selected and self._step.mode is Mode.RECORD
            recorder = None if self._card.capturing() or not first else self._step.recorder
            if recorder is None:
                return
            recorder.look()
        self._low.open()  # autograd's thread may wait for the lock

    def step(self) -> None:
        """The end of a step; without it a step ends where forward begins again with nothing saved.
        A recorded step is planned here."""
        with self._lock:
            if self._step.selected:
                self._finish()

    def close(self) -> None:
        """Waits for copies, ends the history of allocations and gives back what the runtime took;
        what autograd still holds stays readable."""
        with self._lock:
            for known in self.kinds:
                known.faster.stop()
            self._card.watched()
            self._low.give()
            self._backward.stop()
            self._step.stop()

    # Steps.

    def _begin(self, mode: Mode) -> None:
        """A new step; its allocations are watched where it is expected to need that."""
        limit = self.planning.following.limit
        self._step = Step(self._card, self._store, limit, self._lock, mode)
        self._forward = Forward(self._step)
        self._backward = Backward(self._step, self._forward, self.table)
        self.table.ran = None
        self._card.watched()
        self._watching = self._watches() and self._card.watch()

    def _watches(self) -> bool:
        """Whether the next step may be one whose allocations are to be known, for a few steps."""
        for known in self.kinds:
            wanted = known.recorded == WATCHED and known.plan is not None
            if wanted and known.watched < _WATCHED and self.kinds.expects(known):
                known.watched += 1
                return True
        return False

    def _select(self, tensor: Tensor) -> None:
        """At the first tensor that moves: which kind of step it is."""
        step, known = self._step, self.kinds.find(tensor)
        self.table.one_stream = self._card.one_stream
        self.table.use(known is None or any(one.parts for one in self.kinds))
        if known is None:
            self._first = first_of(tensor)
            self.table.parts = self.kinds.division(self._first).parts
            brackets = self._card.watch()
            step.record(Recorder(self._card, self._store, True, self.table, brackets=brackets))
            return
        self.table.parts = known.parts
        if known.plan is None or known.course is None:
            step.swap(known)
        elif known.keeps:
            step.keep(known)
        else:
            recorder = None
            if not known.measured and known.course.runs >= known.runs_before:
                recorder = Recorder(
                    self._card,
                    self._store,
                    RECORDED[known.recorded],
                    self.table,
                    watched=self._watching and known.recorded == WATCHED,
                    before=known.record,
                )
            step.follow(known, known.course, recorder)

    def _finish(self) -> None:
        self._low.give()
        step = self._step
        recorder, step.recorder = step.recorder, None
        if self._backward.running:
            step.leave()  # backward failed
            self._begin(step.mode)
            return
        step.ends()
        known, told = step.followed, ""
        course = None if known is None else known.course
        try:
            if known is not None:
                if self._divides(recorder, known):
                    self.kinds.forget(known)
            elif recorder is not None and step.mistaken is None:
                known = self._recorded(recorder)
                if known is not None:
                    self.planning.replan(known)
        except OutOfMemory as error:
            if known is None or (self._raises and not known.further):
                raise
            known.plan = known.course = None
            known.faster.forget()
            told = f"steps of one kind are swapped from here on: {error}"
        self._time(known, recorder is None and known is not None and known.course is course)
        collector.expects(step.packs)
        self.kinds.ended(known or step.unplanned, step.mistaken, step.packs)
        self.steps += 1
        self._begin(step.mode)
        if told:
            self._tell(told)

    def _time(self, known: Known | None, plain: bool) -> None:
        """Measures steps that follow one of their own kind and are not recorded."""
        now = time.perf_counter()
        course = None if known is None else known.course
        if plain and course is not None and known is self._ending and course.runs > 1:
            course.seconds.append(now - self._ended)
        self._ended, self._ending = now, known

    def _divides(self, recorder: Recorder | None, known: Known) -> bool:
        """After a step as planned: whether it should be recorded again with more parts."""
        if recorder is None:
            return self.planning.check(known, known.division)
        return self.planning.again(recorder, known, known.division)

    def _recorded(self, recorder: Recorder) -> Known | None:
        """A new kind, without a plan; None where there is none yet."""
        division, found = self.kinds.division(self._first), self._step.found
        label = f"step {self.steps}"
        known = self.planning.first(recorder, self._first, division, found, label)
        if known is not None:
            self.kinds.add(known)
        return known
