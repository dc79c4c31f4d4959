"""What Python reads at its start under `oocdnn run --limit`, with a torch of a few lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oocdnn.cli import limit

OOCDNN = [sys.executable, "-m", "oocdnn", "run", "--limit", "64MiB"]
TORCH = """
import os
from types import SimpleNamespace

print("torch", os.environ.get("PYTORCH_CUDA_ALLOC_CONF"), type(__spec__.loader).__name__)
version = SimpleNamespace(cuda={cuda!r})
queued = []
cuda = SimpleNamespace(_lazy_call=queued.append)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a torch that has CUDA."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TORCH.format(cuda="13.0"))
    return tmp_path


def run(
    folder: Path, script: str, *options: str, python: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    # The installed package first, so that ours is found beside a torch in the folder.
    before = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([str(folder), *([before] if before else [])])
    return subprocess.run(
        [*OOCDNN, *options, "--", sys.executable, *python, "-c", script],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"PYTHONPATH": paths} | variables, cwd="/",  # without the sources in reach
    )  # fmt: skip


QUEUED = "import torch; print(len(torch.queued))"
PLANNED = "import os\nif 'OOCDNN_PLAN' in os.environ: "  # not in oocdnn's own process
IN_PLACE = "torch expandable_segments:True SourceFileLoader\n"
AS_IT_IS = "torch None SourceFileLoader\n"


def test_training_is_planned_once_cuda_begins(folder: Path) -> None:
    done = run(folder, QUEUED)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{IN_PLACE}1\n", "")


def test_a_torch_that_oocdnn_cannot_serve_is_named_and_runs(folder: Path) -> None:
    done = run(folder, "import torch; torch.queued[0](); print('done')")
    assert (done.returncode, done.stdout) == (0, f"{IN_PLACE}done\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("oocdnn: training is not planned: ")


@pytest.mark.parametrize("options", [("--spill",), ("--spill=host",)])
def test_segments_that_spill_do_not_grow_in_place(folder: Path, options: tuple[str, ...]) -> None:
    assert run(folder, QUEUED, *options).stdout == f"{AS_IT_IS}1\n"


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_the_programs_own_allocator_stays(folder: Path, name: str) -> None:
    done = run(folder, QUEUED, **{name: "max_split_size_mb:64"})
    told = "max_split_size_mb:64" if "CUDA" in name else None
    assert done.stdout == f"torch {told} SourceFileLoader\n1\n"


def test_an_allocator_that_grows_in_place_is_not_named(folder: Path) -> None:
    done = run(folder, QUEUED, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert (done.stdout, done.stderr) == (f"{IN_PLACE}1\n", "")


@pytest.mark.parametrize("way", ["--no-plan", "OOCDNN_DISABLE", "no CUDA", "no torch"])
def test_nothing_happens(folder: Path, way: str) -> None:
    options = [way] if way == "--no-plan" else []
    variables = {way: "1"} if way == "OOCDNN_DISABLE" else {}
    if way == "no CUDA":
        (folder / "torch" / "__init__.py").write_text(TORCH.format(cuda=None))
    if way == "no torch":
        (folder / "torch" / "__init__.py").unlink()
        (folder / "torch").rmdir()
        script = "import importlib.util; print(importlib.util.find_spec('torch_of_none'))"
        script += "\ntry:\n    import torch_of_none\nexcept ImportError: print('none')"
        assert run(folder, script).stdout == "None\nnone\n"
        return
    done = run(folder, QUEUED, *options, **variables)
    grows = IN_PLACE if way == "no CUDA" else AS_IT_IS
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{grows}0\n", "")


def test_the_programs_own_sitecustomize_is_read(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(f"{PLANNED}print('own', __name__)\nknown = 7\n")
    done = run(folder, "import sitecustomize, torch; print(sitecustomize.known)")
    assert (done.stdout, done.stderr) == (f"own sitecustomize\n{IN_PLACE}7\n", "")


def test_an_error_in_it_is_told_as_python_tells_it(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(f"{PLANNED}1 / 0\n")
    done = run(folder, QUEUED)
    assert (done.returncode, done.stdout) == (0, f"{IN_PLACE}1\n")
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("-I",), "-I"), (("-S",), "-S"), (("-E",), "-E"), (("-Bs", "-uE"), "-E"),
        (("-X", "dev", "-I"), "-I"), (("-W", "ignore", "-BS"), "-S"),
        ((), None), (("-u",), None), (("-W", "ignore"), None), (("-Xutf8",), None),
        (("-Werror::EncodingWarning",), None),
    ],
)  # fmt: skip
def test_options_that_skip_it_are_named(
    folder: Path, flags: tuple[str, ...], named: str | None
) -> None:
    done = run(folder, "import sys; print(len(sys.meta_path) > 0)", python=flags)
    assert (done.returncode, done.stdout) == (0, "True\n")
    lines = done.stderr.splitlines()
    if named is None:
        assert not lines
    else:
        assert lines == [
            f"oocdnn: training is not planned: with {named} Python reads no PYTHONPATH or "
            "sitecustomize; leave it out"
        ]


def test_children_are_planned_too(folder: Path) -> None:
    script = (
        "import multiprocessing, subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {QUEUED!r}], check=True)\n"
    )
    assert run(folder, script).stdout == f"{IN_PLACE}1\n"


def test_modules_of_torch_load_as_they_do(folder: Path) -> None:
    (folder / "torch" / "part.py").write_text("print('part', type(__spec__.loader).__name__)\n")
    script = (
        "import importlib.util, torch.part, importlib\n"
        "importlib.reload(torch)\n"
        "print(len(torch.queued))\n"
    )
    done = run(folder, script)
    assert done.stdout == f"{IN_PLACE}part SourceFileLoader\n{IN_PLACE}0\n", done.stderr


def test_a_look_for_torch_changes_nothing(folder: Path) -> None:
    script = (
        "import importlib.util, os\n"
        "spec = importlib.util.find_spec('torch')\n"
        "print(spec.name, os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n"
        "print(spec.loader.get_filename('torch') == spec.origin)\n"
    )
    done = run(folder, script + QUEUED)
    assert done.stdout == f"torch None\nTrue\n{IN_PLACE}1\n", done.stderr


def test_an_import_that_fails_may_be_tried_again(folder: Path) -> None:
    fails = "import os\nif os.environ.pop('FAILS', None):\n    raise ImportError('once')\n"
    (folder / "torch" / "__init__.py").write_text(fails + TORCH.format(cuda="13.0"))
    script = "try:\n    import torch\nexcept ImportError as error:\n    print(error)\n"
    done = run(folder, script + QUEUED, FAILS="1")
    assert done.stdout == f"once\n{IN_PLACE}1\n", done.stderr


@pytest.mark.parametrize("text", ["", "version = 3\n", "class version:\n    cuda = '13'\n"])
def test_what_is_not_pytorch_is_left_alone(folder: Path, text: str) -> None:
    (folder / "torch" / "__init__.py").write_text(text)
    done = run(folder, "import torch; print('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_startup_folders_of_two_installations_do_not_read_each_other(folder: Path) -> None:
    ours = limit.start_path()
    other = folder / "other" / "oocdnn" / "startup"
    shutil.copytree(ours, other)
    (folder / "sitecustomize.py").write_text(f"{PLANNED}print('own')\n")
    before = os.environ.get("PYTHONPATH")
    paths = [str(other), str(ours), str(folder), *([before] if before else [])]
    done = subprocess.run(
        [sys.executable, "-c", QUEUED],
        capture_output=True, text=True, check=False, timeout=60, cwd="/",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OOCDNN_PLAN": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, f"own\n{IN_PLACE}1\n", "")


def test_a_run_within_a_run_is_not_planned_where_it_says_so(folder: Path) -> None:
    command = [*OOCDNN, "--no-plan", "--", sys.executable, "-c", QUEUED]
    within = f"import os; os.execv({sys.executable!r}, {command!r})"
    assert run(folder, within, "--report", "page.html").stdout.endswith("\n0\n")
