"""Random plans, stranger than any planner's: the bits of one tile, and no hazard.

The long run (10,000 plans per engine, 100,000 schedules under the checker) is the reliability
suite's; this is its first part.
"""

import ctypes

import pytest
import testing_library
from engine.cases import DEVICE


def run_schedules(
    spec: str, seed: int, count: int, function: str = "schedules"
) -> dict[str, int | str]:
    library = testing_library.load()
    mismatches, steps, hazards = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
    message = ctypes.create_string_buffer(4096)
    status = library[f"oocdnn_testing_{function}"](
        spec.encode(),
        ctypes.c_uint64(seed),
        ctypes.c_int64(count),
        ctypes.byref(mismatches),
        ctypes.byref(steps),
        ctypes.byref(hazards),
        message,
        ctypes.c_int64(len(message)),
    )
    assert status == 0, message.value.decode()
    return {
        "mismatches": mismatches.value,
        "tiles": steps.value,
        "hazards": hazards.value,
        "first": message.value.decode(),
    }


ENGINES = ["direct", "reference"] if DEVICE == "cpu" else ["direct"]


@pytest.mark.parametrize("engine", ENGINES)
def test_tiles_have_the_bits_of_the_whole(engine):
    outcome = run_schedules(f"check({DEVICE}:{engine})", seed=1, count=400)
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]
    assert outcome["tiles"] > 4000


@pytest.mark.skipif(DEVICE != "cpu", reason="the CPU device alone can be told to hesitate")
def test_random_delays():
    outcome = run_schedules("check(cpu:direct,jitter=3)", seed=2, count=6)
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]


def test_a_forgotten_wait_is_seen():
    outcome = run_schedules(f"check(lie:wait({DEVICE}:direct))", seed=3, count=1)
    assert outcome["hazards"] == 0  # the lie is below the checker: what it checks is in order
    outcome = run_schedules(f"lie:wait(check({DEVICE}:direct))", seed=3, count=50)
    assert outcome["hazards"] > 0 or outcome["mismatches"] > 0
