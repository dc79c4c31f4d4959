"""Processes of one group of torch.distributed on this machine, which run functions together."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

PATIENCE = 20  # seconds until processes that do not answer are ended


def _serve(rank: int, count: int, backend: str, store: str, calls: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=count
    )
    while True:
        try:
            function, args = calls.recv()
        except EOFError:
            return
        try:
            calls.send((True, function(*args)))
        except BaseException as error:
            calls.send((False, (error, traceback.format_exc())))


class Processes:
    """`run` calls a function in each of them; its module must be importable by name."""

    def __init__(self, count: int, folder: Path, backend: str = "gloo") -> None:
        self.count, self._folder, self._backend = count, folder, backend
        self._number = 0
        self._running: list[tuple[Any, Connection]] = []

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._number += 1
        store = str(self._folder / f"store{self._number}")
        for rank in range(self.count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(
                target=_serve, args=(rank, self.count, self._backend, store, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._running.append((process, ours))

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """The results of all processes. The first error is raised here; where other processes wait
        for the one that failed, all are started anew."""
        if not self._running:
            self._start()
        for _, calls in self._running:
            calls.send((function, args))
        results: dict[Connection, Any] = {}
        waiting = {calls for _, calls in self._running}
        failed: list[tuple[BaseException, str]] = []
        while waiting:
            ready = wait(list(waiting), 2 if failed else PATIENCE)
            if not ready:
                break
            for calls in ready:
                waiting.discard(calls)
                good, found = calls.recv()
                results[calls] = found
                failed += [] if good else [found]
        if waiting:
            self.close()
        if failed:
            error, text = failed[0]
            error.add_note(text) if hasattr(error, "add_note") else print(text)
            raise error
        if waiting:
            raise TimeoutError(f"{len(waiting)} of {self.count} processes did not answer")
        return [results[calls] for _, calls in self._running]

    def close(self) -> None:
        for process, calls in self._running:
            calls.close()
            process.kill()
            process.join()
        self._running = []
