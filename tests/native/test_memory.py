"""Host memory that runs out, on whatever thread, ends the call and nothing else."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(os.environ["OOCDNN_TESTING_LIBRARY"]).resolve()


def test_nth_allocation_fails() -> None:
    command = [LIBRARY.parents[1] / "bin" / "oocdnn_exercise", "memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("where", ["job", "call", "attempt"])
def test_what_is_thrown_becomes_a_status(where: str) -> None:
    message = ctypes.create_string_buffer(4096)
    function = getattr(ctypes.CDLL(str(LIBRARY)), f"oocdnn_testing_thrown_in_{where}")
    assert function(message, ctypes.c_int64(len(message))) == 0, message.value.decode()
