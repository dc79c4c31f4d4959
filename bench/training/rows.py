"""Rows of the measurements of `memory_limit`: one line of JSON each, as soon as it is there."""

from __future__ import annotations

import gc
import json
import shlex
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from oocdnn.bench.training.device import Device

Row = dict[str, Any]
GIB = 1 << 30


class Rows:
    """Prints rows, and keeps them in a file with what a reader needs to repeat them.

    Args:
        device: Is tidied after each row.
        program: The command, without its arguments.
        seconds: Nothing is begun after so many.
        out: The file; none where empty. It is written again with every row.
        arguments: Of the command, to repeat it.
    """

    def __init__(
        self,
        device: Device,
        program: str,
        seconds: float,
        out: str = "",
        arguments: Sequence[str] = (),
    ) -> None:
        self._device, self._program = device, program
        self._end = time.monotonic() + seconds
        self._out = Path(out) if out else None
        self._about = _about(device, program, arguments) if out else {}
        self.rows: list[Row] = []
        self.failed = 0

    def over(self) -> bool:
        return time.monotonic() >= self._end

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if self._out is not None:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            self._out.write_text(json.dumps(self._about | {"rows": self.rows}, indent=1) + "\n")

    def attempt(self, known: Row, measure: Callable[[], Row]) -> Row | None:
        """The row of `known` and what `measure` gives; None where it fails, whose row has the
        error, and where the time is over."""
        if self.over():
            self.add(known | {"skipped": "the time is over"})
            return None
        began = time.monotonic()
        row, ended = dict(known), None
        try:
            ended = measure()
            row |= ended
        except Exception as error:
            self.failed += 1
            traceback.print_exc(limit=-4)
            row["error"] = f"{type(error).__name__}: {error}"[:400]
            if (least := getattr(error, "least", None)) is not None:
                row["least_gib"] = least / GIB
        row["took"] = round(time.monotonic() - began, 2)
        tidy(self._device)
        self.add(row)
        return None if ended is None else row


def tidy(device: Device) -> None:
    """Gives back what nothing holds any more."""
    device.cap(None)
    gc.collect()
    device.trim()


def _about(device: Device, program: str, arguments: Sequence[str]) -> Row:
    """Machine, versions, command and commit, as the results of `oocdnn bench study` have them."""
    from oocdnn.bench.provenance import provenance

    about = provenance(program, 1, torch=torch.__version__)
    about["command"] = f"{program} {shlex.join(arguments)}".rstrip()
    about["machine"]["gpu"] = device.name()
    if device.kind == "cuda":
        about["machine"]["gpu_bytes"] = device.total()
        about["versions"]["cuda"] = torch.version.cuda
        about["versions"]["cudnn"] = torch.backends.cudnn.version()
    return about
