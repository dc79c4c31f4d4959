"""The file of remembered plans as tests see it, and processes of their own that use it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import oocdnn

PROBLEM = "conv2d:fwd x2x16x64x64 w16x16x3x3 pad1"
BUDGET = 2**18
DEVICE = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
SHOW = "p = plan(); print(p.remembered, p.plan)"


def plan(problem: str = PROBLEM, budget: int | str = BUDGET, **options) -> oocdnn.Plan:
    """By a context of its own."""
    with oocdnn.Context(DEVICE, budget, **options) as context:
        return context.plan(problem)


def now() -> tuple[bool, str]:
    """What another context of this process shows, which reads the file anew."""
    shown = plan()
    return shown.remembered, shown.plan


def rows(file: Path, columns: str = "problem, plan") -> list[tuple]:
    with contextlib.closing(sqlite3.connect(file)) as database:
        return database.execute(f"SELECT {columns} FROM plans1 ORDER BY key, budget").fetchall()


def change(file: Path, assignments: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        assert database.execute(f"UPDATE plans1 SET {assignments}").rowcount > 0


def program(text: str, file: Path, **variables: str) -> subprocess.Popen[str]:
    """A process that runs `text` with this module's names, and remembers plans in `file`."""
    environment = {
        "OOCDNN_PLANS": str(file),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), *sys.path[1:]]),
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", f"from python.remembering import *\n{text}"],
        env=os.environ | environment,
        cwd=file.parents[1],  # the installed package, not the tree
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(text: str, file: Path, warnings: int = 0, **variables: str) -> str:
    """What such a process prints. It warns as often as is said, a line each; a build without
    machine code for the GPU also says that it compiles the kernels."""
    process = program(text, file, **variables)
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    lines = [line for line in errors.splitlines() if "compiling the CUDA kernels" not in line]
    assert len(lines) == warnings, errors
    return out
