"""oocdnn bench study: one comparison on one machine, with its rows as JSON."""

from importlib import import_module

import click


class _Studies(click.Group):
    """The commands of `oocdnn.bench.studies`, each imported when it is asked for: some need
    torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from oocdnn.bench.studies import STUDIES

        return list(STUDIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            module = import_module(f"oocdnn.bench.studies.{cmd_name.replace('-', '_')}")
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"the study {cmd_name} needs {error.name}, which is not installed"
            ) from error
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from oocdnn.bench.studies import STUDIES

        with formatter.section("Studies"):
            formatter.write_dl(list(STUDIES.items()))


@click.group(cls=_Studies, subcommand_metavar="NAME [OPTIONS]...")
def study() -> None:
    """Compare what a study is about, a line for each case.

    Every study writes JSON with --out after each case, goes on with it with --resume, and begins no
    case after --seconds.
    """
