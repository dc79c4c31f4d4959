"""Results as Markdown, for documents: of few problems a line for each, of many how they lie over
the floor."""

from collections.abc import Iterator, Sequence

from oocdnn.bench.report.curves import batch_of
from oocdnn.bench.report.figures import in_core_seconds, label, over_floor, si
from oocdnn.bench.report.summary import summaries
from oocdnn.bench.results import TIMED, Row, verdict
from oocdnn.cli.common import bytes_text

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
        yield _line((one.who, str(one.count), *(f"{ratio:.2f}" for ratio in ratios)))


def _whole(rows: Sequence[Row]) -> Iterator[str]:
    """Of each problem the time of everyone, and how many times the floor that is; of a network for
    an image, and how many times torch's in core."""
    who = list(dict.fromkeys(row["who"] for row in rows))
    network = batch_of(rows[0]) is not None
    names = [label(next(row for row in rows if row["who"] == one)) for one in who]
    yield _line(("problem", "data", "floor", *names))
    yield "|---" * (3 + len(who)) + "|"
    for problem in dict.fromkeys(row["problem"] for row in rows):
        group = {row["who"]: row for row in rows if row["problem"] == problem}
        first = next(iter(group.values()))
        in_core = in_core_seconds(group.values()) if network else None
        floor = first["floor_seconds"]
        cells = [_time(group[one], in_core, network) if one in group else "–" for one in who]
        images = (batch_of(first) or 1) if network else 1
        shown = si(floor / images, "s") if floor else "–"
        yield _line((first["layer"] or problem, bytes_text(first["data_bytes"]), shown, *cells))


def _time(row: Row, in_core: float | None, network: bool) -> str:
    if verdict(row) not in TIMED or not row["seconds"]:
        return verdict(row)
    images = (batch_of(row) or 1) if network else 1
    time = si(row["seconds"] / images, "s")
    if verdict(row) != "pass":
        return f"{verdict(row)}: {time}"
    ratio = row["seconds"] / in_core if in_core else None if network else over_floor(row)
    peak = f", {bytes_text(row['peak_device_bytes'])}" if row["peak_device_bytes"] else ""
    return f"{time} ({ratio:.2f}{peak})" if ratio else f"{time}{peak}"
