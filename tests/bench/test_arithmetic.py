"""The study of arithmetics, on the CPU device, where all are float32's."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import oocdnn
from oocdnn.bench.layers import layer
from oocdnn.bench.studies import arithmetic
from oocdnn.cli import main

LAYERS = (layer("few", (2, 8, 6, 7), 4, 3, padding=1),)


def test_errors_of_each_arithmetic(tmp_path, monkeypatch):
    monkeypatch.setattr(arithmetic, "LAYERS", LAYERS)
    out = tmp_path / "found.json"
    words = ["bench", "study", "arithmetic", "--device", "cpu", "--repeats", "1", "--out", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output + repr(done.exception)
    rows = json.loads(out.read_text("utf-8"))["lists"]["rows"]
    assert len(rows) == 3 * len(arithmetic.SIGNS) * len(arithmetic.MATHS)
    for row in rows:
        assert 0.0 < row["rms_error"] <= row["max_error"] < 1e-6, row
        assert abs(row["mean_error"]) <= row["rms_error"]
        assert row["flops_per_second"] > 0.0
    again = CliRunner().invoke(main, [*words, "--resume"])
    assert again.exit_code == 0, again.output
    assert json.loads(out.read_text("utf-8"))["lists"]["rows"] == rows
    done = CliRunner().invoke(main, [*words[:-2], "--only", "bwd_data", "--math", "fp32x3"])
    assert done.output.count("fp32x3") == done.output.count("bwd_data") == 2, done.output


def test_a_bias_shows_in_the_mean(monkeypatch):
    """Of positive numbers that are rounded toward zero."""

    def truncated(self, first, second, math="fp32"):
        out = right(self, first, second, math)
        return out if out.dtype == "f8" else out * (1 - 2.0**-12)

    right = arithmetic.Computing.__call__
    monkeypatch.setattr(arithmetic.Computing, "__call__", truncated)
    with oocdnn.Context("cpu", "8MiB") as context:
        rows = arithmetic.measure(context, LAYERS[0], "fwd", "positive", ["fp32"], 1)
        (row,) = rows
    assert row["mean_error"] == pytest.approx(-(2.0**-12), rel=1e-2)
