"""The suites of the CPU device on the CUDA device: here on the fake driver, on a GPU by run.sh.

They run in processes of their own, because a process sees one driver for as long as it lives.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
FAKE = Path(LIBRARY).resolve().parents[1] / "fake_cuda" if LIBRARY else Path("nowhere")

pytestmark = [
    pytest.mark.skipif(
        not (FAKE / "libcuda.so.1").exists(), reason=f"the fake driver is not in {FAKE}"
    ),
    pytest.mark.timeout(600),
]

SUITES = {
    "conformance": ("conformance/test_conformance.py", "-k", "cuda"),
    "operands": ("gpu/test_operands.py",),
    "pins": ("gpu/test_pins.py", "gpu/test_results.py"),
    "many calls": ("gpu/test_many_calls.py",),
    "functions": ("python/test_functions.py", "python/test_arrays.py", "python/test_files.py"),
    "exact": ("engine/test_exact.py",),
    "faults": ("engine/test_faults.py",),
    "schedules": ("engine/test_schedules.py",),
}


@pytest.mark.parametrize("suite", SUITES)
def test_on_the_fake_driver(suite: str, tmp_path: Path) -> None:
    if os.environ.get("OOCDNN_TEST_DEVICE"):
        pytest.skip("this is such a process")
    path, *options = SUITES[suite]
    files = [option for option in (path, *options) if option.endswith(".py")]
    rest = [option for option in options if not option.endswith(".py")]
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{FAKE}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "OOCDNN_TEST_DEVICE": "cuda",
        "OOCDNN_PROFILE": "none",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rest]
        + [str(TESTS / file) for file in files],
        env=environment,
        cwd=tmp_path,  # the installed package, not the tree
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
