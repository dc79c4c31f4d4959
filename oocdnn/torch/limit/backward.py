"""The backward half of a step: the saved tensors that its nodes ask for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oocdnn.torch.limit import in_place
from oocdnn.torch.limit.entry import Entry, Held, Packed
from oocdnn.torch.limit.mode import Mode
from oocdnn.torch.limit.squeeze import reader_of, reads_form_only
from oocdnn.torch.limit.table import Table
from oocdnn.torch.limit.trace import Node
from oocdnn.torch.limit.values import check_form

if TYPE_CHECKING:
    from oocdnn.torch.limit.forward import Forward
    from oocdnn.torch.limit.step import Step


class Backward:
    """Reads tensors.

    Attributes:
        running: Backward passes, by autograd's numbers, until they end without an error.
    """

    def __init__(self, step: Step, forward: Forward, table: Table) -> None:
        self._step, self._forward, self._table = step, forward, table
        self.running: set[int] = set()
        self._reading: list[Entry] = []
        self._reading_node: Node | None = None

    def begin(self) -> None:
        """A planned step has saved all by now."""
        step = self._step
        step.backward, step.codes = True, ()
        if step.trials is not None:
            step.trials.ends()
        known = step.followed if step.mode is Mode.FOLLOW else None
        if known is not None and step.event + 1 != known.timeline.forward:
            step.differs()

    def runs(self) -> None:
        """Called in a backward pass."""
        number = torch._C._current_graph_task_id()
        if number != -1 and number not in self.running:
            self.running.add(number)
            ended = partial(self.running.discard, number)
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def try_short_path(self, held: Held) -> bool:
        """Counts the read of a tensor that the plan keeps, if its event needs no work. Returns
        False if the read needs the full path."""
        step, course = self._step, self._step.course
        if self._reading or not step.backward or not self._forward.is_of(held):
            return False
        if torch._C._current_graph_task_id() not in self.running:
            return False
        position = step.event + 1
        if not course.idle(position):
            return False
        step.event = position
        return True

    def read_held(self, held: Held) -> None:
        """An event, unless it is an earlier step's: a tensor that the plan keeps."""
        step = self._step
        if not self._forward.is_of(held):
            return
        step.event += 1
        step.course.before(step.event)
        if self._reading:
            self._drop_earlier(None, torch._C._current_autograd_node())
        step.course.goes(step.event)

    def tensor(self, packed: Packed) -> Tensor:
        """The tensor for a node that asks for it, which is an event unless it is an earlier
        step's."""
        step, entry = self._step, packed.entry
        node = torch._C._current_autograd_node()
        if step.numbered.get(entry.number) is not entry:
            check_form(packed, node)
            return packed.tensor(step.values.storage(entry))
        bare = self._table.used and self._reads_no_values(packed, node)
        step.event += 1
        if step.recorder is not None:
            step.recorder.stop(None)
            if step.trials is not None and entry.number in step.found.forms:
                step.recorder.seen[entry].readers.add(reader_of(node, packed))
        step.course.before(step.event)
        if bare:
            self._drop_earlier(None, node)
        else:
            check_form(packed, node)
            self._drop_earlier(entry, node)
            storage = step.values.storage(entry)
            step.course.after(entry)
        if step.recorder is not None:
            step.recorder.go(entry, node, values=not bare)
        step.course.goes(step.event)
        return packed.without_values() if bare else packed.tensor(storage)

    def _reads_no_values(self, packed: Packed, node: Node | None) -> bool:
        """True if the node writes its result over the tensor and reads none of its values."""
        dtype, size, stride, _ = packed.like
        signature = in_place.pool_signature(packed.place, dtype, size, stride)
        return signature in self._table.parts and reads_form_only(node, packed)

    def stop(self) -> None:
        """Holds no node from here on."""
        self._reading_node = None

    def _drop_earlier(self, entry: Entry | None, node: Node | None) -> None:
        """Drops what earlier operations read, unless the plan holds it; `entry` is read by the
        running one."""
        step, latest = self._step, self._reading
        if node is not self._reading_node:
            for other in latest:
                given_up = other is not entry and other.comes_back
                if given_up and step.course.finished(step.event, other):
                    step.store.drop(other)
            latest.clear()
            self._reading_node = node
        if entry is not None and entry not in latest:
            latest.append(entry)
