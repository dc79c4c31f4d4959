"""oocdnn trace: run a problem on random data and keep its timeline."""

from pathlib import Path

import click

from oocdnn._shown import bytes_text
from oocdnn.cli.common import (
    budget_option,
    device_option,
    plain_errors,
    progress_bar,
    seconds_text,
)
from oocdnn.cli.problems import parse, random_call
from oocdnn.context import Context


@click.command()
@click.argument("problem")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("trace.json"),
    show_default=True,
    help="Where the timeline goes.",
)
@budget_option
@device_option
@plain_errors
def trace(problem: str, out: Path, budget: str | None, device: str | None) -> None:
    """Run a PROBLEM on random data and write its timeline as Chrome trace JSON.

    Open the file in https://ui.perfetto.dev. The second of two runs is recorded, so that what is
    done only once does not show.
    """
    with Context(device, budget, trace=True) as context:
        context.plan(problem)  # the core's words for what is wrong with the string
        call = random_call(parse(problem), context)
        call()
        context.take_trace()
        with progress_bar("running") as progress:
            call(progress=progress)
        out.write_text(context.take_trace(), encoding="utf-8")
        stats = context.stats
    click.echo(
        f"{out}: {stats.tiles} tiles in {seconds_text(stats.seconds)} on {stats.engine}, "
        f"peak {bytes_text(stats.peak_device_bytes)} of {bytes_text(stats.budget_bytes)}, "
        f"overlap {stats.overlap:.2f}"
    )
