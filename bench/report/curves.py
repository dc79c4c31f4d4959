"""The curve of a network's time for each image by the size of the batch, as inline SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oocdnn.bench.network import TEXT
from oocdnn.bench.report.figures import HEIGHT, drawing, line, shade, si, text, word
from oocdnn.bench.results import Row, verdict

FLOOR = "floor"
Point = tuple[int, float]  # images, and seconds for each


def batch_of(row: Row) -> int | None:
    """The images of a network's batch; None for another problem."""
    found = TEXT.fullmatch(row["problem"])
    return int(found[1]) if found else None


def networks(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each network, whatever the batch, on one device and from one placement."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if batch_of(row) is not None:
            _, _, rest = row["problem"].partition("x3x")
            groups.setdefault((rest, row["device"], row["placement"]), []).append(row)
    return list(groups.values())


def by_who(rows: Sequence[Row]) -> dict[str, list[Point]]:
    """The points of each, by size; those of the floor too."""
    found: dict[str, list[Point]] = {}
    for row in rows:
        batch = batch_of(row)
        if batch is None or verdict(row) != "pass" or not row["seconds"]:
            continue
        found.setdefault(row["who"], []).append((batch, row["seconds"] / batch))
        if row["who"] == "oocdnn" and row["floor_seconds"]:
            found.setdefault(FLOOR, []).append((batch, row["floor_seconds"] / batch))
    return {who: sorted(points) for who, points in found.items()}


@dataclass(frozen=True)
class _Scale:
    """Batches by their logarithm, with room at either end, and times from 0."""

    least: int
    most: int
    longest: float

    def __call__(self, point: Point) -> tuple[float, float]:
        batch, seconds = point
        span = math.log2(self.most / self.least) or 1.0
        across = math.log2(batch / self.least) / span if self.most > self.least else 0.5
        return 4 + 92 * across, HEIGHT * (1 - seconds / self.longest)


def curve(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """One network; of `group` there must be a point. `rows` are all of the page."""
    found = by_who(group)
    every = [point for points in found.values() for point in points]
    batches = sorted({batch for batch, _ in every})
    step = _step(max(seconds for _, seconds in every))
    count = math.ceil(max(seconds for _, seconds in every) / step)
    scale = _Scale(batches[0], batches[-1], step * count)
    parts = []
    for i in range(count + 1):
        _, y = scale((batches[0], step * i))
        parts.append(line("grid", (0, y), (100, y)))
        label = si(step * i, "s") if i else "0"
        parts.append(word(label, 0, y + 4, ' class="name" dx="-6"'))
    for batch in batches:
        x, _ = scale((batch, 0.0))
        parts.append(word(str(batch), x, HEIGHT + 16, ' class="middle"'))
    parts.append(word("images", 100, HEIGHT + 32, ' class="name"'))
    for who, points in found.items():
        parts += _path(who, points, scale, rows)
    return drawing("seconds for each image by batch", HEIGHT, "roofline", parts)


def _step(longest: float) -> float:
    """Between lines: 1, 2 or 5 of a power of ten, of which some four make the longest."""
    power = 10.0 ** math.floor(math.log10(longest / 4))
    return next(power * one for one in (1, 2, 5, 10) if power * one >= longest / 4)


def _path(who: str, points: Sequence[Point], scale: _Scale, rows: Sequence[Row]) -> list[str]:
    """A line through the points of one, with discs; of the floor without."""
    kind = "floor" if who == FLOOR else f"path {shade(who, rows)}"
    places = [scale(point) for point in points]
    parts = [line(kind, a, b) for a, b in pairwise(places)]
    if who == FLOOR:
        return parts
    for (batch, seconds), (x, y) in zip(points, places, strict=True):
        tip = f"<title>{text(who)}, batch {batch}: {si(seconds, 's')} for an image</title>"
        kind = f"{shade(who, rows)} point"
        parts.append(f'<circle class="{kind}" cx="{x:.2f}%" cy="{y:.1f}" r="5">{tip}</circle>')
    return parts
