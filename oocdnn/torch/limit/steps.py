"""One thread's training steps under a limit: the first recorded while everything is swapped, the
following ones as planned.

A plan decides when copies run, never what is computed: a saved tensor that a step asks for at
another time than planned, or that the plan does not know, is fetched when it is asked for.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from oocdnn.network.plan import Policy
from oocdnn.network.planner import Plan
from oocdnn.network.timeline import Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry, Kept, Packed
from oocdnn.torch.limit.formulas import Node, Sum, formula_of
from oocdnn.torch.limit.fused import same_bits
from oocdnn.torch.limit.record import Recorder

LEAST_BYTES = 1 << 18  # a smaller storage is kept: its copy costs more than its bytes are worth
_UNDER_WAY = 8  # this part of the limit may be on its way while everything is swapped

_RECORDED = 3  # steps: what a plan does to the others' times is seen

Planner = Callable[[Timeline], Plan | None]


class Mode(enum.Enum):
    """RECORD: everything is swapped and timed. FOLLOW: as planned. SWAP: everything is swapped,
    because the step is not the planned one. KEEP: everything is kept, because the step fits."""

    RECORD = "record"
    FOLLOW = "follow"
    SWAP = "swap"
    KEEP = "keep"


class Steps:
    """Packs and unpacks what autograd saves. Forward and backward may run on different threads."""

    def __init__(
        self,
        card: Card,
        limit: int,
        planner: Planner,
        *,
        slab: Callable[[int], Tensor] | None = None,
        least_bytes: int = LEAST_BYTES,
    ) -> None:
        self._card, self._limit, self._planner = card, limit, planner
        self._slab = slab or card.slab
        self._least = least_bytes
        self._lock = threading.RLock()
        self._leaving: list[Entry] = []  # to be given up as soon as nobody else holds them
        self._reading_node: Node | None = None
        self.plan: Plan | None = None
        self._formulas: dict[int, Sum] = {}  # by the number of the entry
        self._owners: list[Node] = []  # nodes whose saved tensors a formula is reading
        self.mode = Mode.RECORD
        self.steps = 0
        self._recorded = 0
        self._begin()

    # The hooks.

    def pack(self, tensor: Tensor) -> Packed | Kept:
        with self._lock:
            if self.mode is Mode.KEEP or not self._moves(tensor):
                return Kept(tensor.detach())
            entry = self._entry_of(tensor)
            return Packed(entry, tensor, self._gone)

    def unpack(self, packed: Packed | Kept) -> Tensor:
        if isinstance(packed, Kept):
            return packed.tensor()
        with self._lock:
            if self._owners:  # a formula reads it
                return packed.tensor(self._here(packed.entry, packed.node or self._owners[-1]))
            return packed.tensor(self._asked(packed))

    def step(self) -> None:
        """The end of a step; without it a step ends where forward begins again with nothing saved.
        The first one is planned here."""
        with self._lock:
            if self._event:
                self._step()

    def _step(self) -> None:
        if self._recorder is not None:
            self._plan(self._recorder)
        elif self.mode is Mode.SWAP and self.plan is not None:
            self.mode = Mode.FOLLOW
        self.steps += 1
        self._begin()

    def _plan(self, recorder: Recorder) -> None:
        """From the recorded step. The next ones are recorded too: their times are those of steps
        that do not swap everything."""
        if self.mode is Mode.RECORD:
            timeline = recorder.timeline(f"step {self.steps}")
        elif self.mode is Mode.FOLLOW and self.plan is not None:
            timeline = recorder.again(self.plan.timeline)
        else:
            return
        if timeline is not None:
            self._recorded += 1
            self._take(self._planner(timeline))

    def close(self) -> None:
        """Waits for copies; what autograd still holds stays readable."""
        with self._lock:
            for entry in list(self._numbered.values()):
                if entry.leaving is not None:
                    entry.leaving.wait()

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
        if self._backward and not self._numbered:
            self._step()
        entry = Entry(self._count, storage.nbytes(), _bytes_of(tensor), tensor._version)
        self._count += 1
        self._by_address[address] = self._numbered[entry.number] = entry
        self._arrived(entry, tensor)
        return entry

    def _arrived(self, entry: Entry, tensor: Tensor) -> None:
        """A new storage: an event of forward."""
        self._event += 1
        if self._recorder is not None:
            self._recorder.stop(entry)
        if self.mode is Mode.RECORD:
            self._try_formulas(entry, tensor)
        if self.mode is Mode.FOLLOW and not self._as_planned(entry):
            self.mode = Mode.SWAP
        self._send(entry, tensor)
        if self._recorder is not None:
            self._recorder.go()

    def _send(self, entry: Entry, tensor: Tensor) -> None:
        """Does with a new storage what its policy says."""
        if self.mode is Mode.FOLLOW:
            assert self.plan is not None
            self._sweep()
            self._act(self._event)
            policy = self._policy(entry)
            if policy is Policy.REBUILD:
                formula = self._formulas[entry.number]
                entry.formula = formula if formula.matches(tensor.grad_fn) else None
            if policy is Policy.SWAP or (policy is Policy.REBUILD and entry.formula is None):
                entry.leave(self._card, self._slab)
            return
        self._staying.append(entry)
        self._sweep()

    def _try_formulas(self, entry: Entry, tensor: Tensor) -> None:
        """Looks for a formula that gives the tensor's bits, and times it."""
        if tensor.numel() * tensor.element_size() != entry.nbytes:
            return
        node = tensor.grad_fn
        with torch.no_grad():
            formula = formula_of(node, self._saved)
            if formula is None:
                return
            reads = self._reads(formula, node)
            value = formula.value(node, self._saved)
            if value.stride() != tensor.stride() or not same_bits(value, tensor.detach()):
                return
            assert self._recorder is not None
            del value  # the second run takes its place
            begin = self._card.mark()
            formula.value(node, self._saved)
            self._recorder.formula(entry, reads, begin, self._card.mark())
        self._formulas[entry.number] = formula

    def _reads(self, formula: Sum, node: Node) -> tuple[int, ...]:
        """Numbers of the entries that a formula reads."""
        found = []
        for behind, attribute in formula.reads(node):
            address = self._saved(behind, attribute).untyped_storage().data_ptr()
            entry = self._by_address.get(address)
            if entry is not None:  # else it is small, and stays
                found.append(entry.number)
        return tuple(dict.fromkeys(found))

    def _as_planned(self, entry: Entry) -> bool:
        assert self.plan is not None
        saved = self.plan.timeline.saved
        return entry.number < len(saved) and saved[entry.number].nbytes == entry.nbytes

    def _policy(self, entry: Entry) -> Policy:
        assert self.plan is not None
        return self.plan.schedule.choices[entry.number].policy

    def _sweep(self) -> None:
        """Without a plan: has the oldest entries leave where more than half of the limit is in use,
        gives up what has been copied, and waits where too much is on its way."""
        held = sum(entry.nbytes for entry in self._leaving)
        excess = self._card.used() - held - self._limit // 2
        while self._staying and excess > 0:
            entry = self._staying.popleft()
            if entry.storage is not None and entry.packed and entry.slab is None:
                entry.leave(self._card, self._slab)
                self._leaving.append(entry)
                excess -= entry.nbytes
                held += entry.nbytes
        kept: list[Entry] = []
        for entry in self._leaving:
            if not (entry.left or held > self._limit // _UNDER_WAY) or not entry.drop(self._card):
                kept.append(entry)
            else:
                held -= entry.nbytes
        self._leaving = kept

    def _act(self, position: int) -> None:
        """Carries out the plan at this position: releases, then fetches in the order of need."""
        for number in self._releases.get(position, ()):
            entry = self._numbered.get(number)
            if entry is not None and entry.comes_back and not entry.drop(self._card):
                self._leaving.append(entry)
        for number in self._fetches.get(position, ()):
            entry = self._numbered.get(number)
            if entry is not None and entry.storage is None and entry.slab is not None:
                entry.come(self._card)

    # Backward.

    def _asked(self, packed: Packed) -> Tensor:
        """An event of backward."""
        entry, node = packed.entry, _node()
        self._backward = True
        self._event += 1
        if self._recorder is not None:
            self._recorder.stop(None)
        self._sweep()
        if self.mode is Mode.FOLLOW:
            self._act(self._event)
        storage = self._here(entry, packed.node or node)
        self._let_go(entry, node)
        if self.mode is not Mode.FOLLOW:
            self._ahead(entry)
        if self._recorder is not None:
            self._recorder.go(entry, node)
        return storage

    def _here(self, entry: Entry, node: Node | None) -> Tensor:
        """The entry's bytes on the device; `node` computed them in forward."""
        if entry.storage is None:
            if entry.slab is not None:
                entry.come(self._card)
            else:
                assert entry.formula is not None
                entry.storage = _bytes_of(entry.formula.value(node, self._saved))
        entry.arrive()
        assert entry.storage is not None
        return entry.storage

    def _saved(self, node: Node, attribute: str) -> Tensor:
        """What a node has saved, for a formula; not an event."""
        self._owners.append(node)
        try:
            return getattr(node, f"_saved_{attribute}")
        finally:
            self._owners.pop()

    def _let_go(self, entry: Entry, node: Node | None) -> None:
        """Holds the device's bytes of the tensors of the running operation only, beyond what the
        plan holds."""
        latest = self._reading
        if node is not self._reading_node:
            for other in latest:
                if other is not entry and other.comes_back and self._finished(other):
                    other.drop(self._card)
            latest.clear()
            self._reading_node = node
        if entry not in latest:
            latest.append(entry)

    def _finished(self, entry: Entry) -> bool:
        """True where the plan has no later use of it, or there is no plan."""
        if self.mode is not Mode.FOLLOW or not self._as_planned(entry):
            return True
        assert self.plan is not None
        return self._event > self.plan.timeline.saved[entry.number].last_use

    def _ahead(self, entry: Entry) -> None:
        """Without a plan: fetches what was saved just before, which backward is likely to read
        next."""
        room = self._limit // _UNDER_WAY
        for number in range(entry.number - 1, -1, -1):
            other = self._numbered.get(number)
            if other is None or not other.packed:
                continue
            room -= other.nbytes
            if room < 0:
                return
            if other.storage is None and other.slab is not None:
                other.come(self._card)

    # Steps.

    def _begin(self) -> None:
        self._event = 0
        self._backward = False
        self._count = 0
        self._by_address: dict[int, Entry] = {}
        self._numbered: dict[int, Entry] = {}
        self._staying: deque[Entry] = deque()  # the oldest first, without a plan
        self._leaving = []
        self._reading: list[Entry] = []
        self._reading_node = None
        self._recorder: Recorder | None = None
        if self._recorded < _RECORDED and self.mode is not Mode.KEEP:
            self._recorder = Recorder(self._card)
            self._recorder.begin()

    def _take(self, plan: Plan | None) -> None:
        self.plan = plan
        if plan is None:
            return
        if plan.fits:
            self.mode = Mode.KEEP
            return
        self.mode = Mode.FOLLOW
        self._releases: dict[int, list[int]] = {}
        self._fetches: dict[int, list[int]] = {}
        order = sorted(plan.schedule.movements.items(), key=lambda item: (item[1].need, item[0]))
        for number, movement in order:
            policy = plan.schedule.choices[number].policy
            if policy in (Policy.SWAP, Policy.REBUILD):
                self._releases.setdefault(movement.release, []).append(number)
            if policy is Policy.SWAP:
                self._fetches.setdefault(movement.fetch, []).append(number)

    def _gone(self, entry: Entry) -> None:
        """Autograd holds nothing of it any more."""
        with self._lock:
            if entry.leaving is not None:
                entry.leaving.wait()
                entry.leaving = None
            if entry.coming is not None:
                entry.coming.wait()
                entry.coming = None
            entry.storage = entry.slab = None
            if self._numbered.get(entry.number) is entry:
                del self._numbered[entry.number]


def _node() -> Node | None:
    """The operation of backward that runs in this thread."""
    return torch._C._current_autograd_node()


def _bytes_of(tensor: Tensor) -> Tensor:
    """The storage of a tensor, as bytes."""
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage())
