"""A command that measures kinds of arithmetic: which it measures, and what its file keeps."""

from __future__ import annotations

import contextlib
import json

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from oocdnn.bench import gpu_kinds
from oocdnn.bench.gpu_chain import main as chain_main
from oocdnn.bench.gpu_fused import main as fused_main


class Measured:
    def __init__(self, kind, images):
        self.kind, self.images = kind, images

    def row(self):
        return {"math": self.kind, "images": self.images}

    def lines(self):
        return [f"{self.kind} of {self.images}"]


@pytest.fixture
def call(monkeypatch):
    """The command on no GPU; gives its result and what was measured."""
    monkeypatch.setattr(gpu_kinds.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(gpu_kinds, "Gauge", contextlib.nullcontext)
    monkeypatch.setattr(gpu_kinds.oocdnn, "Context", lambda *given: contextlib.nullcontext(given))
    about = {"command": "python -m a.module"}
    monkeypatch.setattr(gpu_kinds, "provenance_on_gpu", lambda *given: about)

    def made(*words):
        measured = []

        def run(context, gauge, kind, images, repeats):
            measured.append((context, kind, images, repeats))
            return Measured(kind, images)

        command = gpu_kinds.kinds_command("a", "Text.\n\nMore", run, "2GiB", ("a", "b"), ("b",))
        return CliRunner().invoke(command, words), measured

    return made


def test_kinds_that_are_named_or_the_usual(call):
    result, measured = call()
    assert (result.exit_code, result.output) == (0, "b of 256\n")
    assert measured == [(("cuda:0", "2GiB"), "b", 256, 5)]
    result, measured = call("--math", "a", "--math", "b", "--images", "3", "--repeats", "2")
    assert [one[1:] for one in measured] == [("a", 3, 2), ("b", 3, 2)]
    assert call("--math", "c")[0].exit_code == 2


def test_a_run_goes_on(call, tmp_path):
    out = ("--out", str(tmp_path / "rows.json"))
    call("--math", "a", *out)
    _, measured = call("--math", "a", "--math", "b", "--resume", *out)
    assert [one[1] for one in measured] == ["b"]
    rows = json.loads((tmp_path / "rows.json").read_text())["lists"]["rows"]
    assert [row["math"] for row in rows] == ["a", "b"]
    assert call("--math", "a", "--seconds", "-1")[1] == []


@pytest.mark.parametrize("main", [chain_main, fused_main])
def test_the_commands_have_all_options(main):
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for option in ("--device", "--budget", "--images", "--math", "--seconds", "--resume"):
        assert option in result.output
