"""The rates of passes over tiles that calibration found, beside what the GPU's memory copies.

    oocdnn bench study passes --out result.json

A pass is what finishes sums (without a pool, and with a 2x2 maximum whose winners are saved), what
restores dy from those, and what normalises x, of tiles of each engine with z in either memory
order. Rates are bytes read and written per second, and those of a copy of as large a block inside
the GPU are measured here. What the machine's profile lacks is measured first, which takes minutes;
another profile is taken as it is.
"""

from pathlib import Path

import click

import oocdnn
from oocdnn.bench.gpu.clock import Stopwatch
from oocdnn.bench.gpu.memory import DeviceArray, Gpu, ordinal_of
from oocdnn.bench.journal import Row
from oocdnn.bench.studies.study import Run, device, study
from oocdnn.perfmodel.profile import Profile, parse

PASSES = ("finish", "pool", "restore", "normalize")
COPIED = 256 << 20  # bytes: no cache of a GPU hides them


def copy_rate(ordinal: int, repeats: int) -> float:
    """Bytes read and written per second by the best of a few copies inside the GPU."""
    gpu = Gpu(ordinal)
    source, target = (DeviceArray(gpu, (COPIED,), "u1") for _ in range(2))
    source.spoil()
    watch = Stopwatch(gpu, ballast=COPIED)
    (seconds,) = watch.turns([lambda: target.take(source)], repeats)
    watch.close()
    return 2 * COPIED / min(seconds)


def rows_of(profile: Profile, copy: float) -> list[Row]:
    """A row for each pass that the profile has a rate of."""
    return [
        {
            "engine": engine,
            "order": order,
            "pass": name,
            "bytes_per_second": rate,
            "share": rate / copy,
            "evidence": profile.mark(f"wire {wire}"),
        }
        for wire, rate in sorted(profile.wires.items())
        for engine, order, name in [f"{wire}//".split("/")[:3]]
        if name in PASSES
    ]


def line(row: Row) -> str:
    tiles = f"{row['engine']} tiles, {row['order']} {row['pass']}"
    rate = f"{row['bytes_per_second'] / 1e12:6.2f} TB/s {row['share']:5.0%}"
    return f"{tiles:<36} {rate}, {row['evidence']}"


which = click.option(
    "--profile", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Another file than the machine's.",
)  # fmt: skip


@study("passes", device, which, repeats=20, on="gpu")
def command(run: Run, device: str, profile: Path | None, repeats: int) -> None:
    if profile is None:
        with oocdnn.Context(device) as context:
            profile = context.calibrate()
    copy = copy_rate(ordinal_of(device), repeats)
    run.note("copy_bytes_per_second", copy)
    run.say(f"a copy inside the device: {copy / 1e12:.2f} TB/s read and written")
    done = {(row["engine"], row["order"], row["pass"]) for row in run.rows()}
    rows = rows_of(parse(profile.read_text(encoding="utf-8")), copy)
    for row in run.left(rows, lambda row: (row["engine"], row["order"], row["pass"]), done):
        run.keep(row, line(row))
