"""Threads that end within a call, from C and from Python: the call lets go of its context."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oocdnn._core.loading import library_path

HEADERS = Path(__file__).resolve().parents[2] / "native" / "capi"

DAEMONS = """
import threading
import numpy as np, oocdnn
x, w = np.ones((2, 16, 200, 200), np.float32), np.ones((16, 16, 3, 3), np.float32)
contexts = [oocdnn.Context("cpu", "64KiB", threads=1, profile="none") for _ in range(3)]
within = threading.Barrier(4)

def work(ctx, progress):
    while True:
        ctx.conv2d(x, w, progress=progress)

def teller():
    begun = []
    return lambda done, tiles: begun or begun.append(within.wait())

for ctx in contexts:
    threading.Thread(target=work, args=(ctx, teller()), daemon=True).start()
within.wait()
threading.Thread(target=work, args=(ctx, None), daemon=True).start()  # waits for its turn
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("device", ["cpu", "cpu,cpu:link=0.05"])
def test_threads_may_end_in_the_callback(tmp_path, device: str):
    library = library_path()
    program = tmp_path / "leaving"
    source = Path(__file__).with_name("leaving.c")
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-pthread", f"-I{HEADERS}", "-o", program]
    subprocess.run([*command, source, library, f"-Wl,-rpath,{library.parent}"], check=True)
    done = subprocess.run([program, device], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 6


@pytest.mark.parametrize("attempt", range(3))
def test_python_ends_while_daemon_threads_are_in_calls(attempt):
    done = subprocess.run(
        [sys.executable, "-c", DAEMONS], cwd="/", capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
