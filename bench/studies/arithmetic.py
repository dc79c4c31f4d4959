"""The error and the speed of each arithmetic of float32.

    oocdnn bench study arithmetic --out result.json

Each layer is computed of random numbers, signed and positive, and compared with the same in
float64. An error is of the sum of the magnitudes of the products that an element adds up; of
positive numbers it is relative, and a bias shows there. The rate is that of the device's busy time,
wherever the wires are; of the best call.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, cast, get_args

import click
import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._calls.operation import MathName
from oocdnn.bench.journal import Row
from oocdnn.bench.layers import DIRECTIONS, ROLES, Direction, Layer, layer
from oocdnn.bench.studies.study import Run, budget, contains, device, maths, only, study
from oocdnn.context import Context

LAYERS = (
    layer("64 channels", (16, 64, 112, 112), 64, 3, padding=1),
    layer("128 channels", (16, 128, 112, 112), 128, 3, padding=1),
    layer("256 channels", (16, 256, 56, 56), 256, 3, padding=1),
    layer("512 channels", (64, 512, 28, 28), 512, 3, padding=1),
    layer("2048 channels", (8, 2048, 32, 32), 512, 3, padding=1),
    layer("1x1, 1024 channels", (64, 1024, 28, 28), 256, 1),
    layer("5x5, 32 channels", (16, 32, 112, 112), 64, 5, padding=2),
)
MATHS = get_args(MathName)
SIGNS = ("signed", "positive")

Case = tuple[Layer, Direction, str]
Array = npt.NDArray[Any]


def numbers(shape: tuple[int, ...], sign: str, seed: int) -> npt.NDArray[np.float32]:
    """Uniform, in memory that copies reach at full speed."""
    out = oocdnn.empty(shape, "f4")
    drawn = np.random.default_rng(seed).random(shape, np.float32)
    out[...] = drawn if sign == "positive" else 2 * drawn - 1
    return out


class Computing:
    """One layer in one direction."""

    def __init__(self, context: Context, one: Layer, direction: Direction) -> None:
        self._context, self._layer, self._direction = context, one, direction

    def __call__(self, first: Array, second: Array, math: MathName = "fp32") -> Any:
        context, one = self._context, self._layer
        keywords: dict[str, Any] = {"padding": one.padding, "math": math}
        if self._direction == "fwd":
            return context.conv2d(first, second, **keywords)
        if self._direction == "bwd_data":
            return context.conv_backward_data(first, second, one.shape("x"), **keywords)
        return context.conv_backward_filter(first, second, one.shape("w"), **keywords)


def measure(context: Context, one: Layer, direction: Direction, sign: str, kinds: Sequence[str],
            repeats: int) -> Iterator[Row]:  # fmt: skip
    """A row for each arithmetic."""
    computing = Computing(context, one, direction)
    inputs = [numbers(one.shape(o), sign, i) for i, o in enumerate(ROLES[direction][:2])]
    first, second = (array.astype(np.float64) for array in inputs)
    exact, magnitudes = computing(first, second), computing(np.abs(first), np.abs(second))
    for kind in kinds:
        seconds = []
        for _ in range(repeats + 1):
            out = computing(inputs[0], inputs[1], cast(MathName, kind))
            seconds.append(context.stats.compute_seconds)
        error = (out - exact) / magnitudes
        best = min(seconds[1:])
        yield {
            "layer": one.name,
            "problem": one.problem(direction),
            "direction": direction,
            "sign": sign,
            "math": kind,
            "engine": context.stats.engine,
            "max_error": float(np.abs(error).max()),
            "rms_error": float(np.sqrt(np.mean(error**2))),
            "mean_error": float(error.mean()),
            "compute_seconds": best,
            "flops_per_second": one.flops / best,
        }


def line(row: Row) -> str:
    case = f"{row['layer']}, {row['direction']}, {row['sign']}, {row['math']}"
    errors = f"max {row['max_error']:.1e} rms {row['rms_error']:.1e} mean {row['mean_error']:+.1e}"
    return f"{case:<52} {errors}, {row['flops_per_second'] / 1e12:5.1f} TFLOP/s, {row['engine']}"


def left(run: Run, only: Sequence[str]) -> Iterator[Case]:
    done = {(row["layer"], row["direction"], row["sign"]) for row in run.rows()}
    cases = ((one, direction, sign) for one in LAYERS for direction in DIRECTIONS for sign in SIGNS)
    wanted = (case for case in cases if contains(f"{case[0].name} {case[1]} {case[2]}", only))
    return run.left(wanted, lambda case: (case[0].name, case[1], case[2]), done)


@study("arithmetic", device, budget("8GiB"), only, maths(MATHS), repeats=3)
def command(
    run: Run, device: str, budget: str, only: Sequence[str], maths: Sequence[str], repeats: int
) -> None:
    if os.environ.get("OOCDNN_MATH"):
        raise click.ClickException("OOCDNN_MATH is set, and fp32 would be what it says: unset it")
    with oocdnn.Context(device, budget) as context:
        for one, direction, sign in left(run, only):
            with run.reported(f"{one.name} {direction} {sign}"):
                for row in measure(context, one, direction, sign, maths or MATHS, repeats):
                    run.keep(row, line(row))
