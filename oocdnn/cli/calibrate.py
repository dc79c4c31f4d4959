"""oocdnn calibrate: measures the machine, for the plans."""

from pathlib import Path

import click

from oocdnn.cli.common import device_option, plain_errors, progress_bar
from oocdnn.context import Context


@click.command()
@click.option(
    "--profile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to keep it in, instead of the cache directory's.",
)
@device_option
@plain_errors
def calibrate(profile: Path | None, device: str | None) -> None:
    """Measure this machine for the plans, once and for all.

    The first call of each kind measures the little that it cannot do without; this measures all
    types and directions, and tiles of many sizes, in up to three minutes. It may be interrupted:
    what has been measured is kept, and not measured again.
    """
    with Context(device, profile=profile) as context:
        with progress_bar("measuring", "kinds of arithmetic") as progress:
            try:
                path = context.calibrate(progress)
            except KeyboardInterrupt:
                raise click.ClickException(
                    "interrupted; what was measured is kept, run it again for the rest"
                ) from None
        click.echo(f"{path}: {context.device} is measured")
