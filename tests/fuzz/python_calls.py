"""python -m fuzz.python_calls SEED CALLS [ROUND], with tests/ on the path.

Random calls of the Python interface on the CPU device: right ones, most of them, and ones with odd
arguments. They may end in an error of ours, or in a TypeError or ValueError that we raise; what
comes through from NumPy or a dictionary is a fault, and so is a crash, or a round that does not
end. A report names the seed and the round, from which the third argument repeats. Memory is
limited, so that a call whose arrays are large ends in an error at once.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from fuzz import odd
from fuzz.rounds import Call, Fault, Round

import oocdnn
from oocdnn._calls import stack
from oocdnn.errors import FileError, InvalidDtype

PACKAGE = str(Path(oocdnn.__file__).parent)
OURS = (
    oocdnn.InvalidProblem, InvalidDtype, oocdnn.OutOfMemory, oocdnn.Unsupported,
    oocdnn.DeviceError, FileError,
)  # fmt: skip
MOST_SECONDS = 120  # of a round
MOST_BYTES = 8 << 30  # of addresses
TOLD = 500  # rounds after which the calls so far are told


def innermost(trace: TracebackType | None) -> tuple[str, str]:
    """The file, and the text of the line, in which an error was raised."""
    frame = traceback.extract_tb(trace)[-1]
    return frame.filename, linecache.getline(frame.filename, frame.lineno or 0).strip()


def is_ours(error: BaseException, interrupted: bool) -> bool:
    if type(error) in OURS or (interrupted and isinstance(error, odd.Broken)):
        return str(error) != ""
    if getattr(error, "own", False):
        return True
    file, line = innermost(error.__traceback__)
    if isinstance(error, OSError) and "oocdnn-fuzz" in str(error.filename):
        return True
    return (
        type(error) in (TypeError, ValueError, RuntimeError)
        and file.startswith(PACKAGE)
        and "raise" in line
    )


class Fuzzer:
    """All rounds."""

    def __init__(self, seed: int) -> None:
        self.seed, self.total, self.served = seed, 0, 0
        self.errors: Counter[str] = Counter()
        self.faults: dict[str, str] = {}  # by where they come from

    def round(self, number: int) -> None:
        round_ = Round(f"{self.seed} {number}")
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        late = threading.Timer(MOST_SECONDS / 2, self.tell)
        late.start()
        try:
            for name, call in round_.calls():
                self.now = f"seed {self.seed}, round {number}, call {self.total}: {name}"
                self.call(round_, name, call)
        finally:
            late.cancel()
            round_.close()

    def tell(self) -> None:
        print(f"{self.now} does not end", file=sys.stderr, flush=True)

    def call(self, round_: Round, name: str, call: Call) -> None:
        self.total += 1
        round_.interrupts = False
        context = round_.r.choice(round_.contexts) if round_.contexts else None
        try:
            if context is None or context.closed:
                call()
            else:
                with_context(context, call)
        except Fault:
            raise
        except Exception as error:
            self.errors[type(error).__name__] += 1
            if not is_ours(error, round_.interrupts):
                self.report(error)
            return
        self.served += name not in ("memory", "strings", "division", "context", "state", "layer")

    def report(self, error: Exception) -> None:
        file, line = innermost(error.__traceback__)
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename.startswith(PACKAGE)]
        place = f"{own[-1].filename}:{own[-1].lineno}" if own else f"{file}: {line}"
        key = f"{type(error).__name__} at {place}"
        if key not in self.faults:
            self.faults[key] = self.now
            text = "".join(traceback.format_exception(error))
            print(f"{self.now}\n{text[-2500:]}", file=sys.stderr, flush=True)


def with_context(context: Any, call: Call) -> None:
    """The call on a context of the round's. The context stays open, so it is entered by hand."""
    stack.push(context)
    try:
        call()
    finally:
        stack.pop(context)


def limit_memory() -> None:
    """The address sanitizer reserves more addresses itself; its max_allocation_size_mb serves."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def main() -> int:
    seed, calls = int(sys.argv[1]), int(sys.argv[2])
    faulthandler.enable()
    limit_memory()
    os.chdir(odd.FOLDER.name)  # for arguments that are taken for a file's name
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    fuzzer = Fuzzer(seed)
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    while fuzzer.total < calls:
        fuzzer.now = ""
        fuzzer.round(number)
        number += 1
        if number % TOLD == 0:
            print(f"{fuzzer.total} calls after round {number}", file=sys.stderr, flush=True)
    print(f"{fuzzer.total} calls, {fuzzer.served} served, {len(fuzzer.faults)} faults")
    print(dict(fuzzer.errors), file=sys.stderr)
    return 1 if fuzzer.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
