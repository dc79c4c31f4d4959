"""The n-th allocation, copy, run, ... fails, for n = 1, 2, ... until the call succeeds."""

import numpy as np
import pytest
from engine.cases import DEVICE, RandomDraw, call, make_inputs, random_case, reference

import oocdnn

KINDS = ("allocate", "allocate_host", "create", "copy", "run", "event", "prepare")
MOST_CALLS = 400


def small_case(seed):
    case = random_case(RandomDraw(np.random.default_rng(seed)), rank=2)
    return type(case)(**{**case.__dict__, "dtype": "f32", "budget": 48 << 10})


def attempt(case, arrays, wrap):
    """True where the call went through; a failure must be a documented one, and the context must
    serve the next call unless the fault stays."""
    try:
        context = oocdnn.Context(device=DEVICE, budget=case.budget, wrap=wrap, profile="none")
    except (oocdnn.DeviceError, oocdnn.OutOfMemory):
        return False
    with context as ctx:
        try:
            result = call(ctx, case, arrays)
        except (oocdnn.DeviceError, oocdnn.OutOfMemory, oocdnn.Unsupported):
            if not wrap.endswith("sticky"):
                again = call(ctx, case, arrays)
                np.testing.assert_array_equal(again, reference(case, arrays))
            return False
        np.testing.assert_array_equal(result, reference(case, arrays))
        return True


@pytest.mark.parametrize("sticky", ["", ":sticky"])
@pytest.mark.parametrize("kind", KINDS)
def test_nth_call_fails(kind, sticky):
    case = small_case(seed=5)
    arrays = make_inputs(case)
    for nth in range(1, MOST_CALLS):
        if attempt(case, arrays, f"check,fault:{kind}:{nth}{sticky}"):
            break
    else:
        pytest.fail(f"the call still fails at {kind} number {MOST_CALLS}")


def test_less_memory_than_planned_is_planned_again():
    """The budget says 1 MiB, the device has only 128 KiB left: a smaller plan, the same result."""
    case = random_case(RandomDraw(np.random.default_rng(11)), rank=2, small=False)
    case = type(case)(**{**case.__dict__, "dtype": "f32", "direction": "forward", "beta": 0.0})
    case = type(case)(**{**case.__dict__, "n": 8, "extent": (64, 64), "groups": 1, "k": 16, "c": 8})
    case = type(case)(**{**case.__dict__, "taps": (3, 3), "padding": ((1, 1), (1, 1))})
    arrays = make_inputs(case)
    assert case.data_bytes > 1 << 20
    with oocdnn.Context(device=DEVICE, budget=1 << 20, wrap="limit:128KiB") as ctx:
        result = call(ctx, case, arrays)
        assert ctx.stats.peak_device_bytes <= 128 << 10
    np.testing.assert_array_equal(result, reference(case, arrays))


def test_too_little_memory_says_who_holds_what():
    x = np.ones((1, 8, 64, 64), np.float32)
    w = np.ones((8, 8, 3, 3), np.float32)
    with (
        oocdnn.Context(device=DEVICE, budget=1 << 20, wrap="limit:256") as ctx,
        pytest.raises(oocdnn.OutOfMemory, match="limited to 256"),
    ):
        ctx.conv2d(x, w)
