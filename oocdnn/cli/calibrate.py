"""oocdnn calibrate: measures the machine, for the plans."""

from collections.abc import Sequence
from pathlib import Path

import click

from oocdnn.cli.common import (
    budget_option,
    device_option,
    plain_errors,
    problem_text,
    progress_bar,
    seconds_text,
)
from oocdnn.cli.streams import interruptible
from oocdnn.context import Context
from oocdnn.plans import Refinement

_CALLS = 5


@click.command()
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to keep it in, instead of the cache directory's.",
)
@click.option(
    "--refine",
    "problems",
    metavar="PROBLEM",
    multiple=True,
    help="Run this problem instead, and correct the rate of its tiles by that; may be repeated.",
)
@budget_option
@device_option
@plain_errors
def calibrate(
    profile: Path | None, problems: Sequence[str], budget: str | None, device: str | None
) -> None:
    """Measure this machine for the plans, once and for all.

    The first call of each kind measures the little that it cannot do without; this measures all
    types and directions, tiles of many sizes, and the wires while other GPUs of the host are busy
    too, in up to three minutes. It may be interrupted: what has been measured is kept, and not
    measured again until the file is deleted.

    With --refine a problem is run as it would be planned now, and the rate of its tiles becomes
    what the runs took; nothing else is measured.
    """
    with Context(device, budget, profile=profile) as context:
        for problem in problems:
            text = problem_text((problem,))
            with interruptible("Aborted!"):
                made = _refined(context, text)
            click.echo(f"{text}: {made}")
        if not problems:
            click.echo(
                f"{_measured(context)}: {context.device} is measured, and the profile complete; "
                "delete the file to have it measured anew"
            )


def _measured(context: Context) -> Path:
    said = "interrupted; what was measured is kept, run it again for the rest"
    with progress_bar("measuring", "steps") as progress, interruptible(f"Error: {said}"):
        try:
            return context.calibrate(progress)
        except KeyboardInterrupt:
            raise click.ClickException(said) from None


def _refined(context: Context, problem: str) -> str:
    from oocdnn.perfmodel.runs import compute_seconds

    context.plan(problem)  # says what is wrong, where it is no problem or does not fit
    return _text(context.refine(problem, compute_seconds(context, problem, _CALLS)))


def _text(made: Refinement) -> str:
    """What was predicted, what was measured, and what has changed."""
    return (
        f"a tile took {seconds_text(made.measured_seconds)}, predicted were "
        f"{seconds_text(made.predicted_seconds)}, and are now "
        f"{seconds_text(made.refined_seconds)}; {made.rate} was {made.before:.4g} "
        f"and is {made.after:.4g} operations per second"
    )
