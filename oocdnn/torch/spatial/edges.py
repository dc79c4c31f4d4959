"""The rows at the ends of a process's local ones whose convolution reads other processes' rows.

Copying a large tensor to put the halo beside it takes a seventh of the convolution's time. So the
local rows are computed as they are, with zeros in the place of the halo, and the few rows at both
ends are computed again with the halo.
"""

from dataclasses import dataclass
from functools import lru_cache

from oocdnn.torch.spatial.layout import Layout, Rows
from oocdnn.torch.spatial.windows import TransposedInputs, TransposedWindow, Window


@dataclass(frozen=True)
class Edge:
    """One end of a process's rows. Ranges may be empty.

    outputs: Local output rows that read other processes' input rows. inputs: All rows that these
    read; the same as `gradients` where there are none. others: Output rows of other processes that
    read local input rows. gradients: These input rows, whose gradients are computed from `spread`.
    """

    outputs: Rows
    inputs: Rows
    others: Rows
    gradients: Rows
    spread: TransposedInputs | None


@dataclass(frozen=True)
class Edges:
    """Both ends of a process's rows, and the padding with which all of them are computed first."""

    first: Edge
    last: Edge
    padding: int


def _edge(window: Window, outputs: Rows, total: int, others: Rows, gradients: Rows) -> Edge:
    inputs = window.inputs(outputs) if outputs[0] < outputs[1] else gradients
    spread = TransposedWindow(window).inputs(gradients, total) if others[0] < others[1] else None
    return Edge(outputs, inputs, others, gradients, spread)


@lru_cache(maxsize=1024)
def edges_of(window: Window, inputs: Layout, outputs: Layout) -> tuple[Edges, ...] | None:
    """The edges of each process. None where some process has too few rows, or where its rows
    cannot be computed with the same padding at both ends."""
    found = []
    for own, out in zip(inputs.owned, outputs.owned, strict=True):
        edges = _edges(window, own, out, inputs.total, outputs.total)
        if edges is None:
            return None
        found.append(edges)
    return tuple(found)


def _edges(window: Window, own: Rows, out: Rows, length: int, total: int) -> Edges | None:
    (a, b), (low, high) = own, out
    w = window
    padding = a - (low * w.stride - w.before)
    if a == b or low == high or padding < 0:
        return None
    if (b - a + 2 * padding - w.reach) // w.stride + 1 != high - low:
        return None
    # Ends of the whole tensor have no others beyond them.
    begins = min(max(-(-(a + w.before) // w.stride), low), high) if a else low
    ends = min(max((b + w.before - w.reach) // w.stride + 1, low), high) if b < length else high
    before = max(-(-(a + w.before - w.reach + 1) // w.stride), 0) if a else low
    after = min((b - 1 + w.before) // w.stride + 1, total) if b < length else high
    before, after = min(before, low), max(after, high)
    touched = (a, (low - 1) * w.stride - w.before + w.reach) if before < low else (a, a)
    reached = (high * w.stride - w.before, b) if high < after else (b, b)
    first = _edge(w, (low, begins), total, (before, low), touched)
    last = _edge(w, (ends, high), total, (high, after), reached)
    fits = first.inputs[1] <= b and last.inputs[0] >= a and touched[1] <= b and reached[0] >= a
    for spread, limits in ((first.spread, (before, high)), (last.spread, (low, after))):
        if spread is not None:
            fits = fits and limits[0] <= spread.rows[1][0] and spread.rows[1][1] <= limits[1]
    return Edges(first, last, padding) if fits else None
