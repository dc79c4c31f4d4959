"""cudaGetLastError, which clients look at beside what a function answers."""

import pytest
from spill.scene import BIG, FULL, REFUSED, TWICE, play, variables

LAST = "0 q 0"


def test_what_is_refused_is_the_last_error(client):
    outcome = play(client, [*FULL, TWICE[0], LAST, LAST], **variables())
    assert outcome.answers == ["0 device", REFUSED, "2", "0"]


def test_what_is_served_leaves_none(client):
    """PyTorch asks for it before it allocates, and after every kernel, and dies of one."""
    outcome = play(client, [*FULL, TWICE[0], LAST, TWICE[1], LAST], **variables())
    assert outcome.answers[-2:] == ["0 host", "0"]


def test_what_the_device_refused_and_the_host_served_leaves_none(client):
    lines = [TWICE[0], LAST, TWICE[1], LAST]
    outcome = play(client, lines, FAKE_CARD=str(BIG - 1), **variables())
    assert outcome.answers == [REFUSED, "2", "0 host", "0"]


@pytest.mark.parametrize("why", ["FAKE_NO_STREAM", "FAKE_NO_MEMSET"])
def test_a_cost_that_cannot_be_measured_leaves_none(client, why):
    outcome = play(client, [*FULL, TWICE[0], LAST, TWICE[1], LAST], **{why: "1"}, **variables())
    assert outcome.answers[-2:] == ["0 host", "0"]
    (line,) = outcome.said
    assert "first one of 48 MiB; OOCDNN_DISABLE=1" in line


def test_a_device_that_does_not_answer_leaves_none(client):
    outcome = play(client, [*FULL, TWICE[0], LAST, "0 w 1", TWICE[1], LAST], **variables())
    assert outcome.answers[-2:] == ["0 host", "0"]
