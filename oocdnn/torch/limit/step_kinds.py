"""Kinds of steps: what is known of each one that was recorded, and which one a step is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.courses import Found, Planned
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.gaps import TRIES, Gaps
from oocdnn.torch.limit.heap.allocations import Allocations, Item
from oocdnn.torch.limit.parts import Signature

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

# Recorded steps of one kind: whether bytes are measured, which distorts the times. The first
# knows nothing of the optimizer's state. Times alone are measured in a plan's second step: in its
# first one memory is mapped and page-locked, which takes the host long.
RECORDED = (True, True, False, False)
WATCHED = 1  # of the recorded steps: its allocations are known
_KINDS = 16  # that are remembered
_MISSED = 2  # steps in a row that are not as recorded: the kind is recorded anew, or another one
_CHANGED = 6  # the same of a kind whose steps were as recorded before
_IN_A_ROW = 64  # steps of one kind that are counted, at most
_PLACES = 256  # whose misses are remembered
_FORGOTTEN = 4  # times; then such steps are swapped


Place = tuple[object, ...]  # how a step begins, and what ran before


@dataclass
class Known:
    """A kind of step that was recorded: what is saved in which order, and the plan.

    Args:
        first: Form of the first saved tensor, by which the kind is recognized.
        settings: Of PyTorch, under which the recipes gave the bits.
        after: Steps before its own that tell it from kinds that begin alike; None: any.
        number: Of this kind, from 1 on.
    """

    first: object
    settings: object
    timeline: Timeline
    found: Found
    parts: dict[Signature, int]  # in which convolutions run
    ran: Sequence[Sequence[Signature]] = ()  # the convolutions of each operation
    plan: Plan | None = None
    course: Planned | None = None
    recorded: int = 1
    templates: Mapping[tuple[int, int], Sequence[Item]] = field(default_factory=dict)  # of recipes
    allocations: Allocations | None = None
    missed: int = 0  # steps in a row that began alike and were others
    gaps: Gaps = field(default_factory=Gaps)
    after: Place | None = None
    number: int = 0
    seen: bool = False  # a further step was as recorded

    @property
    def settled(self) -> bool:
        """Whether no more of its steps are recorded."""
        return self.recorded >= len(RECORDED)

    @property
    def final(self) -> bool:
        """Whether its plan changes no more."""
        return self.keeps or (self.settled and self.gaps.tried >= TRIES)

    @property
    def keeps(self) -> bool:
        """Whether everything is kept, without steering."""
        if self.plan is None or self.course is None:
            return False
        return self.plan.fits and self.recorded > 1 and not self.course.spacers.used


class Kinds:
    """The kinds that are remembered, the last used first.

    Steps that begin alike are taken for one kind. Where that was wrong again and again after the
    same steps, as where the two networks of a GAN take turns, what runs there is a kind of its own.
    """

    def __init__(self) -> None:
        self._known: list[Known] = []
        self.divisions: dict[object, Division] = {}  # by the first saved tensor's form
        self._forgotten: dict[object, int] = {}  # times, by the first saved tensor's form
        self._count = 0  # of all kinds so far
        self._before = 0  # number of the kind of the last step; 0: unknown
        self._in_a_row = 0  # steps of that kind
        self._place: Place = ()  # of this step
        self._misses: dict[Place, int] = {}  # in a row

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known)

    @property
    def latest(self) -> Known | None:
        """The last used one."""
        return self._known[0] if self._known else None

    @property
    def _apart(self) -> bool:
        """Whether this step is of another kind than those that begin alike."""
        return self._misses.get(self._place, 0) >= _MISSED

    def find(self, tensor: Tensor) -> Known | None:
        """The kind of step that begins with this tensor; it is the last used one then."""
        first, settings = first_of(tensor), settings_now()
        self._place = (first, settings, self._before, self._in_a_row)
        alike = [one for one in self._known if one.first == first and one.settings == settings]
        found = next((one for one in alike if one.after == self._place), None)
        if found is None and not self._apart:
            found = next((one for one in alike if one.after is None), None)
        if found is not None:
            self._known.remove(found)
            self._known.insert(0, found)
        return found

    def add(self, known: Known) -> None:
        """A new kind: that of this step."""
        self._count += 1
        known.number = self._count
        known.after = self._place if self._apart else None
        self._misses.pop(self._place, None)
        self._known.insert(0, known)
        del self._known[_KINDS:]

    def division(self, first: object) -> Division:
        """The search for parts, of steps that begin alike."""
        return self.divisions.setdefault(first, Division())

    def forget(self, known: Known) -> None:
        """The next such step is recorded."""
        self._known.remove(known)

    def ended(self, known: Known | None) -> None:
        """This step has ended; its kind, or None where it is of none."""
        number = 0 if known is None else known.number
        if known is not None:
            self._misses.pop(self._place, None)
        self._in_a_row = min(self._in_a_row + 1, _IN_A_ROW) if number == self._before else 1
        self._before = number

    def miss(self, known: Known) -> None:
        """A step began as this kind, and was another."""
        self._misses[self._place] = self._misses.get(self._place, 0) + 1
        if len(self._misses) > _PLACES:
            del self._misses[next(iter(self._misses))]
        known.missed += 1
        times = self._forgotten.get(known.first, 0)
        most = _CHANGED if known.seen else _MISSED
        if known.missed >= most and times < _FORGOTTEN:
            self._forgotten[known.first] = times + 1
            self.divisions.pop(known.first, None)
            self.forget(known)


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
