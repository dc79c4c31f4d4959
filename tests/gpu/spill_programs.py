"""Unmodified PyTorch programs past a limit of device memory, beside the same without it.

    python tests/gpu/spill_programs.py [PART ...] [--seconds S] [--limit B] [--out FILE]

Each part is a process of its own and takes a few minutes at most; --seconds bounds its steps, of
which a comparison needs 20. Figures go to FILE, where those of earlier calls stay, so that a
comparison's parts may be run apart; while it lacks one it fails. Prints what fails; the number of
failures is the exit status.

A part NET-IMAGES[-tf32]-HOW is a training: `alone` has the whole card, `spill` the limit and the
drop-in, `naive` the limit without the drop-in, `save` the whole card and save_on_cpu, `kernels` is
`spill` kernel by kernel. The others are named in PARTS.
"""

from __future__ import annotations

import argparse
import json
import math
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
STEPS = 20  # whose losses are compared
OF_NAIVE = 1 / 4  # of the time of `naive` that `spill` may take
NAIVE = {"vgg16-256": 9.7, "vgg16-256-tf32": 8.9}  # seconds of it that were measured before
MOST_SECONDS = 400  # of a part
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
    for net, images, arithmetic in (
        ("vgg16", 256, ""), ("vgg16", 256, "tf32"), ("vgg16", 512, ""), ("resnet50", 512, ""),
    ):  # fmt: skip
        for how, (what, limit) in ways.items():
            if how == "naive" and images > 256:
                continue  # its steps would not fit the time
            options = (
                "--net",
                net,
                "--images",
                str(images),
                *([f"--{arithmetic}"] if arithmetic else []),
            )
            options += ("--steps", str(WARM + 2 if how == "naive" else STEPS))
            name = "-".join(word for word in (net, str(images), arithmetic, how) if word)
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


def outcome_of(command: list[str], environment: dict[str, str], most: float) -> tuple[Row, str]:
    """The JSON of a program's last line, or "failed"; and what it wrote to standard error."""
    try:
        done = subprocess.run(
            command, env=environment, cwd=HERE, capture_output=True, text=True, check=False,
            timeout=most,
        )  # fmt: skip
        if done.returncode != 0:
            return {"failed": f"exit status {done.returncode}: {done.stderr[-2000:]}"}, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr
    except subprocess.TimeoutExpired:
        return {"failed": f"no end after {most:.0f} s"}, ""
    except (IndexError, ValueError) as error:
        return {"failed": f"its last line is no JSON: {error}"}, done.stderr


def measured(name: str, seconds: float, most: str) -> Row:
    """The figures of one part; "failed" among them where it did not end well."""
    from gpu.card import Card, Watch

    part = PARTS[name]
    limit = most if part.limit == "-" else part.limit
    with tempfile.TemporaryDirectory() as folder, Watch(Card()) as watch:
        log = Path(folder) / "log.txt"
        answer, errors = outcome_of(
            command_of(part, seconds, limit), environment_of(part, limit, log), MOST_SECONDS
        )
        logged = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    said = [line for line in errors.splitlines() if line.startswith("oocdnn:")]
    return answer | {
        "part": name, "limit": limit, "card_peak": watch.peak,
        "taken": sum(" taken " in line for line in logged),
        "said": said + [line for line in logged if " taken " not in line][:20],
    }  # fmt: skip


def step_seconds(row: Row) -> float:
    """A step's time, once caches hold what it needs; NaN where there was no such step."""
    return median(row["seconds"][WARM:] or [math.nan])


def apart(one: Row, other: Row) -> float:
    """The largest relative difference of losses; NaN where there is one among them."""
    pairs = zip(one["losses"], other["losses"], strict=False)
    differences = [abs(a - b) / abs(b) for a, b in pairs]
    return math.nan if any(map(math.isnan, differences)) else max(differences, default=math.nan)


def are_losses(row: Row, count: int) -> bool:
    losses = row.get("losses", ())
    return len(losses) == count and all(map(math.isfinite, losses))


def judge_limit(row: Row) -> list[str]:
    """Whether something passed the limit, and nothing did on the card."""
    held, failures = row.get("ledger"), []
    if held is None:
        return ["there was no ledger"]
    if not held["host_peak"] > 0:
        failures.append("nothing spilled")
    if not row["taken"] > 0:
        failures.append("no convolution was taken")
    if not 0 < row["card_peak"] <= held["limit"]:
        over = (row["card_peak"] - held["limit"]) / 2**20
        failures.append(f"the card's peak is {over:.0f} MiB above the limit, or was not seen")
    return failures


def judge_time(head: str, spilled: Row, naive: Row) -> list[str]:
    """Against the naive spill, of now or as it was measured before, whichever is faster."""
    seconds, other = step_seconds(spilled), step_seconds(naive)
    if seconds <= OF_NAIVE * min(other, NAIVE[head]) and other > 0:
        return []
    return [f"{seconds:.2f} s, naive {other:.2f} s, before {NAIVE[head]} s"]


def judge_losses(spilled: Row, alone: Row) -> list[str]:
    for row in (spilled, alone):
        if not are_losses(row, STEPS):
            return [f"not {STEPS} losses that are numbers: {row['part']}'s are {row['losses']}"]
    if not apart(spilled, alone) <= CLOSE:
        return [f"losses are {apart(spilled, alone):.2g} from alone's"]
    return []


def judge_training(name: str, spilled: Row, rows: Rows) -> list[str]:
    """Against the other ways to run the same training, all of which it needs."""
    failures, head = judge_limit(spilled), name.removesuffix("-spill")
    seconds = step_seconds(spilled)
    print(f"{name}: {seconds:.3f} s a step, {spilled['taken']} taken, {spilled.get('ledger')}")
    for how in ("alone", "save", "naive"):
        if f"{head}-{how}" not in PARTS:
            continue
        other = rows.get(f"{head}-{how}")
        if other is None:
            failures.append(f"{head}-{how} is missing")
        if other is None or "failed" in other:
            continue
        print(f"{name}: {seconds / step_seconds(other):.2f} times {how}")
        if how == "naive":
            failures += judge_time(head, spilled, other)
        if how == "alone":
            failures += judge_losses(spilled, other)
    return [f"{name}: {failure}" for failure in failures]


def judge_other(name: str, row: Row) -> list[str]:
    """The parts that are compared with nothing."""
    held = row.get("ledger") or {"host_peak": 0}
    if name == "many" and not (held["host_peak"] and 0 < row["pinned"][0] == row["pinned"][-1]):
        return [f"many: pinned bytes grew, or there are none: {row['pinned']}"]
    if name == "workers" and not (held["host_peak"] and are_losses(row, 10)):
        return [f"workers: {row['losses']}, {row['ledger']}"]
    said = "expandable" in "".join(row["said"])
    if name == "expandable" and (row.get("ledger") or not said or not are_losses(row, 5)):
        return [f"expandable: {row['losses']}, {row.get('ledger')}, {row['said']}"]
    return []


def judge(rows: Rows) -> list[str]:
    """What is not as it should be, in all that is there."""
    failures = []
    for name, row in rows.items():
        if "failed" in row:
            failures.append(f"{name}: {row['failed']}")
        elif name.endswith("-spill"):
            failures += judge_training(name, row, rows)
        else:
            failures += judge_other(name, row)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--limit", default="16GiB")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(HERE.parent))  # the folder of `gpu`
    from gpu.card import Card

    from oocdnn.bench.journal import Journal
    from oocdnn.bench.provenance import provenance

    program = "python tests/gpu/spill_programs.py"
    head = provenance(program, 1, torch=version("torch")) | {"gpu": Card().name()}
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
