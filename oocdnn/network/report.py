"""A plan as a page of HTML, and as a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oocdnn._page import document, drawing, legend, line, si, style, text, time_axis, word
from oocdnn._shown import bytes_text
from oocdnn.network.explain import NAMES, Explanation
from oocdnn.network.plan import Policy
from oocdnn.network.planner import Plan
from oocdnn.network.timeline import kept_bytes

_SHADES = {Policy.KEEP: "c1", Policy.SWAP: "c0", Policy.REBUILD: "c2", Policy.SQUEEZE: "c3"}
_HEIGHT = 260  # of the memory's drawing, pixels
_LANE, _BAR = 30, 20  # a lane's height, and that of what is drawn in it
_THIN, _PITCH = 4, 5  # of a tensor's bar
_MOST = 240  # tensors that are drawn, the largest
_NARROW = 5e-4  # of the step; shorter spans that touch are drawn as one
_TICKS = 5
_STYLE = """
.compared { font-size: .9rem; }
.compared td.words { max-width: none; white-space: nowrap; }
.memory { display: block; width: calc(100% - 5rem); margin-left: 5rem; overflow: visible; }
.lanes, .tensors { display: block; width: calc(100% - 7rem); margin-left: 7rem;
  overflow: visible; }
.area { fill: var(--c0); fill-opacity: .25; stroke: var(--c0); }
.plain { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
.limit { stroke: var(--c2); stroke-width: 2; }
.away { opacity: .25; }
"""


@dataclass(frozen=True)
class Measured:
    """Measurements of the steps of a plan.

    Args:
        seconds: Of each step, from the end of the step before on.
        driver_bytes: Most device bytes that the driver counted, or 0 where it was not asked.
        others: Of them, bytes besides tensors: CUDA's context and libraries.
    """

    seconds: tuple[float, ...] = ()
    driver_bytes: int = 0
    others: int = 0

    @property
    def median(self) -> float | None:
        return sorted(self.seconds)[len(self.seconds) // 2] if self.seconds else None


def page(plan: Plan, measured: Measured) -> str:
    """A document that needs no network, in light and dark. It shows the bytes in use over the step
    beside the limit, when operations and copies run, where each saved tensor is, and what was
    predicted beside what was measured.
    """
    title = text(f"oocdnn: {plan.timeline.label or 'a step'} within {bytes_text(plan.limit)}")
    told = plan.explain()
    compared, table = _compared(plan, told, measured), _table(told)
    content = "\n".join((compared, _memory(plan), _lanes(plan), _tensors(plan), table))
    return document(title, style() + _STYLE, f"<header>\n<h1>{title}</h1>\n</header>", content)


def trace(plan: Plan) -> dict[str, Any]:
    """The predicted step as Chrome trace events, for chrome://tracing or Perfetto. Times are
    microseconds."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in enumerate(("operations", "to the host", "from the host"))
    ]
    for begin, end, name, _ in _operations(plan):
        events.append(_event(0, name, begin, end))
    for index, out, begin, end in plan.simulation.copies:
        saved = plan.timeline.saved[index]
        event = _event(1 if out else 2, saved.name, begin, end)
        events.append(event | {"args": {"bytes": saved.nbytes}})
    for begin, nbytes in zip(plan.simulation.begins, plan.schedule.bytes_at, strict=True):
        for name, value in (("memory", nbytes), ("limit", plan.limit)):  # two: one would stack them
            counter = {"ph": "C", "pid": 0, "ts": 1e6 * begin, "name": name}
            events.append(counter | {"args": {"bytes": value}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(tid: int, name: str, begin: float, end: float) -> dict[str, Any]:
    times = {"ts": 1e6 * begin, "dur": 1e6 * (end - begin)}
    return {"ph": "X", "pid": 0, "tid": tid, "name": name, **times}


def _operations(plan: Plan) -> list[tuple[float, float, str, str]]:
    """Begin, end, name and shade of each operation."""
    begins, forward = plan.simulation.begins, plan.timeline.forward
    return [
        (begin, begin + one.seconds, one.name, "c4" if number < forward else "c5")
        for number, (begin, one) in enumerate(zip(begins, plan.timeline.operations, strict=True))
    ]


def _compared(plan: Plan, made: Explanation, measured: Measured) -> str:
    reserved = plan.reserved
    predicted = None if reserved is None else reserved + measured.others
    took, counted = measured.median, measured.driver_bytes or None
    rows = (
        ("step", si(made.step, "s"), _or_dash(took and si(took, "s"))),
        ("of the step with everything kept", f"{made.step / max(made.plain, 1e-12):.3f}", "–"),
        ("least step that the planner knows of", si(made.floor, "s"), "–"),
        ("computing again", si(made.recomputing, "s"), "–"),
        ("waiting for copies", si(made.waiting, "s"), "–"),
        ("waiting for the host", si(made.late, "s"), "–"),
        ("most bytes of tensors", bytes_text(made.peak), "–"),
        ("most bytes that the driver counts", _or_dash(predicted and bytes_text(predicted)),
         _or_dash(counted and bytes_text(counted))),
    )  # fmt: skip
    lines = "".join(
        f'<tr><td class="words">{name}</td><td>{one}</td><td>{other}</td></tr>'
        for name, one, other in rows
    )
    saved = made.amounts()
    steps = f", the median of {len(measured.seconds)} steps" if measured.seconds else ""
    return f"""<p>Of what backward reads: {saved or "nothing"}. {len(made.rows)} tensors, planned in
{si(plan.planning, "s")}.</p>
<table class="compared">
<thead><tr><th class="words"></th><th>predicted</th><th>measured{steps}</th></tr></thead>
<tbody>{lines}</tbody>
</table>"""


def _or_dash(shown: str | float | None) -> str:
    return str(shown) if shown else "–"


def _memory(plan: Plan) -> str:
    kept, used = kept_bytes(plan.timeline), plan.schedule.bytes_at
    top = max([plan.limit, *used, min(max(kept, default=0), 2 * plan.limit), 1])
    height = _HEIGHT
    parts = time_axis(plan.seconds, height)
    for number in range(_TICKS):
        y = height * (1 - number / (_TICKS - 1))
        parts.append(line("grid", (0, y), (100, y)))
        label = bytes_text(top * number / (_TICKS - 1))
        parts.append(word(label, 0, y + 4, ' class="name" dx="-6"'))
    # A drawing of its own, whose coordinates are scaled to the width.
    steps = list(zip(plan.simulation.begins, used, strict=True))
    whole = list(zip(plan.simulation.begins, kept, strict=True))
    parts.append(
        f'<svg width="100%" height="{height}" viewBox="0 0 1000 {height}" '
        'preserveAspectRatio="none">'
        f'<path class="plain" vector-effect="non-scaling-stroke" d="{_path(plan, whole, top)}"/>'
        f'<path class="area" vector-effect="non-scaling-stroke" '
        f'd="{_path(plan, steps, top)} L1000,{height} L0,{height} Z"/></svg>'
    )
    y = height * (1 - plan.limit / top)
    parts.append(line("limit", (0, y), (100, y)))
    parts.append(word(f"limit {bytes_text(plan.limit)}", 100, y - 5, ' class="name"'))
    return f"""<h2>Memory over the step</h2>
<figure>
<figcaption>Bytes of tensors that the plan has on the device while each operation runs. Dotted:
where everything is kept, cut at twice the limit.</figcaption>
{drawing("bytes in use over the step", height + 20, "memory", parts)}
</figure>"""


def _path(plan: Plan, values: Sequence[tuple[float, int]], top: float) -> str:
    """Steps from the left to the right, 1000 wide."""
    scale = 1000 / max(plan.seconds, 1e-12)
    ends = [begin for begin, _ in values[1:]] + [plan.seconds]
    points = []
    for (begin, nbytes), end in zip(values, ends, strict=True):
        y = _HEIGHT * (1 - min(nbytes / top, 1.0))
        points += [f"{begin * scale:.2f},{y:.2f}", f"{end * scale:.2f},{y:.2f}"]
    return "M" + " L".join(points) if points else "M0,0"


def _lanes(plan: Plan) -> str:
    copies = [
        (begin, end, plan.timeline.saved[index].name, "c0", out)
        for index, out, begin, end in plan.simulation.copies
    ]
    lanes = {
        "operations": _operations(plan),
        "to the host": [one[:4] for one in copies if one[4]],
        "from the host": [one[:4] for one in copies if not one[4]],
    }
    height = _LANE * len(lanes)
    parts = time_axis(plan.seconds, height)
    for row, (name, spans) in enumerate(lanes.items()):
        top = _LANE * row + (_LANE - _BAR) / 2
        parts.append(word(name, 0, top + 0.75 * _BAR, ' class="name" dx="-8"'))
        for begin, end, told, shade in _merged(spans, plan.seconds):
            tip = f"{told}: {si(end - begin, 's')} from {si(begin, 's') if begin else '0 s'} on"
            parts.append(_span(plan, begin, end, top, _BAR, shade, tip))
    shades = legend((("c4", "forward"), ("c5", "backward"), ("c0", "copies")))
    return f"""<h2>Operations and copies</h2>
<figure>
<figcaption>When they run. Between operations the device computes tensors again, or
waits.</figcaption>
{shades}
{drawing("operations and copies over the step", height + 20, "lanes", parts)}
</figure>"""


def _merged(
    spans: Iterable[tuple[float, float, str, str]], whole: float
) -> list[tuple[float, float, str, str]]:
    """Spans in order, short ones of one shade that touch as one."""
    found: list[tuple[float, float, str, str]] = []
    for begin, end, name, shade in sorted(spans):
        if found:
            before = found[-1]
            short = max(end, before[1]) - before[0] < _NARROW * whole * 4
            if short and before[3] == shade and begin - before[1] < _NARROW * whole:
                told = before[2].partition(" … ")[0]
                found[-1] = (before[0], max(end, before[1]), f"{told} … {name}", shade)
                continue
        found.append((begin, end, name, shade))
    return found


def _span(
    plan: Plan, begin: float, end: float, top: float, height: float, kind: str, tip: str
) -> str:
    scale = 100 / max(plan.seconds, 1e-12)
    place = f'x="{begin * scale:.3f}%" width="{max((end - begin) * scale, 0.02):.3f}%"'
    return (
        f'<rect class="{kind}" {place} y="{top:g}" height="{height:g}">'
        f"<title>{text(tip)}</title></rect>"
    )


def _tensors(plan: Plan) -> str:
    timeline, begins = plan.timeline, [*plan.simulation.begins, plan.seconds]
    sizes = sorted(range(len(timeline.saved)), key=lambda i: -timeline.saved[i].nbytes)
    drawn = sorted(sizes[:_MOST])
    height = _PITCH * len(drawn)
    parts = time_axis(plan.seconds, height)
    for row, index in enumerate(drawn):
        one, choice = timeline.saved[index], plan.choice(index)
        shade, movement = _SHADES[choice.policy], plan.schedule.movements.get(index)
        begin, end = begins[one.produced], begins[one.last_use + 1]
        tip = f"{one.name}, {bytes_text(one.nbytes)}: {NAMES[choice.policy]}"
        spans = [(begin, end, "")]
        if movement is not None:
            left, back = begins[movement.release], begins[movement.fetch]
            spans = [(begin, left, ""), (left, back, " away"), (back, end, "")]
        for start, stop, kind in spans:
            if stop > start:
                parts.append(_span(plan, start, stop, _PITCH * row, _THIN, shade + kind, tip))
    left = len(timeline.saved) - len(drawn)
    more = f" The {left} smallest are left out." if left else ""
    shades = legend((_SHADES[policy], NAMES[policy]) for policy in Policy)
    return f"""<h2>Saved tensors</h2>
<figure>
<figcaption>From the operation that makes each to the last one that reads it, pale where its bytes
are not on the device.{more}</figcaption>
{shades}
{drawing("where each saved tensor is", height + 20, "tensors", parts)}
</figure>"""


def _table(made: Explanation) -> str:
    lines = "".join(
        f'<tr><th class="words">{text(row.name)}</th><td>{bytes_text(row.nbytes)}</td>'
        f'<td class="words">{NAMES[row.policy]}</td><td class="words">{text(row.why)}</td></tr>'
        for row in made.rows
    )
    return f"""<h2>Tensor by tensor</h2>
<div class="wide"><table>
<thead><tr><th class="words">tensor</th><th>bytes</th><th class="words">policy</th>
<th class="words">why</th></tr></thead>
<tbody>{lines}</tbody>
</table></div>"""
