"""One thread's training steps under a limit: the first of each kind recorded while everything is
swapped, the following ones as planned."""

from __future__ import annotations

import contextlib
import enum
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.errors import OutOfMemory
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Code, Course, Found, Numbered, Planned, Unplanned
from oocdnn.torch.limit.division import Division
from oocdnn.torch.limit.entry import Entry, Held, Kept, Packed, bytes_of, label_of
from oocdnn.torch.limit.gaps import TRIES, Gaps
from oocdnn.torch.limit.heap.allocations import Allocations, Item
from oocdnn.torch.limit.heap.reservation import Reservation
from oocdnn.torch.limit.parts import Signature, Table
from oocdnn.torch.limit.recipes import Read, Recipe, Source, admit, compute
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.spacers import Spacers, take_free
from oocdnn.torch.limit.squeeze import Form, form_of, reader_of
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trace import Node, Trace

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan, Reserved

# Recorded steps of one kind: whether bytes are measured, which distorts the times. The first
# knows nothing of the optimizer's state.
_RECORDED = (True, True, False, False)
_WATCHED = 1  # of the recorded steps: its allocations are known
_KINDS = 16  # of steps that are remembered
_MISSED = 2  # steps in a row that are not as recorded: the kind is recorded anew
_FORGOTTEN = 4  # times; then such steps are swapped

# From a timeline, bytes that may be reserved, and what tells the bytes that a schedule reserves.
Planner = Callable[[Timeline, int, "Reserved | None"], "Plan | None"]


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
    found: Found
    parts: dict[Signature, int]  # in which convolutions run
    plan: Plan | None = None
    course: Planned | None = None
    recorded: int = 1
    templates: Mapping[int, Sequence[Item]] = field(default_factory=dict)  # of recipes
    allocations: Allocations | None = None
    missed: int = 0  # steps in a row that began alike and were others
    gaps: Gaps = field(default_factory=Gaps)


class Steps:
    """Packs and unpacks what autograd saves. Forward and backward may run on different threads."""

    def __init__(
        self, card: Card, limit: int, planner: Planner, steering_seconds: float = 0.5
    ) -> None:
        self._limit, self._planner = limit, planner
        self._steering_seconds = steering_seconds  # for each plan that is looked at
        self._store = Store(card)
        self._card = card
        self.table = Table(card.device.type)  # that of the step, else of the latest one
        self._lock = threading.RLock()
        self._divisions: dict[object, Division] = {}  # by the first saved tensor's form
        self._forgotten: dict[object, int] = {}  # kinds, by the first saved tensor's form
        self.kinds: list[Known] = []  # the last used first
        self.mode = Mode.RECORD
        self.steps = 0
        self._reading_node: Node | None = None
        self._codes: Sequence[Code] = ()
        self._low: list[int] = []  # addresses taken while an optimizer steps for the first time
        self._begin()

    @property
    def plan(self) -> Plan | None:
        """Of the kind of step that ran last."""
        return self.kinds[0].plan if self.kinds else None

    # The hooks.

    def pack(self, tensor: Tensor) -> Source:
        if self.mode is Mode.KEEP and self._selected and not self._backward:
            return Kept(tensor)
        with self._lock:
            if self._backward:
                if self._numbered or self._held:
                    return Kept(tensor)  # what backward saves stays: it is not for long
                self._finish()
            elif self._event and not self._numbered and not self._held:
                self._begin()  # what was saved is gone without backward
            saved: Source | None = self._kept(tensor) if self._codes else None
            if saved is None:
                moves = self._moves(tensor)
                if moves and not self._selected:
                    self._select(tensor)
                if self.mode is Mode.KEEP:
                    return Kept(tensor)
                if moves:
                    saved = Packed(self._entry_of(tensor), tensor, self._gone)
                else:
                    saved = Kept(tensor)
                if self.mode is Mode.RECORD and self._selected:
                    number = saved.entry.number if isinstance(saved, Packed) else -1
                    self._found.numbers.append(number)
            self._packs += 1
            self._trace.add(saved, tensor)
            return saved

    def unpack(self, packed: Source) -> Tensor:
        with self._lock:
            if not self._backward:
                self._turn()
            if self.table.used:
                self.table.serves_backward()
            if isinstance(packed, Packed):
                return packed.tensor(self._asked(packed))
            if isinstance(packed, Held) and packed.step == self.steps:
                self._read()
            return packed.tensor()

    def optimizes(self) -> None:
        """An optimizer is about to step. In a kind's first step it allocates what it keeps."""
        with self._lock:
            if self._selected and self._followed is None and self.mode is Mode.RECORD:
                if self._recorder is not None:
                    self._recorder.look()
                self._give_low()
                self._low = take_free(self._card)

    def _give_low(self) -> None:
        for address in self._low:
            self._card.give(address)
        self._low = []

    def step(self) -> None:
        """The end of a step; without it a step ends where forward begins again with nothing saved.
        A recorded step is planned here."""
        with self._lock:
            self._give_low()
            if self._selected:
                self._finish()

    def close(self) -> None:
        """Waits for copies; what autograd still holds stays readable."""
        with self._lock:
            self._card.watched()
            self._give_low()
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
        return bool(tensor.untyped_storage().nbytes() >= self._card.least_bytes)

    def _kept(self, tensor: Tensor) -> Kept | None:
        """A tensor that the plan keeps, without looking at it closer: to keep it is right whatever
        it is. None if it needs the closer look."""
        code = self._codes[self._packs] if self._packs < len(self._codes) else Code.LOOK
        if code is Code.STAYS:
            return Kept(tensor)
        if code is Code.LOOK:
            return None
        if code is Code.ARRIVES:
            assert isinstance(self._course, Planned)
            if not self._course.expects(self._count, tensor.untyped_storage().nbytes()):
                self._codes = ()
                return None
            self._count += 1
            self._event += 1
            self._course.before(self._event)
            self._course.goes(self._event)
        self._held += 1
        return Held(tensor, self.steps, self._let_held_go)

    def _let_held_go(self) -> None:
        with self._lock:
            self._held -= 1

    def _read(self) -> None:
        """An event of backward: a tensor that the plan keeps."""
        self._event += 1
        self._course.before(self._event)
        if self._reading:
            self._let_go(None, torch._C._current_autograd_node())
        self._course.goes(self._event)

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
        self._course.goes(self._event)

    def _look_for_recipes(self, entry: Entry, tensor: Tensor) -> None:
        """Looks for what gives the storage's bits again, and times it."""
        entry.label = label_of(tensor)
        form = form_of(tensor, self._trace.latest())
        if form is not None:
            with contextlib.suppress(torch.OutOfMemoryError):
                self._time(entry, form)
        bound = admit(tensor, self._trace, _Through(self))
        if isinstance(bound, str):
            return
        read = [s.entry for s in bound.sources if isinstance(s, Packed)]
        if any(one is entry or self._numbered.get(one.number) is not one for one in read):
            return  # it reads itself, or an earlier step's
        assert self._recorder is not None
        self._recorder.computing()
        self._card.peak()
        before = self._card.held()
        self._card.busy()
        begin = self._card.mark()
        made = self._value(bound.recipe, bound.sources)
        end = self._card.mark()
        extra = max(self._card.peak() - before - entry.nbytes, 0)
        self._recorder.computed(entry, made)
        numbers = tuple(dict.fromkeys(one.number for one in read))
        self._recorder.recipe(entry, numbers, bound.recipe.name, begin, end, extra)
        self._found.recipes[entry.number] = bound.recipe

    def _time(self, entry: Entry, form: Form) -> None:
        """Times a smaller form. Its kernels are compiled before."""
        assert entry.storage is not None
        assert self._recorder is not None
        form.expand(form.squeeze(entry.storage), entry.nbytes)
        self._card.busy()
        begin = self._card.mark()
        form.expand(form.squeeze(entry.storage), entry.nbytes)
        self._recorder.squeezed(entry, form, begin, self._card.mark())
        self._found.forms[entry.number] = form

    def _value(self, recipe: Recipe, sources: list[Source]) -> Tensor:
        return compute(recipe, [self._tensor(source) for source in sources])

    def _tensor(self, source: Source) -> Tensor:
        """The tensor of a packed object, on the device; not an event."""
        if isinstance(source, Kept):
            return source.tensor()
        _check_form(source, None)
        return source.tensor(self._store.here(source.entry, self._computed))

    def _computed(self, entry: Entry) -> Tensor:
        if entry.squeezed is not None:
            self._course.computes(entry)
            entry.expanded = True
            return entry.squeezed.form.expand(entry.squeezed.small, entry.nbytes)
        assert entry.bound is not None
        read = [self._tensor(source) for source in entry.bound.sources]
        self._course.computes(entry)
        return compute(entry.bound.recipe, read)

    # Backward.

    def _turn(self) -> None:
        """Backward begins; a planned step has saved all by now."""
        self._backward = True
        known = self._followed
        if known is not None and self._event + 1 != known.timeline.forward:
            self._differs()

    def _asked(self, packed: Packed) -> Tensor:
        entry, node = packed.entry, torch._C._current_autograd_node()
        if self._numbered.get(entry.number) is not entry:  # of an earlier step
            _check_form(packed, node)
            return self._store.here(entry, self._computed)
        self._event += 1
        if self._recorder is not None:
            self._recorder.stop(None)
        self._course.before(self._event)
        _check_form(packed, node)
        if self.mode is Mode.RECORD and entry.number in self._found.forms:
            entry.readers.add(reader_of(node, packed))
        self._let_go(entry, node)
        storage = self._store.here(entry, self._computed)
        self._course.after(entry)
        if self._recorder is not None:
            self._recorder.go(entry, node)
        self._course.goes(self._event)
        return storage

    def _let_go(self, entry: Entry | None, node: Node | None) -> None:
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
        if entry is not None and entry not in latest:
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
        self._count = self._packs = 0
        self._held = 0  # tensors that autograd holds as they are
        self._codes = ()
        self._by_address: dict[int, Entry] = {}
        self._numbered: Numbered = {}
        self._trace = Trace()
        self._reading: list[Entry] = []
        self._reading_node = None
        self._recorder: Recorder | None = None
        self.table.ran = None
        self._found = Found()
        self._watching = self._watch()
        self._followed: Known | None = None
        self._course: Course = Unplanned(self._store, self._limit, self._numbered)

    def _watch(self) -> bool:
        """Begins the history of allocations where the next step is expected to need it."""
        self._card.watched()
        expected = bool(self.kinds) and self.kinds[0].recorded == _WATCHED
        return expected and self._card.watch()

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
            self._division = self._divisions.setdefault(self._opening, Division())
            brackets = self._card.watch()
            self._recorder = Recorder(self._card, self._store, True, self.table, brackets=brackets)
        elif known.plan is None or known.course is None:
            self.mode = Mode.SWAP
        elif known.plan.fits and known.recorded > 1 and not known.course.spacers.used:
            self.mode = Mode.KEEP
        else:
            self.mode = Mode.FOLLOW
            self._followed, self._course = known, known.course
            self._found = known.found
            known.course.begin(self._numbered)
            if known.recorded < len(_RECORDED):
                bytes_too = _RECORDED[known.recorded]
                watched = self._watching and known.recorded == _WATCHED
                self._recorder = Recorder(
                    self._card, self._store, bytes_too, self.table, watched=watched
                )
            else:
                self._codes = known.course.codes
        self.table.parts = self._division.parts if known is None else known.parts
        self.table.use(self.mode is Mode.RECORD or any(one.parts for one in self.kinds))
        if self._recorder is not None:
            self._recorder.begin()

    def _differs(self) -> None:
        """The step is not the one that was planned: what is saved from here on is swapped."""
        self.mode = Mode.SWAP
        if self._followed is not None:
            self._miss(self._followed)
        self._recorder = self._followed = None
        self._found = Found()
        self._codes = ()
        self._course.ends()
        self._course = Unplanned(self._store, self._limit, self._numbered)

    def _miss(self, known: Known) -> None:
        """A step began as this kind, and was another."""
        known.missed += 1
        times = self._forgotten.get(known.first, 0)
        if known.missed >= _MISSED and times < _FORGOTTEN:
            self._forgotten[known.first] = times + 1
            self._divisions.pop(known.first, None)
            self.kinds.remove(known)  # the next such step is recorded

    def _finish(self) -> None:
        self._course.ends()
        recorder, self._recorder = self._recorder, None
        known = self._followed
        if known is not None and self._event + 1 != len(known.timeline.operations):
            self._miss(known)
        elif known is not None:
            known.missed = 0
        if recorder is not None:
            self._plan(recorder)
        elif self._followed is not None and self._followed.gaps.tried < TRIES:
            self._check(self._followed)
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
            room = self._limit - self._card.others()
            if self._division.divides(timeline, room, recorder.ran):
                return
            parts = self._division.parts
            known = Known(self._opening, _settings(), timeline, self._found, parts)
            known.templates = recorder.templates()
            self.kinds.insert(0, known)
            del self.kinds[_KINDS:]
        else:
            again = recorder.again(known.timeline)
            if again is None:
                return
            known.timeline = again
            known.allocations = recorder.allocations(again, known.templates) or known.allocations
            known.recorded += 1
        self._replan(known)

    def _check(self, known: Known) -> None:
        """After a step as planned: whether the driver counts more than the limit. Then plans that
        leave more are tried; if none serves, the nearest stays."""
        assert known.course is not None
        excess = self._card.taken() + self._card.others() - self._limit
        if excess > 0:
            if known.gaps.passes(excess, self._limit, known.course):
                with contextlib.suppress(OutOfMemory):
                    self._replan(known)
                    return
            nearest = known.gaps.nearest
            assert nearest is not None
            known.course, known.plan = nearest, nearest.plan
            self._card.trim()
            warnings.warn(
                f"the driver counts {known.gaps.excess} bytes more than the limit of "
                f"{self._limit}: PyTorch's allocator leaves gaps between tensors; set "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a lower limit",
                stacklevel=2,
            )
        known.gaps.tried = TRIES

    def _replan(self, known: Known) -> None:
        """The steps of the plan begin without unused memory, as the simulation does."""
        room = self._limit - self._card.others() - known.gaps.nbytes
        heap = None if known.allocations is None else self._card.heap()
        reservation = None
        if known.allocations is not None and heap is not None:
            reservation = Reservation(known.allocations, heap, room, self._steering_seconds)
        known.plan = self._planner(known.timeline, room, reservation)
        self._card.trim()
        if known.plan is not None:
            steering = None if reservation is None else reservation.steering(known.plan.schedule)
            spacers = Spacers(self._card, steering)
            known.course = Planned(self._store, known.plan, known.found, spacers)


class _Through(Read):
    """Reads what nodes save by way of the hooks."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def tensor(self, source: Source) -> Tensor:
        return self._steps._tensor(source)


def _check_form(packed: Packed, node: Node | None) -> None:
    """Raises where only a smaller form is left and does not serve the node, or a recipe."""
    form = packed.entry.form
    if form is not None and not form.serves(reader_of(node, packed)):
        raise RuntimeError(
            "the step is another one than the recorded step, and reads otherwise what is left in a "
            "smaller form; call step() of the memory limit at the end of each step"
        )


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
