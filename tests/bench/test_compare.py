"""What `oocdnn bench compare` says of two results, and how results are kept."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from bench.test_bench import invoke, row

from oocdnn.bench import results
from oocdnn.bench.journal import Journal
from oocdnn.bench.report.compare import changes, left_out
from oocdnn.bench.results import Row
from oocdnn.bench.suite import Bench, Settings


def test_compare_says_what_changed(tmp_path: Path) -> None:
    about = Bench(Settings("cpu")).about
    before = [row(1.0), row(1.0, who="whole"), row(1.0, who="torch"), row(1.0, problem="p")]
    before.append(row(1.0, None, problem="once"))
    after = [row(0.9), row(1.1, who="whole"), row(1.005, who="torch"), row(None, problem="q")]
    after.append(row(0.5, problem="once"))
    before.append(row(1.0, problem="broken"))
    after.append(row(0.5, problem="broken", check="fail: it differs"))
    results.write(tmp_path / "a", about, before)
    results.write(tmp_path / "b", about, after)
    printed = invoke("compare", str(tmp_path / "a"), str(tmp_path / "b")).output
    for who, outcome, ratio in (
        ("oocdnn", "faster", "0.900"),
        ("whole", "slower", "1.100"),
        ("torch", "same", "1.005"),
    ):
        lines = (line for line in printed.splitlines() if "conv2d" in line)
        (line,) = (line for line in lines if f" {who} " in line)
        assert outcome in line
        assert ratio in line
    (line,) = (line for line in printed.splitlines() if " once " in line)
    assert "same" in line  # of one call nothing is known
    assert " broken " not in printed
    assert "not compared: 1 results, pass, then fail" in printed
    assert f"only in {tmp_path / 'a'}: 1 results" in printed
    assert f"only in {tmp_path / 'b'}: 1 results" in printed


@pytest.mark.parametrize(
    ("old", "new", "compared"),
    [
        ("pass", "pass", True),
        ("pass", "mistrusted: z is rounded", True),
        ("pass", "fail: 1 of 9 differ", False),
        ("fail: 1 of 9 differ", "pass", False),
        ("skipped: no time", "pass", False),
    ],
)
def test_what_failed_is_not_compared_but_counted(old: str, new: str, compared: bool) -> None:
    """A wrong result was once said to be faster than a right one."""
    before, after = [row(1.0, check=old)], [row(0.5, check=new), row(0.5, who="whole")]
    assert [one.outcome for one in changes(before, after)] == ["faster"] * compared
    verdicts = f"{old.partition(':')[0]}, then {new.partition(':')[0]}"
    assert left_out(before, after) == ({} if compared else {verdicts: 1})


def test_who_has_a_budget_is_compared_within_the_same() -> None:
    for who in ("oocdnn", "auto", "layer-by-layer"):
        before, after = ([row(1.0, who=who, budget=size << 30)] for size in (1, 4))
        assert not list(changes(before, after))
        assert len(list(changes(before, before))) == 1


@pytest.mark.parametrize("whole", ["results", "journal"])
def test_a_full_disk_leaves_the_last_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: str
) -> None:
    """A torn one could not be gone on with."""
    about, journal = Bench(Settings("cpu")).about, Journal(tmp_path / "j.json", {"program": "p"})

    def write(rows: list[Row]) -> None:
        if whole == "results":
            results.write(tmp_path, about, rows)
        else:
            journal.note("rows", len(rows))

    @contextlib.contextmanager
    def torn(descriptor: int, mode: str) -> Iterator[IO[bytes]]:
        with open_descriptor(descriptor, mode) as file:
            yield file
            file.flush()
            os.truncate(file.fileno(), os.fstat(file.fileno()).st_size // 2)
            raise OSError(errno.ENOSPC, "no space left")

    write([row(1.0)])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    open_descriptor = os.fdopen
    monkeypatch.setattr(os, "fdopen", torn)
    with pytest.raises(OSError, match="no space left"):
        write([row(1.0), row(2.0)])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
