"""What the README and the guide show is run, and what they state is checked."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import re
import shlex
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from python import messages

import oocdnn
from oocdnn._core import cdefs, loading
from oocdnn.cli import main
from oocdnn.perfmodel.profiles import find

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
TORCH = ROOT / "docs" / "torch.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
REFERENCE = ROOT / "docs" / "reference"
LAYERS = REFERENCE / "layers.md"

# What the reader is taken to have, in small sizes.
SETUP = {
    README: """
import numpy as np
np.save("x.npy", np.ones((1, 64, 24, 24), "f4"))
""",
    GUIDE: "",
    LAYERS: "",
    TORCH: "import torch",
}

C_PROGRAM = """
#include <stdio.h>
#include <oocdnn.h>
static float xs[3 * 9 * 9], ws[4 * 3 * 3 * 3], ys[4 * 7 * 7];
int main(void) {
  for (int i = 0; i < 243; ++i) xs[i] = 1;
  for (int i = 0; i < 108; ++i) ws[i] = 1;
  oocdnn_tensor x = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, (int64_t[]){1, 3, 9, 9}, xs);
  oocdnn_tensor w = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, (int64_t[]){4, 3, 3, 3}, ws);
  oocdnn_tensor y = oocdnn_dense_tensor(OOCDNN_FLOAT32, 4, (int64_t[]){1, 4, 7, 7}, ys);
BLOCK
  oocdnn_destroy(context);
  for (int i = 0; i < 196; ++i) if (ys[i] != 27) return 2;
  return status;
}
"""


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def rows(page: Path) -> list[list[str]]:
    """The cells of the rows of a page's tables, without their heads."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {i for i, row in enumerate(cells) if set("".join(row)) <= set("-:")}
    return [row for i, row in enumerate(cells) if i not in heads and i + 1 not in heads]


def usable(library: str) -> bool:
    """Whether this machine has it, and for CuPy a GPU."""
    try:
        module = importlib.import_module(library)
        return library != "cupy" or module.cuda.runtime.getDeviceCount() > 0
    except (ImportError, RuntimeError):
        return False


@pytest.mark.parametrize("page", SETUP, ids=lambda page: page.name)
def test_python_blocks_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page == TORCH and not usable("torch"):
        pytest.skip("torch is not installed")
    names: dict[str, object] = {}
    exec(SETUP[page], names)
    found = blocks(page, "python")
    assert len(found) >= 4
    for block in found:
        if not all(usable(library) for library in re.findall(r"^import (torch|cupy)", block, re.M)):
            continue
        exec(compile(block, str(page), "exec"), names)


def test_blocks_of_the_readme_are_short():
    for language in ("python", "c", "sh"):
        for block in blocks(README, language):
            assert len(block.splitlines()) <= 6, block


def run_c(text: str, folder: Path) -> None:
    """Compiles a program with warnings as errors, and runs it."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    source, program = folder / "main.c", folder / "main"
    source.write_text(text)
    library = loading.library_path().resolve()
    header = ROOT / "native" / "capi"
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-I", header, "-o", program, source]
    subprocess.run([*command, library, f"-Wl,-rpath,{library.parent}"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_c_block_runs(tmp_path):
    (block,) = blocks(README, "c")
    run_c(C_PROGRAM.replace("BLOCK", block), tmp_path)


def test_the_guides_c_program_runs(tmp_path):
    (block,) = blocks(GUIDE, "c")
    run_c(block, tmp_path)


def commands() -> list[str]:
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for page in pages for line in "\n".join(blocks(page, "sh")).splitlines()]
    return [line for line in lines if line]


# What is run here, and the tests that run the blocks of the others.
HERE = ("oocdnn info", "oocdnn plan", "oocdnn trace")
ELSEWHERE = {
    "oocdnn run": ("dropin/test_command.py", "spill/test_command.py"),
    "oocdnn dropin": ("dropin/test_command.py",),
    "oocdnn bench": ("bench/test_bench.py",),
    "gcc legacy.c": ("dropin/test_command.py",),
    "make": (),  # the demo, and this suite; that there are such targets is tested below
}


def test_every_command_of_the_pages_is_run_by_a_test():
    for line in commands():
        assert line.startswith((*HERE, *ELSEWHERE)), line
    for tests in ELSEWHERE.values():
        for test in tests:
            assert (ROOT / "tests" / test).exists()


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith(HERE)])
def test_commands_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, shlex.split(command, comments=True)[1:])
    assert result.exit_code == 0, result.output


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_table_of_what_fits_is_what_the_planner_says():
    found = [row for row in rows(PERFORMANCE) if len(row) == 5 and ":" in row[1]]
    assert len(found) >= 6
    for _, problem, tensors, booked, moved in found:
        plan = oocdnn.plan_for_profile(problem.strip("`"), find("h200"), 2**28)
        assert f"{plan.data_bytes / 2**30:.1f} GiB" == tensors, problem
        assert f"{plan.booked_bytes / 2**20:.0f} MiB" == booked, problem
        assert f"{(plan.bytes_h2d + plan.bytes_d2h) / plan.data_bytes:.2f}" == moved, problem


def floors() -> list[tuple[float, float]]:
    """Of each call that was held to the floor: its milliseconds, and how many times the floor."""
    text = (ROOT / "docs" / "results" / "h200" / "floor.txt").read_text(encoding="utf-8")
    found = re.findall(r"^\w.* ([\d.]+) ms +([\d.]+) x \w+ +[\d.]+ ms, .* first ", text, re.M)
    return [(float(milliseconds), float(times)) for milliseconds, times in found]


def within(times: list[float], share: float) -> float:
    """What that share of them does not pass, to the hundredth above."""
    at = sorted(times)[math.ceil(share * len(times)) - 1]
    return math.ceil(round(100 * at, 6)) / 100


def test_what_the_page_says_of_the_floor_was_measured():
    measured = floors()
    assert len(measured) == 126
    short = [times for milliseconds, times in measured if milliseconds < 14]
    long = [times for milliseconds, times in measured if milliseconds >= 14]
    text = " ".join(PERFORMANCE.read_text(encoding="utf-8").split())
    assert (
        f"half of the calls of 14 ms and more are within {within(long, 0.5):.2f} of the floor, "
        f"nine in ten within {within(long, 0.9):.2f}; half of the shorter ones within "
        f"{within(short, 0.5):.2f}, at worst {max(short):.2f}."
    ) in text


def results(name: str) -> dict[tuple[str, str], list[dict]]:
    """By arithmetic and who computed: what was timed, in the order of batches or channels."""
    file = ROOT / "docs" / "results" / "h200" / name / "results.jsonl"
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    by: dict[tuple[str, str], list[dict]] = {}
    for row in sorted(found, key=lambda row: int(re.search(r"\d+$", row["layer"])[0])):
        if row["seconds"]:
            by.setdefault((row["dtype"], row["who"]), []).append(row)
    return by


def ratios(some: list[dict], others: list[dict]) -> list[float]:
    """Time of each over the other's of the same layer, where both were timed."""
    seconds = {row["layer"]: row["seconds"] for row in others}
    return [row["seconds"] / seconds[row["layer"]] for row in some if row["layer"] in seconds]


def span(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def test_what_the_page_says_of_networks_was_measured():
    measured = results("network")
    text = " ".join(PERFORMANCE.read_text(encoding="utf-8").split())
    ours, torch = measured["f32/tf32", "oocdnn"], measured["f32/tf32", "torch"]
    shown = [f"{ratio:.2f}" for ratio in ratios(ours, torch)]
    assert ["PyTorch in core, TF32", *shown] in rows(PERFORMANCE)
    saved, accumulated = measured["f32/tf32", "save-on-cpu"], measured["f32/tf32", "accumulate"]
    assert f"takes {span(ratios(saved, ours), 1)} times as long as oocdnn" in text
    assert f"accumulation {span(ratios(accumulated, ours), 2)} times." in text
    ours, torch = (measured["f32", who] for who in ("oocdnn", "torch"))
    assert f"it takes {span(ratios(ours, torch), 1)} times as long as PyTorch in core" in text


@pytest.mark.parametrize("arithmetic", ["f32/tf32", "f32"])
@pytest.mark.parametrize(
    ("who", "label"),
    [
        ("oocdnn", "oocdnn"),
        ("torch", "PyTorch, in core"),
        ("zero-copy", "cuDNN on pinned memory"),
        ("prefetch", "managed memory with prefetch"),
        ("managed", "managed memory"),
    ],
)
def test_what_the_page_says_of_channels_was_measured(arithmetic, who, label):
    times = [1000 * row["seconds"] for row in results("poster")[arithmetic, who]]
    shown = [f"{time:.3g}" if time < 1000 else f"{time:.0f}" for time in times]
    shown += ["–"] * (6 - len(shown))
    kind = {"f32/tf32": "TF32", "f32": "fp32"}[arithmetic]
    assert [f"{kind}, {label}", *shown] in rows(PERFORMANCE)


def test_the_readmes_table_was_measured():
    """Its rows of convolutions in host memory, and of the sweep over limits."""
    told = {row[0]: row[1:] for row in rows(README) if len(row) == 4}
    row = told["VGG16's convolutions, forward and backward, 1,024 images in host memory, TF32"]
    assert row == _beside("network", "f32/tf32", "vgg16 n1024", "accumulate", "accumulation", 2)
    row = told["VGG16's convolutions in fp32, where PyTorch uses inexact algorithms"]
    assert row == _beside("network", "f32", "vgg16 n1024", "accumulate", "accumulation", 2)
    row = told["3x3 convolution, 2,048 channels, 1024 x 1024, from host memory and back, TF32"]
    other = "managed memory with prefetch"
    assert row == _beside("poster", "f32/tf32", "c2048", "prefetch", other, 2)
    row = told["the same with 64 channels, which the link to the host limits"]
    assert row == _beside("poster", "f32/tf32", "c64", "zero-copy", "cuDNN on pinned memory", 1)
    file = ROOT / "docs" / "results" / "h200" / "training_sweep.json"
    steps = json.loads(file.read_text(encoding="utf-8"))["rows"]
    needs = max(row["driver_gib"] for row in steps if row["way"] == "plain")
    (ours,) = (r for r in steps if r["way"] == "limit" and f"{r['limit_gib']:.1f}" == "10.0")
    row = told["train ResNet-50, 512 images, bf16"]
    assert row[:2] == [f"10.0 of {needs:.1f} GiB", f"**{ours['of_plain']:.2f}**"]


def _beside(
    name: str, arithmetic: str, layer: str, other: str, called: str, digits: int
) -> list[str]:
    """The cells of a row: memory, the time over PyTorch in core, and that of another way."""
    by = {who: {row["layer"]: row for row in some}[layer]
          for (kind, who), some in results(name).items()
          if kind == arithmetic and layer in {row["layer"] for row in some}}  # fmt: skip
    core = by["torch"]
    ours, theirs = (by[who]["seconds"] / core["seconds"] for who in ("oocdnn", other))
    nbytes = [by[who]["peak_device_bytes"] / 2**30 for who in ("oocdnn", "torch")]
    memory = f"{nbytes[0]:.1f} of {nbytes[1]:.1f} GiB"
    told = [f"{ours:.{digits}f}", f"{theirs:.{digits}f}"]
    told[ours > theirs] = f"**{told[ours > theirs]}**"
    return [memory, told[0], f"{called} {told[1]}"]


def test_what_the_page_says_of_small_calls_was_measured():
    ours = results("deepbench")["f32/tf32", "oocdnn"]
    times = [row["seconds"] / row["floor_seconds"] for row in ours]
    text = " ".join(PERFORMANCE.read_text(encoding="utf-8").split())
    assert (
        f"take {statistics.median(times):.2f} times the floor at the median and "
        f"{max(times):.2f} at worst"
    ) in text


def test_what_the_page_says_of_newer_layers_was_measured():
    """Over the longer of the wires, at the rates of that run, and the faster of who is in core."""
    folder = ROOT / "docs" / "results" / "h200" / "modern"
    rates = json.loads((folder / "about.json").read_text("utf-8"))["rates"]
    calls: dict[str, dict] = {}
    for line in (folder / "results.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        calls.setdefault(row["problem"], {})[row["who"]] = row
    times = []
    for who in calls.values():
        inward, outward = who["oocdnn"]["bytes_h2d"], who["oocdnn"]["bytes_d2h"]
        wires = (inward / rates["inward"], outward / rates["outward"])
        least = max(*wires, (inward + outward) / rates["both"])
        least = max(least, min(who["torch"]["seconds"], who["in-core"]["seconds"]))
        times.append(who["oocdnn"]["seconds"] / least)
        assert who["oocdnn"]["check"] == who["in-core"]["check"] == "pass"
    text = " ".join(PERFORMANCE.read_text(encoding="utf-8").split())
    assert len(times) == 90
    assert (
        f"take {statistics.median(times):.2f} times the longer of link and arithmetic in core at "
        f"the median, and {max(times):.2f} at worst"
    ) in text


def test_every_result_is_listed():
    """With the command that it is from."""
    folder = ROOT / "docs" / "results"
    listed = {name for row in rows(folder / "README.md") for name in re.findall(r"`(\S+)`", row[0])}
    files = {file for file in folder.rglob("*") if file.is_file()}
    whole = {file.parent for file in files if file.name in ("about.json", "index.html")}
    results = {file.parent if file.parent in whole else file for file in files}
    there = {result.relative_to(folder).as_posix() for result in results}
    assert listed == there - {"README.md"}


def test_every_link_leads_somewhere():
    for page in (*SETUP, PERFORMANCE, ROOT / "docs" / "how_it_works.md", *REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_variable_is_listed_as_the_core_describes_it(ctx):
    listed = {row[0].strip("`"): row[1:] for row in rows(REFERENCE / "environment.md")}
    core = json.loads(ctx.info())["variables"]
    expected = {v["name"]: [v["values"], v["default"], v["meaning"]] for v in core}
    listed.pop("OOCDNN_LIBRARY")  # read by Python
    assert listed == expected


def test_every_layer_is_listed_with_its_arguments():
    listed = {}
    for names, arguments, _ in rows(LAYERS):
        for name in re.findall(r"`(\w+)`", names):
            listed[name] = [word.partition("=") for word in arguments.split(", ") if word]
    others = {"CrossEntropyLoss", "Layer", "Parameter", "SGD", "load", "save"}
    assert listed.keys() == set(oocdnn.nn.__all__) - others
    for name, arguments in listed.items():
        found = inspect.signature(getattr(oocdnn.nn, name)).parameters
        for word, _, default in arguments:
            plain = word.removeprefix("as `Conv2d`")
            if default not in ("", "window"):
                assert repr(found[plain].default) == default, (name, word)
            assert not plain or plain in found, (name, word)


def test_every_error_is_listed_with_its_builtin_and_status():
    listed = {}
    statuses = set()
    for error, status, *_ in rows(REFERENCE / "errors.md"):
        match = re.fullmatch(r"`(\w+)`(?: \((.*)\))?", error)
        listed[match[1]] = match[2]
        statuses |= set(re.findall(r"OOCDNN_(\w+)", status))
    listed.pop("KeyboardInterrupt")
    assert listed == {
        name: ", ".join(base.__name__ for base in error.__bases__)
        for name, error in vars(oocdnn.errors).items()
        if isinstance(error, type)
    }
    assert statuses == {status.name for status in cdefs.Status} - {"OK"}


def test_every_error_text_is_listed():
    _, _, listed = messages.PAGE.read_text(encoding="utf-8").partition(messages.BEGIN)
    assert listed.strip() == messages.lists().strip(), "run python -m python.messages in tests"
    assert sum(map(len, messages.texts().values())) > 200


def test_what_troubleshooting_begins_with_is_said_somewhere():
    """Quoted texts of the table, in their pieces."""
    sources = [*(ROOT / "native").rglob("*.[ch]pp"), *(ROOT / "oocdnn").rglob("*.py")]
    said = "".join(path.read_text(encoding="utf-8") for path in sources)
    said = re.sub(r'"\s*f?"', "", said)  # texts on several lines
    said = re.sub(r"%\w+|\{[^{}\n]*\}", "…", said)
    for seen, *_ in rows(messages.PAGE):
        for text in re.findall(r"`([^`]+)`", seen):
            for piece in re.split("…", text):
                assert " ".join(piece.split()) in said, piece


def test_every_example_of_a_problem_word_can_be_planned(ctx):
    for words, *_ in rows(REFERENCE / "problems.md"):
        for word in re.findall(r"`([^`]+)`", words):
            spatial = word[0] == "n" and len(word) - 2
            rank = spatial or 2
            if word[0] == "y" and "@" not in word:
                ctx.plan(f"conv2d:bwd_bias {word}")
                continue
            along = re.match(r"input|also_|d[wb]s|\+d", word)  # go with dx, and are held whole
            shapes = f"x1x64{'x56' * rank} w64x{16 if word.startswith('grp') else 64}{'x3' * rank}"
            shapes = shapes.replace("64", "16") if along else shapes
            extra = "" if word[0] in "xw" and "@" not in word else word
            if word.startswith("pool"):
                extra = f"+maxpool3 {word}"
            if along and word[0] != "+":
                extra = f"+dw +db {word}"
            backward = along or word in ("+clipped", "+sloped")
            direction = "bwd_data" if backward else "fwd"
            ctx.plan(f"conv{rank}d:{direction} {shapes} {extra}")
