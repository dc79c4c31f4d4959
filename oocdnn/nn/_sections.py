"""Which of the links of a run keep what they make while they train."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oocdnn._calls.call_geometry import Shape
from oocdnn.arrays import View
from oocdnn.chain import Link, make_all
from oocdnn.chain_gradients import Need
from oocdnn.errors import OutOfMemory, Unsupported
from oocdnn.nn._chain_prices import chain_seconds, gradient_seconds

# Every link more spares a copy and costs some arithmetic: where so many have made a section no
# better, longer ones are not looked at.
_PATIENCE = 3


class Cut(NamedTuple):
    """Links [begin, end) as a section, and whether it saves what its last one does."""

    begin: int
    end: int
    saves: bool


Way = tuple[float, list[Cut]]  # seconds, and how


def cuts_by(again: Sequence[bool]) -> Iterator[Cut]:
    """By link, whether what it makes is computed again."""
    begin = 0
    for i, one in enumerate(again):
        if not one or i + 1 == len(again):
            yield Cut(begin, i + 1, not one)
            begin = i + 1


def choose(like: View, links: Sequence[Link]) -> list[Cut]:
    """The cuts that are predicted to take the least time together, forward and backward, for an x
    like this array. Each link by itself where nothing else is known to fit, and on a GPU, where no
    wire is between."""
    if like.stream is not None:
        return list(cuts_by([False] * len(links)))
    shapes = [like.shape, *(one.shape for one in make_all(links, like.shape))]
    best: list[Way] = [(0.0, [])]  # to the end of each link
    for end in range(1, len(links) + 1):
        own = (math.inf, [*best[-1][1], Cut(end - 1, end, True)])
        longer = 0  # sections that were looked at since the best
        for begin in reversed(range(end)):
            seconds, cuts = best[begin]
            for cut in _cuts(begin, end, len(links)):
                price = _seconds(like, shapes[begin], links[begin:end], cut.saves)
                if seconds + price < own[0]:
                    own, longer = (seconds + price, [*cuts, cut]), -1
            longer += 1
            if longer == _PATIENCE:
                break
        best.append(own)
    return best[-1][1]


def _cuts(begin: int, end: int, count: int) -> list[Cut]:
    """Before others a section must save."""
    return [Cut(begin, end, saves) for saves in ((True,) if end < count else (True, False))]


def _seconds(like: View, shape: Shape, links: Sequence[Link], saves: bool) -> float:
    """Infinity for what does not fit."""
    together: list[Need] = ["dx", "dw", "db"]

    def backward(*needs: Need) -> float:
        return gradient_seconds(like, shape, links, needs, saves)

    try:
        forward = chain_seconds(like, shape, links, saves)
        try:
            return forward + backward(*together)
        except (OutOfMemory, Unsupported):
            if len(links) > 1 or not saves:
                raise
        alone = together if links[0].b is not None else together[:2]  # a call for each
        return forward + sum(backward(need) for need in alone)
    except (OutOfMemory, Unsupported):
        return math.inf
