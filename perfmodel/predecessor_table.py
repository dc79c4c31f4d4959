"""What ooc_cuDNN's greedy search costs: its plans, the best of its own space, and ours, under our
model. No device is used but the CPU's, and that only to say which tiles it would take.

Its tiles are priced as our tile loop would run them, in its loop order and three slots of each
operand: boxes that the next step needs stay, and halo rows are moved on the device, which it does
neither. So the table shows what the choice of tiles alone costs.
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from oocdnn.bench.layers import Layer, layer
from oocdnn.cli.common import console, json_option, plain_errors, seconds_text
from oocdnn.context import Context
from oocdnn.perfmodel.predecessor import Model, Steps, greedy, machine_of, optimum
from oocdnn.perfmodel.profile import Profile

_ORDER, _SLOTS = ("n", "k", "h", "c"), 3  # of ooc_cuDNN's loops; input channels innermost

MACHINES = {
    "P100": Profile(
        machine="P100, PCIe 3",
        measured=True,
        fetch_bytes_per_second=12e9,
        drain_bytes_per_second=12e9,
        both_bytes_per_second=24e9,
        move_bytes_per_second=500e9,
        copy_seconds=10e-6,
        run_seconds=10e-6,
        flops_fallback=9e12,
    ),
    "TF32": Profile(
        machine="TF32, PCIe 5",
        measured=True,
        fetch_bytes_per_second=55e9,
        drain_bytes_per_second=55e9,
        both_bytes_per_second=100e9,
        move_bytes_per_second=2e12,
        copy_seconds=5e-6,
        run_seconds=10e-6,
        flops_fallback=400e12,
    ),
}


@dataclass(frozen=True)
class Case:
    """A layer on one of `MACHINES` with so many bytes of free device memory."""

    layer: Layer
    machine: str
    free_bytes: int

    @property
    def model(self) -> Model:
        return Model(self.layer, machine_of(MACHINES[self.machine], self.free_bytes))


@dataclass(frozen=True)
class Comparison:
    """Seconds of three plans: of the greedy search, the best of its space, and ours. `own_` ones
    are by ooc_cuDNN's model, the others by ours."""

    case: str
    machine: str
    free_bytes: int
    greedy: Steps
    optimum: Steps
    own_greedy_seconds: float
    own_optimum_seconds: float
    greedy_seconds: float
    optimum_seconds: float
    our_seconds: float
    our_plan: str


_VGG = (
    ("1_1", 3, 64, 224),
    ("1_2", 64, 64, 224),
    ("2_1", 64, 128, 112),
    ("2_2", 128, 128, 112),
    ("3_1", 128, 256, 56),
    ("3_2", 256, 256, 56),
    ("4_1", 256, 512, 28),
    ("4_2", 512, 512, 28),
    ("5_1", 512, 512, 14),
)


def _square(name: str, n: int, c: int, k: int, size: int) -> Layer:
    return layer(name, (n, c, size, size), k, 3, padding=1)


def cases() -> Iterator[Case]:
    """VGG16's layers by batch; its paper's micro-benchmark; a filter larger than the memory."""
    for batch in (64, 256, 1024):
        for name, c, k, size in _VGG:
            yield Case(
                _square(f"VGG16 conv{name}, batch {batch}", batch, c, k, size), "P100", 16 * 10**9
            )
    yield Case(_square("2048 to 2048 at 1024", 1, 2048, 2048, 1024), "TF32", 1600 * 10**6)
    for machine in MACHINES:
        yield Case(_square("8192 to 8192 at 64", 4, 8192, 8192, 64), machine, 1600 * 10**6)


def plan_text(of: Layer, steps: Steps) -> str:
    """The pieces as a plan of ours."""
    whole = {"n": of.n, "k": of.k, "c": of.c, "h": of.outputs[0]}
    pieces = dataclasses.asdict(steps)
    lengths = [f"{axis}{-(-whole[axis] // pieces[axis])}" for axis in whole]
    return f"{' '.join(lengths)} order {''.join(_ORDER)} slots {_SLOTS}"


def compare(case: Case) -> Comparison:
    """The three plans of a case."""
    model = case.model
    chosen, best = greedy(model), optimum(model)
    problem = case.layer.problem("fwd")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.txt"
        profile.write_text(MACHINES[case.machine].text(), encoding="utf-8")
        with Context("cpu", case.free_bytes, engine="direct", profile=profile) as context:
            ours = context.plan(problem)
            priced = [
                context.price(problem, plan_text(case.layer, steps)) for steps in (chosen, best)
            ]
    return Comparison(
        case=case.layer.name,
        machine=case.machine,
        free_bytes=case.free_bytes,
        greedy=chosen,
        optimum=best,
        own_greedy_seconds=model.of(chosen),
        own_optimum_seconds=model.of(best),
        greedy_seconds=priced[0].predicted_seconds,
        optimum_seconds=priced[1].predicted_seconds,
        our_seconds=ours.predicted_seconds,
        our_plan=", ".join(f"{axis} {count}" for axis, count in ours.splits.items() if count > 1),
    )


@click.command()
@json_option
@plain_errors
def predecessor(as_json: bool) -> None:
    """Compare ooc_cuDNN's plans, the best of its space, and ours, by predicted time."""
    rows = [compare(case) for case in cases()]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        console().print(table(rows))


def table(rows: list[Comparison]) -> Table:
    """The comparisons for people: seconds, and pieces of n, h, c and k."""
    result = Table(title="predicted seconds of a forward convolution", title_justify="left")
    result.add_column("layer")
    result.add_column("machine")
    for name in ("greedy, own model", "optimum, own model", "greedy", "optimum", "ours"):
        result.add_column(name, justify="right")
    for name in ("greedy's pieces", "our pieces"):
        result.add_column(name)
    for row in rows:
        seconds = (
            row.own_greedy_seconds,
            row.own_optimum_seconds,
            row.greedy_seconds,
            row.optimum_seconds,
            row.our_seconds,
        )
        pieces = ", ".join(
            f"{axis} {count}" for axis, count in dataclasses.asdict(row.greedy).items() if count > 1
        )
        result.add_row(row.case, row.machine, *map(seconds_text, seconds), pieces, row.our_plan)
    return result
