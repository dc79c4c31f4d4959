"""From the events of one step to a timeline for the planner.

An event is a saved storage that is new (in forward) or a saved tensor that is asked for again (in
backward). An operation of the timeline is the time between two events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oocdnn.network.timeline import Operation, Recipe, Saved, Timeline
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry


@dataclass
class _Event:
    mark: Any
    resident: int  # bytes of entries on the device from here on
    most: int = 0  # bytes on the device until the next event
    appeared: int = 0  # bytes of the entry that the next event saw first
    node: int = 0  # of backward


@dataclass
class Recorder:
    """Events of one step, in order; event 0 is the step's beginning."""

    card: Card
    entries: list[Entry] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    forward: int = 0  # events of forward, 0 while it runs
    events: list[_Event] = field(default_factory=list)
    formulas: dict[int, tuple[tuple[int, ...], Any, Any]] = field(default_factory=dict)

    def formula(self, entry: Entry, reads: tuple[int, ...], begin: Any, end: Any) -> None:
        """A way to compute an entry from others, timed between two marks."""
        self.formulas[entry.number] = (reads, begin, end)

    def begin(self) -> None:
        self.card.peak()
        self.events.append(_Event(self.card.mark(), 0))

    def saved(self, entry: Entry) -> None:
        """A new storage in forward."""
        self._look(len(self.events))
        self.events[-1].appeared = entry.nbytes
        self._close()
        self.produced.append(len(self.events) - 1)
        self.entries.append(entry)
        self._open(0)

    def asked(self, entry: Entry, node: int) -> None:
        """A storage that backward reads."""
        if self.forward == 0:
            self.forward = len(self.events)
            self._look(len(self.events))
        self._close()
        entry.events.append(len(self.events))
        self._open(node)

    def timeline(self, label: str) -> Timeline | None:
        """None where nothing was saved, or nothing was read back."""
        if not self.forward or not self.entries:
            return None
        self._close()
        end = self.card.mark()
        marks = [event.mark for event in self.events] + [end]
        operations = tuple(
            Operation(
                f"{'forward' if i < self.forward else 'backward'} {i}",
                self.card.seconds(marks[i], marks[i + 1]),
                max(event.most - event.resident - event.appeared, 0),
            )
            for i, event in enumerate(self.events)
        )
        saved = tuple(
            self._saved(entry, produced)
            for entry, produced in zip(self.entries, self.produced, strict=True)
        )
        return Timeline(operations, self.forward, saved, label)

    def _saved(self, entry: Entry, produced: int) -> Saved:
        last = self.forward - 1
        held = entry.ended < 0
        ended = last if held else min(max(entry.ended - 1, produced), last)
        uses = entry.events or [len(self.events) - 1]
        reads = sorted({*uses, self._end_of_node(uses[-1])})
        return Saved(
            f"saved {entry.number}",
            entry.nbytes,
            produced,
            ended,
            tuple(reads),
            movable=bool(entry.events) and not held,
            recipes=self._recipes(entry),
        )

    def _recipes(self, entry: Entry) -> tuple[Recipe, ...]:
        known = self.formulas.get(entry.number)
        if known is None:
            return ()
        reads, begin, end = known
        return (Recipe(reads, self.card.seconds(begin, end)),)

    def _end_of_node(self, event: int) -> int:
        """The last event of the operation of backward that this event is of."""
        node = self.events[event].node
        while event + 1 < len(self.events) and self.events[event + 1].node == node != 0:
            event += 1
        return event

    def _look(self, event: int) -> None:
        """Notes which entries nobody else holds any more."""
        for entry in self.entries:
            if entry.ended < 0 and entry.others() == 0:
                entry.ended = event

    def _close(self) -> None:
        self.events[-1].most = max(self.events[-1].most, self.card.peak())

    def _open(self, node: int) -> None:
        resident = sum(entry.nbytes for entry in self.entries if entry.storage is not None)
        self.events.append(_Event(self.card.mark(), resident, node=node))
