"""Files in folders that others write to: links, pipes, devices and databases that somebody has put
there are not followed, not waited for and not run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from python.remembering import PROBLEM, SHOW, plan, rows, run

import oocdnn
from oocdnn._files import replacing, write

OTHER = "conv2d:fwd x1x4x32x32 w4x4x3x3 pad1"
SECOND = repr(OTHER)
NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root makes another user's files")


@pytest.fixture
def profile(tmp_path):
    return tmp_path / "profile.txt"


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("precious\n", encoding="utf-8")
    return path


def process(body: str, folder: Path, **variables: str | None) -> str:
    """The standard error of another process; it ends by itself."""
    environment = os.environ | {"OOCDNN_PLANS": "none", "OOCDNN_PROFILE": "none"}
    environment |= {name: value for name, value in variables.items() if value is not None}
    environment = {k: v for k, v in environment.items() if k not in variables or variables[k]}
    done = subprocess.run(
        [sys.executable, "-c", f"import os, oocdnn\n{body}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


PLAN = f"""
with oocdnn.Context("cpu", "1MiB", engine="direct", trace=True) as context:
    context.plan({OTHER!r})
"""


# Links.


def test_drafts_of_a_profile_follow_no_link(profile, victim):
    links = """
for name in (os.getpid(), *(f"{os.getpid()}-{number}" for number in range(8))):
    os.symlink("victim", f"profile.txt.{name}")
"""
    process(links + PLAN, profile.parent, OOCDNN_PROFILE=str(profile))
    assert victim.read_text(encoding="utf-8") == "precious\n"
    assert profile.read_text(encoding="utf-8").startswith("oocdnn-profile")
    assert not profile.is_symlink()


def test_the_lock_of_a_profile_follows_no_link(profile, tmp_path):
    (tmp_path / "profile.txt.lock").symlink_to("made")
    process(PLAN, tmp_path, OOCDNN_PROFILE=str(profile))
    assert not (tmp_path / "made").exists()
    assert profile.read_text(encoding="utf-8").startswith("oocdnn-profile")


@as_root
def test_a_file_of_plans_is_not_made_where_anothers_link_points(file, tmp_path):
    file.parent.mkdir()
    file.symlink_to(tmp_path / "made")
    os.chown(file, NOBODY, NOBODY, follow_symlinks=False)
    assert run(SHOW, file, warnings=1).startswith("False ")
    assert not (tmp_path / "made").exists()
    os.chown(file, 0, 0, follow_symlinks=False)
    assert run(SHOW, file).startswith("False ")
    assert (tmp_path / "made").exists()  # a link of one's own is followed


def test_results_follow_no_link(tmp_path, victim):
    (tmp_path / "results.part").symlink_to("victim")
    with replacing(tmp_path / "results") as written:
        written.write(b"numbers")
    assert victim.read_text(encoding="utf-8") == "precious\n"
    assert (tmp_path / "results").read_bytes() == b"numbers"
    assert (tmp_path / "results").stat().st_mode & 0o777 == victim.stat().st_mode & 0o777
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "results") as written:
        written.write(bytes(1 // 0))
    assert (tmp_path / "results").read_bytes() == b"numbers"
    assert {path.name for path in tmp_path.iterdir()} == {"results", "results.part", "victim"}


# Paths that are no regular files.


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**27)


@pytest.mark.parametrize("make", [pipe, endless, huge])
def test_a_profile_that_is_no_file_is_ignored_with_a_warning(profile, make):
    make(profile)
    body = """
    try:
        context.calibrate()
    except oocdnn.FileError as error:
        assert "it cannot be read as a file" in str(error), error
    else:
        raise SystemExit("it was calibrated")
"""
    said = process(PLAN + body, profile.parent, OOCDNN_PROFILE=str(profile))
    assert len(said.splitlines()) == 1
    assert "is ignored, and what is measured is not kept" in said
    with pytest.raises(
        (oocdnn.FileError, oocdnn.InvalidProblem), match=r"is no file|cannot be read as a file"
    ):
        oocdnn.plan_for_profile(OTHER, profile, "1MiB")


@pytest.mark.parametrize("make", [pipe, endless])
def test_a_file_of_plans_that_is_no_file_is_ignored_with_a_warning(file, make):
    file.parent.mkdir()
    make(file)
    assert run(f"{SHOW}; plan({SECOND})", file, warnings=1).startswith("False ")
    assert not file.is_file()


def test_a_lock_that_is_a_pipe_locks_nothing(profile, tmp_path):
    os.mkfifo(tmp_path / "profile.txt.lock")
    process(PLAN, tmp_path, OOCDNN_PROFILE=str(profile))
    assert profile.read_text(encoding="utf-8").startswith("oocdnn-profile")


def test_a_log_or_a_trace_into_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    said = process(PLAN, tmp_path, OOCDNN_TRACE="pipe", OOCDNN_LOG_FILE="pipe", OOCDNN_LOG="debug")
    assert "OOCDNN_LOG_FILE: pipe cannot be written to" in said
    assert "the trace cannot be written to pipe" in said


def test_a_relative_home_is_no_home(tmp_path):
    """A folder in the working directory was made."""
    unset = {"XDG_CACHE_HOME": None, "OOCDNN_PROFILE": None, "OOCDNN_PLANS": None}
    process(PLAN, tmp_path, HOME="relative", **unset)
    process(PLAN, tmp_path, **(unset | {"HOME": "relative", "XDG_CACHE_HOME": "caches"}))
    assert list(tmp_path.iterdir()) == []


# Databases.

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
COLUMNS = "machine, key, budget, problem, plan, bytes, run_seconds, found"


@pytest.mark.parametrize(
    "statements",
    [
        f"CREATE TRIGGER t BEFORE INSERT ON plans1 BEGIN {ENDLESS}; END",
        f"CREATE TRIGGER plans2 AFTER DELETE ON plans1 BEGIN {ENDLESS}; END",
        f"DROP TABLE plans1; CREATE VIEW plans1 AS SELECT 1 AS machine, ({ENDLESS}) AS key, "
        "1 AS budget, 1 AS problem, 1 AS plan, 1 AS bytes, 1 AS run_seconds, 1 AS found",
        f"ALTER TABLE plans1 RENAME TO old; CREATE TABLE plans1 ({COLUMNS}, "
        "CHECK (abs(-9223372036854775808) > 0))",
        f"UPDATE plans1 SET plan = '{'x' * (2 << 20)}'",
    ],
)
def test_what_somebody_has_put_into_a_database_is_not_run(file, statements):
    """A call that wrote or read it never ended."""
    wanted = plan().plan
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript(statements)
    assert run(f"{SHOW}; plan({SECOND})", file, warnings=1) == f"False {wanted}\n"
    assert len(rows(file)) == 2
    assert run(SHOW, file) == f"True {wanted}\n"


def test_a_search_of_the_database_that_takes_too_long_is_given_up(file):
    """A file of a size that this library never writes."""
    wanted = plan().plan
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) "
            "INSERT INTO plans1 SELECT machine, i, 1, '', '', 2, 0, 2 FROM plans1, n"
        )
    assert run(SHOW, file, warnings=1) == f"False {wanted}\n"
    assert run(SHOW, file) == f"True {wanted}\n"
    assert len(rows(file)) == 1


@pytest.mark.parametrize("values", ["run_seconds = 1e308", "bytes = -1", "run_seconds = -1"])
def test_numbers_that_no_plan_has_are_ignored(file, values):
    wanted = plan().plan
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(f"UPDATE plans1 SET {values}")
    assert run(SHOW, file) == f"False {wanted}\n"
    assert PROBLEM in dict(rows(file))


def test_what_is_asked_for_goes_into_a_pipe(tmp_path: Path) -> None:
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        write(pipe, b"a page")
        assert read.result(10) == b"a page"
    assert pipe.is_fifo()
    for text in (b"a page", b"another"):
        write(file, text)
        assert file.read_bytes() == text
    with pytest.raises(IsADirectoryError):
        write(tmp_path, b"a page")
