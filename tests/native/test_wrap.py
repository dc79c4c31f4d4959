"""The wrapping devices: limit, fault, check and trace, each by what it makes visible."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conformance import core
from conformance.core import play

import oocdnn

STEPS = 6

# The wait that is left out, and the sentence that must name both operations.
RACES = (
    ("run_without_fetch", 'run x (step 0) on stream "compute" reads', "fetch x (step 0)"),
    ("drain_without_run", 'drain y (step 0) on stream "drain" reads', "run y (step 0)"),
    ("fetch_into_use", 'fetch x (step 2) on stream "fetch" writes', "run x (step 0)"),
    ("run_into_drain", 'run y (step 2) on stream "compute" writes', "drain y (step 0)"),
)
KINDS = ("allocate", "allocate_host", "create", "copy", "run", "event", "prepare")


def reports(scene: str, device: str) -> list[str]:
    outcome = play(scene, device)
    assert outcome.code == core.OK, outcome.message
    return outcome.text.splitlines()


@pytest.mark.parametrize("device", ["check(null)", "check(cpu)", "check(cpu:direct,jitter=5)"])
def test_check_is_silent_about_a_correct_pipeline(device: str) -> None:
    assert not reports("pipeline", device)


@pytest.mark.parametrize(("scene", "later", "earlier"), RACES)
def test_check_names_both_sides_of_a_missing_wait(scene: str, later: str, earlier: str) -> None:
    sentences = reports(scene, "check(null)")
    assert sentences[0].startswith(later)
    assert earlier in sentences[0]
    assert len(sentences) == STEPS - int(later.split("step ")[1][0]), "one for each step"


def test_check_compares_boxes_of_one_tensor_by_element() -> None:
    assert not reports("disjoint_drains", "check(null)")
    assert len(reports("overlapping_drains", "check(null)")) == 1


def test_check_sees_staging_memory_used_twice() -> None:
    (sentence,) = reports("staging_reused", "check(null)")
    assert sentence.startswith('fetch x on stream "fetch" reads')


def test_check_poisons_new_buffers() -> None:
    assert reports("poison", "check(cpu)") == ["192 of 192"]


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        ("past_the_end", ["101 bytes was written past its end: guard byte 3 is 0x00"]),
        ("before_the_begin", ["128 bytes was written past its begin: guard byte 63 is 0x00"]),
        ("fill_too_much", ["fill touches 68 bytes, which reach past the end"]),
        ("before_the_tensor", ["fetch x touches what is before the tensor's begin"]),
        ("misaligned_slots", ["fetch x uses the slot", "run dy uses the slot"]),
        ("free_twice", ["100 bytes, but it was allocated with 128", "no live buffer", "event"]),
        ("free_in_use", ["freed while fill"]),
        ("executable_in_use", ["executable was destroyed while a run may still use it"]),
    ],
)
def test_check_reports_misuse(scene: str, says: list[str]) -> None:
    sentences = reports(scene, "check(null)")
    assert len(sentences) == len(says)
    assert all(part in sentence for part, sentence in zip(says, sentences, strict=True))


def test_check_lists_what_was_never_given_back() -> None:
    *sentences, left = reports("leaks", "check(cpu)")
    assert sentences == [
        "a buffer of 4096 bytes was never freed",
        "host memory of 512 bytes was never freed",
        'stream "forgotten" was never destroyed',
        "1 events were never destroyed",
    ]
    assert left == "0 left"


def counts(device: str) -> dict[str, int]:
    outcome = play("calls", device)
    assert outcome.code == core.OK, outcome.message
    return dict(zip(KINDS, map(int, outcome.text.split()), strict=True))


def test_fault_counts_every_kind() -> None:
    seen = counts("fault(cpu:direct)")
    # One upload of the filter, and a fetch and a drain for each step.
    assert seen["copy"] == 1 + 2 * STEPS
    assert seen["run"] == STEPS
    assert seen["prepare"] == 1
    assert all(seen.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sticky", ["", "+"])
def test_every_call_can_fail_and_leaves_nothing_behind(kind: str, sticky: str) -> None:
    memory = kind.startswith("allocate")
    for nth in range(1, counts("fault(cpu:direct)")[kind] + 1):
        outcome = play("calls", f"fault:{kind}:{nth}{sticky}(check(cpu:direct))")
        if kind == "event" and outcome.code == core.OK:
            continue  # what failed was the last wait of the cleaning up, which nobody asks about
        assert outcome.code == (core.OUT_OF_MEMORY if memory else core.DEVICE_ERROR)
        assert outcome.message.startswith("injected fault: ")
        assert outcome.message.endswith(f"#{nth}")
        assert len(outcome.text.split("\n")[0].split()) == len(KINDS), outcome.text


@pytest.mark.parametrize("sticky", [False, True])
def test_a_sticky_fault_stays(sticky: bool) -> None:
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    wrap = "fault:run:2" + ":sticky" * sticky
    with oocdnn.Context("cpu", "1MiB", engine="direct", wrap=wrap) as ctx:
        ctx.conv2d(x, w)
        for nth in (2, 3, 4):
            if nth == 2 or sticky:
                with pytest.raises(oocdnn.DeviceError, match=f"injected fault: run #{nth}"):
                    ctx.conv2d(x, w)
            else:
                np.testing.assert_array_equal(ctx.conv2d(x, w), np.full((1, 1, 2, 2), 9))


def test_limit_is_a_result_with_numbers() -> None:
    outcome = play("exhaust", "limit:5500(cpu)")
    assert outcome.code == core.OUT_OF_MEMORY
    assert outcome.text == "5 buffers, 500 free, least 6000"
    for number in ("1000 bytes requested", "5000 held", "limited to 5500"):
        assert number in outcome.message


def spans(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The spans of a trace by the name of their track."""
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    tracks: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks[names[event["tid"]]].append(event)
    return tracks


@pytest.mark.parametrize("device", ["trace(cpu:direct)", "trace(null)", "trace(check(cpu))"])
def test_trace_has_a_track_for_each_stream(device: str) -> None:
    outcome = play("trace", device)
    assert outcome.code == core.OK, outcome.message
    first, second = json.loads(outcome.text)
    tracks = spans(first)
    assert [span["name"] for span in tracks["fetch"]] == [f"fetch x {i}" for i in range(STEPS)]
    assert [span["name"] for span in tracks["compute"]] == [f"run {i}" for i in range(STEPS)]
    assert [span["name"] for span in tracks["drain"]] == [f"drain y {i}" for i in range(STEPS)]
    assert tracks["fetch"][3]["args"] == {
        "step": 3, "operand": "x", "bytes": 4 * 12 * 14 * 4,
        "origin": [3, 0, 0, 0, 0, 0], "extent": [1, 1, 4, 1, 12, 14],
    }  # fmt: skip
    assert not any(spans(second).values()), "taking a trace clears it"


def test_spans_of_one_stream_do_not_overlap_and_start_at_zero() -> None:
    trace = json.loads(play("trace", "trace(cpu:direct,jitter=2)").text)[0]
    timed = [event for event in trace["traceEvents"] if "ts" in event]
    assert min(event["ts"] for event in timed) == 0
    for track in spans(trace).values():
        for earlier, later in pairwise(sorted(track, key=lambda span: span["ts"])):
            assert earlier["ts"] + earlier["dur"] <= later["ts"] + 1e-3


def test_trace_counts_device_bytes_up_and_down() -> None:
    trace = json.loads(play("trace", "trace(cpu:direct)").text)[0]
    held = [e["args"]["bytes"] for e in trace["traceEvents"] if e["name"] == "device bytes"]
    assert max(held) >= 2 * (4 * 12 * 14 + 6 * 10 * 12) * 4
    assert held[-1] == 0


def test_taking_a_trace_waits_for_running_work() -> None:
    trace = json.loads(play("trace_running", "trace(cpu:,jitter=1)").text)
    assert len(spans(trace)["busy"]) == 10
