"""The sets of the benchmarks hold what their sources publish."""

import math

import pytest
from geometry import core

from oocdnn.bench.cases import smaller
from oocdnn.bench.layers import DIRECTIONS, ROLES, Direction
from oocdnn.bench.sets import SETS, Set

EVERY_SET = pytest.mark.parametrize("one", SETS.values(), ids=SETS)


def products_per_image(one: Set) -> float:
    """Multiply-adds of a forward pass."""
    return one.flops / 2 / one.layers[0].n


def count(one: Set) -> int:
    return sum(one.times_of(case) for case in one.layers)


@pytest.mark.parametrize(
    ("name", "batch", "distinct", "convolutions", "products"),
    [
        ("vgg16", 64, 13, 13, 15_346_630_656),
        ("resnet18", 256, 11, 20, 1_813_561_344),
        ("resnet50", 256, 23, 53, 4_087_136_256),
        ("alexnet", 256, 5, 5, 655_566_528),
    ],
)
def test_totals_of_networks(
    name: str, batch: int, distinct: int, convolutions: int, products: int
) -> None:
    one = SETS[name]
    assert {case.n for case in one.layers} == {batch}
    assert len(one.layers) == distinct
    assert count(one) == convolutions
    assert products_per_image(one) == products


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("vgg16", 14_710_464),
        ("resnet18", 11_166_912),
        ("resnet50", 23_454_912),
        ("alexnet", 2_468_544),
    ],
)
def test_weights_of_networks(name: str, parameters: int) -> None:
    one = SETS[name]
    weights = (one.times_of(case) * math.prod(case.shape("w")) for case in one.layers)
    assert sum(weights) == parameters


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_what_occurs_several_times_is_listed_once(name: str) -> None:
    one = SETS[name]
    assert len({case.problem("fwd") for case in one.layers}) == len(one.layers)


@pytest.mark.parametrize(
    ("name", "entries", "distinct", "products"),
    [("deepbench", 94, 90, 281_252_180_480), ("deepbench-inference", 107, 103, 43_441_559_936)],
)
def test_lists_of_deepbench(name: str, entries: int, distinct: int, products: int) -> None:
    one = SETS[name]
    assert len(one.layers) == count(one) == entries
    assert len({case.problem("fwd") for case in one.layers}) == distinct
    assert one.flops == 2 * products


def test_width_and_height_of_deepbench() -> None:
    cases = {case.name: case for case in SETS["deepbench"].layers}
    assert cases["speech1 n32"].problem("fwd") == "conv2d:fwd x32x1x161x700 w32x1x5x20 str2"
    assert cases["speech1 n32"].outputs == cases["speech2 n32"].extents == (79, 341)


def test_inference_of_deepbench_has_the_layers_of_training() -> None:
    def layers_of(name: str) -> set[str]:
        return {case.name.split()[0] for case in SETS[name].layers}

    assert layers_of("deepbench") == layers_of("deepbench-inference")


def test_directions() -> None:
    forward = {name for name, one in SETS.items() if one.directions == ("fwd",)}
    assert forward == {"deepbench-inference", "poster", "large"}
    assert all(one.directions == DIRECTIONS for name, one in SETS.items() if name not in forward)
    more = [(case.name, direction) for case, direction in SETS["large"].calls if direction != "fwd"]
    assert more == [
        ("3-D U-Net", "bwd_data"),
        ("3-D U-Net", "bwd_filter"),
        ("pathology", "bwd_filter"),
    ]


def test_large_layers_are_larger_than_a_small_gpu() -> None:
    assert len(SETS["large"].layers) == 10
    assert min(case.data_bytes for case in SETS["large"].layers) > 11e9


@EVERY_SET
def test_names(one: Set) -> None:
    names = {case.name for case in one.layers}
    assert SETS[one.name] is one
    assert len(names) == len(one.layers)
    assert {*one.times, *one.only} <= names
    assert all(often > 1 for often in one.times.values())


@EVERY_SET
def test_calls(one: Set) -> None:
    assert len(set(one.calls)) == len(one.calls) >= len(one.layers)
    assert {case for case, _ in one.calls} == set(one.layers)


@EVERY_SET
def test_extents_are_positive(one: Set) -> None:
    for case in one.layers:
        assert all(extent >= 1 for operand in ROLES["fwd"] for extent in case.shape(operand))
        assert min(case.taps + case.stride + case.dilation) >= 1


@EVERY_SET
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_problem_strings_are_the_library_s(one: Set, direction: Direction) -> None:
    for case in one.layers:
        text = case.problem(direction)
        problem = core.parse(text)
        core.validate(problem)
        assert core.text_of(problem) == text
        n, groups, k, *outputs = core.dims_of(problem, core.Y)
        assert (n, groups * k, *outputs[-case.rank :]) == case.shape("y")


@EVERY_SET
def test_quick_layers_take_a_moment(one: Set) -> None:
    for case in one.layers:
        quick = smaller(case, 1e10)
        assert quick.flops <= max(1e10, 4e8 * math.prod(quick.taps)), case.name
        assert quick.n <= case.n
        assert all(have <= whole for have, whole in zip(quick.extents, case.extents, strict=True))
        assert min(quick.outputs) >= 1
        if case.flops <= 1e10:
            assert quick == case
