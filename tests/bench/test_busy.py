"""The milliseconds of engines, as they stand in tables."""

from __future__ import annotations

from oocdnn.bench.busy import busy_text


def test_engines_stand_in_the_order_of_the_pipeline():
    stats = {"drain_seconds": 0.0031, "fetch_seconds": 0.01234, "compute_seconds": 1.5}
    assert busy_text(stats) == "12.3/1500.0/3.1"


def test_what_is_not_there_is_none():
    """Of a call that failed there are no statistics."""
    assert busy_text({}) == "0.0/0.0/0.0"
