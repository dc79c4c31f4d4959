"""The links to what holds the bytes that are swapped, as a card's copies measure them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from oocdnn.network.timeline import Link
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.store import Store

_BOTH = 0.85  # of the sum of the rates, where both directions are in use
# Large copies and rounds of small ones; the first, for which memory is page-locked, is not counted.
_LARGE, _ROUNDS = 5, 4
_SMALL = 16  # copies of a round


def measured(card: Card, name: str = "host") -> Link:
    """The rates of large copies to the card's first slabs, and what a copy takes the host, with its
    device bytes and without waits."""
    away, back = _rates(card)
    return Link(away, back, _BOTH * (away + back), name=name, host=_host(card))


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


def _rates(card: Card) -> tuple[float, float]:
    """Bytes a second, away from the device and back."""
    store, nbytes = Store(card), card.probe_bytes
    away, back = [], []
    for number in range(_LARGE):
        entry = _entry(card, store, number, nbytes)
        away.append(_seconds(card, entry, store.leave, store.copied))
        store.drop(entry)
        back.append(_seconds(card, entry, store.come, store.arrived))
        store.gone(entry)
    return nbytes / min(away[1:]), nbytes / min(back[1:])


def _seconds(card: Card, entry: Entry, *acts: Callable[[Entry], object]) -> float:
    """The time of acts on an entry, with the device's."""
    card.finish()
    began = time.perf_counter()
    for act in acts:
        act(entry)
    card.finish()
    return time.perf_counter() - began


def _host(card: Card) -> float:
    """Seconds of the host for a copy, one after the other as in a step."""
    spent = []
    store = Store(card)
    for _ in range(_ROUNDS):
        entries = [_entry(card, store, number, card.least_bytes) for number in range(_SMALL)]
        before = store.spent
        for act in (store.leave, store.drop, store.come, store.arrived):
            for entry in entries:
                act(entry)
        spent.append(store.spent - before)
        for entry in entries:
            store.gone(entry)
    return min(spent[1:]) / (2 * _SMALL)


def _entry(card: Card, store: Store, number: int, nbytes: int) -> Entry:
    entry = Entry(number, nbytes, card.empty(nbytes), 0)
    store.hold(entry)
    return entry
