"""What the commands share: options, errors, sizes and times for people, a progress bar."""

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oocdnn import errors

P = ParamSpec("P")
T = TypeVar("T")

device_option = click.option(
    "--device",
    metavar="D",
    help="auto, cpu, cuda:N, or several as cuda:0,cuda:1; without it OOCDNN_DEVICE, then auto.",
)
budget_option = click.option(
    "--budget", metavar="B", help="Device bytes: 2GiB, 50%, auto; without it OOCDNN_BUDGET."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

_EXPECTED = (
    errors.InvalidProblem,
    errors.InvalidDtype,
    errors.OutOfMemory,
    errors.Unsupported,
    errors.DeviceError,
    ImportError,
    OSError,
    MemoryError,
)


def plain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Our own errors, and files and memory that are not to be had, end a command with their text,
    without a traceback."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:  # `| head` has seen enough: click ends quietly
            raise
        except _EXPECTED as error:
            raise click.ClickException(_said(error)) from error

    return guarded


def _said(error: BaseException) -> str:
    """An error's text; of the system's, the file and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


@contextmanager
def value_errors_said() -> Iterator[None]:
    """What is read or written here may be no such thing, which ends a command the same way."""
    try:
        yield
    except ValueError as error:
        raise click.ClickException(str(error)) from error


_LOGGED = re.compile(r"^(?:oocdnn: )?(?:taken |passed )?(.+?)(?: tiles=\d.*)?$")


def problem_text(words: tuple[str, ...]) -> str:
    """The problem that an argument, or the log line of a taken call as it is, speaks of."""
    text = " ".join(words).strip()
    found = _LOGGED.match(text)
    return found[1] if found else text


def console() -> Console:
    """Standard output. Where it is no terminal, lines are as long as they need to be."""
    # The file says which letters can be written: without UTF-8 tables have lines in ASCII.
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def seconds_text(seconds: float) -> str:
    """12.3 s, 4.56 ms, 7.89 us."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


@contextmanager
def progress_bar(title: str, unit: str = "tiles") -> Iterator[Callable[[int, int], Any]]:
    """A bar on a terminal, nothing elsewhere; gives the function for a call's `progress`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, tiles: bar.update(task, completed=done, total=tiles)


def free_host_bytes() -> int:
    """Memory that this process may still take: the kernel's estimate, within its cgroup."""
    free = _meminfo("MemAvailable")
    for limit, used in _CGROUPS:
        high, now = _number(limit), _number(used)
        if high is not None and now is not None:
            free = min(free, high - now)
    return max(free, 0)


_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def _number(file: str) -> int | None:
    try:
        return int(Path(file).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _meminfo(name: str) -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as table:
            for line in table:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
