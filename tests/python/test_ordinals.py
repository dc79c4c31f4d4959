"""Which GPU a device's name means, on a fake driver with two of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gpu.suite import FAKE_DRIVER

PROGRAM = """
import oocdnn
for name in ("cuda", "cuda:0", "cuda:1"):
    with oocdnn.Context(name, "1MiB", profile="none") as context:
        print(context.device)
for name in ("cuda:2", "cuda:", "cuda:-1", "cuda:1x"):
    try:
        oocdnn.Context(name, "1MiB", profile="none")
    except (oocdnn.Unsupported, oocdnn.InvalidProblem) as error:
        print(error.__class__.__name__)
"""


@pytest.mark.skipif(not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not there")
def test_a_name_without_a_number_means_the_first_gpu():
    path = f"{FAKE_DRIVER.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"LD_LIBRARY_PATH": path, "OOC_FAKE_TWO_GPUS": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    devices, refusals = done.stdout.split()[:3], done.stdout.split()[3:]
    assert devices == ["cuda:0", "cuda:0", "cuda:1"]
    assert refusals == ["Unsupported", *["InvalidProblem"] * 3]
