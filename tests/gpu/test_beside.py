"""A GPU whose host has others that are busy too: who says so to a context, and what is measured."""

from __future__ import annotations

import dataclasses
import json
from ctypes import byref, c_int, c_size_t

import pytest
from click.testing import CliRunner
from gpu.driver import FAKE, call
from python.remembering import DEVICE, rows

import oocdnn
from oocdnn.cli import main
from oocdnn.perfmodel.profile import Profile, parse

RATES = ("fetch", "drain", "both")
PROBLEM = "conv2d:fwd x4x16x40x40 w16x16x3x3 pad1 f32"
WIRES = {f"beside/1/{rate}": value for rate, value in zip(RATES, (4e9, 4e9, 6e9), strict=True)}
KINDS = 7 * 4  # of arithmetic: types, and directions


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A profile of which half of each wire is left beside one; of another machine, so that nothing
    is measured."""
    for name in ("LOCAL_WORLD_SIZE", "OOCDNN_BUSY_GPUS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "profile.txt"
    profile = Profile(machine="another", measured=True, wires=WIRES)
    path.write_text(profile.text(), encoding="utf-8")
    return path


def seconds(file, **options) -> float:
    with oocdnn.Context(DEVICE, "256KiB", engine="direct", profile=file, **options) as context:
        return context.price(PROBLEM, "h8 order nkhc slots 2").predicted_seconds


SAID = [
    ({}, {}, 0),
    ({"LOCAL_WORLD_SIZE": "1"}, {}, 0),
    ({"LOCAL_WORLD_SIZE": "2"}, {}, 1),
    ({"LOCAL_WORLD_SIZE": "1000000"}, {}, 63),
    ({"LOCAL_WORLD_SIZE": "-2"}, {}, 0),
    ({"LOCAL_WORLD_SIZE": "two"}, {}, 0),
    ({"LOCAL_WORLD_SIZE": "2", "OOCDNN_BUSY_GPUS": "0"}, {}, 0),
    ({"LOCAL_WORLD_SIZE": "1", "OOCDNN_BUSY_GPUS": "1"}, {}, 1),
    ({"LOCAL_WORLD_SIZE": "2", "OOCDNN_BUSY_GPUS": "1"}, {"busy_gpus": 0}, 0),
    ({"OOCDNN_BUSY_GPUS": "many"}, {"busy_gpus": 1}, 1),
]


@pytest.mark.parametrize(("variables", "options", "busy"), SAID)
def test_who_says_how_many_are_busy(file, monkeypatch, variables, options, busy):
    alone, beside = seconds(file), seconds(file, busy_gpus=1)
    if DEVICE == "cpu":
        assert alone == beside, "its wires are its own"
    else:
        assert alone < beside
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert seconds(file, **options) == (beside if busy else alone)


@pytest.mark.parametrize("value", ["-1", "64", "two", "1.5"])
def test_a_variable_that_is_no_number_is_refused(file, monkeypatch, value):
    monkeypatch.setenv("OOCDNN_BUSY_GPUS", value)
    with pytest.raises(oocdnn.InvalidProblem, match=f"'{value}' busy GPUs"):
        oocdnn.Context(DEVICE, "256KiB", profile=file)


@pytest.mark.skipif(DEVICE == "cpu", reason="its wires are its own")
def test_plans_of_busier_hosts_are_remembered_apart(file, monkeypatch):
    plans = file.parent / "plans" / "plans.sqlite"
    monkeypatch.setenv("OOCDNN_PLANS", str(plans))
    for count, busy in enumerate((0, 1, 2), 1):
        options = {"engine": "direct", "profile": file, "busy_gpus": busy}
        for again in (False, True):
            with oocdnn.Context(DEVICE, "256KiB", **options) as context:
                assert context.plan(PROBLEM).remembered == again
        assert len(rows(plans)) == count


def turns() -> int:
    """How often the fake driver did work of another GPU than before."""
    count = c_int()
    call("fake_turns", byref(count))
    return count.value


def calibrated(file, steps: int) -> tuple[Profile, int]:
    """What is known after so many steps, and how many there are."""
    totals = []

    def stop(done, total):
        totals.append(total)
        if done == steps:
            raise KeyboardInterrupt

    with (
        oocdnn.Context("cuda", "256MiB", engine="direct", profile=file) as context,
        pytest.raises(KeyboardInterrupt),
    ):
        context.calibrate(stop)
    return parse(file.read_text(encoding="utf-8")), totals[-1]


def measured_alone(file) -> Profile:
    """The profile of a GPU without others, which has all but most arithmetic."""
    told = CliRunner().invoke(main, ["info", "--json", "--device", "cuda"])
    core = json.loads(told.stdout)["core"]
    before = Profile(
        machine=core["description"],
        driver=core["driver"],
        engines="direct",
        calibration="begun",
        measured=True,
    )
    file.write_text(before.text(), encoding="utf-8")
    profile, total = calibrated(file, 1)
    assert total == KINDS
    assert not any(key.startswith("beside/") for key in profile.wires)
    return profile


fake_only = pytest.mark.skipif(not FAKE, reason="the fake driver says how many GPUs there are")


@fake_only
def test_wires_are_measured_while_the_others_copy(file, monkeypatch):
    alone, before = measured_alone(file), turns()
    monkeypatch.setenv("OOC_FAKE_TWO_GPUS", "1")
    profile, total = calibrated(file, 1)
    assert total == KINDS + 1
    assert turns() - before > 20, "the other did not copy meanwhile"
    found = {f"beside/1/{rate}" for rate in RATES}
    assert profile.wires.keys() == alone.wires.keys() | found
    for key in found:
        assert profile.mark(f"wire {key}").startswith("samples 8 ")
    before = turns()
    again, _ = calibrated(file, 1)
    assert again.rates() == profile.rates()
    assert turns() <= before + 1, "what is known is not measured again"


@fake_only
def test_a_neighbour_that_cannot_copy_is_left_out(file, monkeypatch, capfd):
    alone = measured_alone(file)
    monkeypatch.setenv("OOC_FAKE_TWO_GPUS", "1")
    call("fake_registrable", c_size_t(1 << 20))
    try:
        profile, _ = calibrated(file, 2)  # the first of arithmetic
    finally:
        call("fake_registrable", c_size_t(-1))
    assert profile.wires == alone.wires
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "beside" in line]
    assert "how fast the wires are beside 1 busy GPUs is not measured" in line


def test_the_text_knows_nothing_of_who_asks(file):
    profile = parse(file.read_text(encoding="utf-8"))
    assert dataclasses.replace(profile, busy_gpus=3).text() == profile.text()
