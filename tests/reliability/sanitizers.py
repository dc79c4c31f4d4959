"""Rows 13 and 14: `make sanitize`, which builds the library with the compiler's sanitizers and runs
clients in C++, one of which makes random calls of the drop-in, and, but for the thread sanitizer,
the whole suite on it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from reliability.processes import WORKERS
from reliability.rows import Finding, Size

ROOT = Path(__file__).resolve().parents[2]
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:")
# How the clients and pytest end.
SUMMARY = re.compile(r"^(?:\d+ failures|\d+ calls, .*|=* ?\d+ (?:passed|failed).*)$", re.MULTILINE)
# What a run of make sets for this one would lead the instrumented one to the wrong libraries.
NOT_INHERITED = ("OOCDNN_LIBRARY", "OOCDNN_TESTING_LIBRARY", "PYTHONPATH")


def measure(sanitizer: str, size: Size) -> Finding:
    if size is not Size.FULL:
        return Finding("not run: builds everything anew; ask for the full row", None)
    log = ROOT / "build" / f"sanitize-{sanitizer.replace(',', '-')}.log"
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            ["make", "sanitize", f"SANITIZE={sanitizer}", f"PYTEST_ARGS=-q -n {WORKERS}"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in NOT_INHERITED},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    reports = len(REPORT.findall(text))
    parts = [line.strip("= ") for line in SUMMARY.findall(text)]
    bad = reports or done.returncode
    failures = [f"all of it: {log}", *text.splitlines()[-60:]] if bad else []
    figure = f"{reports} reports; {'; '.join(parts)}"
    return Finding(figure, not failures, failures, {"exit": done.returncode})


def measure_address(size: Size) -> Finding:
    return measure("address,undefined", size)


def measure_thread(size: Size) -> Finding:
    return measure("thread", size)
