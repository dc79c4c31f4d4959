"""What a budget costs on the CPU device, next to plain oneDNN.

    oocdnn bench study cpu --out result.json

Each layer in each direction is computed three ways in turn, several times: by one oneDNN primitive
with its reorders (the faster of its kinds, see `oocdnn.bench.onednn_primitive`), by oocdnn whole (a
budget that fits one tile), and by oocdnn tiled (a budget of an eighth of the data). The ways
alternate, so that whatever else the machine does meets all of them; a ratio is the median of the
ratios within one round. A round in which other programs took much of the processor is repeated, up
to a limit. The data are small integers, for which all three must agree to the last bit. For scale,
the machine's rate of float32 matrix products is measured between layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

import click
import numpy as np

import oocdnn
from oocdnn.bench import onednn_primitive
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import DIRECTIONS, LAYERS, ROLES, Direction, Layer, operands
from oocdnn.bench.measure import Call, timed
from oocdnn.bench.onednn_primitive import OneDnnMissing
from oocdnn.bench.sgemm import Sgemm
from oocdnn.bench.studies.study import Run, contains, only, study

Way = Literal["primitive", "whole", "tiled"]

WAYS: tuple[Way, ...] = ("primitive", "whole", "tiled")
TILED_SHARE = 8  # the tiled budget is the data divided by this
TRIES = 3  # rounds in all, as a multiple of those that should count


def budget_of(case: Layer, way: Way) -> int:
    """Bytes that oocdnn may book: ample for one tile, or an eighth of the data."""
    if way == "whole":
        return 4 * case.data_bytes + (64 << 20)
    return case.data_bytes // TILED_SHARE


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
            if contains(label, only):
                yield case, direction


def row_of(fields: Mapping[str, Any]) -> Measured:
    """From a journal."""
    rounds = [{way: Call(**call) for way, call in one.items()} for one in fields["rounds"]]
    return Measured(**{**fields, "rounds": rounds})


def versions() -> dict[str, str]:
    try:
        return {"onednn": onednn_primitive.version()}
    except OneDnnMissing as error:
        raise click.ClickException(f"there is no oneDNN to compare with: {error}") from error


@study("cpu", only, repeats=7, versions=versions)
def command(run: Run, only: Sequence[str], repeats: int) -> None:
    """`repeats`: rounds that should count."""
    sgemm, measured = Sgemm(), [row_of(row) for row in run.rows()]
    done = {(one.layer, one.direction) for one in measured}
    sgemm.measure()
    run.say(HEADER)
    for case, direction in run.left(chosen(only), lambda one: (one[0].name, one[1]), done):
        sgemm.measure()
        measured.append(measure(case, direction, repeats))
        run.keep(asdict(measured[-1]), line(measured[-1], sgemm.best))
    if not measured:
        raise click.UsageError(
            f"nothing was measured: no layer contains {' or '.join(only)}, or no time is left"
        )
    totals = summary(measured, sgemm.best)
    run.note("sgemm", sgemm.rates)
    run.note("summary", totals)
    run.say(*(f"sgemm {name}: {rate / 1e9:.1f} GFLOP/s" for name, rate in sgemm.rates.items()))
    run.say(*(f"{name}: {value:.3f}" for name, value in totals.items()))
    if not all(one.exact for one in measured):
        raise click.ClickException("results differ")
