"""Building blocks of HTML pages: style sheet, SVG elements, number formats and the document itself.
Pages need no network, no script and no font, and are well-formed XML.

Drawings are inline SVG. Horizontal places are percentages, vertical ones pixels, so that a drawing
takes any width and its letters stay as large as they are. Names stand in the margins, which the
style sheet leaves.
"""

import html
import re
from collections.abc import Iterable

# Told apart by the colour-blind too (after Okabe and Ito); the second is for a dark ground.
PALETTE = (
    ("#0072b2", "#4ba3e3"),
    ("#767676", "#a8a8a8"),
    ("#d55e00", "#f4874b"),
    ("#009e73", "#2bc397"),
    ("#c4649a", "#e39cc7"),
    ("#c98b00", "#f0b63c"),
    ("#4aa3d8", "#9fd6ff"),
    ("#5e3c99", "#b39ddb"),
    ("#8c510a", "#d8a15f"),
    ("#00757a", "#4fd0d6"),
)
PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}

NO_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1f24; --soft: #5b6570;
  --rule: #d9dee3; --roof: #1b1f24; COLOURS }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #e4e8ec; --soft: #9aa5b1; --rule: #343b43; --roof: #e4e8ec;
    DARK }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; }
h2 { margin: 2.5rem 0 0; font-size: 1.2rem; }
p, dd, code { overflow-wrap: anywhere; }
code { font-size: .9em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt, figcaption, .caption, .aside { color: var(--soft); }
dd { margin: 0; }
figure { margin: 0; max-width: 56rem; }
figcaption, .caption { margin: .2rem 0 1rem; max-width: 46rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: 0 0 1rem; padding: 0;
  list-style: none; font-size: .9rem; }
.legend svg { width: 18px; margin-right: .4rem; vertical-align: -1px; }
.group { margin: 0 0 1.2rem; }
.group p { margin: 0 0 .2rem; font-size: .85rem; line-height: 1.35; }
.aside { font-size: .85rem; }
svg text { fill: var(--ink); font-size: 12px; font-variant-numeric: tabular-nums;
  paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
svg .middle { text-anchor: middle; }
svg .name { text-anchor: end; }
svg .instead { fill: var(--soft); font-style: italic; }
.bars, .roofline { display: block; width: 100%; overflow: visible; }
.bars { padding: 0 3.2rem 0 7rem; }
.axis { position: sticky; top: 0; margin: 0 0 .3rem; background: var(--ground); }
.roofline { box-sizing: content-box; width: calc(100% - 5rem); padding: 24px 1.5rem 40px 3.5rem; }
.grid { stroke: var(--rule); }
.floor { stroke: var(--ink); stroke-dasharray: 3 2; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
.slope, .level { stroke: var(--roof); stroke-width: 2; }
.slope { stroke-dasharray: 7 4; }
.path { stroke-width: 2; }
.point { stroke: var(--ground); fill-opacity: .85; }
.hollow { stroke-width: 2; }
.wide { overflow-x: auto; }
table { width: max-content; border-collapse: collapse; font-size: .8rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .55rem; border-bottom: 1px solid var(--rule); text-align: right;
  vertical-align: top; white-space: nowrap; }
thead th { color: var(--soft); font-weight: normal; vertical-align: bottom; }
.words { text-align: left; }
td.words { max-width: 24rem; white-space: normal; overflow-wrap: anywhere; }
tbody th.words { position: sticky; left: 0; max-width: 10rem; background: var(--ground);
  white-space: normal; }
th.problem { padding-top: 1.2rem; text-align: left; font-weight: normal; white-space: normal; }
.problem div { position: sticky; left: .5rem; width: max-content;
  max-width: min(70rem, calc(100vw - 3rem)); }
"""


def text(words: object) -> str:
    """As it may stand in a document, in quotes too; what is no character of XML is replaced."""
    return html.escape(NO_XML.sub("�", f"{words}"))


def unit_prefix(exponent: int) -> tuple[int, str]:
    """Splits a power of ten into remaining zeros and an SI prefix: 4 gives (1, "k")."""
    step = min(max(exponent // 3, min(PREFIXES)), max(PREFIXES))
    return exponent - 3 * step, PREFIXES[step]


def si(value: float, unit: str) -> str:
    """18.4 ms, 90.8 GB/s: three significant digits."""
    mantissa, exponent = f"{value:.2e}".split("e")
    zeros, prefix = unit_prefix(int(exponent))
    return f"{float(mantissa) * 10.0**zeros:.{max(2 - zeros, 0)}f} {prefix}{unit}".strip()


def drawing(label: str, height: int, kind: str, parts: Iterable[str]) -> str:
    body, attributes = "\n".join(parts), f'role="img" aria-label="{text(label)}"'
    return f'<svg class="{kind}" {attributes} height="{height}">\n{body}\n</svg>'


def line(kind: str, start: tuple[float, float], stop: tuple[float, float]) -> str:
    """An SVG line between two points; x is in percent, y in pixels."""
    (x1, y1), (x2, y2) = start, stop
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:.1f}" x2="{x2:.2f}%" y2="{y2:.1f}"/>'


def word(words: str, x: float, y: float, more: str = "") -> str:
    return f'<text x="{x:.2f}%" y="{y:.1f}"{more}>{text(words)}</text>'


def time_axis(seconds: float, height: float, ticks: int = 5) -> list[str]:
    """Grid lines over the width of a drawing, with times from 0 to `seconds` below them."""
    parts = []
    for number in range(ticks):
        x = 100.0 * number / (ticks - 1)
        parts.append(line("grid", (x, 0), (x, height)))
        label = si(seconds * number / (ticks - 1), "s") if number else "0"
        parts.append(word(label, x, height + 16, ' class="middle"'))
    return parts


def swatch(kind: str) -> str:
    """A sample of a colour or of a line of the roofline, by its class."""
    shape = (
        f'<line class="{kind}" x1="0" y1="6" x2="18" y2="6"/>'
        if kind in ("slope", "level", "floor")
        else f'<rect class="{kind}" width="18" height="12"/>'
    )
    return f'<svg width="18" height="12" aria-hidden="true">{shape}</svg>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A list of samples and their names, from pairs of class and name."""
    items = (f"<li>{swatch(kind)}{text(name)}</li>" for kind, name in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def style() -> str:
    """With the palette for either ground, and a class for each of its colours."""
    light, dark = (
        " ".join(f"--c{place}: {colours[ground]};" for place, colours in enumerate(PALETTE))
        for ground in (0, 1)
    )
    classes = (
        f".c{place} {{ fill: var(--c{place}); }} "
        f".path.c{place}, .hollow.c{place} {{ stroke: var(--c{place}); }} "
        f".hollow.c{place} {{ fill: var(--ground); }}"
        for place in range(len(PALETTE))
    )
    return STYLE.replace("COLOURS", light).replace("DARK", dark) + "\n".join(classes) + "\n"


def document(title: str, styles: str, header: str, content: str) -> str:
    """A whole page. `title` is escaped."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>{styles}</style>
</head>
<body>
{header}
<main>
{content}
</main>
</body>
</html>
"""
