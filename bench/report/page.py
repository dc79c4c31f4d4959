"""Results as one page of HTML that needs nothing else: no network, no script, no font.

It is well-formed XML as well, by which the tests read it. The drawings are those of
`oocdnn.bench.report.figures`.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from oocdnn._page import document, legend, si, style, swatch, text
from oocdnn._shown import bytes_text
from oocdnn.bench.report import curves, figures
from oocdnn.bench.report import timeline as timelines
from oocdnn.bench.report.curves import Kind
from oocdnn.bench.report.figures import LONGEST, WIRES, over_floor, shade
from oocdnn.bench.report.summary import Summary, summaries
from oocdnn.bench.report.timeline import Timeline
from oocdnn.bench.results import About, Row, verdict


def _or_dash(value: float | None, show: Callable[[float], str]) -> str:
    """Nothing is shown as 0 that was not measured."""
    return show(value) if value else "–"


def _seconds(value: float | None) -> str:
    return _or_dash(value, lambda seconds: si(seconds, "s"))


def _rate(row: Row, done: int, unit: str) -> str:
    """Of the warm calls; a call that was not right has none."""
    seconds = row["seconds"] if verdict(row) == "pass" else None
    return _or_dash(seconds, lambda seconds: si(done / seconds, unit))


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("budget", lambda row: _or_dash(row["budget"], bytes_text)),
    ("time", lambda row: _seconds(row["seconds"])),
    ("±", lambda row: "–" if row["noise"] is None else f"{100 * row['noise']:.1f} %"),
    ("calls", lambda row: _or_dash(row["samples"], str)),
    ("dropped", lambda row: str(row["dropped"]) if row["samples"] else "–"),
    ("first call", lambda row: _seconds(row["cold_seconds"])),
    ("floor", lambda row: _seconds(row["floor_seconds"])),
    ("over floor", lambda row: _or_dash(over_floor(row), "{:.3f}".format)),
    ("FLOP", lambda row: _or_dash(row["flops"], lambda count: si(count, ""))),
    ("FLOP/s", lambda row: _rate(row, row["flops"], "")),
    ("data", lambda row: _or_dash(row["data_bytes"], bytes_text)),
    ("data/s", lambda row: _rate(row, row["data_bytes"], "B/s")),
    ("to device", lambda row: _or_dash(row["bytes_h2d"], bytes_text)),
    ("from device", lambda row: _or_dash(row["bytes_d2h"], bytes_text)),
    ("peak", lambda row: _or_dash(row["peak_device_bytes"], bytes_text)),
    ("in network", lambda row: _or_dash(row["times"], str)),
    ("tiles", lambda row: _or_dash(row["tiles"], str)),
)

BESIDE = [name for name, _ in COLUMNS].index("over floor") + 1  # where time over torch's stands


def page(rows: Sequence[Row], about: About, timeline: Timeline | None = None) -> str:
    """A whole document. Rows of one problem stand together, in the order in which they come."""
    title = text(f"oocdnn bench: {about['machine']}, {about['date']}")
    found = _groups(rows)
    content = (
        "\n".join(
            (
                _overview(rows),
                _summary(rows),
                *(_curve(kind, group, rows) for kind, group in curves.curves(rows)),
                _bars(found, rows),
                _roofline(rows, about),
                _timeline(timeline),
                _table(found, rows),
            )
        )
        if rows
        else "<p>Nothing was measured: there are no results.</p>"
    )
    return document(title, style(), _header(about), content)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each problem, on one device and from one placement."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row["set"], row["layer"], row["problem"])
        where = (row["device"], row["dtype"], row["placement"])
        groups.setdefault((*key, *where), []).append(row)
    return list(groups.values())


_UNITS = {"arithmetic": "FLOP/s"}


def _header(about: About) -> str:
    rates = (f"{name} {si(of, _UNITS.get(name, 'B/s'))}" for name, of in about["rates"].items())
    facts = {
        "machine": about["machine"],
        "date": about["date"],
        "versions": ", ".join(f"{name} {of}" for name, of in about["versions"].items()),
        "commit": about["commit"],
        "rates": ", ".join(rates),
        "command": about["command"],
    }
    items = "\n".join(
        f"<dt>{name}</dt><dd>{text(fact)}</dd>" for name, fact in facts.items() if fact
    )
    return f"<header>\n<h1>oocdnn bench</h1>\n<dl>\n{items}\n</dl>\n</header>"


def _overview(rows: Sequence[Row]) -> str:
    counts = Counter(verdict(row) for row in rows)
    return f"<p>Results: {text(', '.join(f'{counts[word]} {word}' for word in counts))}.</p>"


def _legend(who: Sequence[str], rows: Sequence[Row], **lines: str) -> str:
    """The peers that are drawn, and what lines mean, by their class."""
    return legend([*((shade(name, rows), name) for name in dict.fromkeys(who)), *lines.items()])


def _heading(group: Sequence[Row]) -> str:
    """Which problem, where and from where."""
    row = group[0]
    places = " · ".join(filter(None, (row["set"], row["device"], row["dtype"], row["placement"])))
    return (
        f"<b>{text(row['layer'])}</b> <code>{text(row['problem'])}</code> "
        f'<span class="aside">{text(places)}</span>'
    )


def _bars(found: Sequence[Sequence[Row]], rows: Sequence[Row]) -> str:
    drawn = "\n".join(_group(group, rows) for group in found)
    told = _legend([row["who"] for row in rows], rows, floor="the floor")
    return f"""<h2>Time over the floor</h2>
<figure>
<figcaption>How many times as long as the floor a call takes, where the floor is the least that any
plan needs by the model of this machine; shorter is better. Less than 1 says that the model is
wrong, as where its rates were measured while other programs ran. The thin line on a bar is the 95 %
interval of the median, » marks a bar that was cut at {LONGEST:g}.</figcaption>
{told}
{figures.axis(figures.longest(rows))}
{drawn}
</figure>"""


SUMMARY: tuple[tuple[str, Callable[[Summary], str]], ...] = (
    ("results", lambda one: str(one.count)),
    ("median", lambda one: f"{one.median:.3f}"),
    ("nine in ten", lambda one: f"{one.ninth:.3f}"),
    ("worst", lambda one: f"{one.worst:.3f}"),
    ("together", lambda one: f"{one.total:.3f}"),
)


def _summary(rows: Sequence[Row]) -> str:
    """How the results of each set lie over the floor."""
    found = summaries(rows)
    if not found:
        return ""
    heads = "".join(f"<th>{name}</th>" for name, _ in SUMMARY)
    lines = []
    for one in found:
        values = "".join(f"<td>{text(show(one))}</td>" for _, show in SUMMARY)
        places = " · ".join((one.set, one.device, one.dtype, one.placement))
        lines.append(
            f'<tr><th class="words">{swatch(shade(one.who, rows))} {text(one.name)}</th>'
            f'<td class="words">{text(places)}</td>{values}</tr>'
        )
    return f"""<h2>In short</h2>
<p class="caption">Times over the floor, of the results that are right: the median, what nine in ten
are at most, the worst; and all together, each as often as its layer occurs, over the sum of their
floors.</p>
<div class="wide"><table>
<thead><tr><th class="words">by</th><th class="words">of</th>{heads}</tr></thead>
<tbody>{"".join(lines)}</tbody>
</table></div>"""


def _curve(kind: Kind, group: Sequence[Row], rows: Sequence[Row]) -> str:
    """What a network or a sweep varies, and what comes of it."""
    found = curves.by_series(kind, group)
    places = " · ".join(group[0][name] for name in ("device", "dtype", "placement"))
    drawn = curves.curve(kind, group, rows) if found else "<p>No result has a place here.</p>"
    name = group[0]["problem"].partition(" ")[0].partition(":")[0]
    peers = [who for who, _ in found if who != curves.FLOOR]
    return f"""<h2>{kind.title}</h2>
<figure>
<figcaption>{text(name)} {kind.caption}
<span class="aside">{text(places)}</span></figcaption>
{_legend(peers, rows, floor="the floor")}
{drawn}
</figure>"""


def _group(group: Sequence[Row], rows: Sequence[Row]) -> str:
    reasons = "".join(
        f'<p class="aside">{text(name)}: {text(row["check"])}</p>'
        for row, name in zip(group, figures.labels(group), strict=True)
        if verdict(row) != "pass"
    )
    drawn = figures.bars(group, rows)
    return f'<div class="group">\n<p>{_heading(group)}</p>\n{drawn}\n{reasons}</div>'


def _roofline(rows: Sequence[Row], about: About) -> str:
    rates, name = about["rates"], figures.wire(about)
    lines, missing = {}, []
    if name:
        lines["slope"] = f"wire, {WIRES[name]}: {si(rates[name], 'B/s')}"
    else:
        missing.append("The wire was not measured, so the slope is left out.")
    if rates.get("arithmetic"):
        lines["level"] = f"arithmetic: {si(rates['arithmetic'], 'FLOP/s')}"
    else:
        missing.append("Arithmetic was not measured, so the level is left out.")
    found = [row["who"] for row, *_ in figures.points(rows)]
    drawn = figures.roofline(rows, about) if found else "<p>No result has a place here.</p>"
    return f"""<h2>Roofline</h2>
<figure>
<figcaption>How fast calls compute, by how much they compute for each byte that must cross the wire.
The slope is what the wire allows, the level what arithmetic does. {" ".join(missing)}</figcaption>
{_legend(found, rows, **lines)}
{drawn}
</figure>"""


def _timeline(timeline: Timeline | None) -> str:
    if timeline is None:
        return ""
    problem, budget = timeline["problem"], bytes_text(timeline["budget"])
    return f"""<h2>One call</h2>
<figure>
<figcaption>When each engine worked on a tile in a warm call of <code>{text(problem)}</code> within
{text(budget)}. On the CPU device the three share its cores.</figcaption>
{timelines.draw(timeline)}
</figure>"""


def _table(found: Sequence[Sequence[Row]], rows: Sequence[Row]) -> str:
    heads = [name for name, _ in COLUMNS]
    heads.insert(BESIDE, "over torch")
    names = "".join(f"<th>{name}</th>" for name in heads)
    body = "\n".join(_lines(group, rows) for group in found)
    return f"""<h2>All figures</h2>
<p class="caption">Times are medians of warm calls, ± is half their 95 % interval; dropped calls met
other programs and do not count. To and from the device is what one call moved, data what there is
to move; over torch is time over torch's with its arrays where it computes, which on a GPU is in
core; – is what was not measured.</p>
<div class="wide"><table>
<thead><tr><th class="words">by</th>{names}<th class="words">check</th>
<th class="words">repeat</th></tr></thead>
{body}
</table></div>"""


def _lines(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """The rows of a problem, under its name."""
    in_core = figures.in_core_seconds(group)
    lines = "\n".join(
        _line(row, name, rows, in_core)
        for row, name in zip(group, figures.labels(group), strict=True)
    )
    head = f'<th class="problem" colspan="{len(COLUMNS) + 4}"><div>{_heading(group)}</div></th>'
    return f"<tbody>\n<tr>{head}</tr>\n{lines}\n</tbody>"


def _line(row: Row, name: str, rows: Sequence[Row], in_core: float | None) -> str:
    seconds = row["seconds"] if verdict(row) == "pass" else None
    ratio = seconds / in_core if seconds and in_core else None
    shown = [show(row) for _, show in COLUMNS]
    shown.insert(BESIDE, _or_dash(ratio, "{:.3f}".format))
    values = "".join(f"<td>{text(one)}</td>" for one in shown)
    origin = text(", ".join(filter(None, (row["machine"], row["commit"]))))
    repeat = (
        f"<details><summary>command</summary><code>{text(row['command'])}</code><br/>{origin}"
        "</details>"
        if row["command"]
        else origin
    )
    return (
        f'<tr><th class="words">{swatch(shade(row["who"], rows))} {text(name)}</th>{values}'
        f'<td class="words">{text(row["check"])}</td><td class="words">{repeat}</td></tr>'
    )
