"""The link to what holds the bytes that are swapped, as a card's copies measure it."""

from __future__ import annotations

import time
from collections.abc import Callable

from oocdnn.network.timeline import Link
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Entry
from oocdnn.torch.limit.store import Store

# Large copies and rounds of small ones; the first, for which memory is page-locked, is not counted.
_LARGE, _ROUNDS = 5, 4
_SMALL = 16  # copies of a round


def measured(card: Card, name: str = "host") -> Link:
    """The rates of large copies to the card's first slabs, and what a copy takes the host, with its
    device bytes and without waits."""
    away, back, both = _rates(card)
    # Two directions together are as fast as the faster one at least, and as both alone at most.
    both = min(max(both, away, back), away + back)
    return Link(away, back, both, name=name, host=_host(card))


def _rates(card: Card) -> tuple[float, float, float]:
    """Bytes a second, away from the device, back, and of both at the same time."""
    store, nbytes = Store(card), card.probe_bytes
    away, back, both = [], [], []
    for number in range(_LARGE):
        entry, other = (_entry(card, store, one, nbytes) for one in (2 * number, 2 * number + 1))
        away.append(_seconds(card, (store.leave, entry), (store.copied, entry)))
        store.drop(entry)
        back.append(_seconds(card, (store.come, entry), (store.arrived, entry)))
        store.drop(entry)
        acts = (
            (store.come, entry),
            (store.leave, other),
            (store.arrived, entry),
            (store.copied, other),
        )
        both.append(_seconds(card, *acts))
        for one in (entry, other):
            store.gone(one)
    return nbytes / min(away[1:]), nbytes / min(back[1:]), 2 * nbytes / min(both[1:])


def _seconds(card: Card, *acts: tuple[Callable[[Entry], object], Entry]) -> float:
    """The time of acts on entries, with the device's."""
    card.finish()
    began = time.perf_counter()
    for act, entry in acts:
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
