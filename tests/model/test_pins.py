"""Operands in pageable memory are staged, or pinned for the call: whichever ends sooner."""

from __future__ import annotations

import ctypes
import dataclasses
from ctypes import byref, c_double, c_int, c_int64

import pytest
from geometry import core
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile

import oocdnn

GAIN = 1.02  # kPinGain
NO_LIMIT = 2**62
# With little memory w crosses for every tile of x, or x for every tile of w.
AGAIN_AND_AGAIN = "conv2d:fwd x4x64x32x32 w64x64x3x3 pad1"
PROBLEMS = [
    AGAIN_AND_AGAIN,
    "conv2d:fwd x2x8x40x40 w8x8x3x3 pad1",
    "conv2d:bwd_data x4x32x24x24 w64x32x3x3 pad1",
    "conv2d:bwd_filter x4x32x24x24 w64x32x3x3 pad1",
]
SLOW_STAGES = {"page/fetch": 2e8, "page/drain": 2e8, "page/both": 3e8}
PINNED_SOON = Profile(wires=SLOW_STAGES, once={"page/pin": 5e8}, flops_fallback=1e13)


@dataclasses.dataclass
class Choice:
    text: str
    pinned: int  # bits: x, w, y
    seconds: float
    of_each: list[float]  # by those bits, the same tiles


def chosen(text, budget, profile, pinned=0, limit=NO_LIMIT) -> Choice:
    problem = core.parse(text)
    bits, seconds = c_int64(), (c_double * 9)()
    plan = ctypes.create_string_buffer(planner.ROOM)
    code = planner.library().oocdnn_testing_pins(
        byref(problem), (c_int64 * 2)(budget, limit), c_int(pinned), profile.text().encode(),
        byref(bits), seconds, plan, c_int64(planner.ROOM),
    )  # fmt: skip
    if code != 0:
        raise planner.Refused(code, plan.value.decode())
    return Choice(plan.value.decode(), bits.value, seconds[0], list(seconds[1:]))


RATES = st.floats(1e7, 1e10)
PROFILES = st.builds(
    lambda wire, both, page, pin, flops: Profile(
        fetch_bytes_per_second=wire,
        drain_bytes_per_second=wire,
        both_bytes_per_second=wire * both,
        wires={f"page/{way}": wire * share for way, share in page.items()},
        once={"page/pin": pin},
        flops_fallback=flops,
    ),
    RATES,
    st.floats(1, 2),
    st.fixed_dictionaries(dict.fromkeys(("fetch", "drain", "both"), st.floats(0.05, 2))),
    RATES,
    st.floats(1e9, 1e14),
)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(PROBLEMS), st.integers(40_000, 400_000), PROFILES, st.integers(0, 7))
def test_no_other_choice_ends_sooner(text, budget, profile, pinned):
    try:
        found = chosen(text, budget, profile, pinned)
    except planner.Refused:
        assume(False)
    assert found.seconds == pytest.approx(found.of_each[found.pinned])
    assert found.seconds <= GAIN * min(found.of_each) * (1 + 1e-9)
    assert found.pinned & pinned == 0, "pinned already"
    if found.pinned:
        assert found.seconds * GAIN < found.of_each[0]
        assert (" pin " in found.text) == bool(found.pinned)


def test_what_crosses_again_and_again_is_pinned():
    assert chosen(AGAIN_AND_AGAIN, 60_000, PINNED_SOON).pinned != 0


@pytest.mark.parametrize("limit", [0, 100_000])
def test_no_more_is_pinned_than_may_be(limit):
    """x and y take 1 MiB each, w 147 kB."""
    assert chosen(AGAIN_AND_AGAIN, 60_000, PINNED_SOON, limit=limit).pinned == 0


@pytest.mark.parametrize("unknown", ["page/pin", "staging"])
def test_what_is_not_known_is_not_leant_on(unknown):
    profile = (
        dataclasses.replace(PINNED_SOON, once={})
        if unknown == "page/pin"
        else dataclasses.replace(PINNED_SOON, wires={})
    )
    assert chosen(AGAIN_AND_AGAIN, 60_000, profile).pinned == 0


def test_a_pin_rate_that_was_not_measured_is_said(tmp_path):
    profile = dataclasses.replace(PINNED_SOON, flops={"direct/f32/fwd": 1e13})
    file = tmp_path / "profile.txt"
    file.write_text(profile.text(), encoding="utf-8")
    plan = oocdnn.plan_for_profile(AGAIN_AND_AGAIN, file, 60_000)
    assert plan.pinned
    assert set(plan.pinned) <= {"x", "w", "y"}
    assert plan.plan.endswith("pin " + ",".join(plan.pinned))
    assert "pinned for the call" in plan.text
    marks = file.read_text(encoding="utf-8").replace(
        "once page/pin = 500000000.0 measured", "once page/pin = 500000000.0 unmeasured"
    )
    file.write_text(marks, encoding="utf-8")
    assert "once page/pin" in oocdnn.plan_for_profile(AGAIN_AND_AGAIN, file, 60_000).unmeasured
