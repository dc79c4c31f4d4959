"""oocdnn run --limit and --spill."""

import re
import shutil
import subprocess
import sys

import pytest
from dropin.building import ROOT
from spill.scene import MIB, run, spill_path

from oocdnn import cudnn

OOCDNN = [sys.executable, "-m", "oocdnn", "run"]
PRELOADED = f"LD_PRELOAD={cudnn.dropin_path()}"


def with_options(*options, **environment):
    """Its lines about us, of a program that prints its variables."""
    done = run([*OOCDNN, *options, "--", "printenv"], **environment)
    found = [line for line in done.stdout.splitlines() if line.startswith(("OOCDNN_", "LD_PRE"))]
    return done, set(found)


@pytest.mark.parametrize(
    ("options", "spill"),
    [(["--spill"], "host"), (["--spill=host"], "host"), (["--spill=refuse"], "refuse"),
     ([], "refuse")],
)  # fmt: skip
def test_a_limit_becomes_variables(options, spill):
    done, lines = with_options("--limit", "64MiB", *options)
    assert done.returncode == 0, done.stderr
    assert lines >= {
        f"OOCDNN_LIMIT={64 * MIB}", f"OOCDNN_BUDGET={4 * MIB}", f"OOCDNN_SPILL={spill}",
        f"{PRELOADED}:{spill_path()}",
    }  # fmt: skip


@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_budget_is_of_the_limit(way):
    option = ["--budget", "1.5MB"] if way == "option" else []
    variable = {} if option else {"OOCDNN_BUDGET": "1.5MB"}
    _, lines = with_options("--limit", "2 GiB", *option, **variable)
    assert {f"OOCDNN_LIMIT={2**31}", "OOCDNN_BUDGET=1500000"} <= lines


def test_the_limit_of_pinned_memory_is_handed_on_in_bytes():
    _, lines = with_options("--limit", "2GiB", OOCDNN_PINNED_LIMIT="1.5GiB")
    assert f"OOCDNN_PINNED_LIMIT={3 * 2**29}" in lines


def test_a_limit_is_refused_where_the_library_that_keeps_it_is_missing(tmp_path):
    """The loader would go on without it, and so without a limit."""
    package = cudnn.dropin_path().parents[1]
    for name in ("lib", "dropin"):
        (tmp_path / name).mkdir()
    library = tmp_path / "lib" / "liboocdnn.so"
    shutil.copy(package / "lib" / "liboocdnn.so", library)
    (tmp_path / "dropin" / "libcudnn.so.9").symlink_to(cudnn.dropin_path())
    done, _ = with_options("--limit", "64MiB", OOCDNN_LIBRARY=str(library))
    assert done.returncode == 1
    assert f"there is no {tmp_path / 'dropin' / 'liboocdnn_spill.so'}" in done.stderr
    done, _ = with_options(OOCDNN_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["--report", "--plan-file"])
def test_files_about_the_plan_become_variables_and_need_a_plan(name):
    _, lines = with_options("--limit", "64MiB", name, "page.html")
    assert f"OOCDNN_{name[2:].replace('-', '_').upper()}=/page.html" in lines
    for options in ([name, "a"], ["--limit", "64MiB", "--no-plan", name, "a"]):
        done, _ = with_options(*options)
        assert done.returncode == 2
        assert f"{name} is about the plan within a --limit" in done.stderr


def test_what_gpus_lend_becomes_a_variable_and_needs_a_plan():
    lenders = ["--borrow", "cuda:1=40GiB", "--borrow", "cuda:2"]
    _, lines = with_options("--limit", "64MiB", *lenders)
    assert "OOCDNN_BORROW=cuda:1=40GiB,cuda:2" in lines
    given = {"OOCDNN_BORROW": "cuda:3=1GiB"}
    _, lines = with_options("--limit", "64MiB", **given)
    assert "OOCDNN_BORROW=cuda:3=1GiB" in lines
    _, lines = with_options("--limit", "64MiB", **given, OOCDNN_PLAN="1")  # of an outer run
    assert not any(line.startswith("OOCDNN_BORROW") for line in lines)
    done, _ = with_options(*lenders)
    assert done.returncode == 2
    assert "--borrow is about the plan within a --limit" in done.stderr


@pytest.mark.parametrize("text", ["cpu=1GiB", "cpu", "cuda:x=1GiB", "cuda:1=much", "=1GiB"])
def test_what_is_no_lender_is_refused(text):
    done, _ = with_options("--limit", "64MiB", "--borrow", text)
    assert done.returncode == 2
    assert "write" in done.stderr


def test_a_limit_has_pytorch_plan_unless_told_otherwise():
    _, lines = with_options("--limit", "64MiB")
    assert "OOCDNN_PLAN=1" in lines
    _, lines = with_options("--limit", "64MiB", "--no-plan")
    assert "OOCDNN_PLAN=1" not in lines


def test_without_a_limit_nothing_more_is_preloaded():
    _, lines = with_options()
    assert lines == {PRELOADED}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--spill"], "--spill says what becomes of what passes a --limit"),
        (["--limit", "much"], "'much' is not a number of bytes"),
        (["--limit", "50%"], "'50%' is not a number of bytes"),
        (["--limit", "1GiB", "--budget", "1GiB"], "leaves no room"),
        (["--limit", "1GiB", "--budget", "auto"], "'auto' is not a number of bytes"),
        (["--limit", "7"], "leaves no room"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(options, complaint):
    done, _ = with_options(*options)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize("setting", ["expandable_segments:True", "backend: cudaMallocAsync"])
def test_allocators_that_go_another_way_run_unspilled_and_are_named(name, setting):
    done, lines = with_options("--limit", "64MiB", "--spill", **{name: setting})
    assert PRELOADED in lines
    (line,) = done.stderr.splitlines()
    assert "no limit is kept and nothing spills: PyTorch's" in line
    assert name in line
    done, lines = with_options("--limit", "64MiB", **{name: "max_split_size_mb:64"})
    assert (done.stderr, f"{PRELOADED}:{spill_path()}" in lines) == ("", True)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/spill.md"])
def test_the_pages_block_runs_a_program(page, tmp_path):
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(oocdnn run --limit.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text("import os; print(os.environ['OOCDNN_LIMIT'])\n")
    script = f'oocdnn() {{ {sys.executable} -m oocdnn "$@"; }}\n{block}'
    script = script.replace("-- python", f"-- {sys.executable}")
    done = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{16 << 30}\n"), done.stderr


def test_every_message_of_the_reference_is_one_of_ours():
    page = (ROOT / "docs" / "reference" / "spill.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page.split("## Messages")[1], re.MULTILINE)
    paths = [
        *ROOT.glob("native/spill/*.c"),
        *(ROOT / "oocdnn" / "cli" / f"{name}.py" for name in ("limit", "dropin")),
    ]
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    text = re.sub(r'"\s*\n\s*"', "", source)
    assert len(messages) == 7
    for message in messages:
        assert message in text
