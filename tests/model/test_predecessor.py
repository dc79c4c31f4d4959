"""ooc_cuDNN's model and search: the figures known of it, its freezing, and the table."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn.bench.layers import Layer, layer
from oocdnn.perfmodel import predecessor_table as tables
from oocdnn.perfmodel.__main__ import main
from oocdnn.perfmodel.predecessor import (
    COORDINATES,
    Line,
    Machine,
    Model,
    Steps,
    greedy,
    line_through,
    optimum,
)
from oocdnn.perfmodel.predecessor_table import Case, compare

GREEDY_FIGURES = {  # seconds of the greedy's plan and of the best, by its own model
    ("2048 to 2048 at 1024", "TF32"): (0.314, 0.227),
    ("8192 to 8192 at 64", "P100"): (51.7, 2.2),
    ("8192 to 8192 at 64", "TF32"): (11.3, 0.072),
}
CASES = {(case.layer.name, case.machine): case for case in tables.cases()}


@pytest.mark.parametrize("name", GREEDY_FIGURES)
def test_known_figures(name):
    """Its constants for a copy and a convolution of nothing are not known with them."""
    model = CASES[name].model
    seconds = model.of(greedy(model)), model.of(optimum(model))
    assert seconds == pytest.approx(GREEDY_FIGURES[name], rel=0.05)


def test_what_does_not_fit_at_first_is_frozen_at_the_most_pieces():
    chosen = greedy(CASES["8192 to 8192 at 64", "P100"].model)
    assert (chosen.n, chosen.h) == (4, 64)
    assert 1 < chosen.c < 8192


@pytest.mark.parametrize("batch", [64, 256, 1024])
@pytest.mark.parametrize("name", ["1_2", "2_2", "3_2", "4_2", "5_1"])
def test_where_pieces_of_the_batch_fit_the_greedy_is_right(name, batch):
    model = CASES[f"VGG16 conv{name}, batch {batch}", "P100"].model
    assert model.of(greedy(model)) == pytest.approx(model.of(optimum(model)), rel=0.02)


@st.composite
def layers(draw) -> tuple[Layer, Machine]:
    n, c, k, size = (draw(st.integers(1, most)) for most in (5, 40, 40, 9))
    drawn = layer("", (n, c, size, size), k, draw(st.sampled_from((1, 3))), padding=1)
    rate, bias = draw(st.sampled_from((1e-9, 1e-7))), draw(st.sampled_from((0.0, 1e-7)))
    free = draw(st.integers(1_000, 300_000))
    return drawn, Machine(Line(1e-8, bias), Line(rate, bias), free)


def bytes_of_tile(drawn: Layer, steps: Steps) -> int:
    n, k, c = (-(-a // b) for a, b in ((drawn.n, steps.n), (drawn.k, steps.k), (drawn.c, steps.c)))
    rows = -(-drawn.outputs[0] // steps.h)
    x_rows = min(rows - 1 + drawn.taps[0], drawn.extents[0])
    x, y = n * c * x_rows * drawn.extents[1], n * k * rows * drawn.outputs[1]
    return 4 * (x + y + k * c * drawn.taps[0] ** 2)


@settings(max_examples=60, deadline=None)
@given(layers())
def test_the_optimum_is_the_best_of_all_tilings(pair):
    drawn, machine = pair
    model = Model(drawn, machine)
    counts = [  # without those that leave a piece empty
        [i for i in range(1, model.extents[name] + 1)
         if (i - 1) * -(-model.extents[name] // i) < model.extents[name]]
        for name in ("n", "k", "c", "h")
    ]  # fmt: skip
    seconds = {steps: model.of(Steps(*steps)) for steps in itertools.product(*counts)}
    for steps, taken in seconds.items():
        assert math.isfinite(taken) == (
            3 * bytes_of_tile(drawn, Steps(*steps)) < machine.free_bytes
        )
    if all(map(math.isinf, seconds.values())):
        with pytest.raises(ValueError, match="fits"):
            optimum(model)
    else:
        assert model.of(optimum(model)) == min(seconds.values())


@settings(max_examples=100, deadline=None)
@given(layers())
def test_the_greedy_improves_one_number_at_a_time(pair):
    model = Model(*pair)
    steps = greedy(model)
    last = COORDINATES[-1]
    taken = [
        model.of(Steps(**{**vars(steps), last: count}))
        for count in range(1, model.extents[last] + 1)
    ]
    if math.isinf(min(taken)):
        assert getattr(steps, last) == model.extents[last]
    else:
        assert model.of(steps) == min(taken)


def test_a_line_goes_through_both_measurements():
    line = line_through((100.0, 2.0), (300.0, 3.0))
    assert (line(100.0), line(300.0), line.bias) == (2.0, 3.0, 1.5)


@pytest.mark.parametrize("machine", tables.MACHINES)
def test_a_frozen_coordinate_costs_by_our_model_too(machine):
    case = CASES["8192 to 8192 at 64", machine]
    row = compare(case)
    assert row.our_seconds < row.greedy_seconds / 20
    # Ours cuts summed channels only for a quarter of the time.
    assert row.our_seconds < row.optimum_seconds * 1.05


def test_the_command_prints_a_table_and_json(monkeypatch):
    small = Case(layer("a layer", (8, 16, 32, 32), 16, 3, padding=1), "P100", 2**20)
    monkeypatch.setattr(tables, "cases", lambda: iter([small]))
    (row,) = json.loads(CliRunner().invoke(main, ["predecessor", "--json"]).output)
    assert row["case"] == "a layer"
    assert row["our_seconds"] > 0
    assert row["greedy"]["n"] > 1
    printed = CliRunner().invoke(main, ["predecessor"], env={"COLUMNS": "200"}).output
    assert "a layer" in printed
