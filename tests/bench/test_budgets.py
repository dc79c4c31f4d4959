"""Results of several budgets are told apart wherever they are drawn, listed or summed up."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from bench.test_page import drawings, network, poster, row, tree, words

from oocdnn.bench.report.curves import by_series, curve, curves
from oocdnn.bench.report.page import style
from oocdnn.bench.report.picture import picture
from oocdnn.bench.report.summary import summaries
from oocdnn.bench.report.tables import tables
from oocdnn.bench.results import Row


def test_several_budgets_are_told_apart() -> None:
    (drawing,) = drawings(tree([row(budget=1 << 20), row(), row("torch")]), "bars")
    names = [one.text for one in drawing.iter("text") if one.get("class") == "name"]
    assert names == ["oocdnn 1.0 MiB", "oocdnn 2.00 GiB", "torch, in core"]


def two_budgets(made: Callable[..., Row]) -> list[Row]:
    """Of two runs of some problems, within 1 and 4 GiB; torch has none, and was measured twice."""
    return [
        one
        for budget, slower in ((1 << 30, 4), (4 << 30, 1))
        for size in (64, 128)
        for one in (
            made(size, seconds=0.02 * slower, budget=budget),
            made(size, "torch", 0.01, budget=0),
        )
    ]


def test_a_table_has_a_column_for_each_budget() -> None:
    """Once the last one was all that was seen."""
    text = "\n".join(tables(two_budgets(poster)))
    head = "| problem | data | floor | oocdnn 1.00 GiB | torch, in core | oocdnn 4.00 GiB |"
    assert head in text
    assert "| c64 | 1.86 GiB | 10.0 ms | 80.0 ms (8.00, 1.00 GiB) | 10.0 ms (1.00, " in text
    assert text.count("| 20.0 ms (2.00, 1.00 GiB) |") == 2


def test_a_budget_of_its_own_for_each_problem_tells_nothing_apart() -> None:
    """As where none is given: it is an eighth of the data."""
    rows = [poster(size, budget=size << 20) for size in (64, 128, 256)]
    assert "| problem | data | floor | oocdnn |" in "\n".join(tables(rows))
    assert [(one.name, one.count) for one in summaries(rows)] == [("oocdnn", 3)]


def test_budgets_are_summed_up_apart() -> None:
    rows = two_budgets(poster)
    assert [(one.name, one.count, one.median) for one in summaries(rows)] == [
        ("oocdnn 1.00 GiB", 2, pytest.approx(8.0)),
        ("oocdnn 4.00 GiB", 2, pytest.approx(2.0)),
        ("torch", 4, pytest.approx(1.0)),
    ]
    assert "oocdnn 4.00 GiB" in words(next(tree(rows).iter("table")))


@pytest.mark.parametrize("made", ["poster", "network"])
def test_each_budget_has_its_curve(made: str) -> None:
    """Once two points stood at one x, joined by a line."""
    rows = two_budgets({"poster": poster, "network": network}[made])
    rows[4]["check"] = "mistrusted: z is rounded"
    ((kind, group),) = curves(rows)
    found = by_series(kind, group)
    names = [("oocdnn", 1 << 30), ("floor", 0), ("torch", 0), ("oocdnn", 4 << 30)]
    assert sorted(found) == sorted(names)
    assert all([x for x, _ in points] == [64, 128] for points in found.values())
    drawn = curve(kind, group, rows)
    root = ElementTree.fromstring(drawn)
    tips = {words(one): one.attrib["class"] for one in root.iter("circle")}
    (hollow,) = (tip for tip, shape in tips.items() if shape.endswith("hollow"))
    assert len(tips) == 6
    assert hollow.startswith("oocdnn 4.00 GiB, ")
    assert {"1.00 GiB", "4.00 GiB"} <= {one.text for one in root.iter("text")}
    legend = [words(one) for one in tree(rows).iter("li")]
    assert legend.count("oocdnn") >= 1
    assert "4.00 GiB" in words(ElementTree.fromstring(picture(rows, style())))
