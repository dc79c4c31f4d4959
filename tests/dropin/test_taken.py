"""Where there is a GPU and a cuDNN: what is taken, what is handed on. On fake ones, in processes of
their own, because a process sees one driver for as long as it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dropin.building import CLIENTS, compiler, include_flags

from oocdnn import cudnn

HERE = Path(__file__).resolve().parent
LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
BUILD = Path(LIBRARY).resolve().parents[1] if LIBRARY else Path("nowhere")

pytestmark = pytest.mark.skipif(
    not (BUILD / "fake_cudnn" / "libcudnn.so.9").exists(),
    reason=f"the fake driver and cuDNN are not in {BUILD}",
)


def run_suite(suite: str, real: Path, folder: Path) -> None:
    paths = f"{BUILD / 'fake_cuda'}:{BUILD / 'fake_cudnn'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = os.environ | {
        "LD_LIBRARY_PATH": paths,
        "LD_PRELOAD": str(cudnn.dropin_path()),
        "OOCDNN_CUDNN_LIBRARY": str(real),
        "OOCDNN_DEVICE": "cuda:0",
        "OOCDNN_TEST_DEVICE": "cuda",
        "OOCDNN_PROFILE": "none",
        "OOCDNN_LOG": "info",
        "OOCDNN_LOG_FILE": str(folder / "log.txt"),
        "XDG_CACHE_HOME": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / suite],
        env=environment,
        cwd=folder,  # the installed package, not the tree
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_graphs(tmp_path):
    run_suite("gpu_side.py", BUILD / "fake_cudnn" / "libcudnn.so.9", tmp_path)


def test_legacy_calls(tmp_path):
    real = tmp_path / "libcudnn.so.9"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", str(real)]
    compiler([*include_flags("ours"), *flags, str(CLIENTS / "fake_legacy.c")])
    run_suite("legacy_gpu_side.py", real, tmp_path)
