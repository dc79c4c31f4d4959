"""The library's own threads, as the system shows them."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

import oocdnn

FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
TASKS = Path("/proc/self/task")


def blocked_by_threads() -> list[int]:
    """The blocked signals of each of the library's threads, as bits."""
    masks = []
    for task in TASKS.iterdir():
        if not (task / "comm").read_text().startswith("oocdnn"):
            continue
        lines = (task / "status").read_text().splitlines()
        masks += [int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:")]
    return masks


@pytest.mark.skipif(not TASKS.is_dir(), reason="there is no /proc here")
def test_threads_leave_signals_to_the_program_but_for_their_own_faults():
    with oocdnn.Context("cpu", threads=2):
        oocdnn.conv1d(np.ones((1, 1, 4), np.float32), np.ones((1, 1, 1), np.float32))
        masks = blocked_by_threads()
    assert masks
    for mask in masks:
        assert mask >> (signal.SIGINT - 1) & 1
        assert not any(mask >> (fault - 1) & 1 for fault in FAULTS)
