"""The environment that tests refuse."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "library", ["build/native/lib/liboocdnn_testing.so", "/nowhere/liboocdnn_testing.so"]
)
def test_a_testing_library_that_names_nothing_elsewhere_is_refused(library: str) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/lint/test_layers.py"]
    environment = {**os.environ, "OOCDNN_TESTING_LIBRARY": library}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 4
    assert f"OOCDNN_TESTING_LIBRARY={library} is not the absolute path of a file" in done.stderr
    assert "Traceback" not in done.stderr
