"""The file of remembered plans: many write it, and what is damaged is made anew, what is another's
stays."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from python.remembering import SHOW, now, plan, program, rows, run

import oocdnn
from oocdnn.cli import main


def test_threads_of_several_processes_make_one_file(file):
    """Whoever looked whose it is dropped the locks of another thread's connection."""
    text = """
import sys, threading
def work(first):
    for i in range(first, first + 10):
        plan(f"conv2d:fwd x1x4x{40 + i}x40 w4x4x3x3 pad1")
threads = [threading.Thread(target=work, args=(START + 10 * i,)) for i in range(2)]
sys.stdin.readline()
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    processes = [program(text.replace("START", str(20 * i)), file) for i in range(3)]
    for process in processes:
        _, errors = process.communicate("\n", timeout=100)
        assert (process.returncode, errors) == (0, "")
    assert len(rows(file)) == 60
    with contextlib.closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_another_process_holds_is_left_to_it_without_a_warning(file):
    """It was said to be ignored, as a damaged one is."""
    wanted = run(f"{SHOW}", file)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        assert database.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        database.execute("BEGIN EXCLUSIVE")
        assert run(f"{SHOW}", file, warnings=1) == wanted  # only what it could not write
        database.execute("COMMIT")
    assert run(f"{SHOW}", file) == wanted.replace("False", "True")


def test_the_file_has_its_name_once_it_is_complete(file):
    """Others waited for the disk with whoever made it."""
    text = """
import sqlite3, threading
seen, end = set(), threading.Event()
def look():
    while not end.is_set():
        try:
            seen.add(len(open(FILE, "rb").read(100)))
        except FileNotFoundError:
            pass
thread = threading.Thread(target=look)
thread.start()
plan()
oocdnn.forget_plans()
for i in range(20):
    plan(f"conv2d:fwd x1x4x{40 + i}x40 w4x4x3x3 pad1")
    oocdnn.forget_plans()
end.set()
thread.join()
print(seen)
"""
    assert run(text.replace("FILE", repr(str(file))), file) == "{100}\n"
    assert [entry.name for entry in file.parent.iterdir()] == []


def damage_all(content: bytes) -> bytes:
    return b"no database " * 1000


def damage_pages(content: bytes) -> bytes:
    return content[:100] + b"\xff" * (len(content) - 100)


def cut_off(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize("damage", [damage_all, damage_pages, cut_off])
def test_a_damaged_file_is_ignored_and_made_anew(file, damage, monkeypatch):
    if damage == damage_all:  # nothing says any more whose it is but where it lies
        monkeypatch.setenv("XDG_CACHE_HOME", str(file.parent))
        monkeypatch.setenv("OOCDNN_PLANS", "")
        monkeypatch.setenv("OOCDNN_PROFILE", str(file.parent / "profile.txt"))
        file = file.parent / "oocdnn" / "plans.sqlite"
    wanted = plan().plan
    file.write_bytes(damage(file.read_bytes()))
    named = os.environ["OOCDNN_PLANS"]
    shown = run(f"{SHOW}; plan()", file, warnings=1, OOCDNN_PLANS=named)
    assert shown == f"False {wanted}\n"
    assert now() == (True, wanted)


def another_database(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE plans1 (name TEXT)")


def a_letter(file: Path) -> None:
    file.write_text("Dear all,\n")


@pytest.mark.skipif(os.getuid() != 0, reason="who is nobody else reads his own files")
def test_a_file_that_cannot_be_read_stays(file):
    """As far as anybody knows it is of something else."""
    file.parent.mkdir()
    a_letter(file)
    file.chmod(0)
    for folder in (file.parent, *file.parents[1:3]):
        folder.chmod(0o777)
    text = f"""
plan()  # loads what another user may not read
os.setuid(65534)
os.environ["OOCDNN_PLANS"] = {str(file)!r}
plan()
try:
    oocdnn.forget_plans()
except oocdnn.InvalidProblem:
    print("refused")
"""
    assert run(text, file, warnings=1, OOCDNN_PLANS="none") == "refused\n"
    file.chmod(0o600)
    assert file.read_text() == "Dear all,\n"


@pytest.mark.parametrize("write", [another_database, a_letter])
def test_a_file_of_something_else_stays(file, write):
    file.parent.mkdir()
    write(file)
    before = file.read_bytes()
    assert run(f"{SHOW}; plan()", file, warnings=1).startswith("False ")
    refused = f"{file} is not a file of remembered plans and stays as it is"
    with pytest.raises(oocdnn.InvalidProblem, match=re.escape(refused)):
        oocdnn.forget_plans()
    done = CliRunner().invoke(main, ["plan", "--forget"])
    assert (done.exit_code, refused in done.output) == (1, True), done.output
    assert f"not remembered: {refused}" in CliRunner().invoke(main, ["info"]).output
    assert file.read_bytes() == before
    assert sorted(file.parent.iterdir()) == [file]
