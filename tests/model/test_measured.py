"""What is measured of a device that says itself how long its copies and runs take."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import planner

GB = 1e9
ROW_NS = st.floats(10, 500)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from((10, 25, 50)), ROW_NS, ROW_NS), min_size=2, max_size=2))
def test_rows_are_measured_in_each_direction(ways):
    """Both directions had the figure of the one that takes longer. A far row costs no less than a
    near one."""
    fetch, drain = ((rate * GB, near, far) for rate, near, far in ways)
    profile = planner.measured_copies(fetch, drain)
    for name, (rate, near, far) in (("fetch", fetch), ("drain", drain)):
        assert getattr(profile, f"{name}_bytes_per_second") == pytest.approx(rate, rel=1e-3)
        measured = getattr(profile, f"{name}_row_bytes"), getattr(profile, f"far_{name}_row_bytes")
        wanted = near * 1e-9 * rate, max(near, far) * 1e-9 * rate
        assert measured == pytest.approx(wanted, rel=0.03)
