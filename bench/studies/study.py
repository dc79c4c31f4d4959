"""The frame of a study: its command, where its rows are kept, and how its calls are timed."""

import ctypes
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from oocdnn.bench.gpu.throttle import watch
from oocdnn.bench.journal import Journal, Row
from oocdnn.bench.measure import Patience, Times, time_calls
from oocdnn.bench.provenance import provenance
from oocdnn.bench.studies import STUDIES
from oocdnn.cli.common import plain_errors

if TYPE_CHECKING:
    from oocdnn.bench.gpu.card import Card

Case = TypeVar("Case")
Option = Callable[[Any], Any]


class Run:
    """One run of a study. `end`: by `time.perf_counter`, when no case begins any more."""

    def __init__(
        self, journal: Journal, end: float, throttled: Callable[[], bool] = lambda: False
    ) -> None:
        self._journal, self._end, self.throttled = journal, end, throttled

    @property
    def late(self) -> bool:
        return time.perf_counter() > self._end

    def rows(self, name: str = "rows") -> list[Row]:
        """Those that are there, of an earlier run too."""
        return self._journal.rows(name)

    def left(
        self, cases: Iterable[Case], key: Callable[[Case], object], done: Container[object]
    ) -> Iterator[Case]:
        """The cases whose key is not among those that are done, until it is late."""
        for case in cases:
            if key(case) in done:
                continue
            if self.late:
                return
            yield case

    def keep(self, row: Row, *lines: str, to: str = "rows") -> None:
        """Writes a row, and says what people want to know of it."""
        self._journal.add(to, row)
        self.say(*lines)

    def note(self, name: str, value: object) -> None:
        """Writes something beside the rows."""
        self._journal.note(name, value)

    def say(self, *lines: str) -> None:
        for line in lines:
            click.echo(line)

    @contextmanager
    def reported(self, what: str) -> Iterator[None]:
        """A case that fails is named, and leaves the others."""
        try:
            yield
        except (RuntimeError, ValueError, MemoryError) as error:
            self.say(f"{what}: {error}")

    def time(
        self,
        call: Callable[[], object],
        patience: int | Patience,
        reset: Callable[[], object] = lambda: None,
    ) -> Times:
        """The first call, and as many warm ones as `patience` says; see `measure.time_calls`."""
        if isinstance(patience, int):
            patience = Patience.exactly(patience)
        return time_calls(call, patience, reset, self.throttled)


class _Command(click.Command):
    """Remembers its arguments as they were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = tuple(args)
        return super().parse_args(ctx, args)


def study(
    name: str,
    *options: Option,
    repeats: int,
    on: Literal["host", "gpu", "torch"] = "host",
    versions: Callable[[], dict[str, str]] = dict,
) -> Callable[[Callable[..., None]], click.Command]:
    """Makes a function the command of a study of `STUDIES`. It is called with a `Run`, `repeats`
    and its options by name. `on`: "host"; "gpu", which needs the driver; "torch", which needs torch
    too and hands over a `Card`, named `card`. `versions` are those of other libraries."""
    text = f"{STUDIES[name][0].upper()}{STUDIES[name][1:]}."
    common = (
        click.option("--repeats", default=repeats, show_default=True, type=click.IntRange(min=1)),
        click.option("--seconds", default=math.inf, help="Begin no case after so many seconds."),
        click.option("--out", type=click.Path(path_type=Path), help="Write everything as JSON."),
        click.option("--resume", is_flag=True, help="Go on with what --out holds already."),
    )

    def made(work: Callable[..., None]) -> click.Command:
        @plain_errors
        def main(
            repeats: int, seconds: float, out: Path | None, resume: bool, **given: Any
        ) -> None:
            end = time.perf_counter() + seconds
            device = given.get("device", "cpu" if on == "host" else "cuda:0")
            extra, used = dict[str, Any](), versions()
            if on != "host":
                _need_driver()
            if on == "torch":
                given["card"], used = _card(device)
                extra["gpu"] = given["card"].name
            arguments = click.get_current_context().meta["arguments"]
            program = f"oocdnn bench study {name}"
            head = provenance(program, repeats, arguments, **used) | extra
            run = Run(Journal(out, head, resume), end, watch(device))
            work(run, repeats=repeats, **given)

        with_options = main
        for option in reversed((*options, *common)):
            with_options = option(with_options)
        return click.command(name, cls=_Command, help=text)(with_options)

    return made


def _need_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise click.ClickException(
            f"this study is of a GPU, and its driver is not here: {error}"
        ) from error


def _card(device: str) -> "tuple[Card, dict[str, str]]":
    """The GPU, and the versions of the libraries that compute on it."""
    import torch

    from oocdnn.bench.gpu import card

    return card.Card(device), {
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
    }


# The options that several studies have.
device: Option = click.option("--device", default="cuda:0", show_default=True)
engine: Option = click.option("--engine", default=None, help="Only this engine of ours.")
images: Option = click.option(
    "--images", default=256, show_default=True, type=click.IntRange(min=1)
)
only: Option = click.option("--only", multiple=True, help="What contains this; repeatable.")


def budget(default: str) -> Option:
    return click.option("--budget", default=default, show_default=True)


def maths(kinds: Sequence[str]) -> Option:
    return click.option("--math", "maths", multiple=True, type=click.Choice(list(kinds)))


def contains(label: str, only: Sequence[str]) -> bool:
    """Whether a case with that label is wanted."""
    return not only or any(text in label for text in only)


def busy_text(stats: Mapping[str, Any]) -> str:
    """Milliseconds of fetching, computing and draining, of the fields of a `Stats`; what is not
    there counts as none."""
    engines = ("fetch", "compute", "drain")
    return "/".join(f"{stats.get(f'{engine}_seconds', 0) * 1e3:.1f}" for engine in engines)
