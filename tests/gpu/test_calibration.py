"""What is measured of a GPU's passes over tiles and of staging, which a CPU device has none of."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import oocdnn
from oocdnn.perfmodel.profile import Profile, parse

DEVICE = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU device reaches all memory")
def test_what_an_older_profile_lacks_is_measured(tmp_path):
    """With the device's copies known, the passes and staging come first."""
    told = subprocess.run(
        [sys.executable, "-m", "oocdnn", "info", "--json"], capture_output=True, check=True
    )
    core = json.loads(told.stdout)["core"]
    if not core["description"].startswith("fake"):
        pytest.skip("a profile of this GPU is measured anew, with all its engines")
    file = tmp_path / "profile.txt"
    before = Profile(
        machine=core["description"], driver=core["driver"], engines="direct", measured=True
    )
    file.write_text(before.text(), encoding="utf-8")

    def stop(done, total):
        raise KeyboardInterrupt

    with (
        oocdnn.Context(DEVICE, "256MiB", profile=file) as context,
        pytest.raises(KeyboardInterrupt),
    ):
        context.calibrate(stop)
    after = parse(file.read_text(encoding="utf-8"))
    passes = ("finish", "pool", "restore", "normalize")
    wanted = {f"direct/{order}/{name}" for order in ("nchw", "nhwc") for name in passes}
    wanted |= {f"{place}/{way}" for place in ("page", "file") for way in ("fetch", "drain", "both")}
    assert wanted == after.wires.keys()
    assert all(after.mark(f"wire {name}").startswith("samples ") for name in wanted)
