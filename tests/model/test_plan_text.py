"""Plans as text: what is printed reads back as the same plan, and what is no plan is refused with
the word that is wrong. And random plans, which the search is judged by."""

from __future__ import annotations

import ctypes
import json
from ctypes import byref, c_int64

import pytest
from geometry import core
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile, Refused

ENGINES = "first+symmetric,second"
PROBLEMS = (
    "conv2d:fwd x6x8x24x20 w12x8x3x3 pad1",
    "conv2d:fwd x2x3x24x20 w64x3x3x3 pad1",  # few channels in
    "conv3d:bwd_data x2x6x9x10x11 w8x6x3x3x3 pad1 str2",
    "conv2d:bwd_filter x5x8x12x12 w8x4x5x5 grp2",
    "conv1d:bwd_bias y9x6x50",
    "conv2d:fwd x1x1x1x1 w1x1x1x1",
)


def plans(problem, budget, count, seed, profile=None, engines=ENGINES) -> list[dict]:
    text = ctypes.create_string_buffer(planner.ROOM)
    code = planner.library().oocdnn_testing_plan_texts(
        byref(problem), c_int64(budget), engines.encode(), (profile or Profile()).text().encode(),
        count, c_int64(seed), text, c_int64(planner.ROOM),
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    return json.loads(text.value)


def printed_again(problem, plan: str, reproducible: bool = False) -> str:
    text = ctypes.create_string_buffer(planner.ROOM)
    code = planner.library().oocdnn_testing_parse_plan(
        byref(problem), ENGINES.encode(), reproducible, plan.encode(), text, c_int64(planner.ROOM)
    )
    if code != 0:
        raise Refused(code, text.value.decode())
    return text.value.decode()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PROBLEMS), st.integers(8_000, 200_000), st.integers(0, 2**31))
def test_what_is_printed_reads_back(text, budget, seed):
    problem = core.parse(text)
    for plan in plans(problem, budget, 10, seed):
        assert plan["same"], plan
        assert printed_again(problem, plan["text"]) == plan["text"]


def test_json_holds_any_name():
    names = {'back\\slash"', "line\x01\n"}
    found = plans(core.parse(PROBLEMS[0]), 200_000, 20, 1, engines=",".join(names))
    seen = [name for name in names for plan in found if plan["text"].startswith(f"{name} ")]
    assert len(seen) == len(found)
    assert set(seen) == names


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(PROBLEMS[:4]), st.data())
def test_a_taper_reads_back(text, data):
    """Its length is rounded up to whole strides of backward data, or comes to nothing."""
    problem = core.parse(text)
    extents = core.make_tiling(problem, [2**40] * 7).extent
    axis = data.draw(st.sampled_from([a for a in range(7) if extents[a] > 2]))
    usual = data.draw(st.integers(2, extents[axis] - 1))
    short = data.draw(st.integers(1, usual - 1))
    letter = "ngkcdhw"[axis]
    tiling = core.make_tiling(problem, [usual if a == axis else 2**40 for a in range(7)])
    if core.counts(tiling)[axis] == 1:
        return
    core.taper(problem, tiling, axis, short)
    printed = printed_again(problem, f"first {letter}{usual} taper {letter}{short}")
    assert printed.endswith(f" taper {letter}{tiling.taper.length}" if tiling.taper.length else "2")
    assert printed_again(problem, printed) == printed


def test_random_plans_fit_and_differ_and_come_again():
    problem = core.parse(PROBLEMS[0])
    found = plans(problem, 20_000, 15, seed=7)
    assert len({plan["text"] for plan in found}) == len(found) == 15
    assert all(0 < plan["device_bytes"] <= 20_000 for plan in found)
    assert {plan["text"].split()[0] for plan in found} == {"first", "second"}
    assert found == plans(problem, 20_000, 15, seed=7) != plans(problem, 20_000, 15, seed=8)


def test_no_random_plan_is_predicted_to_be_faster_than_the_chosen():
    for text in PROBLEMS[:4]:
        problem = core.parse(text)
        chosen = plans(problem, 20_000, 1, seed=0)[0]
        for plan in plans(problem, 20_000, 60, seed=3):
            assert plan["seconds"] >= chosen["seconds"] / 1.05, (text, chosen, plan)


GOOD = "first n2 g1 k12 c8 d1 h8 w20 order nh slots 2,1,2"


@pytest.mark.parametrize(
    ("plan", "whole"),
    [
        ("first n2 h8 order nh slots 2,1,2", GOOD),
        ("first slots 2,1,2 order nh h8 n2", GOOD),
        ("first", "first n6 g1 k12 c8 d1 h24 w20 order - slots 2,2,2"),
        ("second h5 slots 3", "second n6 g1 k12 c8 d1 h5 w20 order h slots 3,3,3"),
        ("second h5 taper h2", "second n6 g1 k12 c8 d1 h5 w20 order h slots 2,2,2 taper h2"),
        ("second taper n1 n2", "second n2 g1 k12 c8 d1 h24 w20 order n slots 2,2,2 taper n1"),
        ("n1 c4", "first n1 g1 k12 c4 d1 h24 w20 order nc slots 2,2,2"),  # both are as fast
    ],
)
def test_what_is_left_out_is_as_usual(plan, whole):
    assert printed_again(core.parse(PROBLEMS[0]), plan) == whole


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("first", "third", "no engine that serves, which are first, second"),
        (GOOD, "  ", "it says nothing"),
        ("n2", "n7", "a length from 1 to 6"),
        ("n2", "n0", "a length from 1 to 6"),
        ("n2", "n", "a length from 1 to 6"),
        ("k12", "q12", "not an axis and a length"),
        ("order nh", "order n", "H is cut, too"),
        ("order nh", "order nn", "not some of the letters"),
        ("order nh", "order nx", "not some of the letters"),
        ("2,1,2", "2,1", "not 3 numbers from 1 to 16, or one"),
        ("2,1,2", "2,1,2,1", "more slots than the problem has operands"),
        ("2,1,2", "2,1,17", "not 3 numbers from 1 to 16"),
        ("2,1,2", "0", "not 3 numbers from 1 to 16"),
        ("c8 d1 h8 w20 order nh", "c4 d1 h8 w20 order cnh", "summed over come last"),
        (" 2,1,2", "", "nothing comes after it"),
        ("slots 2,1,2", "taper h8", "not h and a length from 1 to 7"),
        ("slots 2,1,2", "taper h0", "not h and a length from 1 to 7"),
        ("slots 2,1,2", "taper 3", "not the letter of an axis that is cut"),
        ("slots 2,1,2", "taper w3", "not the letter of an axis that is cut"),
        ("slots 2,1,2", "taper", "nothing comes after it"),
    ],
)
def test_what_is_no_plan_is_refused(old, new, why):
    problem = core.parse(PROBLEMS[0])
    assert printed_again(problem, GOOD) == GOOD
    with pytest.raises(Refused, match=why):
        printed_again(problem, GOOD.replace(old, new))


# Of f64, whose sums have no blocks.
SUMS = core.parse("conv2d:bwd_filter x4x2x6x6 w8x2x1x1 f64")


@pytest.mark.parametrize("plan", ["n1 h1 w2 order nhw", "n2 order n", "k4 n1 h3 order knh"])
def test_reproducible_sums_add_up_in_one_order(plan):
    assert printed_again(SUMS, f"first {plan}", True) == printed_again(SUMS, f"first {plan}")


@pytest.mark.parametrize("plan", ["n1 h1 w2 order nwh", "n1 h2 order hn", "n1 h2 w2 order nhw"])
def test_plans_of_other_sums_are_refused_where_bits_must_not_depend_on_them(plan):
    assert printed_again(SUMS, f"first {plan}")
    with pytest.raises(Refused, match=r"its bits depend on the tiles, and reproducible"):
        printed_again(SUMS, f"first {plan}", True)
