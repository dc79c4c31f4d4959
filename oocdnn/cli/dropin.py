"""oocdnn dropin and oocdnn run: the library for unmodified cuDNN programs, and one with it."""

import os
import shutil
from pathlib import Path

import click

from oocdnn import cudnn
from oocdnn.cli.common import budget_option, device_option


def _dropin() -> Path:
    path = cudnn.dropin_path()
    if not path.is_file():
        raise click.ClickException(f"there is no drop-in at {path}; it is built for x86-64 only")
    return path


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_NAME, _RENAMED = "libcudnn.so.9", "libcudnn_real.so.9"


def _put_into(folder: Path, path: Path) -> None:
    """Makes the drop-in the cuDNN of a folder; the real one stays beside it."""
    real, renamed = folder / _NAME, folder / _RENAMED
    if renamed.exists():
        raise click.ClickException(f"{renamed} is there: the drop-in lies in {folder} already")
    if not real.is_file():
        raise click.ClickException(f"there is no {_NAME} in {folder}")
    real.rename(renamed)
    real.symlink_to(path)
    click.echo(f"{real} is the drop-in now; oocdnn dropin --undo {folder} takes it back")


def _take_from(folder: Path) -> None:
    real, renamed = folder / _NAME, folder / _RENAMED
    if not renamed.exists():
        raise click.ClickException(f"there is no {renamed}: nothing is to be taken back")
    renamed.replace(real)
    click.echo(f"{real} is the real library again")


@click.command()
@click.option("--include", is_flag=True, help="Print the compiler's flags for our own cudnn.h.")
@click.option("--into", metavar="DIR", type=_FOLDER, help="Lie in the place of DIR's cuDNN.")
@click.option("--undo", metavar="DIR", type=_FOLDER, help="Take --into back.")
def dropin(include: bool, into: Path | None, undo: Path | None) -> None:
    """Print the path of the drop-in libcudnn.so.9, to be preloaded.

    LD_PRELOAD=$(oocdnn dropin) PROGRAM is what `oocdnn run` does. Programs that open cuDNN by its
    path are served by --into, with the folder that they open it from.
    """
    path = _dropin()
    if into is not None:
        _put_into(into, path)
    elif undo is not None:
        _take_from(undo)
    elif include:
        folder = cudnn.include_path()
        click.echo(f"-I{folder / 'abi'} -I{folder}")
    else:
        click.echo(path)


@click.command(context_settings={"ignore_unknown_options": True})
@device_option
@budget_option
@click.option("--log", metavar="LEVEL", help="OOCDNN_LOG: error, warn, info, debug.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(program: tuple[str, ...], device: str | None, budget: str | None, log: str | None) -> None:
    """Run a PROGRAM written for cuDNN 9 with the drop-in: oocdnn run -- python train.py.

    What it computes past its memory then runs in tiles; all else goes to the real cuDNN.
    """
    path = str(_dropin())
    if " " in path or ":" in path:
        raise click.ClickException(
            f"LD_PRELOAD cannot hold the path {path}: it divides at spaces and colons; install "
            "the package elsewhere"
        )
    found = shutil.which(program[0])
    if found is None:
        raise click.ClickException(f"there is no program {program[0]}")
    environment = dict(os.environ)
    before = environment.get("LD_PRELOAD")
    environment["LD_PRELOAD"] = f"{path}:{before}" if before else path
    for name, value in (("DEVICE", device), ("BUDGET", budget), ("LOG", log)):
        if value is not None:
            environment[f"OOCDNN_{name}"] = value
    os.execve(found, program, environment)
