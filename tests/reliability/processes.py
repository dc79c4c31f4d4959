"""Work in other processes: two workers for counts, or one fresh process that is watched."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.rows import Size, Tally

WORKERS = min(2, os.cpu_count() or 1)
_SPAWN = multiprocessing.get_context("spawn")
_GRACE = 0.05  # seconds between two looks at a watched process


def tally(function: Callable[..., Tally], jobs: Iterable[tuple[Any, ...]], size: Size) -> Tally:
    """The sum of `function(*job)` over all jobs, on fresh worker processes."""
    total = Tally()
    if not size.apart:
        for job in jobs:
            total.add(function(*job))
        return total
    with ProcessPoolExecutor(WORKERS, mp_context=_SPAWN) as pool:
        for done in pool.map(function, *zip(*jobs, strict=True)):
            total.add(done)
    return total


@dataclass
class Watched:
    """What a fresh process gave, and what was seen of it from outside. Bytes and seconds."""

    value: Any
    error: str
    seconds: float
    start_anonymous: int  # RssAnon when the process said that it begins
    peak_anonymous: int
    peak_resident: int  # VmHWM


def alone(function: Callable[..., Any], *args: Any, size: Size, limit: float = 600) -> Watched:
    """`function(say_ready, *args)` in a fresh process; one that outlasts `limit` is killed."""
    if not size.apart:
        began = time.monotonic()
        value = function(lambda: None, *args)
        return Watched(value, "", time.monotonic() - began, 0, 0, 0)
    ours, theirs = _SPAWN.Pipe(duplex=False)
    child = _SPAWN.Process(target=_answer, args=(theirs, function, args))
    began = time.monotonic()
    child.start()
    theirs.close()
    watched = Watched(None, "", 0.0, 0, 0, 0)
    try:
        while True:
            _look(child.pid, watched)
            if ours.poll(_GRACE):
                kind, value = ours.recv()
                if kind == "ready":
                    began = time.monotonic()
                    watched.start_anonymous = watched.peak_anonymous = _status(child.pid, "RssAnon")
                    continue
                setattr(watched, kind, value)
                break
            if time.monotonic() - began > limit:
                watched.error = f"still running after {limit:.0f} s"
                break
    except EOFError:
        child.join(10)
        watched.error = f"the process ended with {child.exitcode}"
    finally:
        watched.seconds = time.monotonic() - began
        child.join(0 if watched.error else 10)
        if child.is_alive():
            child.kill()
            child.join()
    return watched


def _answer(pipe: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    def say_ready() -> None:
        pipe.send(("ready", None))

    try:
        answer = ("value", function(say_ready, *args))
    except BaseException as error:
        answer = ("error", f"{type(error).__name__}: {error}")
    pipe.send(answer)


def _look(pid: int | None, watched: Watched) -> None:
    watched.peak_anonymous = max(watched.peak_anonymous, _status(pid, "RssAnon"))
    watched.peak_resident = max(watched.peak_resident, _status(pid, "VmHWM"))


def _status(pid: int | None, name: str) -> int:
    """A memory figure of a process in bytes; 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def own_status(name: str) -> int:
    """VmRSS, RssAnon, ... of this process in bytes."""
    return _status(os.getpid(), name)
