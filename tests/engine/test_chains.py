"""Random chains under random plans: the bits of a call for each link, every byte over the wire
once, and no hazard."""

import ctypes

import pytest
import testing_library
from engine.cases import DEVICE


def run_chains(spec: str, seed: int, count: int) -> dict[str, int | str]:
    library = testing_library.load()
    mismatches, steps, hazards = ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
    message = ctypes.create_string_buffer(4096)
    status = library.oocdnn_testing_chains(
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


# cuDNN's engines finish sums of 16-bit types.
@pytest.mark.parametrize("engine", ["", ":direct"])
def test_a_chain_has_the_bits_of_its_links(engine):
    outcome = run_chains(f"check({DEVICE}{engine})", seed=1, count=300)
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]
    assert outcome["tiles"] > 1000


@pytest.mark.skipif(DEVICE != "cpu", reason="the CPU device alone can be told to hesitate")
def test_random_delays():
    outcome = run_chains("check(cpu:direct,jitter=3)", seed=2, count=4)
    assert outcome["mismatches"] == 0, outcome["first"]
    assert outcome["hazards"] == 0, outcome["first"]


def test_a_forgotten_wait_is_seen():
    outcome = run_chains(f"lie:wait(check({DEVICE}:direct))", seed=3, count=50)
    assert outcome["hazards"] > 0 or outcome["mismatches"] > 0
