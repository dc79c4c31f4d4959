"""Results as Markdown, for documents: of few problems a line for each, of many how they lie over
the floor."""

from collections.abc import Iterator, Sequence

from oocdnn._page import si
from oocdnn._shown import bytes_text
from oocdnn.bench.report.curves import batch_of
from oocdnn.bench.report.figures import Series, in_core_seconds, labels, over_floor, series_of
from oocdnn.bench.report.summary import summaries
from oocdnn.bench.results import Row, shown_seconds, verdict

MANY = 16  # problems


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """One for each set and type."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        name = row["set"] or "problems"
        groups.setdefault((name, row["dtype"], row["placement"], row["device"]), []).append(row)
    for place, group in groups.items():
        yield f"**{', '.join(place)}**\n"
        problems = {row["problem"] for row in group}
        yield from _short(group) if len(problems) > MANY else _whole(group)
        yield ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(rows: Sequence[Row]) -> Iterator[str]:
    yield _line(("by", "results", "median over floor", "nine in ten", "worst", "together"))
    yield "|---|---|---|---|---|---|"
    for one in summaries(rows):
        ratios = (one.median, one.ninth, one.worst, one.total)
        yield _line((one.name, str(one.count), *(f"{ratio:.2f}" for ratio in ratios)))


def _whole(rows: Sequence[Row]) -> Iterator[str]:
    """Of each problem the time of everyone, and how many times the floor that is; of a network for
    an image, and how many times torch's in core."""
    columns: dict[Series, str] = {}
    lines: dict[str, dict[Series, Row]] = {}
    for row, name, series in zip(rows, labels(rows), series_of(rows), strict=True):
        columns.setdefault(series, name)
        lines.setdefault(row["problem"], {})[series] = row
    network = batch_of(rows[0]) is not None
    yield _line(("problem", "data", "floor", *columns.values()))
    yield "|---" * (3 + len(columns)) + "|"
    for problem, group in lines.items():
        first = next(iter(group.values()))
        in_core = in_core_seconds(group.values()) if network else None
        floor = first["floor_seconds"]
        cells = [_time(group[one], in_core, network) if one in group else "–" for one in columns]
        images = (batch_of(first) or 1) if network else 1
        shown = si(floor / images, "s") if floor else "–"
        yield _line((first["layer"] or problem, bytes_text(first["data_bytes"]), shown, *cells))


def _time(row: Row, in_core: float | None, network: bool) -> str:
    seconds = shown_seconds(row)
    if seconds is None:
        return verdict(row)
    images = (batch_of(row) or 1) if network else 1
    time = si(seconds / images, "s")
    if verdict(row) != "pass":
        return f"{verdict(row)}: {time}"
    ratio = seconds / in_core if in_core else None if network else over_floor(row)
    peak = f", {bytes_text(row['peak_device_bytes'])}" if row["peak_device_bytes"] else ""
    return f"{time} ({ratio:.2f}{peak})" if ratio else f"{time}{peak}"
