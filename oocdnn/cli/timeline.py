"""Draws timelines: fetch, compute and drain of every tile, of a call from its Chrome trace, and of
a plan as it is predicted."""

import json
from pathlib import Path
from typing import Any

import click

from oocdnn._shown import bytes_text
from oocdnn.cli.common import value_errors_said
from oocdnn.plans import Interval, Plan

_TRACKS = ("fetch", "compute", "drain")

# Per track (event, begin, length), in seconds.
Spans = dict[str, list[tuple[str, float, float]]]


def tracks(trace: str) -> tuple[Spans, list[Any]]:
    """The spans, and the (time, bytes) of buffers held; in seconds."""
    events = json.loads(trace)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    spans: Spans = {}
    held = []
    for event in events:
        if event["ph"] == "X":
            track = names.get(event["tid"], str(event["tid"]))
            span = (event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
            spans.setdefault(track, []).append(span)
        elif event["ph"] == "C":
            held.append((event["ts"] / 1e6, event["args"]["bytes"]))
    return spans, held


def _pyplot() -> Any:
    """matplotlib.pyplot, for files."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        message = "pictures need matplotlib: pip install 'oocdnn[demo]'"
        raise click.ClickException(message) from error

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _ends(spans: Spans) -> tuple[float, float]:
    """When the first span begins and the last ends."""
    pieces = [span for track in spans.values() for span in track]
    begin = min((start for _, start, _ in pieces), default=0.0)
    return begin, max((start + length for _, start, length in pieces), default=begin)


def _draw_bars(axes: Any, spans: Spans, begin: float) -> None:
    """A row for each track, a bar for each span, from `begin` on."""
    known = [name for name in _TRACKS if name in spans]
    order = known + sorted(spans.keys() - set(known))
    colours = _pyplot().get_cmap("tab10")
    for row, name in enumerate(order):
        places = [(start - begin, length) for _, start, length in spans[name]]
        shades = [colours(i % 10) for i in range(len(places))]
        axes.broken_barh(places, (row - 0.4, 0.8), facecolors=shades, edgecolor="none")
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(False)


def draw(trace: str, title: str, budget: int, file: Path) -> None:
    """Writes the picture of a call."""
    plt = _pyplot()
    spans, held = tracks(trace)
    begin, end = _ends(spans)
    end -= begin
    figure, (bars, memory) = plt.subplots(
        2, 1, figsize=(14, 5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    _draw_bars(bars, spans, begin)
    bars.set_title(title, loc="left", fontsize=10)
    if held:
        times = [max(time - begin, 0.0) for time, _ in held] + [end]
        sizes = [count / 2**20 for _, count in [*held, held[-1]]]
        memory.fill_between(times, sizes, step="post", color="tab:blue", linewidth=0)
    memory.axhline(budget / 2**20, color="tab:red", linestyle="--", linewidth=1)
    memory.text(0, budget / 2**20, f"budget {bytes_text(budget)}", va="bottom", color="tab:red")
    memory.set_ylabel("device MiB")
    memory.set_ylim(0, budget / 2**20 * 1.3)
    memory.set_xlabel("seconds")
    memory.set_xlim(0, end or 1)
    memory.spines[["top", "right"]].set_visible(False)
    _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    with value_errors_said():  # of a suffix that names no kind of picture
        figure.savefig(file, dpi=110)
    _pyplot().close(figure)


def stretches(timeline: list[Interval]) -> list[Spans]:
    """The spans of a plan's timeline, one for each run of steps without a gap: all of them, or the
    first and the last."""
    found: list[Spans] = []
    previous = -2
    for interval in timeline:
        if interval["step"] > previous + 1:
            found.append({})
        previous = interval["step"]
        span = (f"step {previous}", interval["begin"], interval["end"] - interval["begin"])
        found[-1].setdefault(interval["track"], []).append(span)
    return found


def draw_plan(plan: Plan, file: Path) -> None:
    """Writes the picture of a plan: the first steps and, where there are more, the last."""
    plt = _pyplot()
    parts = stretches(plan.timeline) or [{}]
    figure, panels = plt.subplots(
        1, len(parts), figsize=(14, 3.5), squeeze=False, layout="constrained"
    )
    for axes, spans in zip(panels[0], parts, strict=True):
        _draw_bars(axes, spans, 0.0)
        begin, end = _ends(spans)
        axes.set_xlim(begin, end or 1)
        axes.set_xlabel("seconds, predicted")
    panels[0][0].set_title(f"{plan.problem}   {plan.tiles} tiles", loc="left", fontsize=10)
    _save(figure, file)
