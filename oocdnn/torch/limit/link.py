"""The link to what holds the bytes that are swapped, as a card's copies measure it."""

from __future__ import annotations

import time
from collections.abc import Callable

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
