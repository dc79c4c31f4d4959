"""The curves of results as one SVG file that stands alone, for a README: light or dark as its
reader has it, as wide as it is drawn."""

import re
from collections.abc import Iterable, Sequence

from oocdnn._page import text
from oocdnn.bench.report import curves
from oocdnn.bench.report.curves import FLOOR, Kind
from oocdnn.bench.report.figures import HEIGHT, label, shade
from oocdnn.bench.results import Row

WIDTH, GAP = 880, 72  # of the picture; left of a curve, for its scale
TOP, LINE, BELOW = 34, 22, 48  # pixels: a curve's title, a row of the legend, below the curve
ENTRIES = 5  # of the legend in a row


def picture(rows: Sequence[Row], style: str) -> str:
    """All curves that rows have, side by side. `style` is that of the page. Raises ValueError where
    there is none."""
    found = [one for one in curves.curves(rows) if curves.by_series(*one)]
    if not found:
        raise ValueError("no result of a network, or of the set poster, that counts is there")
    names = dict.fromkeys(who for one in found for who, _ in curves.by_series(*one))
    legend = [*(who for who in names if who != FLOOR), FLOOR]
    below = TOP + HEIGHT + BELOW
    height = below + LINE * (-(-len(legend) // ENTRIES))
    width = (WIDTH - GAP * len(found)) / len(found)
    parts = [
        _panel(kind, group, rows, GAP + i * (width + GAP), width)
        for i, (kind, group) in enumerate(found)
    ]
    parts += [_entry(who, rows, i, below) for i, who in enumerate(legend)]
    return standalone(found[0][0].title, WIDTH, height, parts, style)


def standalone(title: str, width: int, height: int, parts: Iterable[str], style: str) -> str:
    """An SVG file of so many pixels. `style` is that of the page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{text(title)}">\n'
        f"<style>{_style(style)}</style>\n"
        '<rect class="ground" width="100%" height="100%"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _style(page: str) -> str:
    """Of the page what curves use."""
    rules = re.findall(r"^(?:@media[^{]*\{\s*)?:root \{[^}]*\}(?:\s*\})?", page, re.MULTILINE)
    rules += re.findall(
        r"^(?:svg|\.(?:grid|floor|path|point|hollow|c\d))[^{}]*\{[^}]*\}.*", page, re.MULTILINE
    )
    ground = "svg { font-family: system-ui, sans-serif; overflow: visible; }"
    return "\n".join([*rules, ground, ".ground { fill: var(--ground); }"])


def _panel(kind: Kind, group: Sequence[Row], rows: Sequence[Row], left: float, width: float) -> str:
    title = f"{kind.title}, {group[0]['dtype']}"
    drawn = curves.curve(kind, group, rows)
    inner = drawn[drawn.index(">") + 1 :]
    return (
        f'<text x="{left:.0f}" y="16" style="font-size: 15px">{text(title)}</text>\n'
        f'<svg x="{left:.0f}" y="{TOP}" width="{width:.0f}" height="{HEIGHT}">{inner}'
    )


def _entry(who: str, rows: Sequence[Row], number: int, top: int) -> str:
    """Of the legend."""
    x = GAP + number % ENTRIES * (WIDTH - GAP) / ENTRIES
    y = top + LINE * (number // ENTRIES) + 6
    row = next((row for row in rows if row["who"] == who), None)
    if row is not None:
        return entry(shade(who, rows), label(row), x, y)
    mark = f'<line class="floor" x1="{x:.0f}" y1="{y}" x2="{x + 18:.0f}" y2="{y}"/>'
    return f'{mark}<text x="{x + 24:.0f}" y="{y + 4}">the floor</text>'


def entry(kind: str, name: str, x: float, y: float) -> str:
    """A sample of a colour, by its class, with its name."""
    mark = f'<rect class="{kind}" x="{x:.0f}" y="{y - 6}" width="18" height="12"/>'
    return f'{mark}<text x="{x + 24:.0f}" y="{y + 4}">{text(name)}</text>'
