"""Plans by a simple rule, in a fraction of a second: where the program has no time, and to begin
with.

The cheapest recipes by the seconds for a byte that they add to the step are taken, up to some
price, and none whose inputs are computed again in too long a chain; of the other tensors so many
are swapped that the step fits: first those whose copies cost the host least for a byte, and of them
those that are not read for the longest time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from oocdnn._core.network import Totals
from oocdnn.network.plan import KEEP, SQUEEZE, SWAP, Choice, Policy, Schedule
from oocdnn.network.schedule import Scheduler
from oocdnn.network.timeline import Link, Timeline, available

_DEPTHS = (3, 1, 2, 4, 6, 10, 1 << 30)  # of chains of recipes, the usual first
_SHARES = 24  # of the recipes that are tried, evenly at first
_COARSEST = 8  # steps between the shares that are tried first
_FINER = 4  # times the steps are halved around the best


@dataclass(frozen=True)
class _Made:
    choices: list[Choice]
    totals: Totals


def greedy(timeline: Timeline, scheduler: Scheduler, end: float) -> Schedule | None:
    """The fastest of the plans by this rule that fits; None where none does. `end` is of
    `time.monotonic`; at least one is made."""
    recipes, best = _by_price(timeline), None  # type: list[tuple[int, Choice]], _Made | None
    for depth in _DEPTHS:
        if best is not None and time.monotonic() > end:
            break
        made = _at_depth(timeline, scheduler, recipes, depth, end)
        if made is not None and (best is None or made.totals.seconds < best.totals.seconds):
            best = made
    return None if best is None else scheduler.run(best.choices)


def fitted(timeline: Timeline, scheduler: Scheduler, choices: Sequence[Choice]) -> Schedule | None:
    """These choices with the fewest further tensors swapped that make it fit; None where it does
    not."""
    chosen = {index: choice for index, choice in enumerate(choices) if choice != KEEP}
    made = _swapping(timeline, scheduler, chosen, float("inf"))
    return None if made is None else scheduler.run(made.choices)


def _at_depth(
    timeline: Timeline,
    scheduler: Scheduler,
    recipes: list[tuple[int, Choice]],
    depth: int,
    end: float,
) -> _Made | None:
    known: dict[int, _Made | None] = {}

    def tried(count: int) -> float:
        if count not in known:
            if known and time.monotonic() > end:
                return float("inf")
            chosen = _shallow(timeline, dict(recipes[:count]), depth)
            known[count] = _swapping(timeline, scheduler, chosen, end)
        made = known[count]
        return float("inf") if made is None else made.totals.seconds

    step = max(len(recipes) // _SHARES, 1)
    counts = range(0, len(recipes) + step, step)
    # The time may end before all are tried.
    coarse_first = sorted(counts, key=lambda count: -_power_of_two_in(count // step))
    best = min(coarse_first, key=lambda count: tried(min(count, len(recipes))))
    best = min(best, len(recipes))
    for _ in range(_FINER):
        step = max(step // 2, 1)
        near = (max(best - step, 0), best, min(best + step, len(recipes)))
        best = min(near, key=tried)
    return known.get(best)


def _power_of_two_in(number: int) -> int:
    """The largest power of 2 that divides it, at most `_COARSEST`; 0 for 0, which comes last."""
    return min(number & -number, _COARSEST)


def _shallow(timeline: Timeline, chosen: dict[int, Choice], most: int) -> dict[int, Choice]:
    """Without the recipes that end a chain of more than so many."""
    depths: dict[int, int] = {}
    for index in sorted(chosen):
        inputs = _inputs(timeline, index, chosen[index])
        depth = 1 + max((depths.get(source, 0) for source in inputs), default=0)
        if depth <= most:
            depths[index] = depth
    return {index: chosen[index] for index in depths}


def _by_price(timeline: Timeline) -> list[tuple[int, Choice]]:
    """Saved tensors with their cheapest recipe or smaller form, by seconds for a byte.

    Of a form and a recipe that cannot read it, the cheaper one is among them.
    """
    found: list[tuple[float, int, Choice]] = []
    for index, one in enumerate(timeline.saved):
        if not one.movable or not one.nbytes:
            continue
        ways, need = [], one.first_use
        for number in available(timeline, one):
            recipe = one.recipes[number]
            added = timeline.added(need, recipe.seconds, recipe.host)
            ways.append((added / one.nbytes, Choice(Policy.REBUILD, number)))
        if one.squeeze is not None and one.squeeze.nbytes < one.nbytes:
            added = timeline.added(need, one.squeeze.seconds, one.squeeze.host)
            ways.append((added / (one.nbytes - one.squeeze.nbytes), SQUEEZE))
        found += [(price, index, choice) for price, choice in ways]
    chosen: dict[int, Choice] = {}
    read: set[int] = set()  # by recipes
    for _, index, choice in sorted(found, key=lambda one: one[:2]):
        inputs, partial = _inputs(timeline, index, choice), _is_partial(timeline, index)
        squeezed = choice == SQUEEZE and partial and index in read
        reads = any(chosen.get(i) == SQUEEZE and _is_partial(timeline, i) for i in inputs)
        if index not in chosen and not squeezed and not reads:
            chosen[index] = choice
            read.update(inputs)
    return list(chosen.items())


def _inputs(timeline: Timeline, index: int, choice: Choice) -> tuple[int, ...]:
    if choice.policy is not Policy.REBUILD:
        return ()
    return timeline.saved[index].recipes[choice.recipe].inputs


def _is_partial(timeline: Timeline, index: int) -> bool:
    """Whether recipes cannot read what the tensor's smaller form gives back."""
    squeeze = timeline.saved[index].squeeze
    return squeeze is not None and not squeeze.whole


def _swapping(
    timeline: Timeline, scheduler: Scheduler, chosen: dict[int, Choice], end: float
) -> _Made | None:
    """The schedule with the fewest swapped tensors that fits."""
    order = _by_absence(timeline, scheduler.link, chosen)
    unmoved = [chosen.get(index, KEEP) for index in range(len(timeline.saved))]

    def swapping(count: int) -> _Made:
        choices = list(unmoved)
        for index in order[:count]:
            choices[index] = SWAP
        return _Made(choices, scheduler.totals(choices))

    low, high = 0, len(order)
    best = swapping(high)
    if best.totals.peak_bytes > scheduler.limit:
        return None
    while low < high and time.monotonic() < end:
        middle = (low + high) // 2
        made = swapping(middle)
        if made.totals.peak_bytes <= scheduler.limit:
            best, high = made, middle
        else:
            low = middle + 1
    return best


def _by_absence(timeline: Timeline, link: Link, chosen: dict[int, Choice]) -> Sequence[int]:
    """Movable tensors without another choice, those first whose copies cost the host least for a
    byte, and of them the longest unread."""
    starts = timeline.starts
    free = [
        index
        for index, one in enumerate(timeline.saved)
        if one.movable and one.nbytes and index not in chosen
    ]

    def price(index: int) -> tuple[float, float]:
        one = timeline.saved[index]
        copies = (one.produced + 1, one.first_use)
        added = sum(timeline.added(position, 0.0, link.host) for position in copies)
        return added / one.nbytes, starts[one.last_forward_use + 1] - starts[one.first_use]

    return sorted(free, key=price)
