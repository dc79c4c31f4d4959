"""Random calls of the drop-in's core where there is no GPU. `make sanitize` makes more of them, on
an instrumented build."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SHORT, LONG = 20_000, 1_000_000
LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
FUZZER = Path(LIBRARY).resolve().parents[1] / "bin" / "oocdnn_fuzz" if LIBRARY else Path()


@pytest.mark.skipif(
    not FUZZER.is_file(), reason="there is no oocdnn_fuzz beside the testing library"
)
@pytest.mark.parametrize(
    ("seed", "calls"),
    [(1, SHORT), *(pytest.param(seed, LONG, marks=pytest.mark.long) for seed in (2, 3))],
)
def test_random_calls_break_nothing(seed, calls):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OOCDNN_")}
    environment |= {"OOCDNN_DEVICE": "cpu", "OOCDNN_PROFILE": "none", "OOCDNN_LOG": "error"}
    done = subprocess.run(
        [FUZZER, str(seed), str(calls)],
        env=environment, capture_output=True, text=True, check=False, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    made, served, computed = (int(part.split()[0]) for part in done.stdout.split(", "))
    assert made >= calls
    assert served > calls // 5
    assert computed > calls // 100
