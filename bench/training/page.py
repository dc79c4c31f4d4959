"""Rows of trained networks as one page of HTML: time over memory, and all rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from oocdnn._page import PALETTE, document, drawing, legend, line, si, style, text, word

Row = dict[str, Any]

_HEIGHT = 300  # of a drawing, pixels
_TICKS = 5
_COMPILED = ("budget-", "compile")  # prefixes of the ways that compile the network
_STYLE = """
.over { display: block; width: calc(100% - 7rem); margin-left: 5rem; overflow: visible; }
"""


def page_of(rows: Sequence[Row], command: str) -> str:
    """A document that needs no network. Time of a step by the bytes that the driver counts, for
    each case and way of training, and a table of all rows."""
    timed = [row for row in rows if row.get("seconds")]
    cases = list(dict.fromkeys(row["case"] for row in timed))
    ways = list(dict.fromkeys(row["way"] for row in timed))
    first = timed[0] if timed else {}
    about = ", ".join(str(first[key]) for key in ("gpu", "torch") if key in first)
    drawn = "\n".join(
        _case(case, [row for row in timed if row["case"] == case], ways) for case in cases
    )
    header = (
        f"<header>\n<h1>oocdnn bench training</h1>\n<p>{text(about)}</p>\n"
        f"<p><code>{text(command)}</code></p>\n</header>"
    )
    content = (
        f"{drawn}\n{_table(_beside_compiled(rows))}" if rows else "<p>Nothing was measured.</p>"
    )
    return document("oocdnn bench training", style() + _STYLE, header, content)


def _beside_compiled(rows: Sequence[Row]) -> list[Row]:
    """With the time of compiled steps over that of the case's compiled step with everything kept,
    of another run where theirs has none."""
    seconds = {row["case"]: row["seconds"] for row in rows if row["way"] == "compiled"}

    def beside(row: Row) -> Row:
        core = seconds.get(row.get("case"))
        if core is None or "seconds" not in row or not row["way"].startswith(_COMPILED):
            return row
        return {"of_compiled": row["seconds"] / core} | row

    return [beside(row) for row in rows]


def _shade(way: str, ways: Sequence[str]) -> str:
    return f"c{ways.index(way) % len(PALETTE)}"


def _case(case: str, rows: Sequence[Row], ways: Sequence[str]) -> str:
    most = max(row["driver_gib"] for row in rows) * 1.05
    slowest = max(row["seconds"] for row in rows) * 1.1
    parts = []
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        x, y = 100 * share, _HEIGHT * (1 - share)
        parts += [line("grid", (x, 0), (x, _HEIGHT)), line("grid", (0, y), (100, y))]
        parts.append(word(f"{most * share:.3g} GiB", x, _HEIGHT + 16, ' class="middle"'))
        parts.append(word(si(slowest * share, "s"), 0, y + 4, ' class="name" dx="-6"'))

    def place(row: Row) -> tuple[float, float]:
        return 100 * row["driver_gib"] / most, _HEIGHT * (1 - row["seconds"] / slowest)

    for way in ways:
        mine = sorted((row for row in rows if row["way"] == way), key=lambda row: row["driver_gib"])
        shade = _shade(way, ways)
        for one, other in pairwise(mine):
            parts.append(line(f"path {shade}", place(one), place(other)))
        for row in mine:
            x, y = place(row)
            tip = f"{way}: {si(row['seconds'], 's')}, {row['driver_gib']:.2f} GiB"
            parts.append(
                f'<circle class="{shade} point" cx="{x:.2f}%" cy="{y:.1f}" r="5">'
                f"<title>{text(tip)}</title></circle>"
            )
    drawn = [(_shade(way, ways), way) for way in dict.fromkeys(row["way"] for row in rows)]
    row = rows[0]
    about = f"{row['images']} images, {row['arithmetic']}"
    about += ", channels last" if row.get("channels_last") else ""
    return f"""<h2>{text(case)}</h2>
<figure>
<figcaption>Seconds of a step by the bytes that the driver counts: {text(about)}.</figcaption>
{legend(drawn)}
{drawing(f"{case}: time by memory", _HEIGHT + 20, "over", parts)}
</figure>"""


def _table(rows: Sequence[Row]) -> str:
    def shown(row: Row, key: str, form: str = "{}") -> str:
        value = row.get(key)
        return "–" if value is None else text(form.format(value))

    columns = (
        ("limit", "limit_gib", "{:.2f} GiB"), ("step", "seconds", "{:.4f} s"),
        ("of plain", "of_plain", "{:.3f}"), ("of compiled", "of_compiled", "{:.3f}"),
        ("images/s", "images_per_second", "{:.0f}"),
        ("allocated", "allocated_gib", "{:.2f} GiB"), ("driver", "driver_gib", "{:.2f} GiB"),
        ("within", "within", "{}"), ("of predicted", "of_predicted", "{:.3f}"),
        ("losses equal", "losses_equal", "{}"),
    )  # fmt: skip
    lines = []
    for row in rows:
        values = "".join(f"<td>{shown(row, key, form)}</td>" for _, key, form in columns)
        more = shown(row, "error") if "error" in row else row.get("skipped", "")
        lines.append(
            f'<tr><th class="words">{shown(row, "case")}</th><td class="words">'
            f'{shown(row, "way")}</td>{values}<td class="words">{more}</td></tr>'
        )
    heads = "".join(f"<th>{name}</th>" for name, *_ in columns)
    return f"""<h2>All rows</h2>
<div class="wide"><table>
<thead><tr><th class="words">case</th><th class="words">way</th>{heads}<th></th></tr></thead>
<tbody>{"".join(lines)}</tbody>
</table></div>"""
