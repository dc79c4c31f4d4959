"""Device bytes that the runtime takes for a moment, so that PyTorch's allocator puts others where a
plan wants them."""

from __future__ import annotations

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.allocations import Point
from oocdnn.torch.limit.heap.allocator import Allocator
from oocdnn.torch.limit.heap.steering import Steering

_RESTORED = 4  # times


class Spacers:
    """Takes and gives back what a steering says. Where the allocator is in another state than
    expected, it does nothing for the rest of the step."""

    def __init__(self, card: Card, steering: Steering | None) -> None:
        self._card = card
        self._acts = {} if steering is None else steering.acts
        self._end = 0 if steering is None else steering.end
        self.used = bool(self._acts)
        self.held: set[int] = set()  # addresses
        self._lost = False
        self._restored = 0
        self._map()

    def ends(self) -> None:
        """The step ends. Where the allocator was in another state, as after `empty_cache`, its
        memory is what a step begins with again; not without end, since that takes long."""
        self.release()
        if self._lost and self._restored < _RESTORED:
            self._restored += 1
            self.restore()

    def restore(self) -> None:
        """Has the allocator hold what a step begins with."""
        self._lost = False
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
        """The runtime acts here."""
        if self.held:
            self.release()
        acts = self._acts.get(point)
        if acts is None or self._lost:
            return
        for address, nbytes in acts:
            if nbytes == 0:
                self.held.remove(address)
                self._card.give(address)
                continue
            found = self._card.take(nbytes)
            if found:
                self.held.add(found)
            if found != address:
                self.stop()
                return

    def stop(self) -> None:
        """Gives everything back, and does nothing for the rest of the step."""
        self._lost = self.used
        self.release()

    def release(self) -> None:
        """Gives everything back."""
        for address in self.held:
            self._card.give(address)
        self.held.clear()


def take_free(card: Card) -> list[int]:
    """Gives unused memory back to the driver and takes what stays free: what is allocated next is
    at the lowest addresses, out of the way of what comes and goes. The addresses, to be given back.
    """
    heap = card.heap()
    if heap is None or not heap.expandable:
        return []
    card.trim()
    allocator = Allocator(expandable=True, extents=heap.extents)
    allocator.trim()
    taken = [card.take(nbytes) for nbytes in allocator.takeable()]
    return [address for address in taken if address]
