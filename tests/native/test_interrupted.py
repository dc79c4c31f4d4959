"""Signals that interrupt reads and writes of files, and transfers that are cut short."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, sys
import numpy as np, oocdnn
path, library = sys.argv[1:]
x = np.arange(2 * 3 * 9 * 9, dtype=np.float32).reshape(2, 3, 9, 9)
w = np.arange(4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3) % 5
x.tofile(path + "/x")
mapped = np.memmap(path + "/x", np.float32, "r", shape=x.shape)
out = np.memmap(path + "/y", np.float32, "w+", shape=(2, 4, 7, 7))
with oocdnn.Context("cpu", "64KiB", profile="none") as ctx:
    wanted = ctx.conv2d(x, w)
    interrupted = ctypes.c_int.in_dll(ctypes.CDLL(library), "interrupted")
    before = interrupted.value
    assert (ctx.conv2d(mapped, w) == wanted).all()
    read = interrupted.value
    assert read > before
    ctx.conv2d(x, w, out=out)
    assert interrupted.value > read
assert (np.fromfile(path + "/y", np.float32).reshape(out.shape) == wanted).all()
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_interrupted_transfers_go_on(tmp_path):
    library = tmp_path / "libinterrupted.so"
    source = Path(__file__).with_name("interrupted.c")
    subprocess.run(
        ["gcc", "-std=c11", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
    )
    preloaded = " ".join([str(library), os.environ.get("LD_PRELOAD", "")]).strip()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path, library],
        env=os.environ | {"LD_PRELOAD": preloaded},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
