"""oocdnn plan and the plans behind it: what they say of themselves, and other machines."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import oocdnn
from oocdnn.cli import main, timeline
from oocdnn.perfmodel import profiles
from oocdnn.perfmodel.profile import UNMEASURED, parse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "plan.md"
PROBLEM = "conv2d:fwd x1x16x64x64 w16x16x3x3 pad1"
MEASURED = ("cpu", "h200")  # of the shipped profiles
BIG = "conv2d:fwd x256x64x224x224 w64x64x3x3 pad1 f32"
PINNED = " x@pin w@pin y@pin"  # estimates and older profiles have no rates of staging


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["plan", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def shipped(problem=BIG, name="h200-pcie5", budget="1GiB") -> oocdnn.Plan:
    return oocdnn.plan_for_profile(problem, profiles.find(name), budget)


def test_the_reference_lists_the_fields_of_the_example():
    text = PAGE.read_text(encoding="utf-8")
    command = re.search(r"^oocdnn plan (.*--json)$", text, re.MULTILINE)[1]
    plan = json.loads(run(*shlex.split(command)))
    table = text.split("| field |")[1].split("\n\n")[0]
    names = re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert set(names) == set(plan)
    assert len(names) == len(plan)
    assert set(plan["seconds_by_engine"]) == {"fetch", "compute", "drain"}
    assert {tuple(one) for one in plan["runners_up"]} == {
        ("plan", "text", "engine", "predicted_seconds", "device_bytes")
    }
    assert math.prod(plan["splits"].values()) == plan["tiles"] > 1
    assert plan["refused"]


def test_the_reference_lists_the_shipped_profiles():
    rows = PAGE.read_text(encoding="utf-8").split("| profile |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)`", rows, re.MULTILINE) == profiles.names()


def test_people_read_the_same():
    text = run(BIG, "--profile", "h200-pcie5", "--budget", "1GiB")
    plan = shipped()
    for words in ("by engine", "floor", "ratio", "chosen: ", "also: ", "refused: "):
        assert words in text
    assert plan.text in text
    for one in plan.runners_up:
        line = f"also: {one['text']}, predicted {one['predicted_seconds']:.3g} s"
        assert line in text.splitlines()
    for why in plan.refused:
        assert f"refused: {why}\n" in text
    assert "not measured: fetch_bytes_per_second, " in text
    assert plan.unmeasured[0] == "fetch_bytes_per_second"
    assert "not prepared" in text


@pytest.mark.parametrize("name", profiles.names())
@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter"])
def test_every_shipped_profile_plans(name, direction):
    plan = shipped(BIG.replace("fwd", direction), name)
    assert not plan.prepared
    assert 0 < plan.floor_seconds <= plan.predicted_seconds
    assert (plan.prepare_seconds, plan.pin_seconds) == (None, None), "they are older than these"
    assert max(plan.seconds_by_engine.values()) <= plan.predicted_seconds * (1 + 1e-9)
    assert 0 < plan.booked_bytes <= plan.budget_bytes == 2**30
    assert 0 <= plan.host_bytes <= 2**30
    assert (plan.host_bytes == 0) == (name == "cpu"), "which needs no staging"
    pinned = shipped(BIG.replace("fwd", direction) + PINNED, name)
    assert (pinned.unmeasured == []) == (name in MEASURED)
    assert name in MEASURED or len(plan.machine) > 80  # the source of the rates is stated
    assert plan.machine == profiles.machine(profiles.find(name))


@pytest.mark.parametrize("mebibytes", [64, 72, 80, 90, 100, 120])
def test_bounce_memory_is_in_the_budget(mebibytes):
    """Here the tiles take what they can get."""
    plan = shipped("conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1", budget=f"{mebibytes}MiB")
    assert 0.5 * plan.budget_bytes < plan.booked_bytes <= plan.budget_bytes


def test_faster_wires_make_faster_plans():
    names = ("p100-pcie3", "h100-pcie4", "h200-pcie5", "gh200-nvlink-c2c")
    seconds = [shipped(BIG + "/tf32", name).predicted_seconds for name in names]
    assert seconds == sorted(seconds, reverse=True)


def test_without_a_profile_the_plan_rests_on_guesses():
    options = ("--profile", "none", "--device", "cpu", "--budget", "1GiB", "--json")
    assert json.loads(run(BIG, *options))["unmeasured"]


def test_the_list_of_profiles():
    lines = run("--profile", "list").splitlines()
    assert [line.split(": ")[0] for line in lines] == profiles.names()
    measured = [name for name, line in zip(profiles.names(), lines, strict=True) if "202" in line]
    assert measured == list(MEASURED)
    assert "driver 580.159.04 for CUDA 13.0, engines cudnn-nhwc (cuDNN 9.19.0), " in "".join(lines)
    assert all("nothing of it was measured" in line for line in lines if "estimates" in line)


@pytest.mark.parametrize("name", MEASURED)
def test_what_is_said_to_be_measured_is(name):
    """All but the rate of engines that the profile does not know."""
    file = profiles.find(name)
    read = parse(file.read_text(encoding="utf-8"))
    assert {key for key in read.rates() if read.mark(key) == UNMEASURED} == {"flops_fallback"}
    assert "" not in (read.driver, read.engines, read.date)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--profile", "nope", "--budget", "1GiB"), "h200-pcie5"),
        (("--profile", __file__, "--budget", "1GiB"), "test_plans.py"),
        (("--profile", "h200-pcie5", "--budget", "auto"), "8GiB"),
        (("--profile", "h200-pcie5", "--budget", "50%"), "8GiB"),
        (("--profile", "h200-pcie5", "--budget", "64B"), "budget is"),
    ],
)
def test_errors_are_one_message(arguments, words):
    text = run(BIG, *arguments, code=1)
    assert text.startswith("Error: ")
    assert words in text


def test_a_profile_and_a_device():
    """The constants are the profile's, the engines the device's."""
    plan = json.loads(
        run(PROBLEM, "--profile", "p100-pcie3", "--device", "cpu", "--budget", "1MiB", "--json")
    )
    assert plan["prepared"]
    assert plan["machine"] == profiles.machine(profiles.find("p100-pcie3"))
    assert "run_seconds" in plan["unmeasured"]


def test_a_file_is_a_profile(tmp_path):
    file = tmp_path / "mine.txt"
    text = profiles.find("h200-pcie5").read_text(encoding="utf-8")
    file.write_text(text.replace(" unmeasured\n", " measured\n"), encoding="utf-8")
    plan = oocdnn.plan_for_profile(BIG + PINNED, file, 2**30)
    assert plan.unmeasured == []
    assert "not measured" not in plan.text
    double = oocdnn.plan_for_profile(BIG.replace("f32", "f64") + PINNED, file, 2**30)
    assert double.unmeasured == [f"flops {double.engine}/f64/fwd"]
    assert f"not measured: {double.unmeasured[0]}\n" in double.text


@pytest.mark.parametrize("name", profiles.names())
def test_a_shipped_profile_is_known_by_its_name(name):
    assert shipped(name=name).machine == oocdnn.plan_for_profile(BIG, name, "1GiB").machine


def test_a_profile_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(oocdnn.InvalidProblem, match=r"'h300' is no file.*h200, h200-pcie5"):
        oocdnn.plan_for_profile(PROBLEM, "h300", "1GiB")


def test_what_the_problem_says_to_be_on_the_device_crosses_no_wire():
    host = shipped()
    inputs, all_of_it = shipped(f"{BIG} x@dev w@dev"), shipped(f"{BIG} x@dev w@dev y@dev")
    assert (inputs.bytes_h2d, inputs.bytes_d2h) == (0, host.bytes_d2h)
    assert (all_of_it.bytes_h2d, all_of_it.bytes_d2h) == (0, 0)
    assert all_of_it.predicted_seconds < inputs.predicted_seconds < host.predicted_seconds
    assert all_of_it.host_bytes == 0 < inputs.host_bytes
    sums = shipped(f"{BIG} beta1 y@dev")  # what y held before lies there too
    assert (sums.bytes_h2d, sums.bytes_d2h) == (host.bytes_h2d, 0)


def test_a_profile_without_engines(tmp_path):
    file = tmp_path / "none.txt"
    text = profiles.find("p100-pcie3").read_text(encoding="utf-8")
    file.write_text(re.sub(r"^flops \S+/.*\n", "", text, flags=re.MULTILINE), encoding="utf-8")
    with pytest.raises(oocdnn.Unsupported, match="engine"):
        oocdnn.plan_for_profile(PROBLEM, file, "1GiB")


def test_guesses_are_said_to_be_guesses():
    with oocdnn.Context("cpu", "256KiB", engine="direct", profile="none") as context:
        plan = context.plan(PROBLEM)
    assert "flops direct/f32/fwd" in plan.unmeasured
    assert "fetch_bytes_per_second" in plan.unmeasured
    assert "both_bytes_per_second" not in plan.unmeasured, "copies take turns here"
    assert "not measured" in plan.text
    assert plan.prepared
    assert "not prepared" not in plan.text


@pytest.mark.parametrize(
    "line",
    [
        "oocdnn: taken {} tiles=94 peak=41.2 MiB h2d=1.50 GiB d2h=1.50 GiB ms=12.3 why=workspace",
        "oocdnn: taken {} tiles=1 peak=7 B why=2^31",
        "taken {} tiles=12",
        "{}",
    ],
)
def test_a_logged_line_is_a_problem(line):
    words = line.format(PROBLEM)
    for arguments in ((words,), words.split()):
        plan = json.loads(run(*arguments, "--budget", "256KiB", "--device", "cpu", "--json"))
        assert plan["problem"] == PROBLEM


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    file = tmp_path / "plan.png"
    run(BIG, "--profile", "h200-pcie5", "--budget", "64MiB", "--picture", file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_picture_shows_the_first_and_the_last_steps():
    long = shipped(budget="64MiB")
    assert long.tiles > 100
    first, last = timeline.stretches(long.timeline)
    assert min(begin for _, begin, _ in first["fetch"]) == 0
    for spans in (first, last):
        assert set(spans) == {"fetch", "compute", "drain"}
        assert len({name for name, _, _ in spans["compute"]}) == 50
    assert last["compute"][-1][0] == f"step {long.tiles - 1}"
    short = dataclasses.replace(long, timeline=long.timeline[:20])
    assert len(timeline.stretches(short.timeline)) == 1


def test_a_busy_host_has_slower_wires(tmp_path):
    file = tmp_path / "mine.txt"
    profile = parse(profiles.find("h200-pcie5").read_text(encoding="utf-8"))
    wires = {"beside/1/fetch": 20e9, "beside/1/drain": 20e9, "beside/1/both": 30e9}
    file.write_text(dataclasses.replace(profile, wires=wires).text(), encoding="utf-8")
    arguments = (BIG, "--profile", file, "--budget", "1GiB", "--json")
    alone = json.loads(run(*arguments))
    assert json.loads(run(*arguments, "--busy-gpus", 0)) | {"search_seconds": 0} == alone | {
        "search_seconds": 0
    }
    beside = json.loads(run(*arguments, "--busy-gpus", 1))
    assert beside["predicted_seconds"] > 1.5 * alone["predicted_seconds"]
    assert "is not in the range" in run(BIG, "--busy-gpus", -1, code=2)
