"""oocdnn plan: what would be done with a problem, and why."""

import dataclasses
import json

import click
from rich.table import Table

from oocdnn.cli.common import (
    budget_option,
    bytes_text,
    console,
    device_option,
    json_option,
    plain_errors,
    problem_text,
    seconds_text,
)
from oocdnn.context import Context, Plan


@click.command()
@click.argument("problem", nargs=-1, required=True)
@budget_option
@device_option
@json_option
@plain_errors
def plan(problem: tuple[str, ...], budget: str | None, device: str | None, as_json: bool) -> None:
    """Show the plan for a PROBLEM without running it.

    \b
    A problem is written
      conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 f32
      conv3d:bwd_filter x1x64x64x128x128 w64x64x3x3x3 pad1 str2 bf16 ndhwc
    and a line that OOCDNN_LOG=info has logged is one as it is.
    """
    with Context(device, budget) as context:
        made = context.plan(problem_text(problem))
    if as_json:
        fields = dataclasses.asdict(made)
        click.echo(json.dumps(fields, indent=2))
        return
    console().print(table(made))
    click.echo(made.explain())


def table(made: Plan) -> Table:
    """The plan's numbers."""
    split = ", ".join(f"{axis} in {count}" for axis, count in made.split.items() if count > 1)
    rows = {
        "data": bytes_text(made.data_bytes),
        "budget": bytes_text(made.budget_bytes),
        "books on the device": bytes_text(made.device_bytes),
        "tiles": f"{made.tiles}" + (f" ({split})" if split else " (whole)"),
        "toward the device": bytes_text(made.bytes_h2d),
        "from the device": bytes_text(made.bytes_d2h),
        "engine": made.engine,
        "predicted": seconds_text(made.predicted_seconds),
    }
    result = Table(title=made.problem, title_justify="left", show_header=False)
    for name, value in rows.items():
        result.add_row(name, value)
    return result
