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
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from oocdnn._arguments import lender
from oocdnn._calls.budget import program_share
from oocdnn._shown import bytes_text
from oocdnn.errors import FileError, InvalidProblem
from oocdnn.network.plan_file import PlanFile
from oocdnn.network.planner import Plan
from oocdnn.torch.limit.aside import Hooks, step_aside
from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.entry import Kept
from oocdnn.torch.limit.recipes import Source
from oocdnn.torch.limit.session import memory_limit

LEAST = 1 << 18  # bytes of a saved tensor that a program is planned for

_begun: list[_Program] = []  # of this process
_LIMITS = 3  # of a GPU, one after the other: threads of a single step are not planned
_THREADS = "torch.nn.parallel."  # modules whose threads live for one forward pass


def begin() -> None:
    """Has this thread, and those that start later, wait for what is to be planned; once."""
    if _begun:
        return
    share = program_share()
    assert share is not None  # else nothing calls this
    program = _Program(share)
    _begun.append(program)
    atexit.register(program.end)
    latest = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)(True)
    if latest is None:
        _Waiting(program).begin()
    else:  # which the program expects to be the latest ones when it takes them away
        _say("this thread is not planned: CUDA begins within saved-tensor hooks of the program")
    program.follow_threads()


def _path(name: str) -> Path | None:
    """The file that a variable names, with the process's rank where several train."""
    path = os.environ.pop(name, None)  # children do not write the same file
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
            return f"training fits {bytes_text(self.limit)}: everything is kept"
        return (
            f"training is planned within {bytes_text(self.limit)}: {self.plan.explain().summary()}"
        )


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """A line on a terminal for as long as something takes."""
    if not _is_terminal():
        yield
        return
    _write(f"oocdnn: {text} ...")
    try:
        yield
    finally:
        _write("\r\033[K")


def _is_terminal() -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return bool(sys.stderr.isatty())
    return False


def _lenders() -> dict[str, int]:
    """Bytes that GPUs lend. What is no such text is said, and nothing is borrowed."""
    text = os.environ.get("OOCDNN_BORROW", "")
    try:
        return dict(map(lender, text.split(","))) if text else {}
    except InvalidProblem as error:
        _say(f"OOCDNN_BORROW: {error}")
        return {}


class _Program:
    """The limits of a process.

    Args:
        limit: Device bytes of each GPU.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._borrow = limit, _lenders()
        self._lock = threading.Lock()
        self._taken: set[torch.device] = set()  # devices with a limit
        self._child = False  # whether this process was forked from one that had begun
        self._report, self._plan_file = _path("OOCDNN_REPORT"), self._checked_plan_file()
        self._first: memory_limit | None = None
        self._made: Counter[torch.device] = Counter()

    @staticmethod
    def _checked_plan_file() -> Path | None:
        """A file that cannot be used is said, and the program planned without."""
        path = _path("OOCDNN_PLAN_FILE")
        try:
            if path is not None:
                PlanFile(path)
        except FileError as error:
            _say(str(error))
            return None
        return path

    def follow_threads(self) -> None:
        """Has threads wait that start later."""
        start = threading.Thread.start

        def started(thread: threading.Thread) -> None:
            target = getattr(thread, "_target", None)
            if not str(getattr(target, "__module__", "")).startswith(_THREADS):
                self._wrap(thread)
            try:
                start(thread)
            except BaseException:
                vars(thread).pop("run", None)
                raise

        threading.Thread.start = started  # type: ignore[assignment, method-assign]
        os.register_at_fork(after_in_child=self._fork)

    def _wrap(self, thread: threading.Thread) -> None:
        """Has a thread wait while it runs; as a method, which tools expect `run` to be."""
        run = thread.run

        def waits(thread: threading.Thread) -> None:
            self._run(thread, run)

        with suppress(AttributeError):  # of a class that does not let it be set
            thread.run = MethodType(waits, thread)  # type: ignore[method-assign]

    def _run(self, thread: threading.Thread, run: Callable[[], None]) -> None:
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
            if self._child or device in self._taken or self._made[device] >= _LIMITS:
                return None
            self._taken.add(device)
            self._made[device] += 1
        try:
            borrow = {name: size for name, size in self._borrow.items() if name != str(device)}
            made = _Limit(
                self._limit,
                device,
                borrow=borrow,
                plan_file=self._plan_file,
                card=_card(device),
            )
            made.__enter__()
        except Exception as error:  # the program goes on without
            _say(f"training is not planned: {error}")
            return None
        told = getattr(ctypes.CDLL(None), "oocdnn_spill_planned", None)
        if told is not None:  # the library that keeps to the limit otherwise
            told()
        if self._first is None:
            self._first = made
        return made

    def end(self) -> None:
        """Writes the report at the end of the program."""
        if self._child or self._report is None:
            return
        try:
            if self._first is None:
                raise InvalidProblem("nothing was planned")
            self._first.report(self._report)
        except Exception as error:  # of CUDA too, which may have failed
            _say(f"no report is written to {self._report}: {error}")

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
    if tensor.layout is not torch.strided or tensor.is_nested or tensor._is_zerotensor():
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
        self._thread = threading.get_ident()
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
        # Threads of autograd's have the hooks too.
        here = self._waits and threading.get_ident() == self._thread
        if here and type(tensor) is Tensor and _is_large(tensor):
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
