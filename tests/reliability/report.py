"""The JSON of a run, merged into that of earlier ones row by row, and the tables made of it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from reliability.rows import Finding, Row

ROOT = Path(__file__).resolve().parents[2]
MOST_FAILURES = 20


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _commit() -> str:
    """The commit that the tree stands at, with a + where files other than results differ from it;
    empty without git."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", ".", ":!docs/results")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def circumstances() -> dict[str, Any]:
    """Where and when: machine, versions, commit, date."""
    from oocdnn._core import native

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1),
            "load": round(os.getloadavg()[0], 1),
        },
        "versions": {
            "oocdnn": native.version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "ml_dtypes": ml_dtypes.__version__,
            "kernel": platform.release(),
        },
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def record(row: Row, finding: Finding, seconds: float, size: str) -> dict[str, Any]:
    """One row as it stands in the JSON."""
    return {
        "row": row.key,
        "property": row.property,
        "target": row.target,
        "figure": finding.figure,
        "passed": finding.passed,
        "command": row.line(),
        "seconds": round(seconds, 1),
        "size": size,
        "failures": finding.failures[:MOST_FAILURES],
        "details": finding.details,
    }


def merge(path: Path, rows: list[dict[str, Any]], order: list[str]) -> dict[str, Any]:
    """Writes the rows over those of the same name; the others stay, each with its own origin."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    origin = circumstances()
    known = {row["row"]: row for row in old.get("rows", [])}
    known |= {row["row"]: {**row, **origin} for row in rows}
    report = {"rows": [known[key] for key in order if key in known]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def verdict(row: dict[str, Any]) -> str:
    return {True: "pass", False: "FAIL", None: "not run"}[row["passed"]]


def text_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{row['row']:>6}  {verdict(row):8}{row['seconds']:8.1f} s  {row['property']}: "
        f"{row['figure']}"
        for row in rows
    ]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    """The page for readers."""
    rows = report["rows"]
    passed = sum(row["passed"] is True for row in rows)
    lines = [
        "# Reliability on the CPU device",
        "",
        "Written by `python -m reliability --markdown`; the numbers are those of "
        "[reliability-cpu.json](reliability-cpu.json), which also names seeds, counts and "
        "circumstances of each row.",
        "",
        f"{passed} of {len(rows)} rows reach their target.",
        "",
        "| row | property | target | measured | | repeat with | s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row) for row in rows]
    lines += ["", *_origin(rows), "", *_splits(rows)]
    return "\n".join(lines).rstrip() + "\n"


def _line(row: dict[str, Any]) -> str:
    size = "" if row["size"] == "full" else f" ({row['size']})"
    cells = [row["row"], row["property"], row["target"], row["figure"], verdict(row) + size]
    cells += [f"`{row['command']}`", f"{row['seconds']:.0f}"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _origin(rows: list[dict[str, Any]]) -> list[str]:
    machines = sorted(
        {
            f"{row['machine']['cpu']}, {row['machine']['cores']} cores, "
            f"{row['machine']['memory_gib']} GiB"
            for row in rows
        }
    )
    versions = sorted({", ".join(f"{k} {v}" for k, v in row["versions"].items()) for row in rows})
    commits = sorted({row["commit"] or "not recorded" for row in rows})
    dates = sorted(row["date"] for row in rows)
    return [
        f"Machine: {'; '.join(machines)}. Versions: {'; '.join(versions)}. "
        f"Commits: {', '.join(commits)} (+: with changes). From {dates[0]} to {dates[-1]}.",
        "Seconds are wall clock on a machine that others used too.",
    ]


def _splits(rows: list[dict[str, Any]]) -> list[str]:
    table = next((row["details"].get("splits") for row in rows if row["row"] == "1"), None)
    if not table:
        return []
    axes = list(next(iter(next(iter(table.values())).values())))
    lines = [
        "## How often each axis was split",
        "",
        "Cases of row 1 in which a plan cut the axis into more than one piece.",
        "",
        "| direction | layout | " + " | ".join(axes) + " |",
        "|---|---|" + "---:|" * len(axes),
    ]
    for direction, layouts in table.items():
        for layout, counts in layouts.items():
            cells = " | ".join(str(counts[axis]) for axis in axes)
            lines.append(f"| {direction} | {layout} | {cells} |")
    return lines
