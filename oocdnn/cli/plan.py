"""oocdnn plan: what would be done with a problem, and why, here or on another machine."""

import dataclasses
import json
from pathlib import Path

import click
from rich.table import Table

from oocdnn._shown import bytes_text
from oocdnn.cli import timeline
from oocdnn.cli.common import (
    budget_option,
    console,
    device_option,
    json_option,
    plain_errors,
    problem_text,
    seconds_text,
)
from oocdnn.cli.streams import interruptible
from oocdnn.context import Context
from oocdnn.plans import Plan, forget_plans, plan_for_profile


def _list_profiles(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """The option's value; of "list", nothing but the names."""
    if value != "list":
        return value
    from oocdnn.perfmodel import profiles

    for name in profiles.names():
        file = profiles.find(name)
        click.echo(f"{name}: {profiles.machine(file)} ({profiles.provenance(file)})")
    return context.exit()


@plain_errors
def _forget(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Forgets, and does nothing else."""
    if not value:
        return
    file = forget_plans()
    click.echo("plans are not remembered" if file is None else f"removed {file}")
    context.exit()


@click.command()
@click.argument("problem", nargs=-1, required=True)
@budget_option
@device_option
@click.option(
    "--profile",
    metavar="P",
    is_eager=True,
    callback=_list_profiles,
    help="A machine's rates: a file, or a shipped profile; list shows those. none: guesses.",
)
@click.option(
    "--forget",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_forget,
    help="Forget the plans that are remembered from one process to the next; show none.",
)
@click.option(
    "--busy-gpus",
    metavar="N",
    type=click.IntRange(0, 63),
    help="So many other GPUs of the host are busy too; without it OOCDNN_BUSY_GPUS, then none.",
)
@json_option
@click.option(
    "--picture",
    metavar="F",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the predicted timeline to this file.",
)
@plain_errors
def plan(
    problem: tuple[str, ...],
    budget: str | None,
    device: str | None,
    profile: str | None,
    busy_gpus: int | None,
    as_json: bool,
    picture: Path | None,
) -> None:
    """Show the plan for a PROBLEM without running it.

    \b
    A problem is written
      conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 f32
      conv3d:bwd_filter x1x64x64x128x128 w64x64x3x3x3 pad1 str2 bf16 ndhwc
    and a line that OOCDNN_LOG=info has logged is one as it is.

    With --profile and without --device the plan is for the machine of the profile: nothing of it
    need be here, no engine is prepared, and the budget is a number of bytes.
    """
    with interruptible("Aborted!"):
        made = _made(problem_text(problem), budget, device, profile, busy_gpus)
    if picture is not None:
        timeline.draw_plan(made, picture)
    if as_json:
        fields = dataclasses.asdict(made)
        del fields["timeline"]
        click.echo(json.dumps(fields, indent=2))
        return
    console().print(table(made))
    click.echo(made.explain())


def _made(
    problem: str,
    budget: str | None,
    device: str | None,
    profile: str | None,
    busy_gpus: int | None,
) -> Plan:
    from oocdnn.perfmodel import profiles

    known = None if profile in (None, "none") else profiles.find(str(profile))
    if known is not None and device is None:
        return plan_for_profile(problem, known, budget, busy_gpus=busy_gpus)
    with Context(device, budget, profile=known or profile, busy_gpus=busy_gpus) as context:
        return context.plan(problem)


def _seconds_rows(made: Plan) -> dict[str, str]:
    """The predicted time, and what it is to be compared with."""
    engines = (f"{name} {seconds_text(s)}" for name, s in made.seconds_by_engine.items())
    ratio = (
        f", ratio {made.predicted_seconds / made.floor_seconds:.2f}" if made.floor_seconds else ""
    )
    return {
        "predicted": seconds_text(made.predicted_seconds),
        "by engine": ", ".join(engines),
        "floor": seconds_text(made.floor_seconds) + ratio,
        **_once_rows(made),
    }


def _once_rows(made: Plan) -> dict[str, str]:
    """What goes before calls, where that is known."""
    rows = {"prepares in": made.prepare_seconds, "pinning would take": made.pin_seconds}
    return {name: seconds_text(seconds) for name, seconds in rows.items() if seconds is not None}


def table(made: Plan) -> Table:
    """The plan's numbers."""
    split = ", ".join(f"{axis} in {count}" for axis, count in made.splits.items() if count > 1)
    rows = {
        "data": bytes_text(made.data_bytes),
        "budget": bytes_text(made.budget_bytes),
        "books on the device": bytes_text(made.booked_bytes),
        "stages on the host": bytes_text(made.host_bytes),
        **({"pins for the call": ", ".join(made.pinned)} if made.pinned else {}),
        "tiles": f"{made.tiles}" + (f" ({split})" if split else " (whole)"),
        "toward the device": bytes_text(made.bytes_h2d),
        "from the device": bytes_text(made.bytes_d2h),
        "engine": made.engine,
        **_seconds_rows(made),
    }
    result = Table(title=made.problem, title_justify="left", show_header=False)
    for name, value in rows.items():
        result.add_row(name, value)
    return result
