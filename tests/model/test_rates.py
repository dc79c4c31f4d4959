"""What prices rest on: with nothing else of a profile they are the same, and that may change."""

from __future__ import annotations

import ctypes
import dataclasses
from ctypes import byref, c_int64

from geometry import core
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile
from model.test_plan_text import ENGINES, PROBLEMS, plans

KEYS = [
    f"{engine}/{dtype}/{direction}"
    for engine in ("first", "second", "third")
    for dtype in ("f32", "f32+few", "f16")
    for direction in ("fwd", "bwd_data", "bwd_filter")
]
SPEEDS = st.floats(1e8, 1e12)
PROFILES = st.builds(
    Profile,
    flops=st.dictionaries(st.sampled_from(KEYS), SPEEDS),
    tiles=st.dictionaries(st.sampled_from([f"8 {n} {k}" for k in KEYS for n in (9, 99)]), SPEEDS),
    flops_fallback=SPEEDS,
    fetch_bytes_per_second=SPEEDS,
)


class Rates:
    """As the testing library takes a profile."""

    def __init__(self, problem, profile) -> None:
        text = ctypes.create_string_buffer(planner.ROOM)
        code = planner.library().oocdnn_testing_rates(
            byref(problem), ENGINES.encode(), profile.text().encode(), profile.busy_gpus, text,
            c_int64(planner.ROOM),
        )  # fmt: skip
        assert code == 0, text.value
        self._text = text.value.decode()

    def text(self) -> str:
        return self._text


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PROBLEMS), PROFILES, st.integers(0, 2**31))
def test_every_plan_has_the_same_price(text, profile, seed):
    problem = core.parse(text)
    wanted = plans(problem, 60_000, 10, seed, profile)
    assert plans(problem, 60_000, 10, seed, Rates(problem, profile)) == wanted


@settings(deadline=None, max_examples=60)
@given(PROFILES, st.sampled_from(KEYS), SPEEDS)
def test_rates_of_other_arithmetic_change_nothing(profile, key, speed):
    """Where all engines have rates of the problem's own kind."""
    problem = core.parse(PROBLEMS[0])
    own = {"first/f32/fwd": 1e9, "second/f32/fwd": 2e9}
    profile = dataclasses.replace(profile, flops=profile.flops | own)
    before = Rates(problem, profile).text()
    for more in (
        {"flops": profile.flops | {key: speed}},
        {"tiles": profile.tiles | {f"8 999 {key}": speed}},
        {"date": "2031-01-01", "machine": "another"},
    ):
        changed = dataclasses.replace(profile, **more)
        alike = changed.flops == profile.flops and changed.tiles == profile.tiles
        same = key not in own or alike
        assert (Rates(problem, changed).text() == before) == same


@given(st.dictionaries(st.integers(1, 4), SPEEDS), st.integers(0, 5))
def test_wires_beside_more_gpus_than_are_busy_change_nothing(beside, busy):
    """A price rests on what is left beside as many as are busy, or beside the nearest fewer."""
    problem = core.parse(PROBLEMS[0])
    wires = {f"beside/{others}/fetch": rate for others, rate in beside.items()}
    own = {key: rate for key, rate in wires.items() if int(key.split("/")[1]) <= busy}

    def rates(wires) -> str:
        return Rates(problem, Profile(wires={"page/both": 1e9, **wires}, busy_gpus=busy)).text()

    assert rates(wires) == rates(own)
    kept = [line for line in rates(wires).splitlines() if line.startswith("wire beside/")]
    assert len(kept) == len(own)
