"""Plans for a GPU with the engine for groups of one input channel: it serves these, and nothing
else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import oocdnn
from oocdnn.perfmodel.profile import Profile

DENSE = {"cudnn-nhwc": 4e13, "cudnn-nchw": 4e13, "direct": 4e12}
DIRECTIONS = ("fwd", "bwd_data", "bwd_filter")
DEPTHWISE = "x64x96x112x112 w96x1x7x7 pad3 grp96"
OTHERS = ("x64x96x112x112 w96x96x3x3 pad1", "x64x96x112x112 w96x2x3x3 pad1 grp48")


def planned(problem: str, folder, **rates: float) -> oocdnn.Plan:
    flops = {
        f"{engine}/f32/{direction}": rate
        for engine, rate in (DENSE | rates).items()
        for direction in DIRECTIONS
    }
    file = folder / "profile.txt"
    file.write_text(Profile(flops=flops, move_bytes_per_second=2e12).text(), encoding="utf-8")
    return oocdnn.plan_for_profile(problem, file, "128MiB")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_is_preferred(direction, tmp_path):
    """Even where the wire takes longer than any engine."""
    plan = planned(f"conv2d:{direction} {DEPTHWISE}", tmp_path, depthwise=2e13)
    assert plan.engine == "depthwise"
    assert planned(f"conv2d:{direction} {DEPTHWISE}", tmp_path).engine.startswith("cudnn")


@pytest.mark.parametrize("problem", OTHERS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_other_plans_are_as_before(direction, problem, tmp_path):
    with_it = planned(f"conv2d:{direction} {problem}", tmp_path, depthwise=2e13)
    without = planned(f"conv2d:{direction} {problem}", tmp_path)
    assert replace(with_it, search_seconds=0) == replace(without, search_seconds=0)
