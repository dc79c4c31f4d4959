"""Plans as pages and as traces."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from network.networks import resnet

from oocdnn.network.plan import Policy
from oocdnn.network.planner import Plan, plan
from oocdnn.network.report import NAMES, Measured, page, trace
from oocdnn.network.timeline import Link, Operation, Saved, Timeline

LINK = Link(50e9, 50e9, 80e9)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made() -> Plan:
    timeline = resnet([1, 1, 1, 1], 64, replays=True)
    return plan(timeline, [LINK], int(0.55 * timeline.peak_bytes), seconds=0.3)


def tree(made: Plan, measured: Measured | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(page(made, measured or Measured()))


def classes(found: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [one for one in found.iter() if one.get("class") == kind]


def test_the_page_needs_nothing_from_elsewhere(made: Plan) -> None:
    text = page(made, Measured())
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text


def test_each_tensor_is_drawn_and_in_the_table(made: Plan) -> None:
    found = tree(made)
    drawn = next(iter(classes(found, "tensors")))
    titles = {one.text for one in drawn.iter("title")}
    rows = ["".join(row.itertext()) for row in found.iter("tr")]
    for number, one in enumerate(made.timeline.saved):
        told = NAMES[made.choice(number).policy]
        assert any(f"{one.name}, " in (t or "") and (t or "").endswith(told) for t in titles)
        assert any(row.startswith(one.name) and told in row for row in rows)
    away = [one for one in drawn.iter("rect") if (one.get("class") or "").endswith(" away")]
    assert len(away) == len(made.schedule.movements)


def test_predictions_stand_beside_measurements(made: Plan) -> None:
    words = "".join(tree(made, Measured((0.3, 0.1, 0.2), 3 << 30, 1 << 30)).itertext())
    assert "measured, the median of 3 steps" in words
    assert "200 ms" in words
    assert "3.00 GiB" in words
    assert "–" in words
    assert "median" not in "".join(tree(made).itertext())


def test_bytes_are_drawn_below_the_limit_and_end_with_the_step(made: Plan) -> None:
    (area,) = classes(tree(made), "area")
    points = [
        tuple(map(float, one.split(","))) for one in re.findall(r"[\d.]+,[\d.]+", area.get("d", ""))
    ]
    (limit,) = classes(tree(made), "limit")
    assert min(y for _, y in points) >= float(limit.get("y1", "0")) - 0.01
    assert max(x for x, _ in points) == 1000


def test_the_trace_has_each_operation_and_copy_once(made: Plan) -> None:
    events = json.loads(json.dumps(trace(made)))["traceEvents"]
    spans = [one for one in events if one["ph"] == "X"]
    operations = [one for one in spans if one["tid"] == 0]
    assert [one["name"] for one in operations] == [one.name for one in made.timeline.operations]
    assert sum(one["dur"] for one in operations) == pytest.approx(
        1e6 * sum(one.seconds for one in made.timeline.operations)
    )
    swapped = made.schedule.swapped()
    assert swapped
    for tid in (1, 2):
        copies = [one for one in spans if one["tid"] == tid]
        assert sorted(one["name"] for one in copies) == sorted(
            made.timeline.saved[i].name for i in swapped
        )
        for one in copies:
            assert one["dur"] >= 1e6 * one["args"]["bytes"] / 50e9
    counters = [one["args"]["bytes"] for one in events if one["name"] == "memory"]
    assert counters == made.schedule.bytes_at
    assert {one["args"]["bytes"] for one in events if one["name"] == "limit"} == {made.limit}


def test_copies_that_wait_for_each_other_take_their_own_time() -> None:
    """Three tensors of 50 ms each way, all made at once."""
    fixed = [0, 7_500_000_000, 0, 0]
    operations = tuple(Operation(f"{i}", 1.0, nbytes) for i, nbytes in enumerate(fixed))
    saved = tuple(Saved(f"s{i}", 2_500_000_000, 0, 0, (3,)) for i in range(3))
    tight = Timeline(operations, 2, saved)
    made = plan(tight, [LINK], 10_000_000_000, seconds=0.2)
    count = len(made.schedule.swapped())
    assert count >= 2
    spans = {(i, out): end - begin for i, out, begin, end in made.simulation.copies}
    assert list(spans.values()) == pytest.approx([0.05 + LINK.latency] * 2 * count)
    assert made.simulation.to_host_seconds == pytest.approx(0.05 * count, rel=0.01)


def test_names_are_escaped_and_small_tensors_left_out() -> None:
    operations = tuple(Operation(f"{i}", 1e-3) for i in range(602))
    saved = tuple(Saved(f"<{i} & co>", 1000 + i, i, i, (601 - i,)) for i in range(300))
    timeline = Timeline(operations, 301, saved, "a <step>")
    made = plan(timeline, [LINK], timeline.peak_bytes, seconds=0.1)
    assert made.fits
    found = tree(made)
    assert "a <step> within" in "".join(found.itertext())
    drawn = next(iter(classes(found, "tensors")))
    assert len(list(drawn.iter("rect"))) == 240
    assert "The 60 smallest are left out." in "".join(found.itertext())


def test_every_policy_has_a_name() -> None:
    assert set(NAMES) == set(Policy)
