"""The drawings of the page of results: inline SVG, as `oocdnn._page` has it."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from oocdnn._page import PALETTE, drawing, line, si, text, unit_prefix, word
from oocdnn._shown import bytes_text
from oocdnn.bench.results import About, Row, verdict

# A name that is listed has its colour on every page, others take the next; after the last the
# first.
NAMES = ("oocdnn", "whole", "torch", "copies", "zero-copy", "managed", "prefetch", "in-core")
# Those of networks have the colours of those of convolutions.
ALIKE = {"save-on-cpu": "copies", "checkpoint": "zero-copy", "accumulate": "managed"}
IN_CORE = ("torch",)  # who has the arrays where it computes
WIRES = {"both": "both ways at once", "inward": "inward", "outward": "outward"}

LONGEST = 12.0  # times the floor; a longer bar is cut here
BAR, PITCH = 14, 20  # pixels
HEIGHT = 340  # of the roofline
LETTERS = 16  # of a name beside a bar

Series = tuple[str, int]  # who, and the budget where it tells results apart, else 0


def shade(who: str, rows: Iterable[Row]) -> str:
    """The class that colours a peer, wherever it is drawn."""
    names = list(dict.fromkeys([*NAMES, *(ALIKE.get(row["who"], row["who"]) for row in rows)]))
    return f"c{names.index(ALIKE.get(who, who)) % len(PALETTE)}"


def over_floor(row: Row) -> float | None:
    """Time over the floor, of results that count."""
    if verdict(row) != "pass" or not row["seconds"] or not row["floor_seconds"]:
        return None
    return row["seconds"] / row["floor_seconds"]


def in_core_seconds(group: Iterable[Row]) -> float | None:
    """Of who has the arrays where it computes, among the rows of a problem."""
    found = (row["seconds"] for row in group if row["who"] in IN_CORE and verdict(row) == "pass")
    return next((seconds for seconds in found if seconds), None)


def instead(row: Row) -> str:
    """What stands where a bar would, had the row one."""
    if verdict(row) != "pass":
        return verdict(row)
    return "no floor" if row["seconds"] else "no time"


def spread(row: Row) -> tuple[float, float]:
    """The 95 % interval of what `over_floor` gives."""
    middle, noise = over_floor(row) or 0.0, row["noise"] or 0.0
    return middle * (1 - noise), middle * (1 + noise)


def longest(rows: Iterable[Row]) -> float:
    """Where the axis of the bars ends, in times of the floor."""
    return min(max([1.2, *(spread(row)[1] for row in rows)]), LONGEST)


def ticks(end: float) -> list[float]:
    """Of the axis of the bars; 1 is one of them."""
    step = 0.5 if end <= 3 else 1.0 if end <= 6 else 2.0
    return sorted({1.0, *(step * i for i in range(int(end / step) + 1))})


def axis(end: float) -> str:
    """The scale above the bars."""
    marks = (word(f"{tick:g}", 100 * tick / end, 12, ' class="middle"') for tick in ticks(end))
    return drawing("times the floor", 20, "bars axis", marks)


def bars(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """One problem: a bar for each row of `group`, on the scale that `rows` share."""
    end, height = longest(rows), PITCH * len(group)
    parts = [
        line("floor" if tick == 1 else "grid", (100 * tick / end, 0), (100 * tick / end, height))
        for tick in ticks(end)
    ]
    for number, (row, name) in enumerate(zip(group, labels(group), strict=True)):
        parts += _bar(row, name, shade(row["who"], rows), end, PITCH * number)
    return drawing(f"times the floor: {group[0]['problem']}", height, "bars", parts)


def label(row: Row) -> str:
    """Who a row is by, and whether its arrays were on the GPU already, so that no wire counts."""
    here = row["who"] in IN_CORE and row["device"].startswith("cuda")
    return f"{row['who']}, in core" if here else row["who"]


def labels(group: Sequence[Row]) -> list[str]:
    """Who each row is by; with the budget where there are several."""
    return [
        with_budget(label(row), budget)
        for row, budget in zip(group, telling_budgets(group), strict=True)
    ]


def telling_budgets(rows: Sequence[Row]) -> list[int]:
    """The budget of each row, as far as it tells results apart: 0 where who the row is by has none,
    or one for each problem, which may be another for the next."""
    found = defaultdict[tuple[str, ...], set[int]](set)
    for row in rows:
        if row["budget"]:
            place = (row["who"], row["problem"], row["device"], row["placement"])
            found[place].add(row["budget"])
    several = {who for (who, *_), budgets in found.items() if len(budgets) > 1}
    return [row["budget"] if row["who"] in several else 0 for row in rows]


def series_of(rows: Sequence[Row]) -> list[Series]:
    """What each row is one of: a column of a table, a curve."""
    return [(row["who"], budget) for row, budget in zip(rows, telling_budgets(rows), strict=True)]


def with_budget(name: str, budget: int) -> str:
    return f"{name} {bytes_text(budget)}" if budget else name


def _bar(row: Row, name: str, kind: str, end: float, top: float) -> list[str]:
    ratio, base = over_floor(row), top + 0.7 * PITCH
    short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    parts = [word(short, 0, base, ' class="name" dx="-8"')]
    if ratio is None:
        return [*parts, word(instead(row), 0, base, ' class="instead" dx="6"')]
    low, high = (min(value, end) for value in spread(row))
    width, middle = 100 * min(ratio, end) / end, top + PITCH / 2
    figure = f"{ratio:.{2 if ratio < 100 else 0}f}"
    tip = text(f"{name}: {si(row['seconds'] or 0, 's')}, {figure} times the floor")
    return [
        *parts,
        f'<rect class="{kind}" x="0" y="{top + (PITCH - BAR) / 2:g}" width="{width:.3f}%" '
        f'height="{BAR}"><title>{tip}</title></rect>',
        line("whisker", (100 * low / end, middle), (100 * high / end, middle)),
        word(f"{'» ' if ratio > end else ''}{figure}", 100 * high / end, base, ' dx="5"'),
    ]


def points(rows: Iterable[Row]) -> list[tuple[Row, float, float]]:
    """The rows of the roofline, with operations per byte and per second. A network has no place
    there: what its layers read crosses several times."""
    return [
        (row, row["flops"] / row["data_bytes"], row["flops"] / row["seconds"])
        for row in rows
        if row["who"] in ("oocdnn", "whole") and verdict(row) == "pass"
        if ":train " not in row["problem"]
        if row["seconds"] and row["flops"] and row["data_bytes"]
    ]


def wire(about: About) -> str | None:
    """Which of the wire's rates makes the slope of the roof."""
    return next((name for name in WIRES if about["rates"].get(name)), None)


class Scale:
    """Two logarithmic axes of whole decades, which hold all that they are given."""

    def __init__(self, xs: Iterable[float], ys: Iterable[float]) -> None:
        self.x, self.y = _decades(xs), _decades(ys)
        self.left, self.right = 10.0 ** self.x[0], 10.0 ** self.x[-1]
        self.bottom, self.top = 10.0 ** self.y[0], 10.0 ** self.y[-1]

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        """In per cent from the left and pixels from the top."""
        across = math.log(x / self.left) / math.log(self.right / self.left)
        up = math.log(y / self.bottom) / math.log(self.top / self.bottom)
        return 100 * across, HEIGHT * (1 - up)


def _decades(values: Iterable[float]) -> range:
    logarithms = [math.log10(value) for value in values]
    first = math.floor(min(logarithms))
    return range(first, max(math.ceil(max(logarithms)), first + 1) + 1)


def roofline(rows: Sequence[Row], about: About) -> str:
    """Points under the roof that the rates make; of `rows` there must be one that is a point."""
    found, rates = points(rows), about["rates"]
    level, slope = rates.get("arithmetic"), rates.get(wire(about) or "")
    xs, ys = [x for _, x, _ in found], [y for *_, y in found]
    if level:
        ys.append(level)
    if level and slope:
        xs.append(level / slope)
    scale = Scale(xs, ys)
    parts = [*_lattice(scale), *_roof(scale, level, slope)]
    parts += [_mark(row, scale(x, y), shade(row["who"], rows)) for row, x, y in found]
    return drawing("operations per second by operations per byte", HEIGHT, "roofline", parts)


def _lattice(scale: Scale) -> list[str]:
    parts = []
    for exponent in scale.x:
        x, _ = scale(10.0**exponent, scale.bottom)
        parts.append(line("grid", (x, 0), (x, HEIGHT)))
        parts.append(word(_power(exponent), x, HEIGHT + 16, ' class="middle"'))
    for exponent in scale.y:
        _, y = scale(scale.left, 10.0**exponent)
        parts.append(line("grid", (0, y), (100, y)))
        parts.append(word(_power(exponent), 0, y + 4, ' class="name" dx="-6"'))
    parts.append(word("FLOP/s", 0, -12, ' class="name"'))
    parts.append(word("FLOP per byte", 100, HEIGHT + 32, ' class="name"'))
    return parts


def _power(exponent: int) -> str:
    """1, 10, 100, 1 k, 10 k"""
    zeros, prefix = unit_prefix(exponent)
    return f"{10.0**zeros:g} {prefix}".strip()


def _roof(scale: Scale, level: float | None, slope: float | None) -> list[str]:
    parts = []
    if slope:
        start = max(scale.left, scale.bottom / slope)
        stop = min(scale.right, (level or scale.top) / slope)
        if start < stop:
            parts.append(line("slope", scale(start, start * slope), scale(stop, stop * slope)))
    if level:
        start = level / slope if slope else scale.left
        parts.append(line("level", scale(start, level), scale(scale.right, level)))
    return parts


def _mark(row: Row, place: tuple[float, float], kind: str) -> str:
    """A disc, for "whole" a square."""
    x, y = place
    tip = f"<title>{text(row['who'])}: {text(row['layer'])}, {text(row['problem'])}</title>"
    if row["who"] == "whole":
        size = 'width="9" height="9" transform="translate(-4.5 -4.5)"'
        return f'<rect class="{kind} point" x="{x:.2f}%" y="{y:.1f}" {size}>{tip}</rect>'
    return f'<circle class="{kind} point" cx="{x:.2f}%" cy="{y:.1f}" r="5">{tip}</circle>'
