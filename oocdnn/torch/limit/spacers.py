"""Device bytes that the runtime takes for a moment, so that PyTorch's allocator puts others where a
plan wants them."""

from __future__ import annotations

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.heap.allocations import Point
from oocdnn.torch.limit.heap.steering import Steering


class Spacers:
    """Takes and gives back what a steering says. Where the allocator is in another state than
    expected, it does nothing for the rest of the step."""

    def __init__(self, card: Card, steering: Steering | None) -> None:
        self._card = card
        self._acts = {} if steering is None else steering.acts
        self._held: set[int] = set()
        self._lost = False
        if steering is not None:
            for address in [card.take(nbytes) for nbytes in steering.mapped]:
                card.give(address)

    @property
    def used(self) -> bool:
        return bool(self._acts)

    def begin(self) -> None:
        """A new step."""
        self._lost = False

    def at(self, point: Point) -> None:
        """The runtime acts here."""
        self.release()
        if self._lost:
            return
        for address, nbytes in self._acts.get(point, ()):
            if nbytes == 0:
                self._held.remove(address)
                self._card.give(address)
                continue
            found = self._card.take(nbytes)
            self._held.add(found)
            if found != address:
                self._lost = True
                self.release()
                return

    def release(self) -> None:
        """Gives everything back."""
        for address in self._held:
            self._card.give(address)
        self._held.clear()
