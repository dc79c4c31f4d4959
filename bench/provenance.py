"""Where, when and how something was measured."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

import oocdnn


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = (row.partition(":")[2].strip() for row in text.splitlines() if "model name" in row)
    return next(names, platform.processor())


def _commit() -> str | None:
    """The commit of the source tree in the current folder."""
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def provenance(
    program: str, rounds: int, arguments: Sequence[str] | None = None, **versions: str
) -> dict[str, Any]:
    """What a reader needs to repeat a measurement: the program as it is called, its arguments (the
    process's where none are given); `versions` are those of other libraries."""
    given = sys.argv[1:] if arguments is None else arguments
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "program": program,
        "command": f"{program} {shlex.join(given)}".rstrip(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": pages * page,
            "system": platform.platform(),
        },
        "versions": {
            "oocdnn": oocdnn.__version__,
            **versions,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "rounds": rounds,
    }
