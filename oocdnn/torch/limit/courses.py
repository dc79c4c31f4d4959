"""What happens to saved tensors between forward and backward: by a plan, or without one.

A course decides when bytes move, never what is computed: a saved tensor that is asked for at
another time than expected is fetched when it is asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from oocdnn.network.plan import Policy
from oocdnn.torch.limit.deep import Bounds, Deep
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.host_clock import HostClock
from oocdnn.torch.limit.recipes import Recipe
from oocdnn.torch.limit.spacers import Spacers
from oocdnn.torch.limit.squeeze import Form, form_of
from oocdnn.torch.limit.store import Store
from oocdnn.torch.limit.trace import Trace

if TYPE_CHECKING:
    from oocdnn.network.planner import Plan

_UNDER_WAY = 8  # this part of the limit may be on its way while everything is swapped
_LOOKED = 16  # copied entries that others hold: an event looks at so many, or at a share of them
_ROUNDS = 8  # the rest of that share
_STEPS = 32  # whose seconds are remembered

Numbered = dict[int, Entry]  # the entries that autograd holds


class Course(Protocol):
    """One step's treatment. Positions are events of the step, counted from its beginning."""

    def arrived(self, position: int, entry: Entry, tensor: Tensor, trace: Trace) -> bool:
        """A new entry in forward; False where the step is not the expected one."""

    def idle(self, position: int) -> bool:
        """True if an event needs no work besides being counted."""

    def before(self, position: int) -> None:
        """Before a read in backward."""

    def after(self, entry: Entry) -> None:
        """After a read of an entry in backward."""

    def finished(self, position: int, entry: Entry) -> bool:
        """Whether an entry that was read may be given up."""

    def computes(self, entry: Entry) -> None:
        """Before an entry is computed again; what it is computed from is there."""

    def goes(self, position: int) -> None:
        """After what the runtime does at an event: the program goes on."""

    def ends(self) -> None:
        """The step has ended, or goes on otherwise."""

    def stop(self) -> None:
        """The limit is left: nothing else is held from here on than what autograd holds."""


class Unplanned:
    """Everything is swapped, the oldest first, where more than half of the limit is in use."""

    def __init__(self, store: Store, limit: int, numbered: Numbered) -> None:
        self._store, self._limit, self._numbered = store, limit, numbered
        self._staying = deque(numbered.values())
        self._leaving: deque[Entry] = deque()
        self._under_way = 0  # bytes of these
        self._held: deque[Entry] = deque()  # copied, and by others than us

    def arrived(self, position: int, entry: Entry, tensor: Tensor, trace: Trace) -> bool:
        del position, tensor, trace
        self._staying.append(entry)
        self._sweep()
        return True

    def idle(self, position: int) -> bool:
        del position
        return False

    def before(self, position: int) -> None:
        del position
        self._sweep()

    def after(self, entry: Entry) -> None:
        """Fetches what was saved just before, which backward is likely to read next."""
        room = self._limit // _UNDER_WAY
        for number in range(entry.number - 1, -1, -1):
            other = self._numbered.get(number)
            if other is None:
                continue
            room -= other.nbytes
            if room < 0:
                return
            if other.storage is None and other.slab is not None:
                self._store.come(other)

    def finished(self, position: int, entry: Entry) -> bool:
        del position, entry
        return True

    def computes(self, entry: Entry) -> None:
        pass

    def goes(self, position: int) -> None:
        pass

    def ends(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def _sweep(self) -> None:
        """Gives up what has been copied, waits where too much is on its way, and has the oldest
        entries leave. What others still hold is looked at again later."""
        while self._leaving:
            entry = self._leaving[0]
            copied = entry.leaving is None or entry.leaving.done()
            if not copied and self._under_way <= self._limit // _UNDER_WAY:
                break  # copies end in their order
            self._leaving.popleft()
            self._under_way -= entry.nbytes
            if not self._store.drop(entry):
                self._held.append(entry)
        for _ in range(min(len(self._held), max(_LOOKED, len(self._held) // _ROUNDS))):
            entry = self._held.popleft()
            if not self._store.drop(entry):
                self._held.append(entry)
        excess = self._store.card.used() - self._under_way - self._limit // 2
        while self._staying and excess > 0:
            entry = self._staying.popleft()
            if entry.storage is not None and not entry.comes_back:
                if not self._store.leave(entry):
                    continue
                self._leaving.append(entry)
                self._under_way += entry.nbytes
                excess -= entry.nbytes


@dataclass
class Found:
    """Recipes and smaller forms that a recorded step found, by the numbers of entries.

    Args:
        recipes: The first recipe of each.
        deep: Further ones.
    """

    recipes: dict[int, Recipe] = field(default_factory=dict)
    deep: dict[int, list[Deep]] = field(default_factory=dict)
    forms: dict[int, Form] = field(default_factory=dict)
    # Indices of saved tensors that recipes and forms are found by in later steps.
    traced: dict[int, set[int]] = field(default_factory=dict)
    beside: dict[int, set[int]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of each saved tensor; -1: it stays


# What a plan does with a saved tensor, by its index among all of the step. STAYS: it never moves,
# as parameters. ARRIVES, BEFORE: it is the first tensor, or a later one, of an entry that is kept.
# LOOK: something else.
STAYS, ARRIVES, BEFORE, LOOK = range(4)


class Planned:
    """As a plan says, for a step whose entries have the recorded sizes."""

    def __init__(self, store: Store, plan: Plan, found: Found, spacers: Spacers) -> None:
        self._store, self.plan, self._found = store, plan, found
        self.spacers = spacers
        self.runs = 0  # whole steps of the plan; the first one maps and page-locks memory
        self.clocks: list[HostClock] = []  # of whole steps whose host times were measured
        self.seconds: deque[float] = deque(maxlen=_STEPS)  # of the latest steps, end to end
        self._numbered: Numbered = {}
        self._late: list[Entry] = []  # to be given up as soon as nobody else holds them
        self._releases: dict[int, list[int]] = {}
        self._fetches: dict[int, list[int]] = {}
        for number in plan.schedule.by_need():
            movement = plan.schedule.movements[number]
            self._releases.setdefault(movement.release, []).append(number)
            if plan.schedule.choices[number].policy is Policy.SWAP:
                self._fetches.setdefault(movement.fetch, []).append(number)
        self._acts = {*self._releases, *self._fetches}  # positions with something to do
        self._policies = [choice.policy for choice in plan.schedule.choices]
        self._deep = {  # recipes of the plan
            number: found.deep[number][choice.recipe - 1]
            for number, choice in enumerate(plan.schedule.choices)
            if choice.policy is Policy.REBUILD and choice.recipe > 0
        }
        self._inner = frozenset().union(*(deep.inner for deep in self._deep.values()))
        self._bounds = Bounds()  # of inner entries
        self._sizes = [saved.nbytes for saved in plan.timeline.saved]
        self._last_uses = [saved.last_use for saved in plan.timeline.saved]
        found_by = {Policy.REBUILD: found.traced, Policy.SQUEEZE: found.beside}
        indices = [
            found_by[policy].get(number, set())
            for number, policy in enumerate(self._policies)
            if policy in found_by
        ]
        indices += [found.traced[number] for number in self._inner]
        self.traced: frozenset[int] = frozenset().union(*indices)  # indices of saved tensors
        self.codes = self._coded()
        # The codes of recorded steps, in which the recorder has to see every entry.
        self.codes_recorded = [STAYS if code == STAYS else LOOK for code in self.codes]

    def _coded(self) -> list[int]:
        codes, seen = [], -1
        for index, number in enumerate(self._found.numbers):
            if number < 0:
                codes.append(LOOK if index in self.traced else STAYS)
            elif self._policies[number] is not Policy.KEEP or number in self._inner:
                codes.append(LOOK)
            else:
                codes.append(ARRIVES if number > seen else BEFORE)
            seen = max(seen, number)
        return codes

    def begin(self, numbered: Numbered) -> None:
        """Begins a step, at its first event."""
        self._numbered = numbered
        self._late.clear()
        self._bounds = Bounds()
        self.spacers.begins()

    def expects(self, number: int, nbytes: int) -> bool:
        """Whether the recorded step had a new entry of that size here."""
        return number < len(self._sizes) and self._sizes[number] == nbytes

    def arrived(self, position: int, entry: Entry, tensor: Tensor, trace: Trace) -> bool:
        if not self.expects(entry.number, entry.nbytes):
            return False
        self.before(position)
        policy = self._policies[entry.number]
        if policy is Policy.REBUILD or entry.number in self._inner:
            self._bind(entry, policy, tensor, trace)
        if policy is Policy.SQUEEZE:
            form = self._found.forms[entry.number]
            if form_of(tensor, trace.latest()) == form:
                self.spacers.at(("squeeze", entry.number))
                self._store.squeeze(entry, form)
        if policy is not Policy.KEEP and not entry.comes_back:
            self._store.leave(entry)
        return True

    def _bind(self, entry: Entry, policy: Policy, tensor: Tensor, trace: Trace) -> None:
        """Binds the entry's recipes."""
        number = entry.number
        own = self._found.recipes[number].bind(tensor, trace)
        deep = self._deep.get(number)
        if policy is Policy.REBUILD:
            entry.bound = own
            if own is not None and deep is not None:
                entry.bound = deep.bind(own, self._bounds)
        if own is not None and number in self._inner:
            self._bounds.add(number, own)

    def idle(self, position: int) -> bool:
        return not (self._late or position in self._acts or position in self.spacers.run_positions)

    def before(self, position: int) -> None:
        if self._late or position in self._acts:
            self._act(position)

    def after(self, entry: Entry) -> None:
        del entry

    def finished(self, position: int, entry: Entry) -> bool:
        number = entry.number
        return number >= len(self._last_uses) or position > self._last_uses[number]

    def computes(self, entry: Entry) -> None:
        if self._numbered.get(entry.number) is entry:  # an earlier step's has another place
            self.spacers.at(("compute", entry.number))

    def goes(self, position: int) -> None:
        if position in self.spacers.run_positions:
            self.spacers.at(("run", position))

    def ends(self) -> None:
        self.spacers.ends()

    def completed(self, clock: HostClock | None) -> None:
        """The step that ended was a whole one. The host times of a step whose steering ended midway
        are not those of the plan, and the host waits for the device in trims."""
        self.runs += 1
        if clock is not None and not (self.spacers.lost or self.spacers.trims):
            self.clocks.append(clock)

    def stop(self) -> None:
        self.spacers.stop()
        self._bounds = Bounds()

    def _act(self, position: int) -> None:
        """Releases, then fetches in the order of need."""
        if self._late:
            self._late = [e for e in self._late if e.packed and not self._store.drop(e)]
        for number in self._releases.get(position, ()):
            entry = self._numbered.get(number)
            if entry is not None and entry.comes_back and not self._store.drop(entry):
                self._late.append(entry)
        for number in self._fetches.get(position, ()):
            entry = self._numbered.get(number)
            if entry is not None and entry.storage is None and entry.slab is not None:
                self.spacers.at(("fetch", number))
                self._store.come(entry)
