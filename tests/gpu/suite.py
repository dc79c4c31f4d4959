"""A suite of tests in a process of its own, because a process sees one driver for as long as it
lives: here the fake one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_LIBRARY = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
BUILD = Path(_LIBRARY).resolve().parents[1] if _LIBRARY else Path("nowhere")
FAKE_DRIVER = BUILD / "fake_cuda" / "libcuda.so.1"
FAKE_CUDNN = BUILD / "fake_cudnn" / "libcudnn.so.9"


def run_suite(
    folder: Path, *arguments: str, libraries: tuple[Path, ...] = (FAKE_DRIVER,), **variables: str
) -> None:
    """Runs pytest with the arguments, files named from tests/, on the CUDA device of the libraries
    that are given; all must pass, and something must."""
    paths = [str(library.parent) for library in libraries]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join([*paths, os.environ.get("LD_LIBRARY_PATH", "")]),
        "OOCDNN_TEST_DEVICE": "cuda",
        "OOCDNN_PROFILE": "none",
        "XDG_CACHE_HOME": str(folder),
        **variables,
    }
    files = [str(TESTS / a) if a.endswith(".py") else a for a in arguments]
    # In the folder that all runs of a user share a new one closes what others have opened.
    own = ("-p", "no:cacheprovider", "--basetemp", str(folder / "pytest"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *own, *files],
        env=environment,
        cwd=folder,  # the installed package, not the tree
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
