"""oocdnn dropin and oocdnn run: the library for unmodified cuDNN programs, and one with it."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from oocdnn import cudnn
from oocdnn.cli import limit
from oocdnn.cli.common import budget_option, device_option, plain_errors


def _there(path: Path) -> Path:
    """A library to be preloaded: the loader says of one that is missing only that it goes on."""
    if not path.is_file():
        raise click.ClickException(f"there is no {path}; it is built for x86-64 only")
    return path


def _dropin() -> Path:
    return _there(cudnn.dropin_path())


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_NAME, _RENAMED = "libcudnn.so.9", "libcudnn_real.so.9"
_NOT_CAUGHT = (
    "cudnn-frontend's Python package opens cuDNN by its path, and gets the real library; "
    "oocdnn dropin --into DIR serves it, DIR being where its libcudnn.so.9 lies"
)
_EXPORT = b"oocdnn_dropin_real"  # what only drop-ins, of this installation or another, contain


def _opens_by_path() -> bool:
    """Whether cudnn-frontend's package is here, and the drop-in does not lie in cuDNN's place."""
    if importlib.util.find_spec("cudnn") is None:
        return False
    try:
        wheel = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return True
    folders = (wheel and wheel.submodule_search_locations) or ()
    return not any((Path(folder) / "lib" / _RENAMED).is_file() for folder in folders)


def _is_link_to_dropin(path: Path) -> bool:
    return path.is_symlink() and path.is_file() and _EXPORT in path.read_bytes()


def _put_into(folder: Path, path: Path) -> None:
    """Makes the drop-in the cuDNN of a folder; the real one stays beside it.

    The folder has a libcudnn.so.9 at every moment, and what fails leaves it as it was.
    """
    real, renamed, link = folder / _NAME, folder / _RENAMED, folder / f".{_NAME}.oocdnn"
    if not real.is_file():
        raise click.ClickException(f"there is no {_NAME} in {folder}")
    if real.samefile(path) or _is_link_to_dropin(real):
        raise click.ClickException(f"{real} is the drop-in already")
    try:
        os.link(real, renamed, follow_symlinks=False)
    except FileExistsError as error:
        raise click.ClickException(f"{renamed} is there already: nothing is changed") from error
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        link.replace(real)
    except OSError:
        link.unlink(missing_ok=True)
        renamed.unlink()
        raise
    click.echo(f"{real} is the drop-in now; oocdnn dropin --undo {folder} takes it back")


def _take_from(folder: Path) -> None:
    real, renamed = folder / _NAME, folder / _RENAMED
    if not renamed.is_file():
        raise click.ClickException(f"there is no {renamed}: nothing is to be taken back")
    if not _is_link_to_dropin(real):
        raise click.ClickException(f"{real} is no link to a drop-in: nothing is changed")
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
    try:
        if into is not None:
            _put_into(into, path)
        elif undo is not None:
            _take_from(undo)
        elif include:
            folder = cudnn.include_path()
            click.echo(f"-I{folder / 'abi'} -I{folder}")
        else:
            click.echo(path)
    except OSError as error:
        raise click.ClickException(f"{error}: nothing is changed") from error


class _NotRun(click.ClickException):
    """A file that is no program. The status is a shell's."""

    exit_code = 126


class _NotFound(click.ClickException):
    """A program that is not there. The status is a shell's."""

    exit_code = 127


def _program(name: str) -> str:
    """The file of a program. Raises _NotRun or _NotFound."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.sep in name and os.path.lexists(name):
        raise _NotRun(f"{name} is not a program: it is no file that may be executed")
    raise _NotFound(f"there is no program {name}")


def _preloaded(before: str | None, *paths: Path) -> str:
    """LD_PRELOAD with these first."""
    for path in paths:
        if " " in str(path) or ":" in str(path):
            raise click.ClickException(
                f"LD_PRELOAD cannot hold the path {path}: it divides at spaces and colons; install "
                "the package elsewhere"
            )
    return ":".join([*map(str, paths), *([before] if before else [])])


def _limited(
    environment: dict[str, str], bytes_: str, spill: str | None, planned: bool
) -> list[Path]:
    """Sets the variables of a limit; what is to be preloaded beside the drop-in."""
    budget, pinned = (environment.get(f"OOCDNN_{name}") for name in ("BUDGET", "PINNED_LIMIT"))
    environment.update(limit.variables(bytes_, budget, spill, pinned))
    past = limit.way_past(environment)
    if past is None:
        return [_there(limit.spill_path())]
    if not planned or spill == limit.HOST:
        click.echo(f"oocdnn: {past}", err=True)
    return []


def _planned(environment: dict[str, str], program: Sequence[str]) -> bool:
    """Has PyTorch's training planned, if Python reads that at its start."""
    option = limit.skipping_option(program)
    if option is not None:
        click.echo(
            f"oocdnn: training is not planned: with {option} Python reads no PYTHONPATH or "
            "sitecustomize; leave it out",
            err=True,
        )
        return False
    before = environment.get("PYTHONPATH")
    folders = [str(limit.start_path()), *([before] if before else [])]
    environment |= {"PYTHONPATH": os.pathsep.join(folders), "OOCDNN_PLAN": "1"}
    return True


@click.command(context_settings={"allow_interspersed_args": False})
@device_option
@budget_option
@click.option(
    "--log",
    metavar="LEVEL",
    type=click.Choice(("error", "warn", "info", "debug")),
    help="OOCDNN_LOG: error, warn, info, debug.",
)
@click.option("--limit", "most", metavar="B", help="Device bytes of the whole process: 16GiB.")
@click.option(
    "--spill",
    type=click.Choice((limit.HOST, limit.REFUSE)),
    is_flag=False,
    flag_value=limit.HOST,
    help="What passes the limit is served from host memory, or refused, as it is without.",
)
@click.option(
    "--plan/--no-plan",
    "plans",
    default=True,
    help="With --limit: whether PyTorch's training is planned within it.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --limit: a page about the plan, written at the program's end.",
)
@click.option(
    "--plan-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --limit: plans are taken from it where it has them, and written to it.",
)
@click.option(
    "--borrow",
    "lenders",
    multiple=True,
    metavar="GPU[=B]",
    help="With --limit: another GPU, over whose link copies go too, as cuda:1; or with bytes that "
    "training swaps to before host memory, as cuda:1=40GiB.",
)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@plain_errors
def run(
    program: tuple[str, ...],
    device: str | None,
    budget: str | None,
    log: str | None,
    most: str | None,
    spill: str | None,
    plans: bool,
    report: Path | None,
    plan_file: Path | None,
    lenders: tuple[str, ...],
) -> None:
    """Run a PROGRAM written for cuDNN 9 with the drop-in: oocdnn run python train.py --lr 3.

    All from PROGRAM on is the program's own. What it computes past its memory then runs in tiles;
    all else goes to the real cuDNN.

    With --limit it gets no more device memory than that, less the budget, a 16th of the limit if
    nothing else is said; with --spill too, host memory for the rest. Where it trains by PyTorch,
    what autograd saves is planned to fit: oocdnn run --limit 16GiB -- python train.py
    """
    limit.check_device(device or "")
    limit.check_budget(budget or "")
    found = _program(program[0])
    if spill is not None and most is None:
        raise click.UsageError("--spill says what becomes of what passes a --limit: give one")
    for name, given in (("report", report), ("plan-file", plan_file), ("borrow", lenders)):
        if given and (most is None or not plans):
            raise click.UsageError(f"--{name} is about the plan within a --limit: give one")
    lent = limit.checked_lenders(lenders)
    if _opens_by_path():
        click.echo(f"oocdnn: {_NOT_CAUGHT}", err=True)
    environment = dict(os.environ)
    if "OOCDNN_PLAN" in environment:  # of an outer run, as the others; else it is the user's
        environment.pop("OOCDNN_BORROW", None)
    for name in ("PLAN", "REPORT", "PLAN_FILE"):
        environment.pop(f"OOCDNN_{name}", None)
    for name, path in (("REPORT", report), ("PLAN_FILE", plan_file)):
        if path is not None:
            environment[f"OOCDNN_{name}"] = str(path.absolute())
    for name, value in (
        ("DEVICE", device),
        ("BUDGET", budget),
        ("LOG", log),
        ("BORROW", lent or None),
    ):
        if value is not None:
            environment[f"OOCDNN_{name}"] = value
    paths = [_dropin()]
    if most is not None:
        planned = plans and _planned(environment, program)
        paths += _limited(environment, most, spill, planned)
    environment["LD_PRELOAD"] = _preloaded(environment.get("LD_PRELOAD"), *paths)
    try:
        os.execve(found, program, environment)
    except OSError as error:
        raise _NotRun(f"{found} is not a program: {error.strerror}") from error
