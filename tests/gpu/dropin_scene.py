"""What a program under test of dropin_programs.py prints, and how it begins.

Each line is `figure NAME VALUE`, `same NAME VALUE` (equal in every run of the scene), `fail TEXT`,
or free text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def figure(name: str, value: float) -> None:
    print(f"figure {name} {value:.6g}", flush=True)


def same(name: str, value: str) -> None:
    print(f"same {name} {value}", flush=True)


def check(holds: bool, text: str) -> None:
    if not holds:
        print(f"fail {text}", flush=True)


def taken_so_far() -> int:
    """The calls of this process that the drop-in has logged as taken."""
    log = Path(os.environ["OOCDNN_LOG_FILE"])
    return log.read_text(encoding="utf-8").count(" taken ") if log.exists() else 0


def main(scenes: Mapping[str, Callable[[bool], None]]) -> None:
    """Runs the scene that the first argument names; it is told whether it runs with the drop-in,
    so that only then what the drop-in promises is judged. The program is started before its turn:
    what it has imported by now took nobody's time."""
    print("ready", flush=True)
    sys.stdin.readline()
    scenes[sys.argv[1]](sys.argv[2] == "with")
