"""The frame of studies: their commands, what a run keeps, and how it goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from oocdnn.bench.journal import Journal
from oocdnn.bench.measure import Call, Patience
from oocdnn.bench.studies import STUDIES, study
from oocdnn.cli import main

ROOT = Path(__file__).parents[2]


def invoke(*words: str):
    return CliRunner().invoke(main, ["bench", "study", *words])


@pytest.fixture
def counting(monkeypatch):
    """A study that counts to three, beneath the name of another; gives what it counted."""
    counted = []

    @study.study("floor", study.maths(("a", "b")), repeats=2)
    def command(run, maths, repeats):
        done = {row["number"] for row in run.rows()}
        run.note("kinds", list(maths))
        for number in run.left((1, 2, 3), int, done):
            with run.reported(str(number)):
                if number == 2 and "b" in maths:
                    raise ValueError("not two")
                counted.append(number)
                run.keep({"number": number, "repeats": repeats}, f"{number} is one")

    monkeypatch.setitem(sys.modules, "oocdnn.bench.studies.floor", study)
    monkeypatch.setattr(study, "command", command, raising=False)
    return counted


def test_a_row_is_said_and_written(counting, tmp_path):
    out = tmp_path / "rows.json"
    done = invoke("floor", "--math", "a", "--out", str(out))
    assert (done.exit_code, done.output) == (0, "1 is one\n2 is one\n3 is one\n")
    document = json.loads(out.read_text())
    assert document["command"] == f"oocdnn bench study floor --math a --out {out}"
    assert document["kinds"] == ["a"]
    assert document["rounds"] == 2
    assert document["lists"]["rows"] == [{"number": n, "repeats": 2} for n in (1, 2, 3)]


def test_a_case_that_fails_leaves_the_others(counting):
    assert invoke("floor", "--math", "b").output == "1 is one\n2: not two\n3 is one\n"


def test_a_run_goes_on(counting, tmp_path):
    out = ("--out", str(tmp_path / "rows.json"))
    invoke("floor", "--math", "b", *out)
    refused = invoke("floor", *out)
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    invoke("floor", "--resume", *out)
    document = json.loads((tmp_path / "rows.json").read_text())
    assert [row["number"] for row in document["lists"]["rows"]] == [1, 3, 2]
    assert [" --resume" in run["command"] for run in document["runs"]] == [False, True]
    counting.clear()
    invoke("floor", "--seconds", "-1")
    assert counting == []


def test_notes_outlast_a_run(tmp_path):
    out, head = tmp_path / "rows.json", {"command": "study", "program": "study"}
    Journal(out, head).note("wires", {"fetch": 1.0})
    Journal(out, head, resume=True).add("rows", {"number": 1})
    document = json.loads(out.read_text())
    assert document["wires"] == {"fetch": 1.0}
    assert document["lists"] == {"rows": [{"number": 1}]}
    assert len(document["runs"]) == 2


def test_a_file_of_another_study_is_refused(counting, tmp_path):
    out = tmp_path / "rows.json"
    Journal(out, {"command": "oocdnn bench study floor-like --math a"}).write()
    done = invoke("floor", "--resume", "--out", str(out))
    assert done.exit_code == 2
    assert "'oocdnn bench study floor-like --math a'" in done.output


def test_calls_are_timed_as_often_as_is_said_and_throttled_ones_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("oocdnn.bench.measure.timed", lambda call: Call(call(), 0.0, 0.0))
    calls = iter([9.0, 1.0, 2.0, 3.0])
    throttled = iter([True, False, False])
    run = study.Run(Journal(None, {}), 0.0, lambda: next(throttled))
    times = run.time(lambda: next(calls), 2)
    assert (times.warm, times.dropped) == ([2.0, 3.0], 1)
    long = study.Run(Journal(None, {}), 0.0)
    assert len(long.time(lambda: 1e9, 3).warm) == 3
    brief = iter(range(1, 9))  # seconds: enough after the third call that counts
    assert long.time(lambda: next(brief), Patience(2, 5, 0.0, 9.0, strict=True)).warm == [2, 3, 4]


def test_all_studies_are_listed_without_torch(tmp_path):
    text = "import sys; sys.modules['torch'] = None; from oocdnn.cli import main; main()"
    command = [sys.executable, "-c", text, "bench", "study"]

    def ran(word):  # from a folder where the installed package is found, not the tree
        words = [*command, word]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    listed = ran("--help")
    assert listed.returncode == 0, listed.stderr
    for name in STUDIES:
        assert re.search(rf"^  {name} ", listed.stdout, re.MULTILINE), listed.stdout
    without = ran("floor")
    assert without.returncode == 1
    assert "the study floor needs torch, which is not installed" in without.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_each_has_the_options_that_all_have(name):
    pytest.importorskip("torch")
    done = invoke(name, "--help")
    assert done.exit_code == 0, done.output
    for option in ("--repeats", "--seconds", "--out", "--resume"):
        assert option in done.output


def test_without_a_driver_a_study_of_a_gpu_says_so(monkeypatch):
    def no_driver(name):
        raise OSError(f"{name}: not found")

    monkeypatch.setattr(study.ctypes, "CDLL", no_driver)
    done = invoke("wires")
    assert done.exit_code == 1
    assert "libcuda.so.1: not found" in done.output


def test_the_reference_and_the_steps_name_studies():
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "reference" / "bench.md").read_text("utf-8")
    for name in STUDIES:
        assert f"| `{name}` |" in page, name
    steps = (ROOT / "tests" / "gpu" / "run.sh").read_text("utf-8")
    named = re.findall(r"^figures \S+ (\S+)(.*)", steps, re.MULTILINE)
    on_a_gpu = list(STUDIES)[list(STUDIES).index("wires") :]  # as the reference says
    assert {name for name, _ in named} == set(on_a_gpu)
    for name, options in named:
        assert name in STUDIES
        helped = invoke(name, "--help").output
        for option in re.findall(r"--\S+", options):
            assert option in helped, f"{name} {option}"


def test_engines_stand_in_the_order_of_the_pipeline():
    stats = {"drain_seconds": 0.0031, "fetch_seconds": 0.01234, "compute_seconds": 1.5}
    assert study.busy_text(stats) == "12.3/1500.0/3.1"
    assert study.busy_text({}) == "0.0/0.0/0.0"  # of a call that failed there are no statistics
