"""What fetch, compute and drain did in one call of ours: recorded, and drawn as inline SVG."""

from collections.abc import Iterable, Sequence
from typing import TypedDict

import oocdnn
from oocdnn._page import drawing, si, text, time_axis, word
from oocdnn.bench.results import Row, verdict
from oocdnn.bench.task import Convolution
from oocdnn.cli.timeline import Spans, tracks

TRACKS = ("fetch", "compute", "drain")
ENOUGH = 8  # tiles, to see how they overlap
MOST = 100  # that can be told apart
ROW, BAR = 30, 20  # pixels


class Timeline(TypedDict):
    """Of one call: its problem and budget in bytes, and by engine the begin and the length of each
    piece of work, in seconds from the first on."""

    problem: str
    budget: int
    spans: dict[str, list[tuple[float, float]]]


def fit(rows: Iterable[Row]) -> Row | None:
    """The row of ours to be looked at: with a number of tiles that shows how they overlap; of those
    the least data, because it is made anew. Traces are of one device."""
    traced = [row for row in rows if row["tiles"] > 1 and "," not in row["device"]]
    ours = [row for row in traced if verdict(row) == "pass"]
    good = [row for row in ours if ENOUGH <= row["tiles"] <= MOST]
    return min(good or ours, key=lambda row: row["data_bytes"], default=None)


def record(row: Row) -> Timeline:
    """Runs its problem again, twice, and gives what the second call did."""
    subject = Convolution(row["problem"])
    pinned = row["placement"] == "pinned"
    with oocdnn.Context(row["device"], row["budget"], math=subject.math, trace=True) as context:
        call = subject.task(context, pinned).call(context)
        call()
        context.take_trace()
        call()
        found, _ = tracks(context.take_trace())
    return Timeline(problem=row["problem"], budget=row["budget"], spans=_from_first(found))


def _from_first(found: Spans) -> dict[str, list[tuple[float, float]]]:
    first = min(begin for spans in found.values() for _, begin, _ in spans)
    return {
        track: [(begin - first, length) for _, begin, length in found.get(track, [])]
        for track in TRACKS
    }


def end(timeline: Timeline) -> float:
    return max(begin + length for spans in timeline["spans"].values() for begin, length in spans)


def draw(timeline: Timeline) -> str:
    whole = end(timeline)
    parts = time_axis(whole, ROW * len(TRACKS))
    for row, track in enumerate(TRACKS):
        top = ROW * row + (ROW - BAR) / 2
        parts.append(word(track, 0, top + 0.75 * BAR, ' class="name" dx="-8"'))
        parts += _bars(track, timeline["spans"][track], whole, top)
    return drawing("when each engine worked", ROW * len(TRACKS) + 20, "bars", parts)


def _bars(track: str, spans: Sequence[tuple[float, float]], whole: float, top: float) -> list[str]:
    """Of two shades in turn, so that neighbours are told apart."""
    parts = []
    for i, (begin, length) in enumerate(spans):
        when = f"{si(length, 's')} from {si(begin, 's') if begin else '0 s'} on"
        tip = f"<title>{text(track)} {i}: {when}</title>"
        place = f'x="{100 * begin / whole:.3f}%" width="{100 * length / whole:.3f}%"'
        shade = "c0" if i % 2 == 0 else "c6"
        parts.append(f'<rect class="{shade}" {place} y="{top:g}" height="{BAR}">{tip}</rect>')
    return parts
