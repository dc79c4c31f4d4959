"""Blocks of a step that repeat: their tensors are decided together, their positions checked once.

A network of hundreds of equal blocks has few different decisions. A run of equal blocks is divided
into `_KINDS` spans; in each span every `_BLOCKS` blocks have the same policies, and the limit is
checked where the span's last blocks run, in forward and in backward: there it holds the most.
"""

from __future__ import annotations

from dataclasses import dataclass

from oocdnn.network.timeline import Saved, Timeline

_BLOCKS = 4  # that follow one another and are decided apart
_KINDS = 8  # spans of one run
_LEAST_UNITS = 4  # units of blocks in a run; a shorter one is left as it is
_LONGEST = 48  # saved tensors of one block
_NEAR = 0.02  # difference of the times of equal recipes


@dataclass
class Alike:
    """For each saved tensor the one that is decided for it, and for each position the one that is
    checked for it."""

    decided: list[int]
    checked: list[int]


def alike(timeline: Timeline) -> Alike:
    saved = timeline.saved
    found = Alike(list(range(len(saved))), list(range(len(timeline.operations))))
    begin = 1
    while begin < len(saved):
        period, count = _run(saved, begin)
        if count // _BLOCKS >= _LEAST_UNITS:
            _tie(saved, begin, period, count // _BLOCKS, found)
            begin += period * count
        else:
            begin += 1
    return found


def _run(saved: tuple[Saved, ...], begin: int) -> tuple[int, int]:
    """The shortest period of a run that begins here, and the number of its blocks."""
    for period in range(1, min(_LONGEST, (len(saved) - begin) // 2) + 1):
        end = begin + period
        while end < len(saved) and _same(saved, end - period, end, begin):
            end += 1
        count = (end - begin) // period
        if count >= _BLOCKS * _LEAST_UNITS and _steady(saved, begin, period, count):
            return period, count
    return 1, 1


def _same(saved: tuple[Saved, ...], i: int, j: int, begin: int) -> bool:
    a, b = saved[i], saved[j]
    return (
        (a.nbytes, a.movable, len(a.uses)) == (b.nbytes, b.movable, len(b.uses))
        and a.last_forward_use - a.produced == b.last_forward_use - b.produced
        and a.last_use - a.first_use == b.last_use - b.first_use
        and _form(a) == _form(b)
        and len(a.recipes) == len(b.recipes)
        and all(
            len(r.inputs) == len(s.inputs)
            and all(i - x == j - y or x < begin for x, y in zip(r.inputs, s.inputs, strict=True))
            and abs(r.seconds - s.seconds) <= _NEAR * r.seconds
            for r, s in zip(a.recipes, b.recipes, strict=True)
        )
    )


def _form(one: Saved) -> tuple[int, bool] | None:
    return None if one.squeeze is None else (one.squeeze.nbytes, one.squeeze.whole)


def _steady(saved: tuple[Saved, ...], begin: int, period: int, count: int) -> bool:
    """True where each block lies as far from the next as the first from the second."""
    forward = saved[begin + period].produced - saved[begin].produced
    backward = saved[begin].last_use - saved[begin + period].last_use
    return all(
        saved[i + period].produced - saved[i].produced == forward
        and saved[i].last_use - saved[i + period].last_use == backward
        for i in range(begin, begin + period * (count - 1))
    )


def _tie(saved: tuple[Saved, ...], begin: int, period: int, units: int, found: Alike) -> None:
    size = _BLOCKS * period
    forward = saved[begin + size].produced - saved[begin].produced
    backward = saved[begin].last_use - saved[begin + size].last_use
    kinds = min(_KINDS, units // 2)
    for kind in range(kinds):
        first, after = (units * (kind + i) // kinds for i in (0, 1))
        last = after - 1
        for unit in range(first, last):
            start = begin + unit * size
            for i in range(size):
                found.decided[start + i] = begin + last * size + i
            for i in range(forward):
                here = saved[start].produced + i
                found.checked[here] = here + (last - unit) * forward
            for i in range(backward):
                here = saved[start].last_use - i
                found.checked[here] = here - (last - unit) * backward
