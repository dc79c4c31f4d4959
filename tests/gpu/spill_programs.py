"""Unmodified PyTorch programs past a limit of device memory, beside the same without it.

    python tests/gpu/spill_programs.py [PART ...] [--seconds S] [--limit B] [--out FILE]

Each part is a process of its own and takes less than a minute; --seconds bounds its steps. Figures
go to FILE, where those of earlier calls stay, so that the parts of a comparison may be run apart.
Prints what fails; the number of failures is the exit status.

A part NET-IMAGES[-tf32]-HOW is a training: `alone` has the whole card, `spill` the limit and the
drop-in, `naive` the limit without the drop-in, `save` the whole card and save_on_cpu, `kernels` is
`spill` kernel by kernel. The others are named in PARTS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
WARM = 5  # steps that no time is taken of: caches grow
CLOSE = 1e-3  # of losses, relative
OF_NAIVE = 1 / 4  # of the time of `naive` that `spill` may take
Row = dict[str, Any]
Rows = dict[str, Row]


@dataclass(frozen=True)
class Part:
    what: str  # of spill_torch.py
    options: tuple[str, ...]
    limit: str = ""  # "": none; "-": that of the command line
    dropin: bool = True
    variables: dict[str, str] = field(default_factory=dict)


def _trainings() -> dict[str, Part]:
    ways = {
        "alone": ("train", ""), "spill": ("train", "-"), "naive": ("train", "-"),
        "save": ("save_on_cpu", ""), "kernels": ("kernels", "-"),
    }  # fmt: skip
    parts = {}
    for net, images, math in (
        ("vgg16", 256, ""), ("vgg16", 256, "tf32"), ("vgg16", 512, ""), ("resnet50", 512, ""),
    ):  # fmt: skip
        for how, (what, limit) in ways.items():
            if how == "naive" and images > 256:
                continue  # its steps would not fit the time
            options = ("--net", net, "--images", str(images), *([f"--{math}"] if math else []))
            options += ("--steps", "3") if how == "naive" else ()
            name = "-".join(word for word in (net, str(images), math, how) if word)
            parts[name] = Part(what, options, limit, dropin=how != "naive")
    return parts


EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
PARTS = {
    **_trainings(),
    # 1,000 steps without growth of pinned memory.
    "many": Part("many", ("--steps", "1000"), "192MiB"),
    # Four forked workers.
    "workers": Part("workers", ("--steps", "10"), "192MiB"),
    # What cannot be reached runs without a limit, and is named in one line.
    "expandable": Part("train", ("--steps", "5"), "192MiB", variables=EXPANDABLE),
}


def command_of(part: Part, seconds: float, limit: str) -> list[str]:
    """The program; with the drop-in where the part has a limit."""
    program = [sys.executable, str(HERE / "spill_torch.py"), part.what, *part.options]
    program += ["--seconds", str(seconds)]
    if not part.limit or not part.dropin:
        return program
    return [sys.executable, "-m", "oocdnn", "run", "--limit", limit, "--spill", "--", *program]


def environment_of(part: Part, limit: str, log: Path) -> dict[str, str]:
    from oocdnn.cli import limit as limits

    environment = os.environ | part.variables
    environment |= {"OOCDNN_LOG": "info", "OOCDNN_LOG_FILE": str(log)}
    environment.pop("PYTHONSAFEPATH", None)  # a script's folder is where its imports are
    if part.limit and not part.dropin:
        environment |= limits.variables(limit, None, limits.HOST)
        environment["LD_PRELOAD"] = str(limits.spill_path())
    return environment


def measured(name: str, seconds: float, most: str) -> Row:
    """The figures of one part; "failed" among them where it did not end well."""
    from gpu.card import Card, Watch

    part = PARTS[name]
    limit = most if part.limit == "-" else part.limit
    with tempfile.TemporaryDirectory() as folder, Watch(Card()) as watch:
        log = Path(folder) / "log.txt"
        done = subprocess.run(
            command_of(part, seconds, limit), env=environment_of(part, limit, log), cwd=HERE,
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        logged = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    row: Row = {"part": name, "limit": limit}
    if done.returncode == 0:
        row |= json.loads(done.stdout.splitlines()[-1])
    else:
        row["failed"] = f"exit status {done.returncode}: {done.stderr[-2000:]}"
    row["card_peak"] = watch.peak
    row["taken"] = sum(" taken " in line for line in logged)
    row["said"] = [line for line in done.stderr.splitlines() if line.startswith("oocdnn:")]
    return row


def step_seconds(row: Row) -> float:
    """A step's time, once caches hold what it needs."""
    return median(row["seconds"][WARM:] or row["seconds"][-1:])


def apart(one: Row, other: Row) -> float:
    """The largest relative difference of losses, over the steps that both made."""
    pairs = zip(one["losses"], other["losses"], strict=False)
    return max(abs(a - b) / abs(b) for a, b in pairs)


def judge_training(name: str, spilled: Row, rows: Rows) -> list[str]:
    """Against the other ways to run the same training, as far as they are there."""
    failures, head = [], name.removesuffix("-spill")
    held = spilled["ledger"]
    if held["host_peak"] == 0:
        failures.append(f"{name}: nothing spilled")
    if held["device_peak"] + held["budget"] + held["others"] > held["limit"]:
        failures.append(f"{name}: more on the device than the limit: {held}")
    if spilled["card_peak"] > held["limit"]:
        over = (spilled["card_peak"] - held["limit"]) / 2**20
        failures.append(f"{name}: the card's peak is {over:.0f} MiB above the limit")
    seconds = step_seconds(spilled)
    print(f"{name}: {seconds:.3f} s a step, {spilled['taken']} taken, {held}")
    for how in ("alone", "save", "naive"):
        other = rows.get(f"{head}-{how}")
        if other is None or "failed" in other:
            continue
        print(f"{name}: {seconds / step_seconds(other):.2f} times {how}")
        if how == "naive" and seconds > OF_NAIVE * step_seconds(other):
            failures.append(f"{name}: {seconds:.2f} s, naive {step_seconds(other):.2f} s")
        if how == "alone" and apart(spilled, other) > CLOSE:
            failures.append(f"{name}: losses are {apart(spilled, other):.2g} from alone's")
    return failures


def judge(rows: Rows) -> list[str]:
    """What is not as it should be, in all that is there."""
    failures = [f"{name}: {row['failed']}" for name, row in rows.items() if "failed" in row]
    for name, row in rows.items():
        if "failed" in row:
            continue
        if name.endswith("-spill"):
            failures += judge_training(name, row, rows)
        if name == "many" and not 0 < row["pinned"][0] == row["pinned"][-1]:
            failures.append(f"many: pinned bytes grew, or there are none: {row['pinned']}")
        if name == "workers" and not (row["ledger"]["host_peak"] and len(row["losses"]) == 10):
            failures.append(f"workers: {row['losses']}, {row['ledger']}")
        if name == "expandable" and (row["ledger"] or "expandable" not in "".join(row["said"])):
            failures.append(f"expandable: {row['ledger']}, {row['said']}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=35.0)
    parser.add_argument("--limit", default="16GiB")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(HERE.parent))  # the folder of `gpu`
    from gpu.card import Card

    from oocdnn.bench.journal import Journal
    from oocdnn.bench.provenance import provenance

    head = provenance("spill_programs", 1, torch=version("torch")) | {"gpu": Card().name()}
    journal = Journal(options.out, head, resume=True)
    for name in options.parts or PARTS:
        row = measured(name, options.seconds, options.limit)
        print(f"== {name}: {json.dumps(row)[:600]}", flush=True)
        journal.add("parts", row)
    failures = judge({row["part"]: row for row in journal.rows("parts")})
    print("\n".join(f"FAILED {failure}" for failure in failures) or "PASSED", flush=True)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
