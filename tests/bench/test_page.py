"""The page of results: what stands on it, and that it needs nothing from elsewhere."""

import importlib
import re
from collections import defaultdict
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from oocdnn._page import PALETTE
from oocdnn.bench.report import figures
from oocdnn.bench.report import page as page_module
from oocdnn.bench.report.curves import Scale
from oocdnn.bench.report.figures import HEIGHT, LONGEST
from oocdnn.bench.report.page import page, style
from oocdnn.bench.report.picture import picture
from oocdnn.bench.report.summary import summaries
from oocdnn.bench.report.tables import tables
from oocdnn.bench.report.timeline import Timeline
from oocdnn.bench.results import About, Row

PROBLEM = "conv2d:fwd x8x64x224x224 w64x64x3x3 pad1 f32"
ABOUT = About(
    date="2026-11-22",
    machine="two cores",
    versions={"oocdnn": "0.1.0", "numpy": "2.3"},
    command="oocdnn bench --set layers",
    commit="c0ffee",
    rates={"inward": 53e9, "outward": 55e9, "both": 91e9, "arithmetic": 400e12},
)


def row(who: str = "oocdnn", seconds: float | None = 0.020, **others: Any) -> Row:
    usual = Row(
        set="layers",
        layer="VGG16 conv1_2",
        times=3,
        problem=PROBLEM,
        who=who,
        device="cuda:0",
        dtype="float32",
        placement="pinned",
        budget=2 << 30,
        seconds=seconds,
        cold_seconds=0.5,
        noise=0.01,
        samples=9,
        dropped=0,
        floor_seconds=0.010,
        tiles=12,
        peak_device_bytes=1 << 30,
        bytes_h2d=10**9,
        bytes_d2h=10**9,
        data_bytes=2 * 10**9,
        flops=10**12,
        check="pass",
        machine="two cores",
        commit="c0ffee",
        command=f"oocdnn bench --problem '{PROBLEM}'",
    )
    return {**usual, **others}  # type: ignore[typeddict-item]


def skipped(who: str, check: str = "skipped: not installed") -> Row:
    nothing = {"cold_seconds": None, "noise": None, "samples": 0, "tiles": 0}
    return row(who, None, check=check, **nothing)


def tree(rows: list[Row], about: About = ABOUT) -> Element:
    """The whole page, which is XML from its first element to its last."""
    kind, _, document = page(rows, about).partition("\n")
    assert kind == "<!DOCTYPE html>"
    return ElementTree.fromstring(document)


def drawings(root: Element, kind: str) -> list[Element]:
    return [one for one in root.iter("svg") if one.get("class") == kind]


def bars(root: Element) -> list[Element]:
    return [bar for drawing in drawings(root, "bars") for bar in drawing.iter("rect")]


def words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def width(bar: Element) -> float:
    return float(bar.attrib["width"].removesuffix("%"))


def test_bars_are_as_long_as_their_ratio() -> None:
    root = tree([row(seconds=0.010), row("whole", 0.025), row("torch", 0.040)])
    short, middle, long = map(width, bars(root))
    assert middle / short == pytest.approx(2.5, rel=1e-3)
    assert long / short == pytest.approx(4.0, rel=1e-3)
    assert long < 100


def test_the_line_of_the_floor_ends_a_bar_of_1() -> None:
    root = tree([row(seconds=0.010), row("torch", 0.030)])
    floors = [line for line in root.iter("line") if line.get("class") == "floor" and line.get("x1")]
    place = next(line.attrib["x1"] for line in floors if line.attrib["x1"].endswith("%"))
    assert float(place.removesuffix("%")) == pytest.approx(width(bars(root)[0]), abs=0.01)


@pytest.mark.parametrize("floor", [0.010, 0.010 / LONGEST])
def test_bars_of_other_problems_have_the_same_scale(floor: float) -> None:
    other = row(problem="conv1d:fwd x1x1x99 w1x1x3 f32", seconds=0.015, floor_seconds=0.005)
    root = tree([row(), other, row("torch", floor_seconds=floor)])
    assert len(drawings(root, "bars")) == 2
    ours, torch, others = map(width, bars(root))
    assert others / ours == pytest.approx(1.5, rel=1e-3)
    assert max(torch, ours, others) <= 100


def test_a_bar_that_is_too_long_is_cut_and_says_so() -> None:
    root = tree([row(), row("torch", 1.56)])
    assert [width(bar) for bar in bars(root)] == pytest.approx([100 * 2 / LONGEST, 100], abs=0.1)
    assert "» 156" in words(root)


@pytest.mark.parametrize(
    "check", ["skipped: no such library", "fail: 3 elements differ", "mistrusted: too noisy"]
)
@pytest.mark.parametrize("seconds", [None, 0.012])
def test_what_does_not_count_stands_as_words_without_a_bar(
    check: str, seconds: float | None
) -> None:
    root = tree([row(), row("torch", seconds, check=check)])
    assert len(bars(root)) == 1
    (drawing,) = drawings(root, "bars")
    assert check.partition(":")[0] in words(drawing)
    assert words(root).count(check) == 2  # below the bars and in the table
    assert {one.tag for one in drawings(root, "roofline")[0]} == {"line", "text", "circle"}


def test_no_time_and_no_floor_are_words_too() -> None:
    root = tree([row(floor_seconds=None), row("torch", None)])
    assert not bars(root)
    assert "no floor" in words(root)
    assert "no time" in words(root)


def test_nothing_but_skipped() -> None:
    root = tree([skipped("torch"), skipped("oocdnn", "skipped: no memory")])
    assert not bars(root)
    assert not drawings(root, "roofline")
    assert "skipped: no memory" in words(root)
    assert "2 skipped" in words(root)


def test_every_row_is_in_the_table_with_its_command() -> None:
    rows = [
        row(),
        row("managed", 0.1, check="mistrusted: others were busy", command="repeat this"),
        row(problem="conv3d:fwd x1x1x9x9x9 w1x1x3x3x3 f32", budget=1 << 20, machine="another"),
        skipped("zero copy"),
    ]
    *_, table = tree(rows).iter("table")
    for one in rows:
        for field in ("problem", "check", "command", "machine", "commit", "who"):
            assert one[field] in words(table)  # type: ignore[literal-required]
    assert len([line for line in table.iter("tr") if line.find("td") is not None]) == len(rows)
    for figure in ("20.0 ms", "1.0 %", "2.000", "50.0 T", "100 GB/s", "2.00 GiB", "1.0 MiB"):
        assert figure in words(table)


def test_a_row_without_a_command_has_nothing_to_open() -> None:
    root = tree([row(), row("whole", command="")])
    assert len(list(root.iter("details"))) == 1


def test_a_header_leaves_out_what_is_not_known() -> None:
    root = tree([row()], {**ABOUT, "commit": "", "rates": {}})
    named = [one.text for one in root.iter("dt")]
    assert named == ["machine", "date", "versions", "command"]


def test_names_are_escaped() -> None:
    name, whole = "<b>&amp;\"'", ABOUT.copy()
    whole["machine"] = whole["command"] = name
    whole["versions"] = {name: name}
    texts = dict.fromkeys(("set", "layer", "problem", "device", "dtype", "placement"), name)
    more = dict.fromkeys(("machine", "commit", "command"), name)
    root = tree([row(name, **texts, **more), row("oocdnn", **texts, check=f"fail: {name}")], whole)
    assert words(root).count(name) > 12
    assert "b" not in {one.tag for cell in root.iter("td") for one in cell.iter()}


def test_control_characters_do_not_break_the_page() -> None:
    assert "�[31mno" in words(tree([row(check="fail: \x1b[31mno\x00\ud800")]))


def test_a_peer_has_one_colour_and_no_two_have_the_same() -> None:
    peers = ["new", "torch", "whole", "oocdnn", "managed", "other"]
    rows = [row(who, problem=problem) for problem in ("a", "b") for who in peers]
    root = tree([*rows, row("torch", problem="c")])
    colours: dict[str, set[str | None]] = defaultdict(set)

    def who(drawn: Any) -> str:
        """Without what is said of the row, and without where its arrays are."""
        return words(drawn).partition(":")[0].partition(",")[0]

    for entry in root.iter("li"):
        for swatch in entry.iter("rect"):
            colours[words(entry)].add(swatch.get("class"))
    for bar in bars(root):
        colours[who(bar)].add(bar.get("class"))
    for mark in drawings(root, "roofline")[0]:
        if "point" in mark.get("class", ""):
            colours[who(mark)].add(mark.attrib["class"].split()[0])
    for line in root.iter("tr"):
        if line.find("td") is not None:
            colours[who(line[0])].add(next(line.iter("rect")).get("class"))
    assert set(colours) == set(peers)
    assert all(len(kinds) == 1 for kinds in colours.values())
    assert len(set.union(*colours.values())) == len(peers)


def test_a_known_peer_has_its_colour_on_every_page() -> None:
    assert {figures.shade("torch", rows) for rows in ([], [row("new"), row("torch")])} == {"c2"}
    style = page([], ABOUT)
    assert all(colour in style for pair in PALETTE for colour in pair)
    assert "prefers-color-scheme: dark" in style


def test_the_page_names_the_module_of_its_drawings() -> None:
    (named,) = re.findall("`(oocdnn[.][a-z.]+)`", page_module.__doc__ or "")
    assert importlib.import_module(named) is figures


def test_whose_arrays_are_on_the_gpu_already_is_said() -> None:
    """A wire is in the time of all others there; on a CPU there is none."""
    peers = [row(), row("whole"), row("torch")]
    assert figures.labels(peers) == ["oocdnn", "whole", "torch, in core"]
    assert figures.labels([row("torch", device="cpu")]) == ["torch"]


def test_a_long_name_is_cut_beside_its_bar_only() -> None:
    name = "a peer with a long name"
    root = tree([row(name)])
    (drawing,) = drawings(root, "bars")
    assert "a peer with a l…" in [one.text for one in drawing.iter("text")]
    assert name in [words(entry) for entry in root.iter("li")]


def places(root: Element, kind: str) -> list[tuple[float, float]]:
    """Both ends of the one line of a class in the roofline."""
    (found,) = (one for one in drawings(root, "roofline")[0] if one.get("class") == kind)
    value = {
        name: float(text.rstrip("%")) for name, text in found.attrib.items() if name != "class"
    }
    return [(value["x1"], value["y1"]), (value["x2"], value["y2"])]


def test_the_roof_of_wire_and_arithmetic() -> None:
    at_the_roof = row("whole", seconds=2e9 / 91e9)
    root = tree([row(), at_the_roof])
    (x1, y1), (x2, y2) = places(root, "slope")
    (ridge, top), (end, also_top) = places(root, "level")
    assert (x2, y2) == (ridge, top)
    assert (end, also_top) == (100, top)
    (square,) = (one for one in drawings(root, "roofline")[0] if one.tag == "rect")
    x, y = float(square.attrib["x"].rstrip("%")), float(square.attrib["y"])
    assert y == pytest.approx(y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs=0.5)


@pytest.mark.parametrize(
    ("rates", "drawn", "said"),
    [
        ({}, set(), ["The wire was not measured", "Arithmetic was not measured"]),
        ({"arithmetic": 4e14}, {"level"}, ["The wire was not measured"]),
        ({"inward": 53e9}, {"slope"}, ["Arithmetic was not measured", "inward: 53.0 GB/s"]),
    ],
)
def test_a_missing_rate_is_left_out_with_a_sentence(
    rates: dict[str, float], drawn: set[str], said: list[str]
) -> None:
    root = tree([row()], {**ABOUT, "rates": rates})
    kinds = {one.get("class") for one in drawings(root, "roofline")[0]}
    assert kinds & {"slope", "level"} == drawn
    assert all(sentence in words(root) for sentence in said)


def test_the_page_needs_nothing_from_elsewhere() -> None:
    document = page([row(), skipped("torch")], ABOUT)
    assert "http" not in document
    assert not re.search(r"<(script|link|img|iframe|object)|@import|url\(", document)


def test_nothing_was_measured() -> None:
    root = tree([])
    assert "Nothing was measured" in words(root)
    assert "two cores" in words(root)
    assert not list(root.iter("svg"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0184, "18.4 ms"),
        (0.9996, "1.00 s"),
        (15.674, "15.7 s"),
        (1234.0, "1.23 ks"),
        (999.4e-6, "999 µs"),
        (0.0, "0.00 s"),
        (2e-12, "0.00200 ns"),
    ],
)
def test_units(value: float, text: str) -> None:
    assert figures.si(value, "s") == text


@pytest.mark.parametrize("end", [1.2, 2.0, 3.0, 4.5, 6.0, 10.8, LONGEST])
def test_the_axis_has_a_line_at_1(end: float) -> None:
    ticks = figures.ticks(end)
    assert 1.0 in ticks
    assert 3 <= len(ticks) <= 8
    assert max(ticks) <= end


def network(batch: int, who: str = "oocdnn", seconds: float | None = 0.1, **others: Any) -> Row:
    problem = f"vgg16:train x{batch}x3x224x224 f32"
    return row(who, seconds, problem=problem, layer=f"vgg16 n{batch}", set="network", **others)


def test_a_networks_time_for_an_image_is_drawn_by_batch() -> None:
    """Discs at each batch of each peer that is right, joined by lines, and the floor's line."""
    rows = [network(64, seconds=0.64), network(128, seconds=1.28), network(128, "torch", 0.9)]
    rows.append(network(64, "checkpoint", check="fail: it differs"))
    root = tree(rows)
    (drawing,) = (
        one for one in drawings(root, "roofline") if one.get("aria-label", "")[:4] == "time"
    )
    tips = [words(one) for one in drawing.iter("circle")]
    assert tips == [
        "oocdnn, batch 64: 10.0 ms for an image",
        "oocdnn, batch 128: 10.0 ms for an image",
        "torch, batch 128: 7.03 ms for an image",
    ]
    lines = [one.get("class") for one in drawing.iter("line")]
    assert lines.count("path c0") == 1
    assert lines.count("floor") == 1
    heights = {circle.get("cy") for circle in drawing.iter("circle")}
    assert len(heights) == 2  # the same time for an image is the same height


def test_one_batch_alone_and_none_that_counts_can_be_drawn() -> None:
    assert "batch 1: 100 ms for an image" in words(tree([network(1)]))
    assert "No result has a place here." in words(tree([network(1, check="fail: it differs")]))


def poster(channels: int, who: str = "oocdnn", seconds: float = 0.02, **others: Any) -> Row:
    problem = f"conv2d:fwd x1x{channels}x1024x1024 w{channels}x{channels}x3x3 pad1 f32"
    return row(who, seconds, problem=problem, layer=f"c{channels}", set="poster", **others)


def test_a_sweeps_time_over_the_floor_is_drawn_by_channels() -> None:
    """By its logarithm where someone takes many times as long."""
    rows = [poster(64), poster(2048), poster(64, "managed", 0.2), poster(2048, "managed", 0.2)]
    root = tree([*rows, row()])
    (drawing,) = (
        one for one in drawings(root, "roofline") if one.get("aria-label", "")[:9] == "time over"
    )
    tips = [words(one) for one in drawing.iter("circle")]
    assert tips[0] == "oocdnn, 64 channels: 2 times the floor"
    assert tips[-1] == "managed, 2048 channels: 20 times the floor"
    heights = sorted({float(circle.attrib["cy"]) for circle in drawing.iter("circle")})
    (floor,) = (one for one in drawing.iter("line") if one.get("class") == "floor")
    scale = Scale([(64, 1.0), (2048, 20.0)])
    assert scale.marks == [1, 2, 5, 10, 20]
    assert heights == pytest.approx([scale((64, y))[1] for y in (20.0, 2.0)], abs=0.1)
    assert float(floor.attrib["y1"]) == pytest.approx(HEIGHT)


def test_what_is_mistrusted_is_hollow_and_said_beside_its_time() -> None:
    doubtful = "mistrusted: z is rounded"
    rows = [network(64), network(64, "torch", 0.32, check=doubtful), network(128, "torch", 0.64)]
    shapes = list(ElementTree.fromstring(picture(rows, style())).iter())
    kinds = {words(one): one.attrib["class"] for one in shapes if one.tag.endswith("circle")}
    assert [kind.rpartition(" ")[2] for kind in kinds.values()] == ["point", "hollow", "point"]
    assert [said.endswith(", mistrusted") for said in kinds] == [False, True, False]
    assert "| mistrusted: 5.00 ms |" in "\n".join(tables(rows))


def test_a_picture_stands_alone_and_has_all_curves() -> None:
    rows = [network(64), network(128, "torch"), network(64, dtype="f32/tf32"), poster(64)]
    rows[2]["problem"] += "/tf32"
    root = ElementTree.fromstring(picture(rows, style()))
    said = words(root)
    for title in ("Time for an image, by batch, float32", "by batch, f32/tf32", "by channels, "):
        assert title in said
    assert "torch, in core" in said
    assert len([one for one in root if one.tag.endswith("svg")]) == 3
    assert "http" not in picture(rows, style()).replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(ValueError, match="no result of a network"):
        picture([row(), network(64, check="fail: it differs")], style())


def test_a_table_has_a_line_for_each_problem_or_says_how_many_lie() -> None:
    rows = [network(64, seconds=0.64, peak_device_bytes=1 << 30), network(64, "torch", 0.32)]
    text = "\n".join(tables([*rows, skipped("managed")]))
    assert "| problem | data | floor | oocdnn | torch, in core |" in text
    assert "| vgg16 n64 | 1.86 GiB | 156 µs | 10.0 ms (2.00, 1.00 GiB) | 5.00 ms (1.00" in text
    assert "| skipped |" in text
    many = [row(seconds=0.01 * i, problem=f"p{i}") for i in range(1, 21)]
    assert "| oocdnn | 20 | 10.50 | 18.00 | 20.00 | 10.50 |" in "\n".join(tables(many))


def test_time_over_torchs_is_in_the_table() -> None:
    root = tree([row(seconds=0.037), row("torch", 0.010)])
    assert "over torch" in words(root)
    assert [words(cell) for cell in root.iter("td")].count(
        "3.700"
    ) == 2  # the floor too takes 10 ms


def test_a_set_is_summed_up_over_what_is_right() -> None:
    rows = [row(seconds=0.01 * i, layer=f"l{i}", times=i) for i in (1, 2, 3, 4)]
    rows += [row(seconds=9.0, check="fail: it differs"), row("torch", 0.02)]
    (one,) = summaries(rows)
    assert (one.set, one.who, one.count) == ("layers", "oocdnn", 4)
    assert (one.median, one.ninth, one.worst) == pytest.approx((2.5, 4.0, 4.0))
    assert one.total == pytest.approx((1 + 4 + 9 + 16) / (1 + 2 + 3 + 4))
    assert "In short" in words(tree(rows))
    assert "In short" not in words(tree(rows[-1:]))


def test_one_call_is_drawn_where_it_was_recorded() -> None:
    spans = {"fetch": [(0.0, 0.1), (0.1, 0.1)], "compute": [(0.1, 0.3)], "drain": [(0.4, 0.1)]}
    _, _, document = page(
        [row()], ABOUT, Timeline(problem=PROBLEM, budget=1 << 20, spans=spans)
    ).partition("\n")
    root = ElementTree.fromstring(document)
    (drawing,) = (
        one for one in root.iter("svg") if one.get("aria-label") == "when each engine worked"
    )
    bars_ = [(one.get("x"), one.get("width")) for one in drawing.iter("rect")]
    assert bars_ == [
        ("0.000%", "20.000%"),
        ("20.000%", "20.000%"),
        ("20.000%", "60.000%"),
        ("80.000%", "20.000%"),
    ]
    assert "One call" in words(root)
    assert "One call" not in words(tree([row()]))
