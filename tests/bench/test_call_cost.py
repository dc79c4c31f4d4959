"""What Python does around a call: what is measured, and that the core is there again afterwards."""

from __future__ import annotations

import json

import numpy as np
from click.testing import CliRunner

import oocdnn
from oocdnn._core.native import NativeContext
from oocdnn.bench.studies.call_cost import calls, command


def test_each_call_is_measured(tmp_path):
    own, out = NativeContext._run, tmp_path / "cost.json"
    options = ["--walk-mib", "1", "--repeats", "2", "--out", str(out)]
    result = CliRunner().invoke(command, options, catch_exceptions=False)
    assert result.exit_code == 0
    rows = json.loads(out.read_text())["lists"]["rows"]
    assert [row["name"] for row in rows] == list(calls())
    assert all(min(*row["hot"], *row["cold"]) > 0 for row in rows)
    assert len(result.output.splitlines()) == 1 + len(rows)
    assert NativeContext._run is own
    one = np.ones((1, 1, 1, 1), np.float32)
    with oocdnn.Context("cpu") as context:
        assert context.conv2d(one, 2 * one) == 2
