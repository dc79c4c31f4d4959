"""The command oocdnn. Each command lies in a module of its own and imports what it needs late."""

from typing import Any

import click

from oocdnn import __version__
from oocdnn.cli import streams
from oocdnn.cli.bench import bench
from oocdnn.cli.calibrate import calibrate
from oocdnn.cli.demo import demo
from oocdnn.cli.dropin import dropin, run
from oocdnn.cli.info import info
from oocdnn.cli.plan import plan
from oocdnn.cli.trace import trace


class _Main(click.Group):
    """The command itself, which begins with standard streams that can be written to."""

    def main(self, *args: Any, **options: Any) -> Any:
        streams.prepare()
        return super().main(*args, **options)


@click.group(
    cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="oocdnn")
def main() -> None:
    """Exact convolutions whose tensors do not fit the device."""


for command in (info, plan, calibrate, bench, trace, demo, dropin, run):
    main.add_command(command)
