"""Plans are remembered from one process to the next, and nothing that is wrong with the memory is
more than a warning."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3

import numpy as np
import oracle
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from python.remembering import BUDGET, DEVICE, PROBLEM, SHOW, change, now, plan, program, rows, run
from python.support import assert_equal, integers

import oocdnn
from oocdnn.cli import main
from oocdnn.perfmodel import profiles

OTHER = "conv2d:bwd_data x2x16x64x64 w16x16x3x3 pad1"


@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        OTHER,
        "conv1d:fwd x2x6x4099 w4x3x5 pad2 str2 dil2 grp2 f64 alpha2 beta1 flip",
        "conv2d:fwd x4x4x99x99 w8x4x3x3 pad0:1x2:2 f16 nhwc +bias +scale +residual0.5 +clip6",
        "conv3d:bwd_filter x2x4x16x27x38 w6x4x3x3x3 pad1 f32/tf32 ndhwc",
        "conv2d:bwd_bias y64x16x39x39 beta1",
    ],
)
def test_the_next_context_has_the_same_plan_and_says_so(file, problem):
    with oocdnn.Context(DEVICE, BUDGET) as context:
        first = context.plan(problem)
        assert not first.remembered
        assert not context.plan(problem).remembered
    again = plan(problem)
    assert again.remembered
    assert first.search_seconds > again.search_seconds == 0
    assert "remembered from an earlier search" in again.explain()
    assert "remembered" not in first.explain()
    assert again.runners_up  # searched for on request
    for name in ("plan", "engine", "booked_bytes", "predicted_seconds", "splits", "timeline"):
        assert getattr(again, name) == getattr(first, name)


@pytest.mark.skipif(DEVICE == "cpu", reason="no run is timed on a CPU")
def test_a_run_that_was_timed_is_remembered(file, tmp_path):
    """A profile that was measured has runs timed; another machine's is left as it is."""
    profile = tmp_path / "profile.txt"
    profile.write_text(profiles.find("h200").read_text(encoding="utf-8"), encoding="utf-8")
    small = "conv2d:fwd x4x8x16x16 w8x8x3x3 pad1"
    first, again = (plan(small, 2**16, profile=profile) for _ in range(2))
    ((seconds,),) = rows(file, "run_seconds")
    assert seconds > 0
    assert again.remembered
    assert again.plan == first.plan  # what was learnt of other tiles on the way is not kept
    change(file, "run_seconds = 1.0")
    slower = plan(small, 2**16, profile=profile)
    assert (slower.remembered, slower.plan) == (True, first.plan)
    assert slower.predicted_seconds >= 1.0 > first.predicted_seconds


def test_what_differs_in_anything_that_plans_look_at_is_another_plan(file):
    plan()
    assert plan(engine="direct", reproducible=True).remembered is False
    assert plan(engine="direct").remembered is False
    assert plan(profile=profiles.find("p100-pcie3")).remembered is False
    assert plan(PROBLEM + " f64").remembered is False
    assert plan(PROBLEM + " nhwc").remembered is False
    assert plan(PROBLEM + " +bias").remembered is False
    assert plan(planning="measure").remembered is False
    assert plan(planning="exhaustive").remembered is False
    assert len(rows(file)) == 9
    assert plan().remembered


def test_calls_follow_it(file):
    """A plan that no search finds, put into the file, is the one that is run."""
    plan(engine="direct")
    change(file, "plan = 'direct h7 order h slots 1'")
    x, w = integers((2, 16, 64, 64)), integers((16, 16, 3, 3))
    with oocdnn.Context(DEVICE, BUDGET, engine="direct") as context:
        assert_equal(context.conv2d(x, w, padding=1), oracle.forward(x, w, padding=1))
        assert context.stats.split["h"] == 10
        assert context.stats.prepared == 1
        context.conv2d(x, w, padding=1)
        assert context.stats.prepared == 0


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_plan_for_a_little_more_serves_where_it_fits(data, tmp_path_factory):
    more = data.draw(st.integers(2**15, 2**20))
    budget = data.draw(st.integers(more // 17 * 15, more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOCDNN_PROFILE", "none")
        patch.setenv("OOCDNN_PLANS", str(tmp_path_factory.mktemp("plans") / "p"))
        first = plan(budget=more, engine="direct")
        second = plan(budget=budget, engine="direct")
        serves = first.booked_bytes <= budget >= more - budget // 16
        assert second.remembered == serves
        assert second.booked_bytes <= budget == second.budget_bytes
        assert not plan(budget=more + 1, engine="direct").remembered


def test_a_plan_for_a_little_more_replaces_the_same(file):
    assert plan(budget="160MiB").plan == plan(budget="165MiB").plan
    assert rows(file, "budget") == [(165 * 2**20,)]


def test_that_nothing_fits_is_remembered(file):
    with pytest.raises(oocdnn.OutOfMemory) as first:
        plan(budget=100)
    assert rows(file, "plan, budget, bytes") == [("", 100, first.value.least)]
    for budget in (100, 99):
        with pytest.raises(oocdnn.OutOfMemory, match="as an earlier search found") as again:
            plan(budget=budget)
        assert again.value.least == first.value.least > 100
        assert f"a budget of {budget} B is too small" in str(again.value)
    assert not plan(budget=first.value.least).remembered


def test_the_file_is_not_touched_between_the_beginning_and_the_end(file):
    def state():
        return {p.name: p.read_bytes() for p in file.parent.iterdir()}

    x, w = integers((2, 16, 64, 64)), integers((16, 16, 3, 3))
    with oocdnn.Context(DEVICE, BUDGET) as context:
        context.conv2d(x, w)
        context.plan(PROBLEM)
        assert not file.parent.exists()
    before = state()
    assert list(before) == [file.name]
    with oocdnn.Context(DEVICE, BUDGET) as context:
        context.conv2d(x, w, padding=2)
        context.conv_backward_data(x, w, x.shape, padding=1)
        assert state() == before
    assert len(rows(file)) == 4


def test_what_is_never_closed_is_written_when_the_process_ends(file):
    run("keep = oocdnn.Context(DEVICE, BUDGET); keep.plan(PROBLEM)", file)
    assert run(SHOW, file).startswith("True ")


def test_processes_at_once(file):
    """Each finds plans of its own and one that all find, and all begin when they are told."""
    text = """
import sys
with oocdnn.Context(DEVICE, BUDGET, engine="direct") as context:
    print(flush=True)
    sys.stdin = open(0)
    for i in range(4):
        context.plan(f"conv2d:fwd x{1 + i}x4x40x{START + i} w4x4x3x3 pad1")
    context.plan(PROBLEM)
"""
    starts = [40 + 10 * i for i in range(4)]
    processes = [program(text.replace("START", str(start)), file) for start in starts]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (0, "")
    found = [problem for problem, _ in rows(file)]
    assert len(found) == len(set(found)) == 4 * len(processes) + 1
    with contextlib.closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "entry", ["nonsense", "direct h7 slots 0", "direct n9", "gone n1", "direct slots 16"]
)
def test_an_entry_that_is_no_plan_is_replaced(file, entry):
    wanted = plan().plan
    change(file, f"plan = '{entry}'")
    two = "with oocdnn.Context(DEVICE, BUDGET) as a, oocdnn.Context(DEVICE, BUDGET) as b:\n"
    two += "    p, q = a.plan(PROBLEM), b.plan(PROBLEM); print(p.remembered, q.remembered, q.plan)"
    assert run(two, file, warnings=1) == f"False False {wanted}\n"
    assert now() == (True, wanted)


def test_an_entry_that_contradicts_itself_counts_for_nothing(file):
    wanted = plan().plan
    change(file, "plan = ''")  # none fits, and less than the budget works
    assert now() == (False, wanted)


@pytest.mark.parametrize("column", ["machine", "key"])
def test_an_entry_of_other_versions_is_as_if_it_were_not_there(file, column):
    wanted = plan().plan
    stale = {
        "machine": "machine = replace(machine, 'oocdnn ', 'oocdnn 0.')",
        "key": "key = key + 1",
    }
    change(file, stale[column])
    assert now() == (False, wanted)
    assert len(rows(file)) == 2


def test_a_profile_that_grows_keeps_plans_of_what_was_in_it(file, tmp_path):
    """A plan rests on the rates of its own kind of arithmetic."""
    profile = tmp_path / "profile.txt"
    plan(profile=profile, engine="direct")
    before = profile.read_text(encoding="utf-8")
    plan(OTHER + " f64", profile=profile, engine="direct")
    assert profile.read_text(encoding="utf-8") != before
    assert plan(profile=profile, engine="direct").remembered
    lines = profile.read_text(encoding="utf-8").replace("flops direct/f32/fwd = ", "flops x = 1\n")
    rate = "flops direct/f32/fwd = 12345678900\n"
    profile.write_text(lines.replace("flops x = 1\n", rate + "flops y = ", 1), encoding="utf-8")
    assert not plan(profile=profile, engine="direct").remembered


@pytest.mark.skipif(DEVICE != "cpu", reason="another user opens no GPU here")
def test_a_folder_that_cannot_be_written_to_is_read(file):
    """By who is not root, for whom there is no such folder; the group stays root's."""
    wanted = plan().plan
    content = file.read_bytes()
    file.parent.chmod(0o555)
    for folder in file.parents[1:5]:
        mode = folder.stat().st_mode
        if mode & 0o055 != 0o055:
            folder.chmod(mode | 0o055)
    drop = "plan(wrap='limit:64MiB')\nif os.geteuid() == 0: os.setuid(65534)\n"
    new = "; plan('conv2d:fwd x1x1x99x99 w1x1x3x3')"
    assert run(drop + SHOW, file) == f"True {wanted}\n"
    assert run(drop + SHOW + new, file, warnings=1) == f"True {wanted}\n"
    assert (os.listdir(file.parent), file.read_bytes()) == ([file.name], content)


def test_a_place_where_no_file_can_be_is_one_warning(file):
    file.parent.touch()
    assert run(f"{SHOW}; plan()", file, warnings=1).startswith("False ")
    file.parent.unlink()
    file.mkdir(parents=True)
    assert run(f"{SHOW}; plan()", file, warnings=1).startswith("False ")


def test_a_file_that_somebody_holds_is_not_waited_for_long(file):
    wanted = plan().plan
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("BEGIN IMMEDIATE")
        assert run(SHOW, file) == f"True {wanted}\n"
        assert run("plan(OTHER)".replace("OTHER", repr(OTHER)), file, warnings=1) == ""
    assert len(rows(file)) == 1


@pytest.mark.parametrize("library", ["/nowhere/libsqlite3.so.0", "libm.so.6"])
def test_without_sqlite_plans_are_not_remembered_and_info_says_so(file, library):
    text = f"{SHOW}\nwith oocdnn.Context(DEVICE) as context: print(context.info())"
    shown, info = run(f"plan(); {text}", file, OOCDNN_SQLITE_LIBRARY=library).splitlines()
    assert shown.startswith("False ")
    (part,) = (c for c in json.loads(info)["components"] if c["name"] == "plans")
    assert not part["available"]
    assert library in part["text"]
    assert "libsqlite3-0" in part["remedy"]
    assert not file.parent.exists()


def test_info_says_where_plans_are(file):
    plan()
    with oocdnn.Context(DEVICE) as context:
        components = json.loads(context.info())["components"]
    (part,) = (c for c in components if c["name"] == "plans")
    assert part["available"]
    assert f"1 remembered in {file}" in part["text"]
    assert f"plans: 1 remembered in {file}" in CliRunner().invoke(main, ["info"]).output


@pytest.mark.skipif(DEVICE != "cpu", reason="a forked child has no GPU")
def test_a_forked_child_writes_what_it_finds_and_no_more(file):
    text = f"""
import sys
context = oocdnn.Context(DEVICE, BUDGET)
context.plan(PROBLEM)
for problem in (PROBLEM, {OTHER!r}):
    if os.fork() == 0:
        context.plan(problem)
        sys.exit()
    os.wait()
    print(rows({str(file)!r}, "problem") if os.path.exists({str(file)!r}) else [], flush=True)
"""
    found = run(text, file, PYTHONWARNINGS="ignore")
    assert found == f"[]\n[({OTHER!r},)]\n"
    assert len(rows(file)) == 2


def test_nothing_is_remembered_where_nobody_wants_it_or_devices_are_wrapped(file, monkeypatch):
    for wrap in ("limit:64MiB", "check,fault:prepare:99"):
        plan(wrap=wrap)
        plan(wrap=wrap)
    assert not file.parent.exists()
    monkeypatch.setenv("OOCDNN_PLANS", "none")
    assert not plan().remembered
    assert not plan().remembered
    monkeypatch.setenv("XDG_CACHE_HOME", str(file.parent))
    monkeypatch.delenv("OOCDNN_PLANS")
    plan()
    assert not file.parent.exists()
    profile = profiles.find("p100-pcie3")
    assert not plan(profile=profile).remembered
    assert plan(profile=profile).remembered
    assert (file.parent / "oocdnn" / "plans.sqlite").exists()


def test_plans_can_be_forgotten(file, monkeypatch):
    plan()
    with oocdnn.Context(DEVICE, BUDGET) as context:
        context.plan(OTHER)
        assert oocdnn.forget_plans() == file
    assert not file.exists()
    assert not plan().remembered
    done = CliRunner().invoke(main, ["plan", "--forget"])
    assert (done.exit_code, done.output) == (0, f"removed {file}\n")
    assert not plan().remembered
    monkeypatch.setenv("OOCDNN_PLANS", "none")
    assert oocdnn.forget_plans() is None
    assert "not remembered" in CliRunner().invoke(main, ["plan", "--forget"]).output


def test_many_plans_push_out_the_oldest(file):
    plan()
    change(file, "found = 1")
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.executemany(
            "INSERT INTO plans1 VALUES ('another', ?, 1, '', '', 2, 0, 2)",
            np.arange(5000)[:, None].tolist(),
        )
    plan(OTHER)
    machines = [machine for (machine,) in rows(file, "machine")]
    assert 4096 <= len(machines) <= 5001
    assert sum(machine != "another" for machine in machines) == 1
