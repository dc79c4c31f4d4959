"""The study of split tensors, with two processes on the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="PyTorch is not installed")

from oocdnn.cli import main


def test_the_study_of_split_tensors(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["--size", "16", "--backend", "gloo", "--model", "small_unet3d", "--dtype", "bfloat16"]
    done = CliRunner().invoke(
        main, ["bench", "study", "spatial", *words, "--repeats", "1", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output + repr(done.exception)
    document = json.loads(out.read_text(encoding="utf-8"))
    rows = document["lists"]["rows"]
    assert [row["case"].split()[0] for row in rows] == ["conv3d"] * 3 + ["small_unet3d"]
    for row in rows[:3]:
        assert row["differences"][:2] == [0, 0]
        assert row["differences"][2] < 2**-6  # partial sums are rounded
        assert row["whole_seconds"] > 0 < row["split_seconds"]
    first, second = rows[3]["losses"]
    assert len(first) == len(second) == 20
    assert second == pytest.approx(first, rel=0.05)
