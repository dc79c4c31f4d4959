"""While a graph is captured a program asks once, and nothing may wait for the device."""

import pytest
from spill.scene import BIG, FULL, MIB, REFUSED, TWICE, play, variables

ONCE = TWICE[:1]


@pytest.mark.parametrize(("begin", "end"), [("b", "e"), ("B", "e"), ("D", "F"), ("C", "F")])
def test_a_relaxed_thread_is_served_at_once(client, begin, end):
    """As PyTorch asks: it sets the mode around a request, and gives nothing back during a
    capture."""
    lines = [*FULL, f"0 {begin} 5", "0 r 2", *ONCE, "0 r 0", f"0 {end} 5"]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", "0", "0", "0 host", "2", "0"]


def test_without_a_capture_a_relaxed_thread_is_refused_first(client):
    ended, failed = ["0 b 5", "0 e 5", "0 r 2"], ["0 b 5", "0 b 5", "0 e 5", "0 r 2"]
    for lines in (["0 r 2"], ended, failed, ["0 e 5", "0 r 2"]):
        outcome = play(client, [*FULL, *lines, *ONCE], **variables())
        assert outcome.answers[-1] == REFUSED


def test_in_a_thread_that_is_not_relaxed_the_capture_outlives_the_refusal(client):
    outcome = play(client, [*FULL, "0 b 5", *ONCE, "0 r 0", "0 e 5"], **variables())
    assert outcome.answers == ["0 device", "0", REFUSED, "0", "0"]


def test_a_line_without_cost_is_said_during_a_capture(client):
    """To measure it would end the capture."""
    outcome = play(client, [*FULL, "0 b 5", "0 r 2", *ONCE, "0 e 5"], **variables())
    assert outcome.answers[-1] == "0"
    (line,) = outcome.said
    assert "first one of 48 MiB; OOCDNN_DISABLE=1" in line


def test_a_free_during_a_capture_is_put_off_until_it_is_over(client):
    before = [*FULL, *TWICE, "0 b 5", "0 f 3"]
    held = play(client, before, **variables()).figures
    assert held.host_bytes == BIG
    lines = [*before, "0 e 5", *TWICE]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-5:] == ["0", "0", "0", REFUSED, "0 host"]
    assert (outcome.figures.registrations, outcome.figures.host_bytes) == (1, BIG)
    other = play(client, [*lines, "0 f 3"], **variables())
    assert other.figures.host_bytes == 0


def test_what_was_put_off_waits_for_its_device(client):
    """A wait that fails then leaves it for the next one."""
    lines = [*FULL, *TWICE, "0 b 5", "0 f 3", "0 e 5", "0 w 1", *TWICE]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 host"
    assert outcome.figures.host_bytes == 2 * BIG
    outcome = play(client, [*lines, "0 f 3"], **variables())
    assert outcome.figures.host_bytes == 0


def test_a_capture_that_failed_is_over(client):
    """cudaStreamEndCapture answers cudaErrorStreamCaptureInvalidated (901)."""
    lines = [*FULL, "0 b 5", f"0 m 3 {4 * MIB}", "0 e 5", "0 r 2", *ONCE]
    outcome = play(client, lines, **variables())
    assert outcome.answers == ["0 device", "0", "900 none", "901", "0", REFUSED]


def test_without_a_name_some_functions_mean_the_threads_own_stream(client):
    """Stream 0 of functions with _ptsz is not that of the others."""
    outcome = play(client, ["0 D 0", "0 a 3 4096", "0 A 4 8192", "0 F 0"], **variables())
    assert outcome.answers == ["0", "0 device", "0 device", "0"]
    assert outcome.figures.device_bytes == 4096
