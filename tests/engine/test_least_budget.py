"""The budget that a refusal names: it works, and no smaller one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counted import Counted
from engine.cases import DEVICE

import oocdnn
from oocdnn import Link

Call = Callable[[oocdnn.Context], Any]


def refusal(call: Call, budget: int, **options: Any) -> oocdnn.OutOfMemory | None:
    with oocdnn.Context(DEVICE, budget, profile="none", **options) as context:
        try:
            call(context)
        except oocdnn.OutOfMemory as error:
            return error
    return None


def calls(rng: np.random.Generator) -> dict[str, Call]:
    n, c, k = (int(size) for size in rng.integers(1, 6, 3))
    height, width = (int(size) for size in rng.integers(4, 20, 2))
    taps, padding, stride = (int(rng.integers(low, 3)) for low in (1, 0, 1))
    x = np.ones((n, c, height, width), np.float32)
    w = np.ones((k, c, taps, taps), np.float32)
    how = {"padding": padding, "stride": stride}
    y = oocdnn.conv2d(x, w, **how)
    square = np.ones((k, k, 3, 3), np.float32)
    links = [Link(w, padding=padding), Link(square, padding=1, activation="relu")]
    return {
        "forward": lambda ctx: ctx.conv2d(x, w, **how),
        "data": lambda ctx: ctx.conv_backward_data(y, w, x.shape, **how),
        "filter": lambda ctx: ctx.conv_backward_filter(x, y, w.shape, **how),
        "bias": lambda ctx: ctx.conv_backward_bias(y),
        "fused": lambda ctx: ctx.conv_bias_act_pool(
            x, w, activation="relu", pool=oocdnn.Pool("max", 2, 1, 1), save_for_backward=True, **how
        ),
        "chain": lambda ctx: ctx.conv_chain(x, links),
    }


@pytest.mark.parametrize("name", ["forward", "data", "filter", "bias", "fused", "chain"])
def test_the_least_is_the_least(name: str) -> None:
    counted = Counted()
    for seed in range(5):
        for engine in ("direct", None):
            counted.begin()
            call = calls(np.random.default_rng(seed))[name]
            error = refusal(call, 1, engine=engine)
            assert error is not None
            assert error.least > 0
            assert refusal(call, error.least, engine=engine) is None, (seed, engine, error)
            if name != "chain":  # in sections it may take less than link by link
                below = refusal(call, error.least - 1, engine=engine)
                assert below is not None, (seed, engine, error)
                assert below.least == error.least
            counted.done()
    counted.need(1.0)


@pytest.mark.skipif(DEVICE != "cpu", reason="oneDNN is an engine of the CPU device")
def test_what_no_budget_helps_is_not_called_too_small() -> None:
    """Once "0 bytes work" was said."""
    with (
        oocdnn.Context("cpu", 1, engine="onednn", profile="none") as context,
        pytest.raises(oocdnn.Unsupported, match="no gradient of the bias alone"),
    ):
        context.conv_backward_bias(np.ones((2, 3, 4, 4), np.float32))
