"""Kinds of steps: what is known of each one that was recorded, and which one a step is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.courses import Found, Planned
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.faster import Faster
from oocdnn.torch.limit.gaps import Gaps
from oocdnn.torch.limit.heap.allocations import Allocations, Item
from oocdnn.torch.limit.links import links_with
from oocdnn.torch.limit.record import Record
from oocdnn.torch.limit.table import Signature

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

# Recorded steps of one kind: whether bytes are measured, which distorts the times. The first
# knows nothing of the optimizer's state. Times alone are measured after steps of the plan: in its
# first one memory is mapped and page-locked, which takes the host long. In the two steps before the
# last recording a clock measures the host times without a recorder. Those of the faster step count:
# other processes only add to them.
RECORDED = (True, True, False, False)
_RUNS = (0, 0, 1, 3)  # steps of a plan before the recording
WATCHED = 1  # of the recorded steps: its allocations are known
_KINDS = 16  # that are remembered
_UNKNOWN = 2  # steps of no recorded kind: then such steps are recorded
_IN_A_ROW = 64  # steps of one kind that are counted, at most
_PLACES = 256  # that are remembered
_FURTHER = 6  # recordings of what begins as an earlier kind; after them other steps are swapped


Place = tuple[object, ...]  # how a step begins, and what ran before


@dataclass
class _Seen:
    """What ran at one place: the number of the latest kind that was recorded, and the steps since
    that were of none."""

    number: int = 0
    unknown: int = 0


@dataclass(eq=False)
class Known:
    """A kind of step that was recorded: what is saved in which order, and the plan.

    Args:
        first: Form of the first saved tensor, by which the kind is recognized.
        settings: Of PyTorch, under which the recipes gave the bits.
        division: The search for its parts.
        number: Of this kind, from 1 on.
        further: Whether others began alike before.
    """

    first: object
    settings: object
    record: Record
    found: Found
    parts: dict[Signature, int]  # of operations that do not run whole
    ran: Sequence[Sequence[Signature]] = ()  # what has parts, in each operation
    plan: Plan | None = None
    course: Planned | None = None
    recorded: int = 1
    templates: Mapping[tuple[int, int], Sequence[Item]] = field(default_factory=dict)  # of recipes
    allocations: Allocations | None = None
    gaps: Gaps = field(default_factory=Gaps)
    division: Division = field(default_factory=Division)
    number: int = 0
    further: bool = False
    watched: int = 0  # steps whose allocations were recorded because they might have been its own
    lost: int = 0  # steps in a row whose steering ended midway
    faster: Faster = field(default_factory=Faster)
    # Host time of the runtime at each event, without copies, recipes and steering.
    event_seconds: float = 0.0

    def is_like(self, other: Known) -> bool:
        """Whether both save the same."""
        sizes = [[one.nbytes for one in known.timeline.saved] for known in (self, other)]
        return self.found.numbers == other.found.numbers and sizes[0] == sizes[1]

    @property
    def timeline(self) -> Timeline:
        """As recorded."""
        return self.record.timeline

    def update_host_times(self) -> None:
        """Takes the host times of the fastest measured step of the plan over, once: those of
        operations, and as `event_seconds` those of the runtime beyond copies, recipes and steering.
        The least times of each operation would add up to less than any step takes."""
        course = self.course
        if course is None or not course.clocks:
            return
        fastest = min(course.clocks, key=attrgetter("total"))
        self.record = self.record.with_hosts(fastest.operations)
        links = links_with(course.plan.links, self.record.copying)
        told = course.plan.retimed(self.timeline, links).simulation
        predicted = told.host_before_last - sum(one.host for one in self.timeline.operations[:-1])
        more = fastest.runtime - predicted
        self.event_seconds = max(more / (len(self._events) - 1), 0.0)
        course.clocks.clear()

    @property
    def timeline_with_runtime(self) -> Timeline:
        """The timeline with the host time of the runtime at each event."""
        return self.timeline.delayed(dict.fromkeys(self._events, self.event_seconds))

    @property
    def _events(self) -> range:
        return range(1, len(self.timeline.operations))

    @property
    def runs_before(self) -> int:
        """Whole steps of its plan before one is recorded again."""
        return _RUNS[self.recorded]

    @property
    def measured(self) -> bool:
        """Whether no more of its steps are recorded."""
        return self.recorded >= len(RECORDED)

    @property
    def final(self) -> bool:
        """Whether its plan changes no more."""
        return self.keeps or (self.measured and self.gaps.settled)

    @property
    def keeps(self) -> bool:
        """True if everything is kept, and nothing is steered or trimmed."""
        if self.plan is None or self.course is None:
            return False
        return self.plan.fits and self.recorded > 1 and self.course.spacers.idle


class Kinds:
    """The kinds that are remembered, the last used first.

    Of kinds that begin alike, as those of the two networks of a GAN, a step is taken for the one
    that ran at the same place before: a place is the beginning of a step with the kind of the last
    one and how many of them ran in a row. Steps that are of none of them are recorded.
    """

    def __init__(self) -> None:
        self._known: list[Known] = []
        self._divisions: dict[object, Division] = {}  # of what is recorded, by its beginning
        self._further: dict[object, int] = {}  # kinds beyond the first, by their beginning
        self._count = 0  # of all kinds so far
        self._before = 0  # number of the kind of the last step; 0: none
        self._in_a_row = 0  # steps of that kind
        self._place: Place = ()  # of this step
        self._seen: dict[Place, _Seen] = {}
        self._unknown = 0  # steps in a row of no recorded kind

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known)

    @property
    def latest(self) -> Known | None:
        """The last used one."""
        return self._known[0] if self._known else None

    def expects(self, known: Known) -> bool:
        """Whether the next step may be of this kind: it ran at such a place before, or no kind did
        and the last step was of it."""
        here = (self._before, self._in_a_row)
        numbers = {seen.number for place, seen in self._seen.items() if place[2:] == here}
        return known.number in (numbers - {0} or {self._before})

    def find(self, tensor: Tensor) -> Known | None:
        """The kind of step that begins with this tensor; it is the last used one then."""
        first, settings = first_of(tensor), settings_now()
        self._place = (first, settings, self._before, self._in_a_row)
        alike = [one for one in self._known if one.first == first and one.settings == settings]
        if not alike:
            return None
        seen = self._seen.get(self._place, _Seen())
        unknown = self._unknown if seen.number == 0 else 0
        if max(unknown, seen.unknown) >= _UNKNOWN and self._further.get(first, 0) < _FURTHER:
            return None
        found = min(alike, key=lambda one: (one.number != seen.number, one.number != self._before))
        self._known.remove(found)
        self._known.insert(0, found)
        return found

    def add(self, known: Known) -> None:
        """A new kind: that of this step. One that saves the same was recorded before another
        part of the program changed; the new one takes its place."""
        first = known.first
        known.division = self._divisions.pop(first, known.division)
        alike = [one for one in self._known if one.first == first]
        known.further = bool(alike)
        if alike:
            self._further[first] = self._further.get(first, 0) + 1
        same = next((one for one in alike if one.is_like(known)), None)
        if same is not None:
            self._remove(same)
            known.number, known.further = same.number, same.further
        else:
            self._count += 1
            known.number = self._count
        self._known.insert(0, known)
        for old in self._known[_KINDS:]:
            self._remove(old)

    def division(self, first: object) -> Division:
        """The search for parts, of a kind that is being recorded."""
        return self._divisions.setdefault(first, Division())

    def forget(self, known: Known) -> None:
        """The next such step is recorded, with the parts found so far."""
        self._remove(known)
        self._divisions[known.first] = known.division

    def _remove(self, known: Known) -> None:
        known.faster.forget()
        self._known.remove(known)

    def ended(self, known: Known | None, mistaken: Known | None, saved: int) -> None:
        """This step has ended: its kind, if it was taken for that, or the one that it was mistaken
        for, with the number of tensors that it saved."""
        if mistaken is not None:
            alike = [one for one in self._known if one.first == mistaken.first]
            others = [one for one in alike if one is not mistaken]
            known = next((one for one in others if len(one.found.numbers) == saved), None)
        number = 0 if known is None else known.number
        seen = self._seen.setdefault(self._place, _Seen())
        if number != 0:
            self._seen[self._place] = _Seen(number)
            self._unknown = 0
        elif mistaken is not None:
            seen.unknown += 1
            self._unknown += 1
        while len(self._seen) > _PLACES:
            del self._seen[next(iter(self._seen))]
        again = number != 0 and number == self._before
        self._in_a_row = 0 if number == 0 else min(self._in_a_row * again + 1, _IN_A_ROW)
        self._before = number


def first_of(tensor: Tensor) -> object:
    """What a step's first saved tensor tells of its kind."""
    return tensor.dtype, tensor.size(), tensor.stride(), tensor.untyped_storage().nbytes()


def settings_now() -> object:
    """What decides which arithmetic PyTorch takes."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return (
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.deterministic,
        cudnn.allow_tf32,
        matmul.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )
