"""The command oocdnn."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import oocdnn
from oocdnn.cli import main, picture, problems
from oocdnn.cli.demo import _tiles

PROBLEM = "conv2d:fwd x1x16x64x64 w16x16x3x3 pad1 f32"


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_every_command_has_help():
    commands = main.commands
    assert set(commands) >= {"info", "plan", "trace", "demo"}
    for name in commands:
        assert "Usage" in run(name, "--help")


def test_module_and_version():
    command = [sys.executable, "-m", "oocdnn", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert oocdnn.__version__ in done.stdout


def test_info():
    text = run("info")
    assert f"oocdnn {oocdnn.__version__}" in text
    assert "direct" in text
    found = json.loads(run("info", "--json"))
    assert found["core"]["version"] == oocdnn.__version__
    assert "h200-pcie5" in found["profiles"]
    for engine in found["core"]["engines"]:
        assert engine["name"] in text
        assert (engine["library"] or "oocdnn").split()[0] in text
        assert bool(engine["library"]) == engine["name"].startswith(("onednn", "cudnn"))
    assert {package["name"] for package in found["packages"]} >= {"numpy", "cffi"}
    missing = {item["name"]: item for item in found["missing"]}
    for package in found["packages"]:
        assert package["version"] or missing[package["name"]]["remedy"]
    for name, item in missing.items():
        assert f"missing {name}: {item['reason']}" in text


def test_info_says_what_helps_where_onednn_is_missing(monkeypatch):
    monkeypatch.setenv("OOCDNN_ENGINE", "direct")
    assert "onednn-cpu-gomp" in run("info")


def test_info_without_the_library(monkeypatch):
    command = [sys.executable, "-m", "oocdnn", "info"]
    monkeypatch.setenv("OOCDNN_LIBRARY", "/nowhere/liboocdnn.so")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "/nowhere/liboocdnn.so" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_plan():
    text = run("plan", PROBLEM, "--budget", "256KiB")
    assert "256.0 KiB" in text
    assert "chosen" in text
    plan = json.loads(run("plan", PROBLEM, "--budget", "256KiB", "--json"))
    assert plan["budget_bytes"] == 256 * 1024
    assert plan["tiles"] > 1
    assert plan["booked_bytes"] <= plan["budget_bytes"]
    assert run("plan", *PROBLEM.split(), "--budget", "256KiB").splitlines()[0] == PROBLEM


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "conv2d:fwd nonsense"), "nonsense"),
        (("plan", PROBLEM, "--budget", "100B"), "budget is 100"),
        (("plan", PROBLEM, "--device", "cuda:99"), "cuda:99"),
        (("demo", "--image", __file__), "cannot be read as an image"),
    ],
)
def test_errors_are_one_message(arguments, words):
    text = run(*arguments, code=1)
    assert text.startswith("Error: ")
    assert words in text


PROBLEMS = [
    PROBLEM,
    "conv1d:fwd x2x6x99 w4x3x5 pad2 str2 dil2 grp2 f64 alpha2 beta1 flip",
    "conv2d:fwd x1x4x9x11 w8x4x3x3 pad0:1x2:2 f16 nhwc +bias +scale +residual0.5 +clip6",
    "conv2d:bwd_data x2x6x9x11 w4x3x3x3 pad1 str2 grp2 bf16 beta1 +bias +relu",
    "conv3d:bwd_filter x1x4x6x7x8 w6x4x3x3x3 pad1 f32/tf32 ndhwc",
    "conv2d:bwd_bias y2x16x9x9 beta1",
    "conv2d:fwd x1x4x9x11 w8x4x3x3 x@pin +swish1.5",
    "conv2d:fwd x1x4x9x11 w8x4x3x3 nhwc +bias +residual +maxpool3 poolstr2x1 poolpad1:0x1 poolceil",
    "conv1d:fwd x1x4x19 w8x4x3 +relu +avgpoolin2 +saved",
    "conv3d:fwd x1x4x5x6x7 w8x4x1x1x3 +clip6 +saved",
    "conv2d:bwd_data x2x6x9x11 w4x3x3x3 pad1 grp2 beta1 +maxpool2 +clipped",
    "conv2d:bwd_data x2x6x9x11 w4x3x3x3 pad1 grp2 +maxpool2 +clipped +dw +db",
    "conv2d:bwd_data x2x6x9x11 w4x3x3x3 pad1 grp2 +avgpool2 +sloped +dw +db",
    "conv2d:bwd_data x2x6x9x11 w4x6x3x3 pad1 +dw",
    "conv2d:bwd_filter x2x6x9x11 w4x6x3x3 pad1 +clipped +db",
    "conv2d:bwd_filter x2x6x9x11 w4x6x3x3 nhwc alpha2 +avgpool3x2 poolstr2 poolpad1",
    "conv1d:bwd_bias y2x16x29 +clipped",
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_string_runs_as_itself(problem, monkeypatch):
    """What is run for a string has that string, but for the words that change nothing."""
    seen = []

    def keep(self, call, tensors, progress=None):
        seen.append(oocdnn._core.requests.problem_text(call, tensors))

    with oocdnn.Context("cpu") as context:
        call = problems.random_call(problems.parse(problem), context)
        monkeypatch.setattr(oocdnn.Context, "run", keep)
        planned = context.plan(problem).text.splitlines()[0]
        call()
    assert seen == [planned]


@pytest.mark.parametrize("problem", PROBLEMS[:2])
def test_trace(problem, tmp_path):
    out = tmp_path / "t.json"
    text = run("trace", problem, "--out", out, "--budget", "256KiB", "--device", "cpu")
    assert str(out) in text
    events = json.loads(out.read_text())["traceEvents"]
    assert any(event["ph"] == "X" for event in events)


def test_demo(tmp_path):
    pytest.importorskip("matplotlib", reason="the demo needs matplotlib")
    text = run("demo", "--out", tmp_path, "--device", "cpu", "--megapixels", "1")
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures["data_bytes"] >= 256 * 2**20
    assert figures["budget_bytes"] == figures["data_bytes"] // 8
    assert 0 < figures["peak_device_bytes"] <= figures["budget_bytes"]
    assert figures["tiles"] > 1
    assert figures["tiles_whole"] == 1
    assert figures["max_abs_difference"] <= 1e-5
    assert figures["seconds"] > 0
    assert figures["seconds_whole"] > 0
    assert figures["device"] == "cpu"
    for name in ("before.png", "after.png", "timeline.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert text.splitlines()[-1].startswith("your turn: ")


def test_filter_bank_answers_to_edges_only():
    w, b = picture.filter_bank()
    assert w.shape == (picture.FILTERS, 3, picture.TAPS, picture.TAPS)
    np.testing.assert_allclose(w.sum((1, 2, 3)), 0, atol=1e-6)
    assert b.shape == (picture.FILTERS,)
    assert len({kernel.tobytes() for kernel in w}) == picture.FILTERS


def test_a_picture_of_ones_own(tmp_path):
    from PIL import Image

    file = tmp_path / "grey.jpg"
    Image.new("L", (30, 20), 99).save(file)
    photo, name = picture.photograph(file)
    assert photo.mode == "RGB"
    assert name == str(file)
    assert picture.resized(photo, 2400).size == (60, 40)


def test_the_picture_shows_direction_as_hue():
    """A dark half beside a light half: one bright upright line, the same colour all along."""
    x = np.zeros((1, 3, 64, 64), np.float32)
    x[..., 32:] = 1
    w, b = picture.filter_bank()
    with oocdnn.Context("cpu") as context:
        y = context.conv2d(x, w, b, padding=3, activation="relu")
    image = np.asarray(picture.composite(y, 64), np.int32)
    strength = image.max(-1)
    columns = np.flatnonzero(strength.max(0) > 200)
    assert len(columns) > 0
    assert np.abs(columns + picture.TAPS - 31.5).max() <= 2
    brightest = image[:, strength.sum(0).argmax()]
    assert np.ptp(brightest, axis=0).max() <= 8


def test_a_picture_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path):
    words = ["plan", "conv2d:fwd x1x1x8x8 w1x1x3x3", "--profile", "h200", "--budget", "1MiB"]
    result = CliRunner().invoke(main, [*words, "--picture", str(tmp_path / "none" / "plan.png")])
    assert result.exit_code == 1
    assert result.output.strip().splitlines()[-1].startswith("Error: ")
    assert isinstance(result.exception, SystemExit)


def test_a_picture_of_an_unknown_kind_is_an_error_without_a_traceback(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    words = ["plan", "conv2d:fwd x1x1x8x8 w1x1x3x3", "--profile", "h200", "--budget", "1MiB"]
    assert "Error: Format 'nope'" in run(*words, "--picture", tmp_path / "plan.nope", code=1)


@pytest.mark.parametrize(
    "command",
    [
        ("trace", "conv2d:fwd x1x1x8x8 w1x1x3x3", "--device", "cpu", "--out", "{}/file/out"),
        ("demo", "--device", "cpu", "--out", "{}/file/out"),
    ],
)
def test_where_nothing_can_be_written_a_line_names_the_file(tmp_path, command):
    (tmp_path / "file").touch()
    text = run(*(word.replace("{}", str(tmp_path)) for word in command), code=1)
    assert text == f"Error: {tmp_path}/file/out: Not a directory\n"


def test_a_picture_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["plan", "conv2d:fwd x1x1x8x8 w1x1x3x3", "--profile", "h200", "--budget", "1MiB"]
    result = CliRunner().invoke(main, [*words, "--picture", str(tmp_path / "plan.png")])
    assert result.exit_code == 1
    assert "pip install 'oocdnn[demo]'" in result.output


@pytest.mark.parametrize(("count", "text"), [(1, "1 tile"), (2, "2 tiles"), (30, "30 tiles")])
def test_the_demo_counts_tiles(count: int, text: str) -> None:
    assert _tiles(SimpleNamespace(tiles=count)) == text
