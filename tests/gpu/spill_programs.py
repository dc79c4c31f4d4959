"""Programs past a limit of device memory, beside the same without it: PyTorch that knows nothing of
it, and `oocdnn.torch`.

    python tests/gpu/spill_programs.py [PART ...] [--limit B] [--out FILE]

Parts are in the order of what they are worth, and the whole takes about nine minutes. Each has its
own time, after which the next one begins. Figures go to FILE as soon as there are any, and those of
earlier calls stay, so that parts may be run apart; while a comparison lacks one it fails. Prints
what fails; the number of failures is the exit status.

A part NET-IMAGES[-tf32]-HOW is a training: `alone` has the whole card, `spill` the limit and the
drop-in, `naive` the limit without the drop-in, `save` the whole card and save_on_cpu; `last` has
the whole card and its tensors channels last, which tells how far losses of the net are apart where
only rounding differs. The others are named in PARTS. Parts of one PROCESS that are wanted are made
one after the other in it; those that are only right or wrong run beside each other.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
CLOSE = 1e-3  # of losses, relative
OF_NAIVE = 1 / 4  # of the time of `naive` that `spill` may take
NAIVE = {"vgg16-256": 9.7, "vgg16-256-tf32": 8.9}  # seconds of it that were measured before
START = 60  # seconds that a process may take beside its parts
Row = dict[str, Any]
Rows = dict[str, Row]


@dataclass(frozen=True)
class Part:
    what: str  # of the script, with options
    seconds: float  # it takes less
    process: str  # that it shares with others of the name
    limit: str = ""  # "": none; "-": that of the command line
    dropin: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    script: str = "spill_torch.py"
    beside: bool = False  # it may run beside the next

    @property
    def steps(self) -> int:
        return int(re.findall(r"steps=(\d+)", self.what)[0])


def training(text: str, how: str, steps: int, seconds: float, **more: Any) -> Part:
    """`text`: "vgg16-256-tf32"."""
    net, images, *tf32 = text.split("-")
    what = "save_on_cpu" if how == "save" else "train"
    what += f",net={net},images={images},steps={steps},seconds={seconds}"
    what += ",tf32=1" if tf32 else ""
    what += ",last=1" if how == "last" else ""
    process = {"spill": f"{text}-spill", "naive": "naive"}.get(how, "unlimited")
    if how == "spill" and text == "vgg16-256":
        what += ",profile=1"
    limit = "-" if how in ("spill", "naive") else ""
    return Part(what, seconds, process, limit, dropin=how != "naive", **more)


TRAININGS = (
    ("vgg16-256", "alone", 20, 15), ("vgg16-256-tf32", "alone", 20, 10),
    ("vgg16-512", "alone", 20, 25), ("resnet50-512", "alone", 20, 20),
    ("resnet50-512", "last", 20, 20),
    ("vgg16-256", "save", 3, 15), ("vgg16-256-tf32", "save", 3, 10),
    ("vgg16-256", "spill", 20, 60), ("vgg16-256-tf32", "spill", 20, 60),
    ("vgg16-256", "naive", 2, 15), ("vgg16-256-tf32", "naive", 2, 15),
    ("vgg16-512", "spill", 20, 130), ("resnet50-512", "spill", 20, 180),
)  # fmt: skip
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
SMALL = {"limit": "192MiB", "beside": True}
PARTS = {
    **{f"{text}-{how}": training(text, how, *rest) for text, how, *rest in TRAININGS},
    # oocdnn.torch past its budget.
    "conv3d": Part("conv3d", 40, "large", script="torch_large.py"),
    "unet": Part("unet", 40, "large", script="torch_large.py"),
    "suites": Part("suites", 60, "suites", script="torch_large.py", beside=True),
    # 1,000 steps without growth of pinned memory.
    "many": Part("many,steps=1000", 60, "many", **SMALL),
    # Four forked workers.
    "workers": Part("workers,steps=10", 40, "workers", **SMALL),
    # What cannot be reached runs without a limit, and is named in one line.
    "expandable": Part("train,steps=5", 40, "expandable", variables=EXPANDABLE, **SMALL),
}


def processes_of(names: list[str]) -> list[list[str]]:
    """The parts by process, in the order of the first of each."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(PARTS[name].process, []).append(name)
    return list(found.values())


def batches_of(processes: list[list[str]]) -> list[list[list[str]]]:
    """Processes that run at the same time."""
    batches: list[list[list[str]]] = []
    for names in processes:
        together = batches and PARTS[names[0]].beside and PARTS[batches[-1][0][0]].beside
        batches[-1].append(names) if together else batches.append([names])
    return batches


def command_of(names: list[str], limit: str) -> list[str]:
    """The program; with the drop-in where the parts have a limit."""
    part = PARTS[names[0]]
    program = [sys.executable, str(HERE / part.script)]
    program += [f"{name}={PARTS[name].what}" for name in names]
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


TAKEN = re.compile(r" taken (.*?) tiles=.* ms=([\d.]+) .*planned=([\d.]+) prepared=(\d+)")


def planning_of(log: list[str]) -> Row:
    """What went into plans, and into calls with them: seconds, plans, and of how many problems."""
    found = [match.groups() for match in map(TAKEN.search, log) if match]
    planned = [(text, float(ms)) for text, _, ms, prepared in found if int(prepared) > 0]
    return {
        "calls": len(found),
        "call_seconds": sum(float(ms) for _, ms, _, _ in found) * 1e-3,
        "plans": len(planned),
        "problems": len({text for text, _ in planned}),
        "planning_seconds": sum(ms for _, ms in planned) * 1e-3,
    }


class Process:
    """One that is started before its turn, and has imported what it needs by then."""

    def __init__(self, names: list[str], most: str) -> None:
        part = PARTS[names[0]]
        self.names, self.limit = names, most if part.limit == "-" else part.limit
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name) / "log.txt"
        self.begin(command_of(names, self.limit), environment_of(part, self.limit, self.log))

    def begin(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, cwd=HERE, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def go(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which its status tells

    def rows(self) -> list[Row]:
        """One for each part, "failed" in it where it did not end well."""
        most = START + sum(PARTS[name].seconds for name in self.names)
        answers, why, errors = outcome_of(self.process, most)
        log = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        said = [line for line in errors.splitlines() if line.startswith("oocdnn:")]
        said += [line for line in log if " taken " not in line][:20]
        self.folder.cleanup()
        common = {
            "limit": self.limit, "said": said, "taken": sum(" taken " in line for line in log),
            "planning": planning_of(log),
        }  # fmt: skip
        return [answers.get(name, {"failed": why}) | {"part": name} | common for name in self.names]


def outcome_of(process: subprocess.Popen[str], most: float) -> tuple[Rows, str, str]:
    """The figures of each part that a program gave, why it gave no more, and what it wrote to
    standard error."""
    try:
        out, errors = process.communicate(timeout=most)
        why = f"exit status {process.returncode}: {errors[-2000:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        why = f"no end after {most:.0f} s"
    answers: Rows = {}
    for line in out.splitlines():
        answers |= figures_in(line)
    return answers, why, errors


def figures_in(line: str) -> Rows:
    """None where a program is ready, or was cut off."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def measured(processes: list[Process]) -> list[Row]:
    """The rows of processes that run at the same time."""
    from gpu.card import Card, Watch

    with Watch(Card()) as watch:
        for one in processes:
            one.go()
        rows = [row for one in processes for row in one.rows()]
    # A profiler takes memory of its own.
    return [row | {"card_peak": watch.peak_until(row.get("ended", math.inf))} for row in rows]


def step_seconds(row: Row) -> float:
    """A step's time, once caches hold what it needs: of the latter half; NaN where there is only
    one."""
    seconds = row["seconds"]
    return median(seconds[len(seconds) // 2 :]) if len(seconds) > 1 else math.nan


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


def judge_losses(spilled: Row, alone: Row, last: Row | None) -> list[str]:
    """How close `last` comes says what rounding alone does, and excuses nothing."""
    steps = PARTS[spilled["part"]].steps
    for row in (spilled, alone):
        if not are_losses(row, steps):
            return [f"not {steps} losses that are numbers: {row['part']}'s are {row['losses']}"]
    between, why = apart(spilled, alone), ""
    if last is not None and are_losses(last, steps):
        why = f", and by rounding {apart(last, alone):.2g}"
    print(f"{spilled['part']}: losses are {between:.2g} from alone's{why}")
    return [] if between <= CLOSE else [f"losses are {between:.2g} from alone's{why}"]


def judge_training(name: str, spilled: Row, rows: Rows) -> list[str]:
    """Against the other ways to run the same training, all of which it needs."""
    failures, head = judge_limit(spilled), name.removesuffix("-spill")
    seconds = step_seconds(spilled)
    print(f"{name}: {seconds:.3f} s a step, {spilled['planning']}, {spilled.get('ledger')}")
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
            failures += judge_losses(spilled, other, rows.get(f"{head}-last"))
    return [f"{name}: {failure}" for failure in failures]


def judge_conv3d(row: Row) -> list[str]:
    failures = [f"{row['unlike']} elements are not exact"] if row["unlike"] else []
    if not 0 < row["peak"] <= row["budget"] == 1 << 30:
        failures.append(f"{row['peak']} bytes of {row['budget']}")
    return failures


def judge_unet(row: Row) -> list[str]:
    failures = [] if row["plain_peak"] > row["budget"] else ["plain torch passes no limit"]
    if not 0 < row["peak"] <= row["budget"] == 1 << 30:
        failures.append(f"{row['peak']} bytes of {row['budget']}")
    if not apart(row, {"losses": row["alone"]}) <= CLOSE:
        failures.append(f"losses are {row['losses']}, plain torch's {row['alone']}")
    return failures


def judge_suites(row: Row) -> list[str]:
    return [] if row["status"] == 0 else [row["tail"]]


LARGE = {"conv3d": judge_conv3d, "unet": judge_unet, "suites": judge_suites}


def judge_other(name: str, row: Row) -> list[str]:
    """The parts that are compared with nothing else."""
    if name in LARGE:
        return [f"{name}: {failure}" for failure in LARGE[name](row)]
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
    batches = batches_of(processes_of(options.parts or list(PARTS)))
    following = [Process(names, options.limit) for names in batches[0]]
    for i in range(len(batches)):
        began, now = time.perf_counter(), following
        following = [
            Process(names, options.limit) for batch in batches[i + 1 : i + 2] for names in batch
        ]
        for row in measured(now):
            print(f"== {row['part']}: {json.dumps(row)[:900]}", flush=True)
            journal.add("parts", row)
        print(f"== {time.perf_counter() - began:.0f} s", flush=True)
    failures = judge({row["part"]: row for row in journal.rows("parts")})
    print("\n".join(f"FAILED {failure}" for failure in failures) or "PASSED", flush=True)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
