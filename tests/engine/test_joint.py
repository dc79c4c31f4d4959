"""dx, dw and db of one pass over dz, its bits and x, under plans stranger than any planner's: each
has the bits that a call of its own gives in one tile."""

import os

import pytest
from engine.cases import DEVICE
from engine.test_schedules import ENGINES, run_schedules

# A GPU's cuDNN may compute by transforms, which are not exact.
ALL = [""] if DEVICE == "cpu" or "fake_cuda" in os.environ.get("LD_LIBRARY_PATH", "") else []


@pytest.mark.parametrize("engine", [*ALL, *(f":{name}" for name in ENGINES)])
def test_gradients_of_one_pass_are_those_of_their_own_calls(engine):
    count = 400 if engine == ":direct" else 100
    outcome = run_schedules(f"check({DEVICE}{engine})", seed=11, count=count, function="joint")
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]
    assert outcome["tiles"] > 5 * count


@pytest.mark.skipif(DEVICE != "cpu", reason="the CPU device alone can be told to hesitate")
def test_random_delays():
    outcome = run_schedules("check(cpu:direct,jitter=3)", seed=12, count=6, function="joint")
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]
