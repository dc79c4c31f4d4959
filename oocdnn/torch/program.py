"""Plans the training of a program that does not know of it, as `oocdnn run --limit` has it.

`begin` is called when the program initializes CUDA. From then on a thread waits for the first large
tensor on a GPU that autograd saves, and trains within a memory limit from there on. A GPU has one
limit, that of the first thread that trains on it. A program that cannot be planned goes on as it
would without.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oocdnn.errors import DeviceError, InvalidProblem, OutOfMemory, Unsupported
from oocdnn.network.planner import Plan
from oocdnn.network.report import NAMES
from oocdnn.torch.limit.aside import Hooks, step_aside
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Kept
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.session import memory_limit

LEAST = 1 << 18  # bytes of a saved tensor that a program is planned for

_THREADS = "torch.nn.parallel."  # modules whose threads live for one forward pass


def begin() -> None:
    """Has this thread, and those that start later, wait for what is to be planned."""
    program = _Program(_share())
    _Waiting(program).begin()
    program.follow_threads()


def _share() -> int:
    """Bytes for tensors: the limit less the drop-in's budget."""
    return int(os.environ["OOCDNN_LIMIT"]) - int(os.environ.get("OOCDNN_BUDGET", "0"))


def _report_path() -> Path | None:
    """The page's file, with the process's rank where several train."""
    path = os.environ.get("OOCDNN_REPORT")
    if not path:
        return None
    rank = os.environ.get("RANK")
    made = Path(path)
    return made if rank is None else made.with_name(f"{made.stem}.rank{rank}{made.suffix}")


def _say(text: str) -> None:
    _write(f"oocdnn: {text}\n")


def _write(text: str) -> None:
    """To standard error, where there is one."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


class _Limit(memory_limit):
    """Says once what was planned."""

    _raises = False
    _tell = staticmethod(_say)
    _told = False

    def step(self) -> None:
        super().step()
        if not self._told and self.settled and self.plan is not None:
            self._told = True
            _say(self._summary())

    def _plan(self, *given: Any) -> Plan:
        with _progress("planning the step"):
            return super()._plan(*given)

    def _summary(self) -> str:
        assert self.plan is not None
        if self.plan.fits:
            return f"training fits {_gib(self.limit)}: everything is kept"
        made = self.plan.explain()
        saved = ", ".join(f"{_gib(n)} {NAMES[p]}" for p, n in made.nbytes.items() if n)
        return (
            f"training is planned within {_gib(self.limit)}: of what backward reads {saved}; a "
            f"step takes {made.step:.3g} s, {made.step / made.plain:.2f} of what it takes with "
            "everything kept"
        )


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """A line on a terminal for as long as something takes."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        yield
        return
    _write(f"oocdnn: {text} ...")
    try:
        yield
    finally:
        _write("\r\033[K")


def _gib(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.2f} GiB"


class _Program:
    """The limits of a process.

    Args:
        limit: Device bytes of each GPU.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._taken: set[torch.device] = set()  # devices with a limit
        self._child = False  # whether this process was forked from one that had begun
        self._report = _report_path()

    def follow_threads(self) -> None:
        """Has threads wait that start later."""
        start = threading.Thread.start

        def started(thread: threading.Thread) -> None:
            target = getattr(thread, "_target", None)
            if not str(getattr(target, "__module__", "")).startswith(_THREADS):
                thread.run = partial(self._run, thread, thread.run)  # type: ignore[method-assign]
            start(thread)

        threading.Thread.start = started  # type: ignore[assignment, method-assign]
        os.register_at_fork(after_in_child=self._fork)

    def _run(self, thread: threading.Thread, run: Any) -> None:
        waiting = _Waiting(self)
        waiting.begin()
        try:
            run()
        finally:
            waiting.end()
            vars(thread).pop("run", None)  # it holds the thread

    def _fork(self) -> None:
        """A child that is forked after CUDA's initialization cannot use it."""
        self._child = True
        step_aside()

    def limit_for(self, device: torch.device) -> memory_limit | None:
        """A limit of this thread, entered; None where training on the device is not planned, or is
        another thread's."""
        with self._lock:
            if self._child or device in self._taken:
                return None
            self._taken.add(device)
        try:
            made = _Limit(self._limit, device, card=_card(device))
            made.__enter__()
        except (DeviceError, OutOfMemory, Unsupported) as error:
            _say(f"training is not planned: {error}")
            return None
        told = getattr(ctypes.CDLL(None), "oocdnn_spill_planned", None)
        if told is not None:  # the library that keeps to the limit otherwise
            told()
        if self._report is not None:
            atexit.register(self._write, made, self._report)
            self._report = None  # there is one page
        return made

    def _write(self, limit: memory_limit, path: Path) -> None:
        """At the end of the program."""
        if self._child:
            return
        try:
            limit.report(path)
        except (InvalidProblem, OSError) as error:
            _say(f"no report is written to {path}: {error}")

    def leave(self, limit: memory_limit, device: torch.device) -> None:
        """A thread ends."""
        limit.__exit__(None, None, None)
        with self._lock:
            self._taken.discard(device)


def _is_large(tensor: Tensor) -> bool:
    """Whether a saved tensor shows that the program trains on a GPU: no parameter, and no small
    one."""
    if not tensor.is_cuda or (tensor.is_leaf and tensor.requires_grad):
        return False
    if tensor.layout is not torch.strided:
        return False
    return bool(tensor.untyped_storage().nbytes() >= LEAST)


def _card(device: torch.device) -> Card | None:
    """None: the GPU's own."""
    del device
    return None


class _Waiting:
    """A thread without a limit so far: saved tensors are kept."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self._hooks = Hooks(self._pack, self._unpack)
        self._limit: memory_limit | None = None
        self._waits = False

    def begin(self) -> None:
        self._hooks.push()
        self._waits = True

    def end(self) -> None:
        """The thread ends."""
        if self._limit is not None:
            self._program.leave(self._limit, self._device)
        if self._waits:
            self._hooks.pop()

    def _pack(self, tensor: Tensor) -> Source:
        if self._waits and type(tensor) is Tensor and _is_large(tensor):
            self._waits = False
            self._hooks.pop()
            self._limit = self._program.limit_for(tensor.device)
            if self._limit is not None:
                self._device = tensor.device
                return self._limit._steps.pack(tensor)
        return Kept(tensor)

    def _unpack(self, saved: Source) -> Tensor:
        if self._limit is not None:  # it has the first tensor, and counts every read as backward
            return self._limit._steps.unpack(saved)
        assert isinstance(saved, Kept)
        return saved.tensor()
