"""python -m reliability [--rows 1,2,7] [--quick] [--out FILE], with tests/ on the path."""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

from reliability import report
from reliability.rows import Finding, Size
from reliability.table import ROWS, chosen


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reliability", description=__doc__)
    parser.add_argument("--rows", help="only these, for instance 1,2,7")
    parser.add_argument("--quick", action="store_true", help="small counts, for a look")
    parser.add_argument("--out", type=Path, help="JSON to write or to bring up to date")
    parser.add_argument("--markdown", type=Path, help="page to write from the JSON")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    size = Size.QUICK if given.quick else Size.FULL
    done = []
    for row in chosen(given.rows):
        print(f"row {row.key}: {row.property}", flush=True)
        began = time.monotonic()
        try:
            finding = row.measure(size)
        except Exception:
            text = traceback.format_exc()
            finding = Finding("the run itself failed", False, [text])
        done.append(report.record(row, finding, time.monotonic() - began, size.name.lower()))
        print(report.text_table(done[-1:]), flush=True)
        for failure in finding.failures[: report.MOST_FAILURES]:
            print(f"        {failure}", flush=True)
        if given.out:
            report.merge(given.out, done, [r.key for r in ROWS])
    print("\n" + report.text_table(done))
    if given.out and given.markdown:
        pages = report.merge(given.out, [], [r.key for r in ROWS])
        given.markdown.write_text(report.markdown(pages), encoding="utf-8")
    return 1 if any(row["passed"] is False for row in done) else 0


if __name__ == "__main__":
    raise SystemExit(main())
