"""What a budget costs on the CPU device, next to plain oneDNN.

    python -m oocdnn.bench.cpu --out result.json

Each layer in each direction is computed three ways in turn, several times: by one oneDNN primitive
with its reorders (the faster of its kinds, see `oocdnn.bench.onednn_primitive`), by oocdnn whole (a
budget that fits one tile), and by oocdnn tiled (a budget of an eighth of the data). The ways
alternate, so that whatever else the machine does meets all of them; a ratio is the median of the
ratios within one round. A round in which other programs took much of the processor is repeated, up
to a limit. The data are small integers, for which all three must agree to the last bit. For scale,
the machine's rate of float32 matrix products is measured between layers.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import click
import numpy as np

import oocdnn
from oocdnn.bench import onednn_primitive
from oocdnn.bench.layers import DIRECTIONS, LAYERS, ROLES, Direction, Layer, operands
from oocdnn.bench.onednn_primitive import OneDnnMissing
from oocdnn.bench.provenance import provenance

Way = Literal["primitive", "whole", "tiled"]

WAYS: tuple[Way, ...] = ("primitive", "whole", "tiled")
TILED_SHARE = 8  # the tiled budget is the data divided by this
SGEMM_SIZE = 4096
DISTURBED = 0.08  # share of the cores that others may take in a round that counts
TRIES = 3  # rounds in all, as a multiple of those that should count


def call_of(
    context: oocdnn.Context,
    case: Layer,
    direction: Direction,
    inputs: Sequence[Any],
    out: Any,
    **more: Any,
) -> Callable[[], object]:
    """One call of oocdnn, to be timed; the inputs are in the order of `ROLES`."""
    keywords: dict[str, Any] = {
        **more,
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
        "out": out,
    }
    first, second = inputs
    if direction == "fwd":
        forward = {1: context.conv1d, 2: context.conv2d, 3: context.conv3d}[case.rank]
        return partial(forward, first, second, **keywords)
    if direction == "bwd_data":
        return partial(context.conv_backward_data, first, second, case.shape("x"), **keywords)
    return partial(context.conv_backward_filter, first, second, case.shape("w"), **keywords)


def budget_of(case: Layer, way: Way) -> int:
    """Bytes that oocdnn may book: ample for one tile, or an eighth of the data."""
    if way == "whole":
        return 4 * case.data_bytes + (64 << 20)
    return case.data_bytes // TILED_SHARE


@dataclass(frozen=True)
class Call:
    """The time of one call, and how much of the machine's cores other programs had meanwhile."""

    seconds: float
    processor_seconds: float  # of all threads of this process
    others: float  # 0 to 1

    @property
    def quiet(self) -> bool:
        return self.others <= DISTURBED


def machine_busy_seconds() -> float:
    """Processor time that all programs of the machine have used, in all; 0 where unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(text) for text in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = fields
    return (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")


def timed(call: Callable[..., object], *arguments: object) -> Call:
    """Runs `call` and says how long it took."""
    busy, own, start = machine_busy_seconds(), time.process_time(), time.perf_counter()
    call(*arguments)
    seconds, own = time.perf_counter() - start, time.process_time() - own
    foreign = machine_busy_seconds() - busy - own
    share = foreign / (seconds * (os.cpu_count() or 1))
    return Call(seconds, own, min(max(share, 0.0), 1.0))


Round = dict[Way, Call]


@dataclass
class Measured:
    """One layer in one direction."""

    layer: str
    direction: Direction
    problem: str
    flops: int
    data_bytes: int
    implementation: str  # oneDNN's, of the primitive
    reordered: list[str]  # operands that the primitive wants in another layout
    rounds: list[Round] = field(default_factory=list)
    difference: dict[Way, float] = field(default_factory=dict)  # to the primitive's result
    stats: dict[Way, dict[str, Any]] = field(default_factory=dict)  # of the last call
    plan: dict[Way, str] = field(default_factory=dict)

    @property
    def quiet_rounds(self) -> list[Round]:
        return [one for one in self.rounds if all(call.quiet for call in one.values())]

    @property
    def counted(self) -> list[Round]:
        """The rounds that count: the quiet ones, all of them where there is none."""
        return self.quiet_rounds or self.rounds

    def rate(self, way: Way) -> float:
        """Floating-point operations per second of the best call."""
        return self.flops / min(one[way].seconds for one in self.counted)

    def ratio(self, way: Way) -> float:
        """Time of `way` over that of the primitive: the median of the rounds."""
        return median(one[way].seconds / one["primitive"].seconds for one in self.counted)

    @property
    def exact(self) -> bool:
        return all(difference == 0 for difference in self.difference.values())


class Contest:
    """One layer in one direction, ready to be computed in every way."""

    def __init__(self, case: Layer, direction: Direction) -> None:
        self._case, self._direction = case, direction
        self._inputs = operands(case, direction)
        shape = case.shape(ROLES[direction][2])
        self._expected, self._out = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self._primitive = onednn_primitive.fastest(case, direction, *self._inputs, self._expected)
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
            call_of(context, self._case, self._direction, self._inputs, self._out)()

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
        turn, calls = number % len(WAYS), Round()
        for way in (*WAYS[turn:], *WAYS[:turn]):
            calls[way] = timed(self.call, way)
        self.measured.rounds.append(calls)

    def explain(self) -> None:
        """Keeps what the contexts say about their last call and its plan."""
        for way, context in self._contexts.items():
            self.measured.stats[way] = asdict(context.stats)
            self.measured.plan[way] = context.plan(self.measured.problem).explain()


def measure(case: Layer, direction: Direction, rounds: int) -> Measured:
    """Computes a layer in every way in turn, until `rounds` rounds were quiet."""
    with Contest(case, direction) as contest:
        contest.compare()
        for number in range(TRIES * rounds):
            contest.round(number)
            if len(contest.measured.quiet_rounds) == rounds:
                break
        contest.explain()
        return contest.measured


class Sgemm:
    """The machine's rate of float32 matrix products, by NumPy and, where that is wanted, by oneDNN:
    the best of all."""

    def __init__(self, size: int = SGEMM_SIZE, onednn: bool = True) -> None:
        ones = np.ones((size, size), np.float32)
        self._matrices = (ones, ones.copy(), ones.copy())
        self._calls: dict[str, Callable[..., object]] = {"numpy": np.matmul}
        if onednn:
            self._calls["onednn"] = onednn_primitive.sgemm
        self.rates = dict.fromkeys(self._calls, 0.0)  # operations per second

    def measure(self) -> None:
        operations = 2 * len(self._matrices[0]) ** 3
        for name, call in self._calls.items():
            rate = operations / timed(call, *self._matrices).seconds
            self.rates[name] = max(self.rates[name], rate)

    @property
    def best(self) -> float:
        return max(self.rates.values())


HEADER = (
    f"{'layer':<24} {'direction':<10} {'primitive':>9} {'whole':>7} {'tiled':>7} GFLOP/s  "
    f"{'whole/pr':>8} {'tiled/pr':>8} {'whole/sgemm':>11} {'tiles':>6} {'rounds':>6}  result"
)


def line(one: Measured, sgemm: float) -> str:
    """A row of the table: best rates, median ratios."""
    rates = {way: one.rate(way) / 1e9 for way in WAYS}
    return (
        f"{one.layer:<24} {one.direction:<10} {rates['primitive']:9.1f} {rates['whole']:7.1f} "
        f"{rates['tiled']:7.1f} {'':9}{one.ratio('whole'):8.3f} {one.ratio('tiled'):8.3f} "
        f"{one.rate('whole') / sgemm:11.2f} {one.stats['tiled']['tiles']:6d} "
        f"{len(one.quiet_rounds):6d}  "
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
        about = provenance("oocdnn.bench.cpu", rounds, onednn=onednn_primitive.version())
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
