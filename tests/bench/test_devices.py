"""The study `devices` on devices of the CPU."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from oocdnn.cli import main


def test_all_directions_alone_by_hand_and_shared(tmp_path) -> None:
    out = tmp_path / "devices.json"
    arguments = ["--devices", "cpu,cpu", "--images", "3", "--size", "8", "--budget", "1MiB"]
    done = CliRunner().invoke(
        main, ["bench", "study", "devices", *arguments, "--repeats", "2", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())["lists"]["rows"]
    assert [row["direction"] for row in rows] == ["fwd", "bwd_data", "bwd_filter"]
    for row in rows:
        assert len(row["alone"]) == 2
        rates = sum(1 / seconds for seconds in row["alone"])
        assert row["times_rates"] == pytest.approx(row["shared"] * rates)
        assert row["bytes_moved"] >= row["data_bytes"]
    assert done.output.count("GB/s") == 3
