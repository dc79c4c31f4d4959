"""One thread's training steps under a limit: the first of each kind recorded while everything is
swapped, the following ones as planned."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Course, Numbered, Planned, Unplanned
from oocdnn.torch.limit.entry import Entry, Kept, Packed, bytes_of
from oocdnn.torch.limit.recipes import Read, Recipe, Source, admit, compute
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.squeeze import Form, form_of, serves, squeeze
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trace import Node, Trace

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

LEAST_BYTES = 1 << 18  # a smaller storage is kept: its copy costs more than its bytes are worth

# Recorded steps of one kind: whether bytes are measured, which distorts the times. The first
# knows nothing of the optimizer's state.
_RECORDED = (True, True, False, False)
_KINDS = 16  # of steps that are remembered

_TRIES = 6  # at plans whose gaps between tensors leave them within the limit

Planner = Callable[[Timeline, int], "Plan | None"]  # from a timeline and the bytes for tensors


class Mode(enum.Enum):
    """RECORD: everything is swapped and timed. FOLLOW: as planned. SWAP: everything is swapped,
    because the step is not the planned one. KEEP: everything is kept, because the step fits."""

    RECORD = "record"
    FOLLOW = "follow"
    SWAP = "swap"
    KEEP = "keep"


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
    recipes: dict[int, Recipe]
    forms: dict[int, Form]
    plan: Plan | None = None
    course: Planned | None = None
    recorded: int = 1
    gaps: int = 0  # bytes between tensors that the allocator cannot use
    tries: int = 0  # steps whose gaps were looked at; _TRIES once they are settled


@dataclass
class _Found:
    """What a step's recording finds besides times."""

    recipes: dict[int, Recipe] = field(default_factory=dict)
    forms: dict[int, Form] = field(default_factory=dict)


class Steps:
    """Packs and unpacks what autograd saves. Forward and backward may run on different threads."""

    def __init__(
        self, card: Card, limit: int, planner: Planner, *, least_bytes: int = LEAST_BYTES
    ) -> None:
        self._limit, self._planner = limit, planner
        self._store = Store(card)
        self._card = card
        self._least = least_bytes
        self._lock = threading.RLock()
        self.kinds: list[Known] = []  # the last used first
        self.mode = Mode.RECORD
        self.steps = 0
        self._reading_node: Node | None = None
        self._begin()

    @property
    def plan(self) -> Plan | None:
        """Of the kind of step that ran last."""
        return self.kinds[0].plan if self.kinds else None

    # The hooks.

    def pack(self, tensor: Tensor) -> Source:
        with self._lock:
            moves = self._moves(tensor)
            if moves and self._backward and not self._numbered:
                self._finish()
            if moves and not self._selected:
                self._select(tensor)
            if self.mode is Mode.KEEP:
                return Kept(tensor)
            saved: Source
            if moves:
                saved = Packed(self._entry_of(tensor), tensor, self._gone)
            else:
                saved = Kept(tensor)
            self._trace.add(saved, tensor)
            return saved

    def unpack(self, packed: Source) -> Tensor:
        with self._lock:
            if isinstance(packed, Kept):
                self._backward = True
                return packed.tensor()
            return packed.tensor(self._asked(packed))

    def step(self) -> None:
        """The end of a step; without it a step ends where forward begins again with nothing saved.
        A recorded step is planned here."""
        with self._lock:
            if self._selected:
                self._finish()

    def close(self) -> None:
        """Waits for copies; what autograd still holds stays readable."""
        with self._lock:
            for entry in list(self._numbered.values()):
                if entry.leaving is not None:
                    entry.leaving.wait()
                    entry.leaving = None

    # Forward.

    def _moves(self, tensor: Tensor) -> bool:
        """False for what has to stay: parameters and their views, other devices, small storages."""
        if type(tensor) is not Tensor or tensor.layout is not torch.strided:
            return False
        base = tensor._base if tensor._base is not None else tensor
        if base.is_leaf and base.requires_grad:
            return False
        if not self._card.holds(tensor):
            return False
        return bool(tensor.untyped_storage().nbytes() >= self._least)

    def _entry_of(self, tensor: Tensor) -> Entry:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        known = self._by_address.get(address)
        if known is not None and known.storage is not None and known.version == tensor._version:
            return known
        entry = Entry(self._count, storage.nbytes(), bytes_of(tensor), tensor._version)
        self._count += 1
        self._by_address[address] = self._numbered[entry.number] = entry
        self._store.hold(entry)
        self._arrived(entry, tensor)
        return entry

    def _arrived(self, entry: Entry, tensor: Tensor) -> None:
        """A new storage: an event of forward."""
        self._event += 1
        if self._recorder is not None:
            self._recorder.stop(entry)
            if self.mode is Mode.RECORD:
                self._look_for_recipes(entry, tensor)
        if not self._course.arrived(self._event, entry, tensor, self._trace):
            self._differs()
            self._course.arrived(self._event, entry, tensor, self._trace)
        if self._recorder is not None:
            self._recorder.go()

    def _look_for_recipes(self, entry: Entry, tensor: Tensor) -> None:
        """Looks for what gives the storage's bits again, and times it."""
        form = form_of(tensor, self._trace.latest())
        if form is not None:
            self._found.forms[entry.number] = form
            assert entry.storage is not None
            begin = self._card.mark()
            squeeze(entry.storage, form).expand()
            assert self._recorder is not None
            self._recorder.squeezed(entry, form, begin, self._card.mark())
        bound = admit(tensor, self._trace, _Through(self))
        if isinstance(bound, str) or any(s.entry is entry for s in _packed(bound.sources)):
            return
        assert self._recorder is not None
        self._card.peak()
        before = self._card.held()
        begin = self._card.mark()
        self._value(bound.recipe, bound.sources)
        end = self._card.mark()
        extra = max(self._card.peak() - before - entry.nbytes, 0)
        numbers = tuple(dict.fromkeys(source.entry.number for source in _packed(bound.sources)))
        self._recorder.recipe(entry, numbers, bound.recipe.name, begin, end, extra)
        self._found.recipes[entry.number] = bound.recipe

    def _value(self, recipe: Recipe, sources: list[Source]) -> Tensor:
        return compute(recipe, [self._tensor(source) for source in sources])

    def _tensor(self, source: Source) -> Tensor:
        """The tensor of a packed object, on the device; not an event."""
        if isinstance(source, Kept):
            return source.tensor()
        return source.tensor(self._store.here(source.entry, self._computed))

    def _computed(self, entry: Entry) -> Tensor:
        assert entry.bound is not None
        return self._value(entry.bound.recipe, entry.bound.sources)

    # Backward.

    def _asked(self, packed: Packed) -> Tensor:
        entry, node = packed.entry, torch._C._current_autograd_node()
        self._backward = True
        if self._numbered.get(entry.number) is not entry:  # of an earlier step
            return self._store.here(entry, self._computed)
        self._event += 1
        if self._recorder is not None:
            self._recorder.stop(None)
        self._course.before(self._event)
        if entry.storage is None and entry.squeezed is not None and not _pools(node, packed):
            raise RuntimeError(
                "the step is another one than the recorded step, and uses otherwise what a pooling "
                "operation saved there; call step() of the memory limit at the end of each step"
            )
        if self.mode is Mode.RECORD and entry.number in self._found.forms:
            entry.pooled = _pools(node, packed)
        storage = self._store.here(entry, self._computed)
        self._let_go(entry, node)
        self._course.after(entry)
        if self._recorder is not None:
            self._recorder.go(entry, node)
        return storage

    def _let_go(self, entry: Entry, node: Node | None) -> None:
        """Holds the device's bytes of the tensors of the running operation only, beyond what the
        plan holds."""
        latest = self._reading
        if node is not self._reading_node:
            for other in latest:
                given_up = other is not entry and other.comes_back
                if given_up and self._course.finished(self._event, other):
                    self._store.drop(other)
            latest.clear()
            self._reading_node = node
        if entry not in latest:
            latest.append(entry)

    def _gone(self, entry: Entry) -> None:
        with self._lock:
            self._store.gone(entry)
            if self._numbered.get(entry.number) is entry:
                del self._numbered[entry.number]

    # Steps.

    def _begin(self) -> None:
        self._event = 0
        self._selected = False  # which kind of step it is
        self._backward = False
        self._count = 0
        self._by_address: dict[int, Entry] = {}
        self._numbered: Numbered = {}
        self._trace = Trace()
        self._reading: list[Entry] = []
        self._reading_node = None
        self._recorder: Recorder | None = None
        self._found = _Found()
        self._followed: Known | None = None
        self._course: Course = Unplanned(self._store, self._limit, self._numbered)

    def _known(self, tensor: Tensor) -> Known | None:
        """The kind of step that begins with this tensor; it is the last used one then."""
        first, settings = _first(tensor), _settings()
        for known in self.kinds:
            if known.first == first and known.settings == settings:
                self.kinds.remove(known)
                self.kinds.insert(0, known)
                return known
        return None

    def _select(self, tensor: Tensor) -> None:
        """At the first saved tensor of a step: which kind of step it is."""
        self._selected = True
        known = self._known(tensor)
        if known is None:
            self.mode = Mode.RECORD
            self._opening = _first(tensor)
            self._recorder = Recorder(self._card, self._store, bytes_too=True)
        elif known.plan is None or known.course is None:
            self.mode = Mode.SWAP
        elif known.plan.fits and known.recorded > 1:
            self.mode = Mode.KEEP
        else:
            self.mode = Mode.FOLLOW
            self._followed, self._course = known, known.course
            known.course.begin(self._numbered)
            if known.recorded < len(_RECORDED):
                bytes_too = _RECORDED[known.recorded]
                self._recorder = Recorder(self._card, self._store, bytes_too=bytes_too)
        if self._recorder is not None:
            self._recorder.begin()

    def _differs(self) -> None:
        """The step is not the one that was planned: what is saved from here on is swapped."""
        self.mode = Mode.SWAP
        self._recorder = self._followed = None
        self._course = Unplanned(self._store, self._limit, self._numbered)

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            self._plan(recorder)
        elif self._followed is not None and self._followed.tries < _TRIES:
            self._settle(self._followed)
        self.steps += 1
        self._begin()

    def _plan(self, recorder: Recorder) -> None:
        """From the recorded step. The next ones are recorded too: their times are those of steps
        that do not swap everything."""
        known = self._followed
        if known is None:
            timeline = recorder.timeline(f"step {self.steps}")
            if timeline is None:
                return
            known = Known(
                self._opening, _settings(), timeline, self._found.recipes, self._found.forms
            )
            self.kinds.insert(0, known)
            del self.kinds[_KINDS:]
        else:
            again = recorder.again(known.timeline)
            if again is None:
                return
            known.timeline = again
            known.recorded += 1
        self._replan(known)

    def _settle(self, known: Known) -> None:
        """After a step as planned: the allocator leaves gaps between tensors, which count too. The
        plan is made for less until they fit; then nothing more can be taken."""
        excess = self._card.taken() + self._card.others() - self._limit
        known.tries += 1
        if known.tries > 1 and excess <= 0:
            known.tries = _TRIES
        elif known.tries > 1:
            known.gaps += excess + excess // 8
            self._replan(known)
        if known.tries < _TRIES:
            self._card.trim()
        else:
            self._card.cap(self._limit - self._card.others())

    def _replan(self, known: Known) -> None:
        room = self._limit - self._card.others() - known.gaps
        known.plan = self._planner(known.timeline, room)
        if known.plan is not None:
            known.course = Planned(
                self._store, known.plan, known.recipes, known.forms, self._numbered
            )


class _Through(Read):
    """Reads what nodes save by way of the hooks."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def tensor(self, source: Source) -> Tensor:
        return self._steps._tensor(source)


def _packed(sources: list[Source]) -> list[Packed]:
    return [source for source in sources if isinstance(source, Packed)]


def _pools(node: Node | None, packed: Packed) -> bool:
    return node is not None and serves(node.name(), len(packed.like[1]))


def _first(tensor: Tensor) -> object:
    return tensor.dtype, tensor.size(), tensor.stride(), tensor.untyped_storage().nbytes()


def _settings() -> object:
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
