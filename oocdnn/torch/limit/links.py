"""The links of a memory limit: to the GPUs that lend memory, in their order, and to the host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oocdnn.network.timeline import Link
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.cuda_card import CudaCard
from oocdnn.torch.limit.lenders import whole_pages
from oocdnn.torch.limit.link import measured


class Links:
    """The links of a card. Lenders have what is swapped first, and the host has the rest.

    Attributes:
        each: As measured, the host's last; empty until `measure`.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self.each: list[Link] = []

    @property
    def borrowed(self) -> int:
        """Bytes that all lenders lend."""
        return sum(self._card.borrowed.values())

    def measure(self) -> None:
        """Measures them, once. Raises where a GPU cannot lend."""
        if not self.each:
            self.each = measured_links(self._card)

    def joined_for(self, swapped: int) -> Link:
        """One link for so many bytes."""
        parts = []
        for nbytes in filter(None, self._card.borrowed.values()):
            parts.append(min(nbytes, swapped))
            swapped -= parts[-1]
        return joined(self.each, [*parts, swapped])


def measured_links(card: Card) -> list[Link]:
    """The links to lenders of memory in their order, and to the host. Raises where a GPU cannot
    lend."""
    found: list[Link] = []
    if not any(card.borrowed.values()):
        return [measured(card)]
    assert isinstance(card, CudaCard)
    device = card.device
    for number, nbytes in card.borrowed.items():
        if nbytes == 0:
            continue
        lender = CudaCard(device, {number: nbytes}, card.swapper)
        # Two copies at a time are measured.
        lender.probe_bytes = min(lender.probe_bytes, whole_pages(max(nbytes // 2, 1)))
        lender.swapper.slab(lender.probe_bytes, number)  # raises where the GPU cannot lend
        found.append(measured(lender, f"cuda:{number}"))
    return [*found, measured(CudaCard(device, None, card.swapper))]


def joined(links: Sequence[Link], nbytes: Sequence[int]) -> Link:
    """One link for copies of which so many bytes go over each link; the last one where there are
    none."""
    parts = [(link, one) for link, one in zip(links, nbytes, strict=True) if one > 0]
    parts = parts or [(links[-1], 1)]

    def rate(rates: Iterable[float]) -> float:
        seconds = [one / speed for (_, one), speed in zip(parts, rates, strict=True)]
        return sum(one for _, one in parts) / sum(seconds)

    return replace(
        parts[0][0],
        to_host=rate(link.to_host for link, _ in parts),
        from_host=rate(link.from_host for link, _ in parts),
        both=rate(link.both for link, _ in parts),
        name=" and ".join(link.name for link, _ in parts),
    )


def links_with(links: Sequence[Link], copying: float | None) -> list[Link]:
    """The links, with what a copy takes the host where a step has measured that."""
    if copying is None:
        return list(links)
    return [replace(link, host=copying / len(links)) for link in links]
