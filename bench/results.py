"""Results of `oocdnn bench`: one JSON object a line, and what a page says of their origin."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict, cast

from oocdnn._files import replacing

FILE = "results.jsonl"
ABOUT = "about.json"


class Row(TypedDict):
    """A problem as one of those computed it who are compared; "oocdnn" is ours, within the budget.

    `seconds` is the median of the warm calls that count, `cold_seconds` the first call's, `noise`
    half the width of the median's 95 % interval over the median. `check` is "pass", or one of
    "fail", "skipped" and "mistrusted", a colon and why. `times` says how
    often the layer occurs in its network. `command` repeats the result.
    """

    set: str
    layer: str
    times: int
    problem: str
    who: str
    device: str
    dtype: str
    placement: str
    budget: int
    seconds: float | None
    cold_seconds: float | None
    noise: float | None
    samples: int
    dropped: int
    floor_seconds: float | None
    tiles: int
    peak_device_bytes: int
    bytes_h2d: int
    bytes_d2h: int
    data_bytes: int
    flops: int
    check: str
    machine: str
    commit: str
    command: str


class About(TypedDict):
    """When and where results were measured; `rates` of the machine, in bytes and operations per
    second, as far as they were measured: "inward", "outward", "both", "arithmetic"."""

    date: str
    machine: str
    versions: dict[str, str]
    command: str
    commit: str
    rates: dict[str, float]


TIMED = ("pass", "mistrusted")  # verdicts of which the time is shown


def verdict(row: Row) -> str:
    """Its check without the reason."""
    return row["check"].partition(":")[0]


def shown_seconds(row: Row) -> float | None:
    """Its time, where there is one and its verdict is one of which the time is shown."""
    return row["seconds"] or None if verdict(row) in TIMED else None


def write(folder: Path, about: About, rows: Iterable[Row]) -> None:
    """Replaces the results in a folder, which is made; each file in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        ABOUT: json.dumps(about, indent=1) + "\n",
        FILE: "".join(json.dumps(row) + "\n" for row in rows),
    }
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())


def read(path: Path) -> list[Row]:
    """The rows of a file, or of the results in a folder.

    Raises OSError where it cannot be read and ValueError, with the line, where it holds no results.
    """
    file = path / FILE if path.is_dir() else path
    rows: list[Row] = []
    for number, line in enumerate(_text(file).splitlines(), 1):
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}: no JSON: {error}") from error
        missing = Row.__annotations__.keys() - fields if isinstance(fields, dict) else {"all"}
        if missing:
            raise ValueError(
                f"{file}, line {number}: no result, {', '.join(sorted(missing))} missing"
            )
        rows.append(cast(Row, fields))
    return rows


def read_about(folder: Path) -> About:
    """What a folder says of the origin of its results. Raises as `read` does."""
    about = read_json(folder / ABOUT)
    missing = About.__annotations__.keys() - about if isinstance(about, dict) else {"all"}
    if missing:
        raise ValueError(f"{folder / ABOUT}: {', '.join(sorted(missing))} missing")
    return cast(About, about)


def read_json(file: Path) -> Any:
    """What a file holds. Raises as `read` does."""
    try:
        return json.loads(_text(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: no JSON: {error}") from error


def _text(file: Path) -> str:
    if not file.exists():
        raise FileNotFoundError(f"there is no {file}; `oocdnn bench --out {file.parent}` writes it")
    return file.read_text(encoding="utf-8")
