"""`oocdnn bench` on problems that take no time: what it computes, finds, prints and writes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import oocdnn
from oocdnn.bench import cases, network, results, suite, task
from oocdnn.bench.cases import Case
from oocdnn.bench.layers import layer
from oocdnn.bench.peers import peer as peers
from oocdnn.bench.results import Row
from oocdnn.bench.sets import Set
from oocdnn.bench.suite import Bench, Settings
from oocdnn.bench.task import Convolution, Task
from oocdnn.cli import main

# However long a call takes beside others, as many are timed.
UNHURRIED = dataclasses.replace(suite.QUICK, seconds=math.inf)
FORWARD = "conv2d:fwd x4x16x24x23 w32x16x3x3 pad1 f32"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments], env={"COLUMNS": "200"})


def rows_of(text: str, **settings: Any) -> list[Row]:
    made = Bench(Settings("cpu", patience=UNHURRIED, **settings))
    return list(made.rows(suite.case_of(text)))


@pytest.mark.parametrize("direction", ["fwd", "bwd_data", "bwd_filter"])
@pytest.mark.parametrize(
    "words",
    [
        "conv2d:{} x4x16x24x23 w32x16x3x3 pad1 f32",
        "conv2d:{} x4x16x24x23 w32x8x3x2 pad2:1x0:1 str2x1 dil1x2 grp2 bf16 nhwc",
        "conv3d:{} x2x8x9x10x11 w8x8x3x3x3 pad1 str2 f16",
        "conv1d:{} x3x8x500 w6x8x5 f64 flip",
    ],
)
def test_results_are_held_to_exact_sums(words: str, direction: str) -> None:
    ours, whole = rows_of(words.format(direction), budget="64KiB", peers=("whole",))
    assert (ours["who"], ours["check"]) == ("oocdnn", "pass")
    assert (whole["who"], whole["check"]) == ("whole", "pass")
    assert ours["budget"] == 64 << 10 >= ours["peak_device_bytes"] > 0
    assert ours["tiles"] > 1
    assert ours["seconds"]
    assert ours["floor_seconds"]
    assert ours["samples"] >= 3


def test_torch_gives_the_same_where_it_is_installed() -> None:
    pytest.importorskip("torch")
    *_, row = rows_of(FORWARD, peers=("torch",))
    assert row["check"] == "pass"


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    *_, row = rows_of(FORWARD, peers=("torch",))
    assert row["check"] == "skipped: torch is not installed"
    assert row["seconds"] is None


@contextmanager
def one_element_off(task: Task, device: str) -> Iterator[peers.Ready]:
    with peers.whole(task, device) as ready:
        yield ready
    (compared,) = task._compared
    task.outs[compared.name][compared.places[7]] += 1


def test_one_wrong_element_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", one_element_off)
    ours, off = rows_of(FORWARD, peers=("off",))
    assert ours["check"] == "pass"
    assert off["check"].startswith("fail: 1 of 2000 compared elements differ, the first at (")


def test_others_may_round_as_their_algorithms_do(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def rounded(task: Task, device: str) -> Iterator[peers.Ready]:
        with peers.whole(task, device) as ready:
            yield ready
        task.outs["y"] += np.float32(1e-4)

    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", rounded)
    assert [row["check"] for row in rows_of(FORWARD, peers=("off",))] == ["pass", "pass"]
    monkeypatch.setattr(suite, "OF_OURS", ("off",))
    assert rows_of(FORWARD, peers=("off",))[1]["check"].startswith("fail: ")


def test_who_leaves_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def idle(task: Task, device: str) -> Iterator[peers.Ready]:
        yield peers.Ready(lambda: None)

    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", idle)
    assert "2000 of 2000" in rows_of(FORWARD, peers=("off",))[1]["check"]


def test_an_error_of_a_device_ends_neither_the_problem_nor_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def broken(task: Task, device: str) -> Iterator[peers.Ready]:
        raise RuntimeError("cuMemAllocManaged answers 2")
        yield peers.Ready(lambda: None)

    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", broken)
    ours, off = rows_of(FORWARD, peers=("off",))
    assert (ours["check"], off["check"]) == ("pass", "skipped: cuMemAllocManaged answers 2")

    def fail() -> None:
        raise oocdnn.DeviceError("it fell off the bus")

    monkeypatch.setattr(Task, "call", lambda *_: fail)
    (ours,) = rows_of(FORWARD)
    assert ours["check"] == "fail: it fell off the bus"


def test_sums_that_may_be_rounded_are_mistrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", one_element_off)
    monkeypatch.setattr(task, "EXACT_ELSEWHERE", 100)
    ours, off = rows_of(FORWARD, peers=("off",))
    assert ours["check"] == "pass"
    assert off["check"].startswith("mistrusted: sums of up to 144 may be rounded, and 1 of ")


@pytest.mark.parametrize("wrong", [0.0, math.nan])
def test_what_is_no_nearer_than_nothing_fails_however_long_its_sums(
    monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    @contextmanager
    def nothing(task: Task, device: str) -> Iterator[peers.Ready]:
        yield peers.Ready(lambda: task.outs["y"].fill(wrong))

    monkeypatch.setitem(suite.CONVOLUTION_PEERS, "off", nothing)
    monkeypatch.setattr(task, "EXACT_ELSEWHERE", 100)
    assert rows_of(FORWARD, peers=("off",))[1]["check"].startswith("fail: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FORWARD + " +bias +tanh", "only bias, relu and pools"),
        (FORWARD + " +scale", "only bias, relu and pools"),
        (FORWARD + " +avgpool2", "only maxima of windows that touch"),
        (FORWARD + " +maxpool3 poolstr2", "only maxima of windows that touch"),
        ("conv2d:bwd_bias y2x8x9x9 f32", "bwd_bias is not compared here"),
        ("conv2d:fwd x64x4096x8192x8192 w1x4096x1x1 f32", " of host memory, "),
    ],
)
def test_what_cannot_be_measured_says_why(text: str, why: str) -> None:
    (row,) = rows_of(text)
    assert row["check"].startswith("skipped: ")
    assert why in row["check"]


def test_a_budget_that_is_too_small_is_no_failure() -> None:
    (row,) = rows_of(FORWARD, budget=100)
    assert row["check"].startswith("skipped: ")
    assert "100 B" in row["check"]


@pytest.mark.parametrize("command", [(), ("check",)])
def test_where_nothing_was_computed_the_command_fails_and_says_why(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "rates", lambda *_: {})
    done = invoke(*command, FORWARD, "--device", "cpu", "--budget", "100B")
    assert done.exit_code == 1
    assert "Error: nothing was computed: " in done.output
    assert "100 B" in done.output


def test_a_quick_run_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = (layer("a", (64, 8, 12, 12), 8, 3, padding=1), layer("b", (2, 8, 12, 12), 8, 1))
    made = cases.Layers(Set("tiny", "two", tiny, ("fwd", "bwd_filter")))
    monkeypatch.setitem(cases.SETS, "tiny", made)
    monkeypatch.setattr(cases, "QUICK_FLOPS", 4 * tiny[0].flops / 64)
    done = invoke(
        "--set", "tiny", "--device", "cpu", "--quick", "--peer", "whole", "--out", str(tmp_path)
    )
    assert done.exit_code == 0, done.output
    assert "8 pass" in done.output
    rows = results.read(tmp_path)
    assert [row["layer"] for row in rows] == ["a"] * 4 + ["b"] * 4
    assert rows[0]["problem"].startswith("conv2d:fwd x4x8x12x12 ")
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "conv2d:bwd_filter x2x8x12x12 w8x8x1x1" in page
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert about["rates"]["arithmetic"] > 1e6
    again = invoke(*rows[0]["command"].split('"')[1:2], "--device", "cpu", "--peer", "none")
    assert again.exit_code == 0, again.output


def test_check_computes_once_and_fails_where_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "1 pass" in invoke("check", FORWARD, "--device", "cpu").output
    monkeypatch.setattr(Task, "check", lambda self: "fail: on purpose")
    done = invoke("check", FORWARD, "--device", "cpu")
    assert done.exit_code == 1
    assert "1 results are wrong" in done.output


def test_problems_are_chosen_by_set_direction_and_text() -> None:
    assert "deepbench-inference" in invoke("list").output
    lines = invoke("list", "--set", "vgg16", "--direction", "fwd", "--only", "conv5_1").output
    assert lines == "conv2d:fwd x64x512x14x14 w512x512x3x3 pad1 f32\n"
    batch = invoke("list", "--set", "resnet18", "--batch", "1", "--words", "bf16 nhwc").output
    assert batch.splitlines()[0] == "conv2d:fwd x1x3x224x224 w64x3x7x7 pad3 str2 bf16 nhwc"
    assert len(batch.splitlines()) == 33
    fused = invoke("list", "--set", "fused", "--quick", "--only", "conv1_").output
    assert fused.splitlines() == [
        "conv2d:fwd x57x3x224x224 w64x3x3x3 pad1 f32 +bias +relu +saved",
        "conv2d:bwd_filter x57x3x224x224 w64x3x3x3 pad1 f32 +clipped +db",
        "conv2d:fwd x2x64x224x224 w64x64x3x3 pad1 f32 +bias +relu +maxpool2 +saved",
        "conv2d:bwd_data x2x64x224x224 w64x64x3x3 pad1 f32 +maxpool2 +clipped +dw +db",
    ]
    networks = invoke("list", "--set", "network", "--words", "f32/tf32").output.splitlines()
    assert networks[0] == "vgg16:train x64x3x224x224 f32/tf32"
    assert len(networks) == 5


def test_what_is_named_first_comes_first_with_all_words() -> None:
    options = ("--set", "poster", "--words", "f32/tf32", "--words", "f32")
    lines = invoke("list", *options, "--only", "c2048", "--only", "").output.splitlines()
    assert len(lines) == 12
    begun = [line.split()[1:5:3] for line in lines[:3]]
    assert begun == [
        ["x1x2048x1024x1024", "f32/tf32"],
        ["x1x2048x1024x1024", "f32"],
        ["x1x64x1024x1024", "f32/tf32"],
    ]
    drawn = invoke("list", *options, "--shuffle").output
    assert drawn == invoke("list", *options, "--shuffle").output
    assert sorted(drawn.splitlines()) == sorted(lines) != drawn.splitlines()


def test_the_steps_of_a_gpu_are_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """With problems in them; of networks and sweeps the most telling first."""
    steps = (Path(__file__).parents[1] / "gpu" / "run.sh").read_text("utf-8").replace("\\\n", " ")
    (both,) = re.findall(r"^both=\((.*)\)$", steps, re.MULTILINE)
    lines = re.findall(r"^benched (\S+) (\d+) (.*)$", steps, re.MULTILINE)
    first = dict[str, str]()

    def measured(made: Bench, cases: list[Case], *rest: object) -> list[Row]:
        first.setdefault(cases[0].set, cases[0].layer)
        return []

    command = importlib.import_module("oocdnn.cli.bench")  # whose name is the group's too
    monkeypatch.setattr(command, "_measured", measured)
    monkeypatch.setattr(suite, "rates", lambda *_: {})
    for name, _, options in lines:
        done = invoke(*shlex.split(options.replace('"${both[@]}"', both)), "--device", "cpu")
        assert done.exit_code == 0, f"{name}: {done.output}"
    assert first["network"] == "vgg16 n256"
    assert first["poster"] == "c2048"
    assert first.keys() == {"network", "poster", "deepbench", "large", "vgg16", "fused"}
    assert sum(int(seconds) for _, seconds, _ in lines) < 500
    (sets,) = re.findall(r"for one in (.*); do\n    sets", steps)
    assert set(sets.split()) == cases.SETS.keys()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--set", "vgg17"), "there is no set vgg17; there are vgg16, resnet18"),
        (("--set", "vgg16", FORWARD), "give a problem or --set, not both"),
        (("--set", "vgg16", "--only", "x99"), "no problem contains x99"),
        (("--peer", "nobody", FORWARD), "there is no peer nobody; there are whole, torch"),
        (("check", "conv2d:fwd nonsense"), "nonsense"),
        (("list", "--set", "network", "--words", "bf16"), "write vgg16:train"),
    ],
)
def test_what_is_not_there_is_named(arguments: tuple[str, ...], text: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code != 0
    assert text in done.output
    assert isinstance(done.exception, SystemExit)  # and no other


def row(seconds: float | None, noise: float | None = 0.01, **more: Any) -> Row:
    made = rows_template()
    made.update({"check": "pass", "seconds": seconds, "noise": noise, **more})  # type: ignore[typeddict-item]
    return made


def rows_template() -> Row:
    made = Bench(Settings("cpu"))
    return made._row(Case("s", "l", FORWARD, 1, 1), Convolution(FORWARD), 1 << 20)


def test_the_reference_speaks_of_every_field_set_and_peer() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "bench.md").read_text("utf-8")
    for name in (*Row.__annotations__, *cases.SETS, *suite.ALL_PEERS):
        assert f"`{name}`" in text, name


def test_the_reference_compares_with_every_peer_and_nobody_else() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "bench.md").read_text("utf-8")
    (section,) = re.findall(r"^## Who is compared\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    _head, *named = re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted((suite.OURS, *suite.ALL_PEERS))


def test_the_library_named_in_a_row_is_this_one() -> None:
    assert Bench(Settings("cpu")).about["versions"]["oocdnn"] == oocdnn.__version__


def test_the_references_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, the sets with layers that take no time."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / "bench.md").read_text("utf-8")
    block, studies = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    tiny = (layer("a", (4, 8, 12, 12), 8, 3, padding=1), layer("b", (2, 8, 12, 12), 8, 1))
    for name in ("vgg16", "resnet50", "large"):
        monkeypatch.setitem(cases.SETS, name, cases.Layers(Set(name, "two", tiny, ("fwd",))))
    monkeypatch.setattr(network, "VGG16", ((4, True), (8, True)))
    monkeypatch.setattr(network, "BATCHES", (1,))
    monkeypatch.setattr(network, "SIZE", 32)
    monkeypatch.setattr(suite, "PATIENT", suite.QUICK)
    monkeypatch.setattr(suite, "rates", lambda *_: {"arithmetic": 1e9})
    monkeypatch.setenv("OOCDNN_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        command = shlex.split(line)
        assert command[:2] == ["oocdnn", "bench"]
        if "compare" in command:
            (tmp_path / "bench-out").rename(tmp_path / "bench-before")
            done = invoke(*shlex.split(block.splitlines()[0])[2:])
            assert done.exit_code == 0, done.output
        done = invoke(*command[2:])
        assert done.exit_code == 0, f"{line}: {done.output}"
    monkeypatch.setenv("OOCDNN_PLANS", "restored afterwards")
    done = invoke(*shlex.split(studies)[2:])
    assert (done.exit_code, (tmp_path / "planning.json").exists()) == (0, True), done.output


def test_a_call_of_several_tiles_is_recorded_engine_by_engine() -> None:
    rows = rows_of(FORWARD, budget="64KiB", peers=())
    found = suite.timeline(rows)
    assert found is not None
    assert found["problem"] == FORWARD
    spans = found["spans"]
    assert list(spans) == ["fetch", "compute", "drain"]
    assert len(spans["drain"]) == rows[0]["tiles"] == len(spans["compute"])
    assert min(begin for begin, _ in spans["fetch"]) == 0.0
    assert suite.timeline([row(1.0, who="whole")]) is None


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before the end of its time is kept, and is not measured again."""
    tiny = (layer("a", (4, 8, 12, 12), 8, 3, padding=1), layer("b", (2, 8, 12, 12), 8, 1))
    monkeypatch.setitem(cases.SETS, "tiny", cases.Layers(Set("tiny", "two", tiny, ("fwd",))))
    monkeypatch.setattr(suite, "rates", lambda *_: {"arithmetic": 1e9})
    options = (
        "--set",
        "tiny",
        "--device",
        "cpu",
        "--quick",
        "--peer",
        "none",
        "--out",
        str(tmp_path),
    )
    cut = invoke(*options, "--seconds", "-1")
    assert cut.exit_code == 0, cut.output
    assert "2 problems are left" in cut.output
    assert results.read(tmp_path) == []
    first = invoke(*options, "--only", " a ")
    assert [row["layer"] for row in results.read(tmp_path)] == ["a"], first.output
    (before,) = results.read(tmp_path)
    second = invoke(*options, "--resume")
    assert "1 pass" not in second.output
    assert [row["layer"] for row in results.read(tmp_path)] == ["a", "b"]
    assert results.read(tmp_path)[0] == before


def test_for_whom_no_time_was_left_the_problem_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "rates", lambda *_: {"arithmetic": 1e9})
    ours, whole = rows_of(FORWARD, peers=("whole",), until=-math.inf)
    assert (ours["check"], whole["check"]) == ("pass", suite.NO_TIME)
    results.write(
        tmp_path, Bench(Settings("cpu")).about, [row(1.0, set="s", check="pass"), ours, whole]
    )
    options = (FORWARD, "--device", "cpu", "--quick", "--peer", "whole", "--resume")
    for seconds, checks in (("-1", [suite.NO_TIME]), ("600", ["pass"])):
        done = invoke(*options, "--out", str(tmp_path), "--seconds", seconds)
        assert done.exit_code == 0, done.output
        rows = results.read(tmp_path)
        assert [row["check"] for row in rows if row["who"] == "whole"] == checks
        assert len(rows) == 3
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert str(tmp_path) not in about["command"]
