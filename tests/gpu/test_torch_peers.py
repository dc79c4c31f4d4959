"""What torch computes beside ours in `oocdnn bench`, in a process that has not used the GPU before.

Needs a GPU and torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oocdnn.bench import results

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]
CONVOLUTION = "conv2d:fwd x4x16x64x64 w16x16x3x3 pad1 f32/tf32"
NETWORK = "vgg16:train x4x3x224x224 f32/tf32"
PEERS = [
    *((CONVOLUTION, who) for who in ("torch", "copies", "managed", "prefetch", "zero-copy")),
    *((NETWORK, who) for who in ("torch", "accumulate", "checkpoint", "save-on-cpu")),
]


@pytest.mark.parametrize(("problem", "who"), PEERS)
def test_a_peer_is_measured(tmp_path: Path, problem: str, who: str) -> None:
    options = ("--device", "cuda:0", "--placement", "pinned", "--peer", who, "--quick")
    command = [sys.executable, "-m", "oocdnn", "bench", problem, *options, "--out", str(tmp_path)]
    made = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONSAFEPATH": "1"}
    )
    assert made.returncode == 0, made.stdout + made.stderr
    ours, other = results.read(tmp_path)
    assert (ours["check"], other["check"]) == ("pass", "pass")
    assert other["who"] == who
    assert other["seconds"] > 0
