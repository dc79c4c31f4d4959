"""What a budget costs on the CPU device, next to plain oneDNN.

    python -m oocdnn.bench.cpu --out result.json

Each layer in each direction is computed three ways in turn, several times: by one oneDNN primitive
with its reorders (`oocdnn.bench.onednn_primitive`), by oocdnn whole (a budget that fits one tile),
and by oocdnn tiled (a budget of an eighth of the data). The ways alternate, so that whatever else
the machine does meets all of them; a ratio is the median of the ratios within one round. The data
are small integers, for which all three must agree to the last bit. For scale, the machine's rate
of float32 matrix products is measured between layers.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, Literal

import click
import numpy as np

import oocdnn
from oocdnn.bench import onednn_primitive
from oocdnn.bench.layers import DIRECTIONS, LAYERS, ROLES, Array, Direction, Layer, operands
from oocdnn.bench.onednn_primitive import OneDnnConvolution, OneDnnMissing

Way = Literal["primitive", "whole", "tiled"]

WAYS: tuple[Way, ...] = ("primitive", "whole", "tiled")
TILED_SHARE = 8  # the tiled budget is the data divided by this
SGEMM_SIZE = 4096


def convolve(
    context: oocdnn.Context,
    case: Layer,
    direction: Direction,
    inputs: tuple[Array, Array],
    out: Array,
) -> None:
    """One call of oocdnn; the inputs are in the order of `ROLES`."""
    keywords: dict[str, Any] = {
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
        "out": out,
    }
    if direction == "fwd":
        forward = {1: context.conv1d, 2: context.conv2d, 3: context.conv3d}[case.rank]
        forward(*inputs, **keywords)
    elif direction == "bwd_data":
        context.conv_backward_data(*inputs, case.shape("x"), **keywords)
    else:
        context.conv_backward_filter(*inputs, case.shape("w"), **keywords)


def budget_of(case: Layer, way: Way) -> int:
    """Bytes that oocdnn may book: ample for one tile, or an eighth of the data."""
    if way == "whole":
        return 4 * case.data_bytes + (64 << 20)
    return case.data_bytes // TILED_SHARE


@dataclass
class Measured:
    """One layer in one direction. Times are in seconds, one per round."""

    layer: str
    direction: Direction
    problem: str
    flops: int
    data_bytes: int
    implementation: str  # oneDNN's, of the primitive
    reordered: list[str]  # operands that the primitive wants in another layout
    seconds: dict[Way, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})
    difference: dict[Way, float] = field(default_factory=dict)  # to the primitive's result
    stats: dict[Way, dict[str, Any]] = field(default_factory=dict)  # of the last call
    plan: dict[Way, str] = field(default_factory=dict)

    def rate(self, way: Way) -> float:
        """Floating-point operations per second of the best call."""
        return self.flops / min(self.seconds[way])

    def ratio(self, way: Way) -> float:
        """Time of `way` over that of the primitive: the median of the rounds."""
        pairs = zip(self.seconds[way], self.seconds["primitive"], strict=True)
        return median(ours / plain for ours, plain in pairs)

    @property
    def exact(self) -> bool:
        return all(difference == 0 for difference in self.difference.values())


def seconds_of(call: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


class Contest:
    """One layer in one direction, ready to be computed in every way."""

    def __init__(self, case: Layer, direction: Direction) -> None:
        self._case, self._direction = case, direction
        self._inputs = operands(case, direction)
        self._primitive = OneDnnConvolution(case, direction)
        shape = case.shape(ROLES[direction][2])
        self._expected, self._out = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._contexts = {
            way: oocdnn.Context(device="cpu", budget=budget_of(case, way)) for way in WAYS[1:]
        }
        self.measured = Measured(
            layer=case.name,
            direction=direction,
            problem=case.problem(direction),
            flops=case.flops,
            data_bytes=case.data_bytes,
            implementation=self._primitive.implementation,
            reordered=list(self._primitive.reordered),
        )

    def __enter__(self) -> "Contest":
        return self

    def __exit__(self, *_: object) -> None:
        for context in self._contexts.values():
            context.close()

    def call(self, way: Way) -> None:
        if way == "primitive":
            self._primitive.run(*self._inputs, self._expected)
        else:
            context = self._contexts[way]
            convolve(context, self._case, self._direction, self._inputs, self._out)

    def compare(self) -> None:
        """Calls each way once and compares the results; also warms everything up."""
        self.call("primitive")
        for way in self._contexts:
            self._out.fill(np.nan)
            self.call(way)
            difference = float(np.abs(self._out - self._expected).max())
            self.measured.difference[way] = difference

    def round(self, number: int) -> None:
        """One timed call in every way, beginning with another one each time."""
        turn = number % len(WAYS)
        for way in (*WAYS[turn:], *WAYS[:turn]):
            self.measured.seconds[way].append(seconds_of(self.call, way))

    def explain(self) -> None:
        """Keeps what the contexts say about their last call and its plan."""
        for way, context in self._contexts.items():
            self.measured.stats[way] = asdict(context.stats)
            self.measured.plan[way] = context.plan(self.measured.problem).explain()


def measure(case: Layer, direction: Direction, rounds: int) -> Measured:
    """Computes a layer in every way, `rounds` times in turn."""
    with Contest(case, direction) as contest:
        contest.compare()
        for number in range(rounds):
            contest.round(number)
        contest.explain()
        return contest.measured


class Sgemm:
    """The machine's rate of float32 matrix products, by NumPy and by oneDNN: the best of all."""

    def __init__(self, size: int = SGEMM_SIZE) -> None:
        ones = np.ones((size, size), np.float32)
        self._matrices = (ones, ones.copy(), ones.copy())
        self.rates: dict[str, float] = {"numpy": 0.0, "onednn": 0.0}  # operations per second

    def measure(self) -> None:
        operations = 2 * len(self._matrices[0]) ** 3
        for name, call in (("numpy", np.matmul), ("onednn", onednn_primitive.sgemm)):
            rate = operations / seconds_of(call, *self._matrices)
            self.rates[name] = max(self.rates[name], rate)

    @property
    def best(self) -> float:
        return max(self.rates.values())


HEADER = (
    f"{'layer':<24} {'direction':<10} {'primitive':>9} {'whole':>7} {'tiled':>7} GFLOP/s  "
    f"{'whole/pr':>8} {'tiled/pr':>8} {'whole/sgemm':>11} {'tiles':>6}  result"
)


def line(one: Measured, sgemm: float) -> str:
    """A row of the table: best rates, median ratios."""
    rates = {way: one.rate(way) / 1e9 for way in WAYS}
    return (
        f"{one.layer:<24} {one.direction:<10} {rates['primitive']:9.1f} {rates['whole']:7.1f} "
        f"{rates['tiled']:7.1f} {'':9}{one.ratio('whole'):8.3f} {one.ratio('tiled'):8.3f} "
        f"{one.rate('whole') / sgemm:11.2f} {one.stats['tiled']['tiles']:6d}  "
        f"{'exact' if one.exact else 'DIFFERS'}"
    )


def summary(measured: Sequence[Measured], sgemm: float) -> dict[str, float]:
    """Medians and worst over all rows; a ratio is worst where it is greatest, a rate least."""
    whole = [one.ratio("whole") for one in measured]
    tiled = [one.ratio("tiled") for one in measured]
    share = [one.rate("whole") / sgemm for one in measured]
    return {
        "whole/primitive median": median(whole),
        "whole/primitive worst": max(whole),
        "tiled/primitive median": median(tiled),
        "tiled/primitive worst": max(tiled),
        "whole/sgemm median": median(share),
        "whole/sgemm worst": min(share),
        "greatest difference": max(max(one.difference.values()) for one in measured),
    }


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


def provenance(rounds: int) -> dict[str, Any]:
    """Where, when and how: what a reader needs to repeat the measurement."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "command": " ".join(("python", "-m", "oocdnn.bench.cpu", *sys.argv[1:])),
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
            "onednn": onednn_primitive.version(),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "rounds": rounds,
    }


def chosen(only: Sequence[str]) -> Iterator[tuple[Layer, Direction]]:
    """The rows whose problem or name contains one of the texts; all of them without any."""
    for case in LAYERS:
        for direction in DIRECTIONS:
            label = f"{case.name} {case.problem(direction)}"
            if not only or any(text in label for text in only):
                yield case, direction


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(min=1))
@click.option("--only", multiple=True, help="Layers or problems that contain this; repeatable.")
def main(out: Path | None, rounds: int, only: tuple[str, ...]) -> None:
    try:
        about = provenance(rounds)
    except OneDnnMissing as error:
        raise click.ClickException(f"there is no oneDNN to compare with: {error}") from error
    sgemm, measured = Sgemm(), list[Measured]()
    sgemm.measure()
    click.echo(HEADER)
    for case, direction in chosen(only):
        sgemm.measure()
        measured.append(measure(case, direction, rounds))
        click.echo(line(measured[-1], sgemm.best))
    if not measured:
        raise click.UsageError(f"no layer contains {' or '.join(only)}")
    totals = summary(measured, sgemm.best)
    for name, rate in sgemm.rates.items():
        click.echo(f"sgemm {name}: {rate / 1e9:.1f} GFLOP/s")
    for name, value in totals.items():
        click.echo(f"{name}: {value:.3f}")
    if out is not None:
        rows = [asdict(one) for one in measured]
        document = {**about, "sgemm": sgemm.rates, "summary": totals, "rows": rows}
        out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not all(one.exact for one in measured):
        raise click.ClickException("results differ")


if __name__ == "__main__":
    main()
