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
_MISSED = 2  # steps in a row that are not as recorded: the kind is recorded anew
_FORGOTTEN = 4  # times; then such steps are swapped


@dataclass
class Known:
    """A kind of step that was recorded: what is saved in which order, and the plan.

    Args:
        first: Form of the first saved tensor, by which the kind is recognized.
        settings: Of PyTorch, under which the recipes gave the bits.
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
    """The kinds that are remembered, the last used first."""

    def __init__(self) -> None:
        self._known: list[Known] = []
        self.divisions: dict[object, Division] = {}  # by the first saved tensor's form
        self._forgotten: dict[object, int] = {}  # times, by the first saved tensor's form

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known)

    @property
    def latest(self) -> Known | None:
        """The last used one."""
        return self._known[0] if self._known else None

    def find(self, tensor: Tensor) -> Known | None:
        """The kind of step that begins with this tensor; it is the last used one then."""
        first, settings = first_of(tensor), settings_now()
        for known in self._known:
            if known.first == first and known.settings == settings:
                self._known.remove(known)
                self._known.insert(0, known)
                return known
        return None

    def add(self, known: Known) -> None:
        self._known.insert(0, known)
        del self._known[_KINDS:]

    def division(self, first: object) -> Division:
        """The search for parts, of steps that begin alike."""
        return self.divisions.setdefault(first, Division())

    def forget(self, known: Known) -> None:
        """The next such step is recorded."""
        self._known.remove(known)

    def miss(self, known: Known) -> None:
        """A step began as this kind, and was another."""
        known.missed += 1
        times = self._forgotten.get(known.first, 0)
        if known.missed >= _MISSED and times < _FORGOTTEN:
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
