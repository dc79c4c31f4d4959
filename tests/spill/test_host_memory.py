"""Blocks in host memory: their slabs, their end, and what is said of them."""

import pytest
from spill.scene import BIG, FULL, MEASURING, MIB, REFUSED, TWICE, play, variables


def test_a_host_block_waits_for_its_own_device(client):
    """And leaves the current one as it was."""
    lines = [*FULL, *TWICE, "0 d 1", "0 f 3", f"0 m 3 {BIG}"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 device"
    assert outcome.figures.waits == MEASURING + 1


def test_the_end_of_a_host_block_waits_for_the_device(client):
    lines = [*FULL, *TWICE, "0 f 2", "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-2:] == ["0", "0"]
    assert (outcome.figures.waits, outcome.figures.host_bytes) == (MEASURING + 1, 0)
    assert outcome.figures.pinned_bytes == BIG  # exactly


def test_nothing_is_free_before_it_is(client):
    """A block in host memory serves nobody until the wait is over, and one on the device is in the
    ledger until the runtime has freed it."""
    figures = play(client, [*FULL, *TWICE, "0 f 3"], **variables()).figures
    assert (figures.host_at_wait, figures.host_bytes) == (BIG, 0)
    figures = play(client, [*FULL, "0 f 2"], **variables()).figures
    assert (figures.device_at_free, figures.device_bytes) == (BIG, 0)


def test_a_block_whose_wait_fails_is_not_given_back(client):
    lines = [*FULL, *TWICE, "0 w 1", "0 f 3", "0 q 0", "0 t 3", "0 f 3"]
    outcome = play(client, lines, **variables())
    assert outcome.answers[4:] == ["719", "719", "2 0", "0"]
    assert outcome.figures.host_bytes == 0
    held = play(client, lines[:-1], **variables()).figures
    assert held.host_bytes == BIG


def test_a_slab_serves_again_in_parts_and_as_a_whole(client):
    part = BIG // 2
    again = [line for slot in (4, 5) for line in [f"0 m {slot} {part}"] * 2]
    lines = [*FULL, *TWICE, "0 f 3", *again, "0 f 4", "0 f 5", *TWICE]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 host"
    assert outcome.figures.registrations == 1


def test_a_slab_serves_only_the_device_whose_request_made_it(client):
    lines = [*FULL, *TWICE, "0 f 3", "0 d 1", f"0 m 4 {BIG}", *[f"0 m 5 {BIG}"] * 2]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-2:] == [REFUSED, "0 host"]
    assert (outcome.figures.registrations, outcome.figures.pinned_bytes) == (2, 2 * BIG)
    back = play(client, [*lines, "0 d 0", *TWICE], **variables())
    assert back.answers[-1] == "0 host"
    assert back.figures.registrations == 2


def test_the_smallest_piece_that_is_large_enough_serves(client):
    """So that the large one is whole when it is wanted."""
    large, little = [f"0 m 3 {40 * MIB}"] * 2, [f"0 m 4 {10 * MIB}"] * 2
    lines = [*FULL, *large, *little, "0 f 3", "0 f 4", *little, *large]
    outcome = play(client, lines, **variables())
    assert outcome.answers[-1] == "0 host"
    assert outcome.figures.registrations == 2


def test_a_forked_child_ends_well_and_has_no_host_block(client):
    outcome = play(client, [*FULL, *TWICE, "0 k 0", "0 f 3"], **variables())
    assert outcome.answers[-2:] == ["0", "0"]


def test_one_line_says_what_is_served_and_what_it_costs(client):
    other = [f"0 m 4 {BIG}"] * 2
    outcome = play(client, [*FULL, *TWICE, *other], **variables())
    (line,) = outcome.said
    assert "past the limit of 0.06 GiB requests are served from host memory" in line
    assert "first one of 48 MiB: whatever reads or writes 1 GiB of it takes " in line
    assert "OOCDNN_DISABLE=1 prevents it" in line


@pytest.mark.parametrize("why", ["FAKE_NO_PINNING", "FAKE_OTHER_ADDRESS"])
def test_without_pinning_the_request_fails_and_one_line_says_so(client, why):
    outcome = play(client, [*FULL, *TWICE, *TWICE, "0 q 0"], **{why: "1"}, **variables())
    assert outcome.answers == ["0 device", *[REFUSED] * 4, "2"]
    assert outcome.figures.registered == 0
    (line,) = outcome.said
    assert f"no host memory for a request of {BIG} bytes: it cannot be pinned" in line


def test_a_second_reason_is_said_too(client):
    """A request that no host has room for is refused before it is tried."""
    much = 2**47
    outcome = play(
        client, [*FULL, *TWICE * 2, *[f"0 m 3 {much}"] * 4], FAKE_NO_PINNING="1", **variables()
    )
    assert outcome.answers == ["0 device", *[REFUSED] * 8]
    assert [line.split(": ")[-1] for line in outcome.said] == [
        "it cannot be pinned", "it has too little left",
    ]  # fmt: skip
    assert f"a request of {much} bytes" in outcome.said[1]


def test_no_more_is_pinned_than_its_limit_allows(client):
    lines = [*FULL, *TWICE, *[f"0 m 4 {MIB}"] * 2, *[f"0 m 5 {9 * MIB}"] * 2]
    outcome = play(client, lines, OOCDNN_PINNED_LIMIT=str(BIG + 8 * MIB), **variables())
    assert outcome.answers == ["0 device", REFUSED, "0 host", *["0 device", "held"], *[REFUSED] * 2]
    assert outcome.figures.pinned_bytes == BIG
    assert outcome.said[-1].endswith("more would be pinned than OOCDNN_PINNED_LIMIT allows")


def test_free_slabs_make_room_for_others(client):
    """Sizes that vary from step to step would else fill the host with what serves none of them."""
    lines = [*FULL]
    for size in range(10, 30, 2):
        lines += [f"0 m 3 {size * MIB}"] * 2 + [f"0 m 4 {size * MIB}"] * 2 + ["0 f 3", "0 f 4"]
    outcome = play(client, lines, OOCDNN_PINNED_LIMIT=str(64 * MIB), **variables())
    assert "0 device" not in outcome.answers[1:]
    assert outcome.answers.count("0 host") == 20
    assert outcome.figures.registered == outcome.figures.pinned_bytes <= 64 * MIB
    taken = play(client, lines[:-2], OOCDNN_PINNED_LIMIT=str(64 * MIB), **variables())
    assert taken.figures.registered == taken.figures.pinned_bytes == 2 * 28 * MIB


@pytest.mark.parametrize("free", [5, 6])
def test_a_slab_of_which_a_part_is_taken_stays(client, free):
    """Its beginning or its end is free; neither is enough."""
    first, second = [f"0 m 3 {30 * MIB}"] * 2, [f"0 m 4 {30 * MIB}"] * 2
    parts = [f"0 m 5 {14 * MIB}"] * 2 + [f"0 m 6 {16 * MIB}"] * 2
    lines = [*FULL, *first, *second, "0 f 3", *parts, f"0 f {free}", *[f"0 m 7 {20 * MIB}"] * 2]
    outcome = play(client, lines, OOCDNN_PINNED_LIMIT=str(64 * MIB), **variables())
    assert outcome.answers.count("0 host") == 4
    assert outcome.answers[-2:] == [REFUSED] * 2
    assert outcome.figures.registered == outcome.figures.pinned_bytes == 60 * MIB


@pytest.mark.parametrize(("level", "lines"), [("error", 0), ("warn", 1), ("debug", 1)])
def test_lines_go_where_the_log_goes(client, tmp_path, level, lines):
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    outcome = play(
        client, [*FULL, *TWICE], OOCDNN_LOG=level, OOCDNN_LOG_FILE=str(log), **variables()
    )
    assert outcome.said == []
    said = log.read_text().splitlines()[1:]
    assert len(said) == lines
    assert all(line.startswith("oocdnn: past the limit") for line in said)
