"""The n-th allocation of host memory fails, on whatever thread: never more than the call fails."""

import os
import subprocess
from pathlib import Path


def test_nth_allocation_of_host_memory_fails() -> None:
    build = Path(os.environ["OOCDNN_TESTING_LIBRARY"]).resolve().parents[1]
    command = [build / "bin" / "oocdnn_exercise", "memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
