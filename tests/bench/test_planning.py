"""How long plans take to find: what is measured, and what is said of it."""

from __future__ import annotations

import json

from click.testing import CliRunner

from oocdnn.bench.studies.planning import CALLS, command


def test_searches_and_looks_are_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("OOCDNN_PLANS", "restored afterwards")
    out = tmp_path / "planning.json"
    options = ["--cases", "2", "--repeats", "1", "--contexts", "2", "--out", str(out)]
    result = CliRunner().invoke(command, options, catch_exceptions=False)
    assert result.exit_code == 0
    lists = json.loads(out.read_text())["lists"]
    assert len({(row["problem"], row["budget"]) for row in lists["searches"]}) == 2
    assert all(row["seconds"] > 0 for row in lists["searches"])
    assert [len(row["later"]) for row in lists["looks"]] == [CALLS - 1] * 2
    assert all(min(row["first"], *row["later"]) > 0 for row in lists["looks"])
    assert [line.partition(":")[0] for line in result.output.splitlines()] == [
        "searches",
        "plans from the file, with their engines",
        "plans of the process",
    ]
