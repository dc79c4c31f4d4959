"""The command of a benchmark on a GPU that measures one kind of arithmetic after the other, each a
row of its JSON file."""

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import click
import torch

import oocdnn
from oocdnn.bench.gpu_floor import provenance_on_gpu
from oocdnn.bench.gpu_wires import Gauge
from oocdnn.bench.journal import Journal


class Result(Protocol):
    """What is measured of a kind; its row has "math" and "images"."""

    def row(self) -> dict[str, Any]: ...

    def lines(self) -> list[str]: ...


# Of a context, a gauge, the kind, images and repeats.
Run = Callable[[oocdnn.Context, Gauge, str, int, int], Result]


def kinds_command(
    module: str, text: str, run: Run, budget: str, kinds: Sequence[str], default: Sequence[str]
) -> click.Command:
    """The command of the module with that docstring; `default`: the kinds where none is named."""

    @click.command(help=text.partition("\n")[0])
    @click.option("--device", default="cuda:0", show_default=True)
    @click.option("--budget", default=budget, show_default=True)
    @click.option("--images", default=256, show_default=True, type=click.IntRange(min=1))
    @click.option("--repeats", default=5, show_default=True, type=click.IntRange(min=1))
    @click.option("--math", "maths", multiple=True, type=click.Choice(kinds))
    @click.option("--seconds", default=math.inf, help="Begin no kind of arithmetic after so many.")
    @click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON.")
    @click.option("--resume", is_flag=True, help="Go on with what --out holds already.")
    def main(
        device: str, budget: str, images: int, repeats: int, maths: tuple[str, ...],
        seconds: float, out: Path | None, resume: bool,
    ) -> None:  # fmt: skip
        ctypes.CDLL("libcuda.so.1")  # an error of its own where there is no driver
        start = time.perf_counter()
        journal = Journal(out, provenance_on_gpu(module, repeats, device, None), resume)
        done = {(row["math"], row["images"]) for row in journal.rows("rows")}
        ordinal = torch.device(device).index or 0
        with Gauge(ordinal) as gauge, oocdnn.Context(device, budget) as context:
            for kind in maths or default:
                if (kind, images) in done or time.perf_counter() - start > seconds:
                    continue
                one = run(context, gauge, kind, images, repeats)
                journal.add("rows", one.row())
                click.echo("\n".join(one.lines()))

    return main
