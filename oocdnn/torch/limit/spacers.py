"""Device bytes that the runtime takes for a moment, so that PyTorch's allocator puts others where a
plan wants them."""

from __future__ import annotations

import time

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.allocations import Point
from oocdnn.torch.limit.heap.allocator import LARGE_PAGE, Allocator
from oocdnn.torch.limit.heap.steering import Steering

_ENOUGH = 100  # acts, whose time is known
_PROBES, _PROBED = 32, 4 << 20  # acts that are tried, and their bytes
_TRIMMED = 240 << 20  # bytes that are given back by trial, at most
_TRIM_SECONDS = 6.5e-12  # for each byte, on an H200


class Spacers:
    """Takes and gives back what a steering says.

    Attributes:
        used: Whether there is anything to take.
        trims: Whether unused memory is given back in the midst of steps.
        idle: Whether there is nothing to do at all.
        run_positions: Events at whose end there is something to do.
        lost: Whether the allocator was in another state than expected, as after `empty_cache`. Then
            nothing is done until `restore`.
    """

    def __init__(self, card: Card, steering: Steering | None) -> None:
        self._card = card
        self._acts = {} if steering is None else steering.acts
        self._trims = frozenset(() if steering is None else steering.trims)
        self._end = 0 if steering is None else steering.end
        self.used, self.trims = bool(self._acts), bool(self._trims)
        points = {*self._acts, *self._trims}
        self.idle = not points
        self.run_positions = frozenset(number for kind, number in points if kind == "run")
        self._held: set[int] = set()  # addresses
        self.lost = False
        self._runs = False  # within a step that goes as planned
        self._count, self._spent = 0, 0.0  # acts, and the seconds of the host for them
        self._map()

    @property
    def act_seconds(self) -> float | None:
        """Seconds of the host for an act; None where there were few."""
        return self._spent / self._count if self._count >= _ENOUGH else None

    def begins(self) -> None:
        """A step begins."""
        self._runs = True

    def ends(self) -> None:
        """The step ends: gives everything back."""
        self._runs = False
        while self._held:
            self._card.give(self._held.pop())

    def restore(self) -> None:
        """Has the allocator hold what a step begins with."""
        self.lost = False
        self._card.trim()
        self._map()

    def _map(self) -> None:
        """Has everything up to the end mapped, from what is in use now."""
        heap = self._card.heap() if self.used else None
        if heap is None:
            return
        allocator = Allocator(expandable=True, extents=heap.extents)
        for address in [self._card.take(nbytes) for nbytes in allocator.fill(self._end)]:
            if address:
                self._card.give(address)

    def at(self, point: Point) -> None:
        """The runtime acts here; nothing is done outside of steps."""
        if point in self._trims and self._runs:
            self._card.release()
        acts = self._acts.get(point)
        if acts is None or self.lost:
            return
        began = time.perf_counter()
        for address, nbytes in acts:
            agrees = self._take(address, nbytes) if nbytes else self._give(address)
            if not agrees:
                self.stop()
                return
        self._spent += time.perf_counter() - began
        self._count += len(acts)

    def _take(self, address: int, nbytes: int) -> bool:
        found = self._card.take(nbytes)
        if found:
            self._held.add(found)
        return found == address

    def _give(self, address: int) -> bool:
        if address not in self._held:
            return False  # where it was to be taken, the runtime did not act
        self._held.remove(address)
        self._card.give(address)
        return True

    def stop(self) -> None:
        """Gives everything back, and does nothing until `restore`."""
        self.lost = self.used
        self.ends()


def probed_act_seconds(card: Card) -> float:
    """Seconds of the host for an act, by trial; 0 where nothing can be taken."""
    began = 0.0
    for _ in range(1 + _PROBES // 2):
        address = card.take(_PROBED)
        if not address:
            return 0.0
        card.give(address)
        began = began or time.perf_counter()  # the first one may map memory
    return (time.perf_counter() - began) / _PROBES


def probed_trim_seconds(card: Card, room: int) -> float:
    """Seconds for each byte that is given back to the driver and taken again, by trial; what an
    H200 took where `room` bytes that may be reserved leave too few for one."""
    card.finish()
    card.trim()
    nbytes = min((room - card.taken()) // LARGE_PAGE * LARGE_PAGE, _TRIMMED)
    if nbytes <= 0:
        return _TRIM_SECONDS
    began = time.perf_counter()
    address = card.take(nbytes)
    if not address:
        return _TRIM_SECONDS
    card.give(address)
    card.release()
    return (time.perf_counter() - began) / nbytes
