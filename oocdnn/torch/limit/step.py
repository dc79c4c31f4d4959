"""One step under way: which kind of step it is, its events, and how it goes on and ends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Course, Found, Numbered, Planned, Unplanned
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.host_clock import HostClock
from oocdnn.torch.limit.mode import Mode
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.step_kinds import Known
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trials import Trials
from oocdnn.torch.limit.values import Values

Lock = AbstractContextManager[Any]


class Step:
    """What the halves of a step share: `Forward` saves tensors, `Backward` reads them. An event is
    a new storage in forward, or a read in backward. The step does not know its halves: in a cycle
    of references, what it holds would stay until the collector of cyclic garbage runs.

    Args:
        lock: Held by whoever calls a method.
        mode: Of the step before.

    Attributes:
        mode: That of the step before until the kind is chosen.
        selected: Whether its kind is chosen.
        backward: Whether backward has begun.
        event: Number of the latest one.
        packs: Saved tensors since the kind was chosen.
        codes: What the plan does with them.
        traced: Those that the trace has; None: all.
        numbered: The entries that autograd holds.
        recorder: Measures the step, where it is recorded.
        clock: Measures the host times of the step, where a later recording replaces its plan.
        trials: Looks for recipes, in a kind's first step.
        course: What happens to the tensors between forward and backward.
        values: Reads them.
        found: What a recorded step finds.
        followed: The kind, where it has a plan.
        unplanned: The kind, where it has none.
        mistaken: The kind that it was taken for.
    """

    def __init__(self, card: Card, store: Store, limit: int, lock: Lock, mode: Mode) -> None:
        self.card, self.store, self._limit = card, store, limit
        self.lock, self.mode = lock, mode
        self.selected = self.backward = False
        self.event = self.packs = 0
        self.codes: Sequence[int] = ()
        self.traced: frozenset[int] | None = None
        self.numbered: Numbered = {}
        self.found = Found()
        self.recorder: Recorder | None = None
        self.clock: HostClock | None = None
        self.trials: Trials | None = None
        self.followed: Known | None = None
        self.unplanned: Known | None = None
        self.mistaken: Known | None = None
        self.course: Course = Unplanned(store, limit, self.numbered)
        self.values = Values(store, self.course)

    # How it goes on from the first tensor that moves.

    def record(self, recorder: Recorder) -> None:
        """Everything is swapped and timed, and ways to give bytes again are looked for."""
        self._select(Mode.RECORD)
        self.recorder = recorder
        self.trials = Trials(self.card, recorder, self.values, self.found, self._limit)
        recorder.begin()

    def keep(self, known: Known) -> None:
        """Everything is kept, of as many tensors as the kind saves."""
        self._select(Mode.KEEP)
        self.followed = known

    def swap(self, known: Known) -> None:
        """Everything is swapped, because the kind has no plan."""
        self._select(Mode.SWAP)
        self.unplanned = known

    def follow(self, known: Known, course: Planned, recorder: Recorder | None) -> None:
        """As planned; a recorder measures it."""
        self._select(Mode.FOLLOW)
        self.followed, self.recorder = known, recorder
        self._go_by(course)
        course.begin(self.numbered)
        self.codes, self.traced = course.codes, course.traced
        if recorder is not None:
            self.codes = course.codes_recorded
            recorder.begin()
        elif course.runs and not known.measured:  # memory is mapped and page-locked in the first
            self.clock = HostClock(self.card)

    def _select(self, mode: Mode) -> None:
        self.mode, self.selected = mode, True
        self.packs = 0

    def _go_by(self, course: Course) -> None:
        self.course = self.values.course = course

    def differs(self) -> None:
        """The step is not the one that was planned: what is saved from here on is swapped."""
        self.mode, self.mistaken = Mode.SWAP, self.followed
        self.recorder = self.followed = self.traced = None
        self.codes = ()
        self.leave()
        self._go_by(Unplanned(self.store, self._limit, self.numbered))

    def gone(self, entry: Entry) -> None:
        """Autograd holds nothing of it any more."""
        with self.lock:
            self.store.gone(entry)
            if self.numbered.get(entry.number) is entry:
                del self.numbered[entry.number]

    def leave(self) -> None:
        """The step ends, or goes on otherwise: what the runtime took is given back."""
        self.course.ends()
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self.clock is not None:
            self.clock.stop()
            self.clock = None

    def ends(self) -> None:
        clock = self.clock
        self.leave()
        known = self.unplanned
        if known is not None and self.packs != len(known.found.numbers):
            self.mistaken, self.unplanned = known, None
        known = self.followed
        if known is None:
            return
        if self.mode is Mode.KEEP:
            same = self.packs == len(known.found.numbers)
        else:
            same = self.event + 1 == len(known.timeline.operations)
        if not same:
            self.mistaken, self.followed = known, None
            return
        if known.course is not None:
            known.course.completed(clock)

    def stop(self) -> None:
        """The limit is left: waits for copies, and holds nothing else than autograd does."""
        self.course.stop()
        self._stop_clock()
        for entry in list(self.numbered.values()):
            self.store.copied(entry)
