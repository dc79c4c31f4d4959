"""`oocdnn run --limit` on a GPU: an unmodified program is planned, and has the losses of plain
PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]

PROGRAM = Path(__file__).with_name("planned_program.py")
LIMIT = 2 << 30  # the plain program needs 3 GiB


def run(method: str, *command: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM), method],
        capture_output=True, text=True, check=False, timeout=110, cwd="/",
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTORCH_")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    found, _ = run("fork")
    assert max(found["used"]) > LIMIT
    return found


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("spill", [[], ["--spill"]])
def test_an_unmodified_program_is_planned(
    plain: dict[str, Any], method: str, spill: list[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    options = ["--limit", str(LIMIT), *spill, "--report", str(page)]
    found, said = run(method, sys.executable, "-m", "oocdnn", "run", *options, "--")
    assert "oocdnn: training is planned within 1.88 GiB: " in said
    assert found["losses"] == plain["losses"]
    assert found["used"][-1] <= LIMIT
    assert "Memory over the step" in page.read_text(encoding="utf-8")


def test_it_is_left_alone_where_that_is_wished(plain: dict[str, Any]) -> None:
    options = ["--limit", "20GiB", "--no-plan"]
    found, said = run("fork", sys.executable, "-m", "oocdnn", "run", *options, "--")
    assert "training is planned" not in said
    assert found["losses"] == plain["losses"]
