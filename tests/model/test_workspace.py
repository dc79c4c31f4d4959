"""One workspace among many kernels: as good as an integer programme, exact in bytes."""

from __future__ import annotations

import itertools
import math
import random

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocdnn import InvalidProblem, OutOfMemory
from oocdnn.workspace import MicroBatch, divide_workspace, equal_shares, micro_batch_sizes, pareto


def option(seconds: float, size: int) -> MicroBatch:
    return MicroBatch(1, seconds, size)


def solver() -> highspy.Highs:
    """HiGHS that stops at nothing but the optimum."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 0.0)
    highs.setOptionValue("mip_feasibility_tolerance", 1e-9)
    return highs


def programme(layers: dict[int, list[MicroBatch]], total: int) -> highspy.HighsLp:
    """A variable for each option: one of each layer, and all within the total."""
    flat = [one for options in layers.values() for one in options]
    owner = [k for k, options in enumerate(layers.values()) for _ in options]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(flat), len(layers) + 1
    lp.col_cost_ = np.array([one.seconds for one in flat])
    lp.col_lower_, lp.col_upper_ = np.zeros(len(flat)), np.ones(len(flat))
    lp.row_lower_ = np.array([1.0] * len(layers) + [0.0])
    lp.row_upper_ = np.array([1.0] * len(layers) + [float(total)])
    lp.integrality_ = [highspy.HighsVarType.kInteger] * len(flat)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.arange(0, 2 * len(flat) + 1, 2)
    lp.a_matrix_.index_ = np.array([row for k in owner for row in (k, len(layers))])
    values = [value for one in flat for value in (1.0, float(one.workspace_bytes))]
    lp.a_matrix_.value_ = np.array(values)
    return lp


def optimum(highs: highspy.Highs, layers: dict[int, list[MicroBatch]], total: int) -> float | None:
    """The least seconds by HiGHS, None where nothing fits."""
    highs.passModel(programme(layers, total))
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return highs.getInfo().objective_function_value


def instance(seed: int) -> tuple[dict[int, list[MicroBatch]], int]:
    """Some layers have measured divisions, some have options of all kinds."""
    rng = random.Random(seed)
    layers = {}
    for k in range(rng.randint(1, 12)):
        if rng.random() < 0.5:
            layers[k] = [
                option(rng.randint(1, 4096) / 64, rng.randint(0, 4096))
                for _ in range(rng.randint(1, 8))
            ]
        else:
            scale, size = rng.randint(1, 64), rng.randint(1, 40)
            sizes = micro_batch_sizes(rng.choice([8, 16, 24]))
            fast = [MicroBatch(b, scale * (b + 1) / 64, size * b) for b in sizes]
            slow = [MicroBatch(b, scale * (9 * b + 1) / 64, b) for b in sizes]
            layers[k] = pareto(fast + slow, sizes[-1])
    most = sum(max(one.workspace_bytes for one in options) for options in layers.values())
    return layers, rng.randint(0, most)


@pytest.mark.parametrize("block", range(10))
def test_divisions_are_as_fast_as_an_integer_programmes(block):
    highs = solver()
    solved = 0
    for seed in range(50 * block, 50 * (block + 1)):
        layers, total = instance(seed)
        expected = optimum(highs, layers, total)
        if expected is None:
            with pytest.raises(OutOfMemory):
                divide_workspace(layers, total)
            continue
        solved += 1
        found = divide_workspace(layers, total)
        assert found.workspace_bytes <= total, seed
        assert found.seconds == pytest.approx(expected, rel=1e-9), seed
        assert found.least_seconds == found.seconds, seed
    assert solved >= 25


# Sums of these seconds are exact; bytes are of all magnitudes.
layers_of_all_kinds = st.dictionaries(
    st.integers(0, 99),
    st.lists(
        st.builds(
            option,
            st.integers(-8, 64).map(lambda eighths: eighths / 8),
            st.integers(0, 6) | st.integers(2**50, 2**50 + 6) | st.just(2**60),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=5,
)


def every_way(layers) -> list[tuple[int, float]]:
    """The (bytes, seconds) of all combinations."""
    return [
        (sum(one.workspace_bytes for one in way), sum(one.seconds for one in way))
        for way in itertools.product(*layers.values())
    ]


@settings(max_examples=300)
@given(layers_of_all_kinds, st.data())
def test_divisions_are_what_trying_everything_gives(layers, data):
    """At totals that are just enough for one of the ways, and a byte less."""
    ways = every_way(layers)
    total = data.draw(st.sampled_from(ways))[0] - data.draw(st.integers(0, 1))
    fitting = [seconds for size, seconds in ways if size <= total]
    if not fitting:
        least = min(size for size, _ in ways)
        with pytest.raises(OutOfMemory, match=f"allow {least} bytes") as refused:
            divide_workspace(layers, total)
        assert refused.value.least == least
        return
    found = divide_workspace(layers, total)
    assert found.seconds == found.least_seconds == min(fitting)
    assert found.workspace_bytes <= total
    assert list(found.chosen) == list(layers)
    assert all(any(given is one for one in layers[key]) for key, given in found.chosen.items())
    chosen = found.chosen.values()
    assert found.seconds == sum(one.seconds for one in chosen)
    assert found.workspace_bytes == sum(one.workspace_bytes for one in chosen)


def test_a_byte_less_than_a_division_needs_is_another_division():
    layers = {"a": [option(1.0, 100), option(3.0, 10)], "b": [option(1.0, 50), option(2.0, 20)]}
    assert divide_workspace(layers, 150).seconds == 2.0
    assert divide_workspace(layers, 149).seconds == 3.0
    assert divide_workspace(layers, 119).seconds == 4.0
    assert divide_workspace(layers, 30).seconds == 5.0
    with pytest.raises(OutOfMemory) as refused:
        divide_workspace(layers, 29)
    assert refused.value.least == 30


def test_an_option_between_two_better_ones_counts():
    """No mix of options bounds it from above, so that only the state itself leads to it."""
    layers = {"a": [option(4.0, 0), option(3.5, 3), option(0.0, 4)], "b": [option(1.0, 2)]}
    assert [divide_workspace(layers, total).seconds for total in (4, 5, 6)] == [5.0, 4.5, 1.0]


def test_bytes_beyond_all_counting_do_not_fit():
    layers = {k: [option(1.0, 2**62)] for k in range(3)}
    with pytest.raises(OutOfMemory):
        divide_workspace(layers, 2**63 - 1)


def test_many_layers_that_are_alike():
    """As the blocks of a residual network are; the best is known."""
    layers = {k: [option(3.0, 0), option(2.0, 10), option(0.5, 30)] for k in range(300)}
    found = divide_workspace(layers, 100 * 30 + 29)
    assert found.seconds == found.least_seconds == 900 - 300 * 1.0 - 1.5


def hard_instance(kernels: int) -> tuple[dict[int, list[MicroBatch]], int, float]:
    """A sum of subsets: a byte is worth the same everywhere, so that no bound tells states apart,
    and one way fills the total. The seconds of that way come last."""
    rng = random.Random(1)
    sizes = [rng.randrange(2**40) for _ in range(kernels)]
    layers = {k: [option(2.0**10, 0), option(2.0**10 - n / 2**30, n)] for k, n in enumerate(sizes)}
    total = sum(rng.sample(sizes, kernels // 2))
    return layers, total, kernels * 2.0**10 - total / 2**30


def test_beyond_the_most_states_a_division_says_what_it_may_lack():
    layers, total, best = hard_instance(60)
    found = divide_workspace(layers, total)
    assert found.workspace_bytes <= total
    assert found.least_seconds <= best < found.seconds < best * (1 + 1e-7)


def test_where_all_states_are_kept_a_division_is_the_best():
    layers, total, best = hard_instance(16)
    found = divide_workspace(layers, total)
    assert found.workspace_bytes == total
    assert found.seconds == found.least_seconds == best


@given(layers_of_all_kinds, st.integers(0, 2**53))
def test_equal_shares_are_never_faster(layers, total):
    share = total // max(len(layers), 1)
    if any(min(one.workspace_bytes for one in options) > share for options in layers.values()):
        with pytest.raises(OutOfMemory) as refused:
            equal_shares(layers, total)
        assert equal_shares(layers, refused.value.least).workspace_bytes <= refused.value.least
        with pytest.raises(OutOfMemory):
            equal_shares(layers, refused.value.least - 1)
        return
    equal = equal_shares(layers, total)
    for key, given_ in equal.chosen.items():
        fitting = [one.seconds for one in layers[key] if one.workspace_bytes <= share]
        assert given_.seconds == min(fitting)
    assert equal.workspace_bytes <= total
    assert divide_workspace(layers, total).seconds <= equal.seconds


def test_what_makes_no_sense_is_refused():
    for bad in (option(math.nan, 1), option(math.inf, 1), option(1.0, -1)):
        with pytest.raises(InvalidProblem, match="kernel 1 has"):
            divide_workspace({"a": [option(1.0, 1)], "b": [bad]}, 100)
    for divide in (divide_workspace, equal_shares):
        with pytest.raises(InvalidProblem, match="no option"):
            divide({"a": []}, 100)
        assert divide({}, 0).chosen == {}
