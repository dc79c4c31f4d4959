"""The JSON file of a long measurement: it is written after every row, so that a run that is cut off
keeps what it has, and another one goes on from there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from oocdnn._files import replacing

Row = dict[str, Any]


class Journal:
    """Lists of rows by name, and in `path` a document of them: its head, what `note` was told, and
    the lists. Without a path nothing is written.

    With `resume` the rows and notes that the file holds are there from the beginning, and the head
    of every run is kept in "runs". Raises click.UsageError where the file is of another program, or
    there already and not to be gone on with.
    """

    def __init__(self, path: Path | None, head: Mapping[str, Any], resume: bool = False) -> None:
        self._path, self._lists, self._notes = path, dict[str, list[Row]](), dict[str, Any]()
        self._runs: list[Any] = [dict(head)]
        if path is not None and path.exists():
            if not resume:
                raise click.UsageError(f"{path} is there already: give --resume, or another --out")
            self._read(path, head)

    def _read(self, path: Path, head: Mapping[str, Any]) -> None:
        found = json.loads(path.read_text(encoding="utf-8"))
        command, program = str(found.get("command")), str(head["program"])
        if not f"{command} ".startswith(f"{program} "):
            raise click.UsageError(f"{path} holds results of {command!r}, not of {program!r}")
        known = {*found["runs"][-1], "runs", "lists"}
        self._notes = {name: value for name, value in found.items() if name not in known}
        self._runs = found["runs"] + self._runs
        self._lists = found["lists"]

    def rows(self, name: str) -> list[Row]:
        """A list, empty at first; what is added to it shows here."""
        return self._lists.setdefault(name, [])

    def add(self, name: str, row: Row) -> None:
        self.rows(name).append(row)
        self.write()

    def note(self, name: str, value: object) -> None:
        """Something beside the rows, such as their summary."""
        self._notes[name] = value
        self.write()

    def write(self) -> None:
        """Replaces the file in one step."""
        if self._path is None:
            return
        document = {**self._runs[-1], "runs": self._runs, **self._notes, "lists": self._lists}
        with replacing(self._path) as file:
            file.write(f"{json.dumps(document, indent=1)}\n".encode())
