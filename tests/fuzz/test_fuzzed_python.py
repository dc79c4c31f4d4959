"""Random calls of the Python interface. `make sanitize` makes more of them, on an instrumented
build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SHORT, LONG = 2_000, 1_000_000


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(1, SHORT), *(pytest.param(seed, LONG, marks=pytest.mark.long) for seed in (2, 3))],
)
def test_random_calls_end_in_documented_errors(seed, calls):
    settings = {"OOCDNN_DEVICE": "cpu", "OOCDNN_PROFILE": "none", "OOCDNN_PLANS": "none"}
    settings |= {"OOCDNN_LOG": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.python_calls", str(seed), str(calls)],
        cwd=TESTS, env=os.environ | settings, capture_output=True, text=True, check=False,
        timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    made, served = (int(part.split()[0]) for part in done.stdout.split(", ")[:2])
    assert made >= calls
    assert served > calls // 5
