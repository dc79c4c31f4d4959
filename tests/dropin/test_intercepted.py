"""Where there is a GPU and a cuDNN: what is taken, what is handed on. On fake ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dropin.building import CLIENTS, compiler, include_flags
from gpu.suite import FAKE_CUDNN, FAKE_DRIVER, run_suite

from oocdnn import cudnn

pytestmark = pytest.mark.skipif(not FAKE_CUDNN.exists(), reason=f"{FAKE_CUDNN} is not there")


def run_before(suite: str, real: Path, folder: Path) -> None:
    """The suite with the drop-in preloaded, which stands before the library that is given."""
    run_suite(
        folder,
        suite,
        libraries=(FAKE_DRIVER, FAKE_CUDNN),
        LD_PRELOAD=str(cudnn.dropin_path()),
        OOCDNN_CUDNN_LIBRARY=str(real),
        OOCDNN_DEVICE="cuda:0",
        OOCDNN_LOG="info",
        OOCDNN_LOG_FILE=str(folder / "log.txt"),
    )
    # Once in a process, and first, the drop-in says how it is turned off, and what it is good for.
    lines = (folder / "log.txt").read_text(encoding="utf-8").splitlines()
    (said,) = [line for line in lines if "OOCDNN_DISABLE=1" in line]
    first = next(line for line in lines if re.search(r"why=(workspace|2\^31|no-engine)$", line))
    assert lines.index(said) < lines.index(first)
    assert re.search(r"conv\dd:\w+ .* runs in tiles, with a workspace of \S+ \w+", said), said
    assert " TiB;" in said or "cuDNN has no plan" in said


@pytest.mark.parametrize("suite", ["gpu_side", "own_plan_gpu_side"])
def test_graphs(tmp_path, suite):
    run_before(f"dropin/{suite}.py", FAKE_CUDNN, tmp_path)


@pytest.mark.parametrize("suite", ["legacy", "others"])
def test_legacy_calls(tmp_path, suite):
    real = tmp_path / "libcudnn.so.9"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", str(real)]
    compiler([*include_flags("ours"), *flags, str(CLIENTS / "fake_legacy.c")])
    run_before(f"dropin/{suite}_gpu_side.py", real, tmp_path)


@pytest.mark.parametrize(
    "variable",
    [
        {"OOCDNN_WORKSPACE_LIMIT": "131072"},
        {"OOCDNN_WORKSPACE_TOTAL": "524288"},
    ],
    ids=str,
)
def test_workspaces_are_limited(tmp_path, variable):
    run_suite(
        tmp_path,
        "dropin/divided_gpu_side.py",
        libraries=(FAKE_DRIVER, FAKE_CUDNN),
        LD_PRELOAD=str(cudnn.dropin_path()),
        OOCDNN_CUDNN_LIBRARY=str(FAKE_CUDNN),
        OOCDNN_DEVICE="cuda:0",
        OOCDNN_ENGINE="cudnn-nchw",  # whose tiles lie as the arrays do
        OOCDNN_LOG="info",
        OOCDNN_LOG_FILE=str(tmp_path / "log.txt"),
        OOC_FAKE_HUNGRY="65536",
        **variable,
    )
