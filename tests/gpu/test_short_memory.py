"""Memory that the device lacks for a moment: no plan is forgotten for it, none remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu.suite import FAKE_CUDNN, FAKE_DRIVER
from python.remembering import SHOW, rows, run

pytestmark = pytest.mark.skipif(not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there")


def show(file: Path, **variables: str) -> tuple[str, str]:
    """Whether a process has remembered its plan, and the plan."""
    folders = (str(FAKE_DRIVER.parent), str(FAKE_CUDNN.parent))
    path = ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")])
    named = {"LD_LIBRARY_PATH": path, "OOCDNN_TEST_DEVICE": "cuda", "OOCDNN_PROFILE": "none"}
    found = run(SHOW, file, XDG_CACHE_HOME=str(file.parents[1]), **named, **variables)
    remembered, _, plan = found.strip().partition(" ")
    return remembered, plan


def test_a_moments_lack_of_memory_refutes_no_plan(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "plans.sqlite"
    other = show(file, OOC_FAKE_SHORT="1")
    assert not file.exists() or not rows(file)
    first = show(file)
    assert (first[0], other[0]) == ("False", "False")
    assert first[1] != other[1]
    assert show(file) == ("True", first[1])
    assert show(file, OOC_FAKE_SHORT="1") == other
    assert show(file) == ("True", first[1])
