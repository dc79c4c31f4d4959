"""Profiles that are told how long a call's arithmetic took predict just that, whatever else what
computes has to do."""

from __future__ import annotations

import pytest
from geometry import core
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner
from model.planner import Profile

ENGINES = {
    "plain": "direct+invariant",
    "bouncing": "cudnn-nhwc+symmetric+last+wide,bounce=1024",
    "of the caller's order": "cudnn-nchw+symmetric+wide,bounce=1024",
}
PROBLEMS = [
    "conv2d:fwd x32x8x24x24 w8x8x3x3 pad1",
    "conv2d:fwd x32x8x24x24 w8x8x3x3 pad1 beta1",  # with a finishing pass
    "conv2d:bwd_data x8x16x40x40 w16x16x3x3 pad1",  # with rows that are rolled over
    "conv2d:bwd_data x8x16x40x40 w16x16x3x3 pad1 +clipped +dw +db",  # with other gradients
]


@pytest.mark.parametrize("text", PROBLEMS)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=30, deadline=None)
@given(factor=st.floats(1.5, 1e3))
def test_a_refined_profile_predicts_what_was_told(engine, text, factor):
    busy, now, rate = planner.refined(core.parse(text), 100_000, ENGINES[engine], Profile(), factor)
    assert rate.startswith("tile ")
    assert now == pytest.approx(factor * busy, rel=1e-4)
