"""Has PyTorch's allocator put the tensors of a compiled step where they leave few gaps.

Forward and backward have points among their kernels, operators at which the runtime can take
device bytes and give them back:

    order = begin_points()        a small tensor of the CPU, which keeps the points in order
    point(order, step, number)

The first steps show what is allocated between the points. Where the allocator's own choices would
pass the limit, later steps are steered as those of `memory_limit` are.
"""

from __future__ import annotations

import itertools
import logging
import time
from contextlib import suppress
from weakref import WeakValueDictionary

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from oocdnn.network.plan import Schedule
from oocdnn.network.timeline import Operation, Timeline
from oocdnn.torch.compiled.copies import OPERATORS
from oocdnn.torch.compiled.costs import nbytes_of
from oocdnn.torch.compiled.operators import define, no_form, token_form
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.reading import Note, read
from oocdnn.torch.limit.heap.steering import steer
from oocdnn.torch.limit.spacers import Spacers

_log = logging.getLogger(__name__)
_MOST = 32  # points of a graph
_LARGE = 1 << 20  # bytes of a value before which there may be a point
_SETTLED = 1  # whole steps before one is watched: the first one allocates what optimizers keep
_SECONDS = 2.0  # for one search
_LOSSES = 3  # successive steps that went otherwise than watched
_TRIES = 3  # steps that are watched
_CHECKED = 2  # steps without steering after which the driver's count is looked at


class Steered:
    """The steps of a pair of graphs. A step is from forward's first point to the next time.

    Args:
        card: Of the device.
        limit: Device bytes of the process.
        points: Of a step.
        steers: Whether the allocator can be steered.

    Attributes:
        number: Names it in the graphs.
    """

    def __init__(self, card: Card, limit: int, points: int, *, steers: bool = True) -> None:
        self.number = next(_numbers)
        self._card, self._limit, self._points = card, limit, points
        self._next = 0  # the point that is expected
        self._whole = 0  # steps that had all points, in order
        self._watched = 0
        self._losses = 0
        self._notes: list[Note] | None = None  # while a step is watched
        self._spacers: Spacers | None = None
        self._steers = steers
        self._over = not steers  # nothing is steered any more
        self._checks = 0  # steps since then
        others = [one for one in _steered.values() if one._card is card]
        _steered[self.number] = self
        if others:  # each would have to know what the others do
            for one in (self, *others):
                one.stop()

    def at(self, number: int) -> None:
        """A point is reached. What fails here ends the steering, not the program."""
        try:
            if not self._over:
                self._at(number)
            elif number == 0 and self._checks <= _CHECKED:
                self._check()
        except Exception as error:
            _log.warning("oocdnn: steps are not steered: %s: %s", type(error).__name__, error)
            self.stop()

    def stop(self) -> None:
        """Nothing is steered from here on."""
        notes, spacers, self._notes, self._spacers = self._notes, self._spacers, None, None
        self._over = True
        with suppress(Exception):
            if notes is not None:
                self._card.watched()
            if spacers is not None:
                spacers.stop()

    def __del__(self) -> None:
        if getattr(self, "_over", True) is False:  # in the midst of a step, perhaps
            self.stop()

    def _check(self) -> None:
        """Tells once where the driver counts more than the limit."""
        self._checks += 1
        if self._checks == 1:
            self._card.trim()
        if self._checks <= _CHECKED:
            return
        excess = self._card.taken() + self._card.others() - self._limit
        if excess > 0:
            _log.warning(
                "oocdnn: the driver counts %d bytes more than the limit of %d: PyTorch's allocator "
                "leaves gaps between tensors; %s",
                excess, self._limit,
                "compile with a limit that is so much less" if self._steers
                else "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            )  # fmt: skip

    def _at(self, number: int) -> None:
        if number == 0:
            self._begin()
        elif number != self._next:  # backward runs twice, or not at all
            self._interrupt()
        elif self._notes is not None:
            self._notes += [self._note(), self._note()]
        elif self._spacers is not None:
            self._spacers.at(("run", number))
        self._next = number + 1

    def _note(self) -> Note:
        assert self._notes is not None
        nbytes = 257 + len(self._notes) % 251  # which tensors rarely have
        return Note(self._card.note(nbytes), nbytes)

    def _begin(self) -> None:
        self._card.begin()
        whole = self._next == self._points
        self._whole += whole
        if self._spacers is not None:
            self._spacers.ends()
            self._look_after(self._spacers)
        elif self._notes is not None:
            if whole:
                self._steer(self._notes)
            else:
                self._interrupt()
        if self._spacers is None and self._notes is None and self._whole >= _SETTLED:
            self._watch()

    def _interrupt(self) -> None:
        """The step is not a whole one."""
        if self._notes is not None:
            self._card.watched()
            self._notes = None
        if self._spacers is not None:
            self._spacers.stop()

    def _look_after(self, spacers: Spacers) -> None:
        """Goes on where a step went otherwise than watched; watches anew after several."""
        self._losses = self._losses + 1 if spacers.lost else 0
        if self._losses >= _LOSSES:
            self._losses, self._spacers = 0, None
        elif spacers.lost:
            spacers.restore()

    def _watch(self) -> None:
        """Watches a step that begins without unused memory."""
        self._card.trim()
        self._watched += 1
        if self._watched > _TRIES or not self._card.watch():
            self._over = True
        else:
            self._notes = []

    def _steer(self, notes: list[Note]) -> None:
        """From what a step allocated to the steering of the next ones, if they need one."""
        self._notes = None
        log = self._card.watched()
        operations = (Operation("", 0.0),) * self._points
        found = None if log is None else read(log, notes, Timeline(operations, self._points))
        self._card.trim()
        heap = self._card.heap()
        if found is None or heap is None:
            self._over = True
            return
        step, room = found.step(Schedule([])), self._limit - self._card.others()
        if step.reserved(heap) <= room:
            self._over = True
            return
        steering = steer(step, heap, room, time.monotonic() + _SECONDS, self._watched)
        if steering is None:
            self._over = True
            return
        self._spacers = Spacers(self._card, steering)


_numbers = itertools.count()
_steered: WeakValueDictionary[int, Steered] = WeakValueDictionary()


def _begin_points() -> Tensor:
    return torch.zeros(1, dtype=torch.int64)


def _point(order: Tensor, step: int, number: int) -> None:
    del order
    steered = _steered.get(step)
    if steered is not None:
        steered.at(number)


begin_points = define("begin_points() -> Tensor", _begin_points, token_form)
point = define("point(Tensor(a!) order, int step, int number) -> ()", _point, no_form)
POINTS = begin_points, point


class Points:
    """Places for the points of a step: at the beginning of its graphs, and before large values.

    Attributes:
        count: Of the places.
    """

    def __init__(self, forward: fx.Graph, backward: fx.Graph) -> None:
        self._places = [(graph, _places(graph)) for graph in (forward, backward)]
        self.count = sum(len(nodes) for _, nodes in self._places)

    def add(self, step: int) -> None:
        """Has the graphs reach the points of a step."""
        numbers = itertools.count()
        for graph, nodes in self._places:
            if not nodes:
                continue
            with graph.inserting_before(next(n for n in graph.nodes if n.op == "call_function")):
                order = graph.call_function(begin_points)
            with _mode(nodes[0]):
                order.meta["val"] = begin_points()
            for node in nodes:
                with graph.inserting_before(node):
                    made = graph.call_function(point, (order, step, next(numbers)))
                made.meta["val"] = None


def _places(graph: fx.Graph) -> list[fx.Node]:
    calls = [node for node in graph.nodes if node.op == "call_function"]
    large = [n for n in calls if n.target not in OPERATORS and nbytes_of(n) >= _LARGE]
    return large[:: max(-(-len(large) // _MOST), 1)]


def _mode(node: fx.Node) -> FakeTensorMode:
    """That a node's values are of."""
    values = tree_leaves(node.meta["val"])
    mode: FakeTensorMode = next(one for one in values if isinstance(one, FakeTensor)).fake_mode
    return mode
