"""oocdnn dropin, oocdnn run, and what the README and the reference say of them."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dropin.building import CLIENTS, ROOT, build

from oocdnn import cudnn
from oocdnn.cli.dropin import dropin

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


TRAINING = """
import os, torch
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
x, step, losses = torch.rand(2, 3, 16, 16), torch.optim.SGD(model.parameters(), lr=0.1), []
for _ in range(3):
    step.zero_grad()
    losses.append(model(x).square().mean())
    losses[-1].backward()
    step.step()
assert losses[-1] < losses[0]
print(os.environ["OOCDNN_BUDGET"], os.environ["LD_PRELOAD"])
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_readmes_block_runs_a_pytorch_program_as_it_is(tmp_path):
    """On a GPU its convolutions are the drop-in's, see tests/gpu; here it must not notice."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(oocdnn run --budget.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(TRAINING)
    done = shell(block.replace("-- python", f"-- {sys.executable}"), tmp_path)
    assert (done.returncode, done.stdout) == (0, f"2GiB {cudnn.dropin_path()}\n"), done.stderr


@pytest.mark.parametrize("page", ["docs/guide.md", "docs/reference/dropin.md"])
def test_the_pages_line_runs_a_program(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    (line,) = re.findall(r"^oocdnn run (?!--limit).*", text, re.MULTILINE)
    (tmp_path / "train.py").write_text("import os; print(os.environ['LD_PRELOAD'])")
    done = shell(line.replace(" python ", f" {sys.executable} ", 1), tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{cudnn.dropin_path()}\n"), done.stderr


def test_dropin_prints_what_can_be_preloaded(tmp_path):
    program = build(CLIENTS / "legacy.c", tmp_path / "legacy")
    done = shell(f"OOCDNN_DEVICE=cpu LD_PRELOAD=$(oocdnn dropin) {program}", tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_run_hands_on_the_programs_arguments_and_status(tmp_path):
    done = shell("oocdnn run -- sh -c 'echo $LD_PRELOAD; exit 3' --device", tmp_path)
    assert (done.returncode, done.stdout) == (3, f"{cudnn.dropin_path()}\n")


@pytest.mark.parametrize("divider", ["", "-- "])
def test_all_options_after_the_program_are_its_own(tmp_path, divider):
    own = "--device cuda --budget 7 --log x --help --lr 3 -- -k"
    done = shell(f"oocdnn run --device cpu {divider}echo {own}", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{own}\n"), done.stderr
    done = shell(f"oocdnn run --device cpu {divider}printenv OOCDNN_DEVICE", tmp_path)
    assert done.stdout == "cpu\n"


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


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--device", "nonsense", "no device 'nonsense'; write auto, cpu or cuda:N"),
        ("--device", "cuda:x", "no device 'cuda:x'"),
        ("--budget", "nonsense", "'nonsense' is not a number of bytes"),
        ("--budget", "1e400", "'1e400' is not a number of bytes"),
        ("--budget", "0", "'0' is no budget; write 512MiB, 2GiB, 50% or auto"),
        ("--budget", "101%", "'101%' is no budget"),
        ("--log", "nonsense", "'nonsense' is not one of 'error', 'warn', 'info', 'debug'"),
    ],
)
def test_run_refuses_what_the_library_would_not_take(tmp_path, option, value, words):
    done = shell(f"oocdnn run {option} {value} -- echo done", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("options", ["--budget auto", "--budget 50%", "--budget 1.5GB"])
def test_run_hands_on_what_the_library_takes(tmp_path, options):
    done = shell(f"oocdnn run --device cuda {options} -- printenv OOCDNN_BUDGET", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{options.split()[1]}\n"), done.stderr


def test_run_of_a_program_that_is_not_there(tmp_path):
    done = shell("oocdnn run -- no-such-program", tmp_path)
    assert done.returncode == 127
    assert "no program no-such-program" in done.stderr


def test_run_says_what_it_does_not_catch(tmp_path):
    """cudnn-frontend's Python package opens cuDNN by its path, unless the drop-in lies there."""
    frontend, wheel = tmp_path / "cudnn", tmp_path / "nvidia" / "cudnn" / "lib"
    command = f"PYTHONPATH={tmp_path}:$PYTHONPATH oocdnn run -- echo done"
    assert shell(command, tmp_path).stderr == ""
    frontend.mkdir()
    (frontend / "__init__.py").touch()
    wheel.mkdir(parents=True)
    (wheel.parent / "__init__.py").touch()
    (wheel.parent.parent / "__init__.py").touch()
    done = shell(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    (line,) = done.stderr.splitlines()
    assert "cudnn-frontend's Python package" in line
    assert "oocdnn dropin --into" in line
    (wheel / "libcudnn_real.so.9").touch()
    assert shell(command, tmp_path).stderr == ""


def contents(folder: Path) -> dict[str, bytes | Path]:
    return {p.name: p.readlink() if p.is_symlink() else p.read_bytes() for p in folder.iterdir()}


@pytest.fixture
def installation(tmp_path):
    """A folder with a cuDNN, which is a link as packages of the system have it."""
    folder = tmp_path / "installation"
    folder.mkdir()
    (folder / "libcudnn.so.9.1").write_bytes(b"real")
    (folder / "libcudnn.so.9").symlink_to("libcudnn.so.9.1")
    return folder


def test_into_and_undo_leave_the_folder_as_it_was(installation):
    before = contents(installation)
    done = shell("oocdnn dropin --into .", installation)
    assert done.returncode == 0, done.stderr
    assert contents(installation) == {
        **before,
        "libcudnn.so.9": cudnn.dropin_path(),
        "libcudnn_real.so.9": before["libcudnn.so.9"],
    }
    during = contents(installation)
    again = shell("oocdnn dropin --into .", installation)
    assert (again.returncode, contents(installation)) == (1, during)
    assert "is the drop-in already" in again.stderr
    done = shell("oocdnn dropin --undo .", installation)
    assert (done.returncode, contents(installation)) == (0, before), done.stderr


def test_undo_touches_no_library_that_is_not_the_dropin(installation):
    """A package that was updated after --into has put its own library there."""
    (installation / "libcudnn_real.so.9").write_bytes(b"old")
    before = contents(installation)
    done = shell("oocdnn dropin --undo .", installation)
    assert (done.returncode, contents(installation)) == (1, before)
    assert "is no link to a drop-in" in done.stderr
    (installation / "libcudnn.so.9").unlink()
    shutil.copy(cudnn.dropin_path(), installation / "libcudnn.so.9")
    before = contents(installation)
    assert shell("oocdnn dropin --undo .", installation).returncode == 1
    assert contents(installation) == before


def test_into_refuses_a_folder_with_another_real_library(installation):
    (installation / "libcudnn_real.so.9").write_bytes(b"old")
    before = contents(installation)
    done = shell("oocdnn dropin --into .", installation)
    assert (done.returncode, contents(installation)) == (1, before)
    assert "libcudnn_real.so.9 is there already" in done.stderr


def test_into_refuses_the_dropins_own_folder():
    folder = cudnn.dropin_path().parent
    before = sorted(folder.iterdir())
    done = shell("oocdnn dropin --into .", folder)
    assert (done.returncode, sorted(folder.iterdir())) == (1, before)
    assert "is the drop-in already" in done.stderr


@pytest.mark.parametrize("step", ["symlink_to", "replace"])
def test_a_failed_link_leaves_the_folder_as_it_was(installation, monkeypatch, step):
    def fail(*_):
        raise PermissionError("not permitted")

    before = contents(installation)
    monkeypatch.setattr(Path, step, fail)
    done = CliRunner().invoke(dropin, ["--into", str(installation)])
    assert done.exit_code == 1
    assert "not permitted: nothing is changed" in done.output
    assert contents(installation) == before


def test_every_message_of_the_reference_is_one_of_ours():
    page = (ROOT / "docs" / "reference" / "dropin.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page.split("## Messages")[1], re.MULTILINE)
    folders = ("native/dropin/*.c", "native/shim/intercepted_others.cpp", "oocdnn/cli/*.py")
    sources = [path for folder in folders for path in ROOT.glob(folder)]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(messages) >= 4
    for message in messages:
        assert message in text
