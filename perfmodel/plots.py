"""Drawings of a validation, each an SVG of its own: predicted against measured, how large errors
are, and how much faster other plans were."""

import math
from collections.abc import Iterable, Iterator, Sequence

from oocdnn._page import PALETTE, line, si, text, word
from oocdnn.bench.report.figures import HEIGHT, Scale
from oocdnn.perfmodel.validation import WITHIN, Measured, Regret, groups

WIDTH, LEFT, TOP, BOTTOM, RIGHT = 720, 70, 56, 52, 30
WIDEST = 0.4  # |error| at which the axis ends
MEDIAN, PERCENTILE = 0.08, 0.20  # what the median and the 95th percentile are to keep
STYLE = """text { font: 13px system-ui, sans-serif; fill: #1b1f24; }
.title { font-size: 15px; } .name { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: #d9dee3; } .mark { stroke: #1b1f24; stroke-dasharray: 5 3; }
polyline { fill: none; stroke-width: 2; } circle { fill-opacity: .7; }"""
Place = tuple[float, float]  # in per cent from the left and pixels from the top


def colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)][0]


def document(title: str, names: Sequence[str], parts: Iterable[str]) -> str:
    """A whole file; `names` are the legend's, in the order of the colours."""
    width, height = WIDTH + LEFT + RIGHT, HEIGHT + TOP + BOTTOM
    legend = "".join(
        f'<tspan dx="{18 if i else 0}" style="fill: {colour(i)}">{text(name)}</tspan>'
        for i, name in enumerate(names)
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">\n'
        f'<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text class="title" x="{LEFT}" y="22">{text(title)}</text>\n'
        f'<text x="{LEFT}" y="42">{legend}</text>\n'
        f'<svg x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" overflow="visible">\n'
        f"{body}\n</svg>\n</svg>\n"
    )


def point(place: Place, number: int, tip: str) -> str:
    x, y = place
    title = f"<title>{text(tip)}</title>"
    return f'<circle cx="{x:.2f}%" cy="{y:.1f}" r="4" fill="{colour(number)}">{title}</circle>'


def curve(places: Iterable[Place], number: int) -> str:
    """A line through places; polylines know no per cent."""
    points = " ".join(f"{x * WIDTH / 100:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{points}" stroke="{colour(number)}"/>'


def across(marks: Iterable[tuple[float, str]], label: str) -> Iterator[str]:
    """Grid lines from top to bottom, with what stands below each, and the axis' own name."""
    for x, name in marks:
        yield line("grid", (x, 0), (x, HEIGHT))
        yield word(name, x, HEIGHT + 18, ' class="middle"')
    yield word(label, 100, HEIGHT + 40, ' class="name"')


def upward(marks: Iterable[tuple[float, str]]) -> Iterator[str]:
    """Grid lines from left to right, with what stands beside each."""
    for y, name in marks:
        yield line("grid", (0, y), (100, y))
        yield word(name, 0, y + 4, ' class="name" dx="-6"')


def predicted(measured: Sequence[Measured]) -> str:
    """Each case by its measured and its predicted seconds; on the line they are the same."""
    ends = [value for one in measured for value in (one.seconds, one.predicted_seconds)]
    scale = Scale(ends, ends)
    decades = [10.0**exponent for exponent in scale.x]
    parts = [
        *across(((scale(t, t)[0], si(t, "s")) for t in decades), "measured"),
        *upward((scale(t, t)[1], si(t, "s")) for t in decades),
        line("mark", scale(decades[0], decades[0]), scale(decades[-1], decades[-1])),
    ]
    for one in measured:
        place = scale(one.seconds, one.predicted_seconds)
        tip = f"{one.error:+.1%} {one.problem} in {one.budget}"
        parts.append(point(place, int(one.bound == "compute"), tip))
    names = ["bound by wires", "bound by arithmetic"]
    return document(f"Predicted against measured, {len(measured)} cases", names, parts)


def errors(measured: Sequence[Measured]) -> str:
    """The share of cases whose error is no larger, for each group that is summed up."""
    some = groups(measured)

    def place(error: float, share: float) -> Place:
        return 100 * min(error, WIDEST) / WIDEST, HEIGHT * (1 - share)

    tenths = range(round(10 * WIDEST) + 1)
    parts = [
        *across(((place(i / 10, 0)[0], f"{10 * i} %") for i in tenths), "|error|"),
        *upward((place(0, i / 4)[1], f"{25 * i} %") for i in range(5)),
    ]
    for error, share in ((MEDIAN, 0.5), (PERCENTILE, 0.95)):
        x, y = place(error, share)
        parts += [line("mark", (x, HEIGHT), (x, y)), line("mark", (0, y), (x, y))]
    for number, group in enumerate(some.values()):
        ordered = sorted(abs(one.error) for one in group)
        shares = [place(error, (i + 1) / len(ordered)) for i, error in enumerate(ordered)]
        parts.append(curve([place(0, 0), *shares], number))
    return document("Share of cases within an error of prediction", list(some), parts)


def ticks(most: float) -> list[float]:
    """Of an axis from 1 to `most`: between five and ten or so."""
    step = 10.0 ** math.floor(math.log10((most - 1) / 2))
    step *= next(many for many in (1, 2, 5, 10) if (most - 1) / (many * step) <= 10)
    return [1 + step * i for i in range(int((most - 1) / step) + 1)]


def regrets(found: Sequence[Regret]) -> str:
    """Each case by the time of its plan over that of the best, the largest last."""
    ordered = sorted(found, key=lambda one: one.ratio)
    most = max([2 * WITHIN - 1, *(one.ratio for one in ordered)])

    def height(ratio: float) -> float:
        return HEIGHT * (most - ratio) / (most - 1)

    parts = [
        *across([], "cases"),
        *upward((height(tick), f"{tick:.4g}") for tick in ticks(most)),
        line("mark", (0, height(WITHIN)), (100, height(WITHIN))),
    ]
    for i, one in enumerate(ordered):
        x = 100 * (i + 0.5) / len(ordered)
        parts.append(point((x, height(one.ratio)), 0, f"{one.problem} in {one.budget}"))
    return document("Time of the chosen plan over the best of all measured", [], parts)
