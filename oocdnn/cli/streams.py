"""Standard streams as commands need them, and the end of a process that is interrupted."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

_GRACE = 0.5  # seconds in which a command ends by itself


def prepare() -> None:
    """Opens standard streams that are closed, so that no other file takes their numbers, and has
    standard output replace letters that its encoding lacks."""
    for number in range(3):
        if not _is_open(number):
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        utf8 = sys.stdout.encoding.lower().startswith("utf")
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "replace")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def interruptible(said: str) -> Iterator[None]:
    """Ctrl-C ends the process with `said` half a second later, where the library has not come back
    from measuring or planning to raise KeyboardInterrupt. Its files are whole at every moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] != signal.SIGINT or ended.wait(_GRACE):
                continue
            with suppress(OSError):
                os.write(2, f"{said}\n".encode())
            os._exit(1)
        os.close(reader)

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="oocdnn interrupt", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the thread
