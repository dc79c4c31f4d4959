"""Rows 13 and 14: parts of the suite on libraries built with the compiler's sanitizers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from reliability.rows import Finding, Size

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "address,undefined": "tests/engine tests/conformance tests/native tests/geometry tests/python",
    "thread": "tests/engine tests/conformance tests/native tests/python/test_context.py",
}
REPORT = re.compile(
    r"ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:|SUMMARY: \w+Sanitizer"
)


def command(sanitizer: str) -> list[str]:
    """make sanitize, in the build folder that the environment names."""
    more = [f"{name}={os.environ[name]}" for name in ("BUILD", "VENV") if os.environ.get(name)]
    tests = os.environ.get("RELIABILITY_SANITIZE_TESTS") or TESTS[sanitizer]
    return ["make", "sanitize", f"SANITIZE={sanitizer}", f"PYTEST_ARGS=-q {tests}", *more]


def measure(sanitizer: str, size: Size) -> Finding:
    if size is not Size.FULL:
        return Finding("not run: builds everything anew; ask for the full row", None)
    line = command(sanitizer)
    # A test run inside a test run's variables would find the wrong libraries.
    plain = {k: v for k, v in os.environ.items() if k not in ("OOCDNN_LIBRARY", "PYTHONPATH")}
    done = subprocess.run(
        line,
        cwd=ROOT,
        env=plain,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    reports = len(REPORT.findall(done.stdout))
    last = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    failures = done.stdout.splitlines()[-60:] if reports or done.returncode else []
    return Finding(
        f"{reports} reports; {last}",
        not failures,
        failures,
        {"command": shlex.join(line), "exit": done.returncode},
    )


def measure_address(size: Size) -> Finding:
    return measure("address,undefined", size)


def measure_thread(size: Size) -> Finding:
    return measure("thread", size)
