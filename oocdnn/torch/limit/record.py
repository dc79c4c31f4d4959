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
from oocdnn.torch.limit.formulas import Node


@dataclass
class _Event:
    begin: Any  # mark: the device goes on, after what the runtime did at the event
    end: Any = None  # mark: the next event
    resident: int = 0  # bytes of entries on the device from here on
    most: int = 0  # bytes on the device until the next event
    appeared: int = 0  # bytes of the entry that the next event saw first
    node: Node | None = None  # of backward; held, so that no other takes its address


@dataclass
class Recorder:
    """Events of one step, in order; event 0 is the step's beginning.

    At an event the runtime calls `stop`, acts, and calls `go`: its waits are part of no operation.
    """

    card: Card
    entries: list[Entry] = field(default_factory=list)
    produced: list[int] = field(default_factory=list)
    forward: int = 0  # events of forward, 0 while it runs
    events: list[_Event] = field(default_factory=list)
    formulas: dict[int, tuple[tuple[int, ...], Any, Any]] = field(default_factory=dict)

    def begin(self) -> None:
        self.card.peak()
        self.events.append(_Event(self.card.mark()))

    def stop(self, appeared: Entry | None) -> None:
        """An event: a new storage in forward, or none and a read in backward."""
        last = self.events[-1]
        last.end = self.card.mark()
        last.most = self.card.peak()
        if appeared is not None or self.forward == 0:
            self._look(len(self.events))
        if appeared is not None:
            last.appeared = appeared.nbytes
            self.produced.append(len(self.events) - 1)
            self.entries.append(appeared)
        elif self.forward == 0:
            self.forward = len(self.events)

    def go(self, read: Entry | None = None, node: Node | None = None) -> None:
        if read is not None:
            read.events.append(len(self.events))
        resident = sum(entry.nbytes for entry in self.entries if entry.storage is not None)
        self.card.peak()
        self.events.append(_Event(self.card.mark(), resident=resident, node=node))

    def formula(self, entry: Entry, reads: tuple[int, ...], begin: Any, end: Any) -> None:
        """A way to compute an entry from others, timed between two marks."""
        self.formulas[entry.number] = (reads, begin, end)

    def timeline(self, label: str) -> Timeline | None:
        """None where nothing was saved, or nothing was read back."""
        operations = self.operations()
        if not self.forward or not self.entries:
            return None
        saved = tuple(
            self._saved(entry, produced)
            for entry, produced in zip(self.entries, self.produced, strict=True)
        )
        return Timeline(operations, self.forward, saved, label)

    def again(self, timeline: Timeline) -> Timeline | None:
        """The same step with the times and bytes of this one; None where it is another one."""
        operations = self.operations()
        same = len(operations) == len(timeline.operations) and self.forward == timeline.forward
        if not same or len(self.entries) != len(timeline.saved):
            return None
        return Timeline(operations, timeline.forward, timeline.saved, timeline.label)

    def operations(self) -> tuple[Operation, ...]:
        last = self.events[-1]
        last.end = self.card.mark()
        last.most = self.card.peak()
        return tuple(
            Operation(
                f"{'forward' if i < self.forward else 'backward'} {i}",
                self.card.seconds(event.begin, event.end),
                max(event.most - event.resident - event.appeared, 0),
            )
            for i, event in enumerate(self.events)
        )

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
        while event + 1 < len(self.events) and self.events[event + 1].node is node is not None:
            event += 1
        return event

    def _look(self, event: int) -> None:
        """Notes which entries nobody else holds any more."""
        for entry in self.entries:
            if entry.ended < 0 and entry.others() == 0:
                entry.ended = event
