"""The table and the drawings of a validation."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from oocdnn.perfmodel import plots, report
from oocdnn.perfmodel.__main__ import main
from oocdnn.perfmodel.validation import Measured, Regret

SVG = "{http://www.w3.org/2000/svg}"
SECONDS = st.floats(1e-6, 1e3)


def measured(predicted: float, seconds: float, bound: str, placement: str = "host") -> Measured:
    problem = "conv2d:fwd x1x1x8x8 w1x1x3x3"
    return Measured(
        problem, "1MiB", placement, "plan <1>", "e", bound, predicted, seconds, seconds, 1, 1, 1, 1
    )


MEASURED = st.builds(
    measured,
    SECONDS,
    SECONDS,
    st.sampled_from(("fetch", "compute", "drain")),
    st.sampled_from(("host", "mixed", "device")),
)
REGRETS = st.lists(SECONDS, min_size=1, max_size=5).map(
    lambda times: Regret("p & q", "1MiB", "host", [f"{t}" for t in times], times, times)
)


def inside(svg: str) -> list[ET.Element]:
    """The marks of the cases; each must lie in the drawing."""
    circles = list(ET.fromstring(svg).iter(f"{SVG}circle"))
    for circle in circles:
        x, y = float(circle.attrib["cx"].rstrip("%")), float(circle.attrib["cy"])
        assert 0 <= x <= 100
        assert -0.1 <= y <= plots.HEIGHT + 0.1
    return circles


@given(st.lists(MEASURED, min_size=1, max_size=20))
def test_every_case_is_in_the_drawings(some):
    assert len(inside(plots.predicted(some))) == len(some)
    curves = list(ET.fromstring(plots.errors(some)).iter(f"{SVG}polyline"))
    assert len(curves) == len(plots.groups(some))
    whole = [tuple(map(float, place.split(","))) for place in curves[0].attrib["points"].split()]
    assert len(whole) == len(some) + 1
    assert whole == sorted(whole, key=lambda place: (place[0], -place[1]))
    assert whole[-1][1] == pytest.approx(0)  # all cases are within the last error


@given(st.lists(REGRETS, min_size=1, max_size=20))
def test_every_regret_is_in_the_drawing(found):
    circles = inside(plots.regrets(found))
    assert len(circles) == len(found)
    heights = [float(circle.attrib["cy"]) for circle in circles]
    assert heights == sorted(heights, reverse=True)


def test_exact_predictions_lie_on_the_line():
    (circle,) = inside(plots.predicted([measured(0.003, 0.003, "fetch")]))
    x, y = float(circle.attrib["cx"].rstrip("%")), float(circle.attrib["cy"])
    assert y == pytest.approx(plots.HEIGHT * (1 - x / 100), abs=0.1)


def test_the_table_has_the_worst_first_and_the_sums():
    some = [measured(1.0, 1.0, "fetch"), measured(1.3, 1.0, "compute"), measured(0.9, 1.0, "fetch")]
    found = [Regret("p", "1MiB", "host", ["a", "b"], [1, 1], [1.2, 1.0])]
    text = report.table({"command": "python -m x"}, some, found)
    cases = [line for line in text.splitlines() if " ms (whole" in line]
    assert [line.split()[0] for line in cases] == ["+30.0%", "-10.0%", "+0.0%"]
    assert "# all: 3 cases, |error| median 10.0%" in text
    assert "# bound by arithmetic: 1 cases, |error| median 30.0%" in text
    assert "# regret: 0 of 1 within 5%; worst: regret 1.200" in text
    assert text.startswith("# python -m x\n")


def test_the_command_writes_what_there_is(tmp_path):
    result, folder = tmp_path / "result.json", tmp_path / "report"
    case = asdict(measured(1.0, 1.0, "fetch"))
    result.write_text(json.dumps({"command": "c", "lists": {"cases": [case]}}), encoding="utf-8")
    done = CliRunner().invoke(main, ["report", str(result), "--out", str(folder)])
    assert done.exit_code == 0, done.output + repr(done.exception)
    names = {file.name for file in folder.iterdir()}
    assert names == {"table.txt", "predicted.svg", "errors.svg"}
    assert str(folder / "errors.svg") in done.output
