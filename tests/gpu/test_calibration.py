"""What is measured of a GPU's passes over tiles and of staging, which a CPU device has none of."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import oocdnn
from oocdnn.perfmodel.profile import Profile, parse

DEVICE = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")


def core_told() -> dict[str, str]:
    told = subprocess.run(
        [sys.executable, "-m", "oocdnn", "info", "--json"], capture_output=True, check=True
    )
    core: dict[str, str] = json.loads(told.stdout)["core"]
    return core


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU device reaches all memory")
def test_what_an_older_profile_lacks_is_measured(tmp_path):
    """With the device's copies known, the passes and staging come first."""
    core = core_told()
    if not core["description"].startswith("fake"):
        pytest.skip("a profile of this GPU is measured anew, with all its engines")
    file = tmp_path / "profile.txt"
    before = Profile(
        machine=core["description"],
        driver=core["driver"],
        engines="depthwise, fp32x3, direct",
        measured=True,
        calibration="begun",
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
    wanted = {
        f"{engine}/{order}/{name}"
        for engine in ("depthwise", "fp32x3", "direct")
        for order in ("nchw", "nhwc")
        for name in passes
    }
    wanted |= {f"{place}/{way}" for place in ("page", "file") for way in ("fetch", "drain", "both")}
    assert wanted == after.wires.keys()
    assert all(after.mark(f"wire {name}").startswith("samples ") for name in wanted)
    prepared = {f"{engine}/f32/fwd/prepare" for engine in ("depthwise", "direct")}
    assert after.once.keys() >= {"page/pin", *prepared}
    assert after.flops.keys() >= {"depthwise/f32/fwd", "direct/f32/fwd"}
    assert after.mark("once page/pin").startswith("samples 5 ")


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU device reaches all memory")
@pytest.mark.parametrize("engine", ["cudnn", "direct"])
def test_all_is_measured_for_one_engine_too(tmp_path, engine):
    """Tiles of the direct engine have the padding too, and what is staged has not."""
    if core_told()["description"].startswith("fake"):
        pytest.skip("a fake GPU takes minutes for it")
    x, w = np.ones((9, 8, 40, 41), np.float32), np.ones((8, 8, 3, 3), np.float32)
    file = tmp_path / "profile.txt"
    with oocdnn.Context(DEVICE, "64MiB", engine=engine, profile=file) as context:
        assert (context.conv2d(x, w) == 72).all()
        context.calibrate()
        assert (context.conv2d(x, w) == 72).all()
    assert "page/fetch" in parse(file.read_text(encoding="utf-8")).wires
