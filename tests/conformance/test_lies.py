"""The conformance suite notices a device that breaks one promise: each has a case that fails."""

import pytest
from conformance import core

# What the lie is, a case that must fail on it, and a part of what that case says.
LIES = (
    ("exact", "forward", "instead of"),
    ("exact", "backward_data", "instead of"),
    ("exact", "backward_filter", "instead of"),
    ("invariant", "invariant_f32", "claims to be invariant"),
    ("deterministic", "deterministic", "claims to be deterministic"),
    ("nan_local", "nan_local", "NaN mask"),
    ("accumulate", "accumulate_f32", "instead of"),
    ("zero_fill", "fetch_of_boxes", "nan instead of 0"),
    ("sub_range", "fetch_of_parts", "fetch"),
    ("last_element", "drain_of_parts", "drain"),
    ("move", "moves_between_tiles", "move"),
    ("move", "rolling_window", "window"),
    ("fill", "fill_writes_bytes", "100 bytes"),
    ("bias", "finish_every_part", "bias 1"),
    ("old", "finish_beta_zero_never_reads_old", "nan instead of"),
    ("wait", "wait_orders_streams", "a drain that waits"),
    ("record", "wait_orders_streams", "a drain that waits"),
    ("record", "synchronize_event_waits", "returned before the work"),
    ("error", "error_skips_what_is_behind", "does not tell"),
    ("error", "first_error_is_told", "does not tell"),
    ("error_stays", "error_is_told_once", "after the error had been told"),
    ("span", "spans_tell_when_work_ran", "out of order"),
    ("busy", "busy_seconds_grow", "busy for 0 s"),
    ("alignment", "buffers_are_aligned", "alignment"),
    ("limitless", "too_much_is_a_result", "could be allocated"),
    ("reason", "refusals_have_reasons", "without a reason"),
    ("layout", "executables_state_their_tiles", "layout of"),
    ("part", "normalize_parts", "instead of"),
    ("part", "sum_parts", "nan instead of"),
    ("written", "sum_what_is_written", "instead of"),
)


@pytest.mark.parametrize(("lie", "case", "says"), LIES)
def test_lie_is_caught(lie: str, case: str, says: str) -> None:
    outcome = core.run_case(f"lie:{lie}(cpu:direct)", case)
    assert outcome.code not in (core.OK, core.UNSUPPORTED)
    assert says in outcome.message


def test_every_lie_has_a_case_that_catches_it() -> None:
    assert {lie for lie, _, _ in LIES} == core.lies()
