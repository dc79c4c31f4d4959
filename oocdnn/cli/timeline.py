"""Draws the timeline of a call from its Chrome trace: fetch, compute and drain of every tile."""

import json
from pathlib import Path
from typing import Any

from oocdnn.cli.common import bytes_text

_TRACKS = ("fetch", "compute", "drain")


def tracks(trace: str) -> tuple[dict[str, list[tuple[str, float, float]]], list[Any]]:
    """Per track (event, begin, length), and the (time, bytes) of buffers held; in seconds."""
    events = json.loads(trace)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    spans: dict[str, list[tuple[str, float, float]]] = {}
    held = []
    for event in events:
        if event["ph"] == "X":
            track = names.get(event["tid"], str(event["tid"]))
            span = (event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
            spans.setdefault(track, []).append(span)
        elif event["ph"] == "C":
            held.append((event["ts"] / 1e6, event["args"]["bytes"]))
    return spans, held


def draw(trace: str, title: str, budget: int, file: Path) -> None:
    """Writes the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    spans, held = tracks(trace)
    known = [name for name in _TRACKS if name in spans]
    order = known + sorted(spans.keys() - set(known))
    pieces = [span for track in spans.values() for span in track]
    begin = min((start for _, start, _ in pieces), default=0.0)
    end = max((start + length for _, start, length in pieces), default=begin) - begin
    figure, (bars, memory) = plt.subplots(
        2, 1, figsize=(14, 5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    colours = plt.get_cmap("tab10")
    for row, name in enumerate(order):
        places = [(start - begin, length) for _, start, length in spans[name]]
        shades = [colours(i % 10) for i in range(len(places))]
        bars.broken_barh(places, (row - 0.4, 0.8), facecolors=shades, edgecolor="none")
    bars.set_yticks(range(len(order)), order)
    bars.invert_yaxis()
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
    for axes in (bars, memory):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
