"""oocdnn dropin, oocdnn run, and what the README and the reference say of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dropin.building import CLIENTS, ROOT, build

from oocdnn import cudnn

COMMAND = f"{sys.executable} -m oocdnn"


def shell(script: str, folder: Path):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    return subprocess.run(
        ["bash", "-c", f"set -e\noocdnn() {{ {COMMAND} \"$@\"; }}\n{script}"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def test_the_readmes_block_builds_and_runs_a_program(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(gcc legacy.*?)^```", text, re.MULTILINE | re.DOTALL)
    shutil.copy(CLIENTS / "legacy.c", tmp_path)
    done = shell(block, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_dropin_prints_what_can_be_preloaded(tmp_path):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy")
    done = shell(f"OOCDNN_DEVICE=cpu LD_PRELOAD=$(oocdnn dropin) {program}", tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_run_hands_on_the_programs_arguments_and_status(tmp_path):
    done = shell("oocdnn run -- sh -c 'echo $LD_PRELOAD; exit 3' --device", tmp_path)
    assert (done.returncode, done.stdout) == (3, f"{cudnn.dropin_path()}\n")


def test_run_keeps_what_was_preloaded_before(tmp_path):
    other = tmp_path / "other.so"
    (tmp_path / "empty.c").write_text("")
    subprocess.run(["gcc", "-shared", "-o", other, tmp_path / "empty.c"], check=True)
    done = shell(f"LD_PRELOAD={other} oocdnn run -- printenv LD_PRELOAD", tmp_path)
    assert done.stdout == f"{cudnn.dropin_path()}:{other}\n"


def test_options_become_variables(tmp_path):
    command = "oocdnn run --device cpu --budget 1MiB --log debug -- printenv"
    lines = shell(command, tmp_path).stdout.splitlines()
    assert {"OOCDNN_DEVICE=cpu", "OOCDNN_BUDGET=1MiB", "OOCDNN_LOG=debug"} <= set(lines)


def test_run_of_a_program_that_is_not_there(tmp_path):
    done = shell("oocdnn run -- no-such-program", tmp_path)
    assert done.returncode == 1
    assert "no program no-such-program" in done.stderr


def test_every_message_of_the_reference_is_one_of_ours():
    page = (ROOT / "docs" / "reference" / "dropin.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page.split("## Messages")[1], re.MULTILINE)
    sources = [*ROOT.glob("native/dropin/*.c"), *ROOT.glob("oocdnn/cli/*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(messages) >= 4
    for message in messages:
        assert message in text
