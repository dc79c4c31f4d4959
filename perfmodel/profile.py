"""Machine profiles: the constants that every price divides by, and their text form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from itertools import pairwise
from math import inf, nan
from typing import Any

from oocdnn.perfmodel.problem import DIRECTIONS, Direction

_HEADER, _END = "oocdnn-profile 9", "end"
_WORDS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "=": "\\e"}
# Fields, and words of the text.
_TABLES = {"flops": "flops", "tiles": "tile", "wires": "wire", "once": "once"}
_FLAG = "shared_engines"
_CHOICES = {_FLAG: ("false", "true"), "calibration": ("none", "begun", "complete")}
UNMEASURED = "unmeasured"
_SAMPLES = re.compile("samples ([0-9]+) spread (.+)")
_TILE = re.compile("tile ([0-9]+) ([0-9]+) .*", re.DOTALL)
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MOST = 2**63 - 1  # of whole numbers
_LEAST_RATE, _MOST_RATE = 1e-18, 1e18  # seconds and bytes of a row may be less, down to 0
_APART = ("measured", "marks", "busy_gpus")  # no lines of their own


@dataclass(frozen=True)
class Wire:
    """What crosses between the caller's memory and tiles, and passes over these: a sum's finish
    without a pool and with one, restoring, normalising. Bytes, seconds and bytes per second."""

    fetch: float
    drain: float
    both: float
    fetch_row_bytes: float
    far_fetch_row_bytes: float
    drain_row_bytes: float
    far_drain_row_bytes: float
    inside: float
    inside_row_bytes: float
    hop: float
    finish: float
    pool: float
    restore: float
    normalize: float


class Arithmetic:
    """Seconds of one operation in a tile, between tiles that were measured: `rates` are operations
    per second by channels (the lesser of input and output, in a group) and elements of y."""

    def __init__(self, rates: Mapping[tuple[int, int], float]) -> None:
        self._columns: dict[int, list[tuple[int, float]]] = {}
        for (channels, outputs), rate in sorted(rates.items()):
            self._columns.setdefault(channels, []).append((outputs, 1 / rate))

    def seconds(self, channels: int, outputs: int) -> float:
        """Of one operation. The seconds of a tile are linear between the measured numbers of
        outputs, those of an operation in 1 / channels, down to a single channel; beyond what was
        measured all is as at the nearest that was."""
        known = sorted(self._columns)
        if channels >= known[-1] or len(known) == 1:
            return self._of_column(known[-1], outputs)
        right = next(i for i in range(1, len(known)) if channels <= known[i])
        fewer, more = known[right - 1], known[right]
        first, second = self._of_column(fewer, outputs), self._of_column(more, outputs)
        slope = (second - first) / (1 / more - 1 / fewer)
        seconds = first + slope * (1 / channels - 1 / fewer)
        return max(seconds, first) if channels < fewer else seconds

    def _of_column(self, channels: int, outputs: int) -> float:
        points = self._columns[channels]
        nearest = min(max(outputs, points[0][0]), points[-1][0])
        for (low, first), (high, second) in pairwise(points):
            if low <= nearest <= high:
                share = (nearest - low) / (high - low)
                return (low * first * (1 - share) + high * second * share) / nearest
        return points[0][1]


@dataclass
class Profile:
    """One machine's constants, the library's guesses where nothing else is said.

    Rates are of the wire in each direction and in both together, of copies inside the device, and
    of arithmetic by "engine/type/direction". Each contiguous row of a fetch costs `fetch_row_bytes`
    on top of its own, one that begins 64 KiB or more from the last `far_fetch_row_bytes`, unless it
    is a whole number of 64 KiB long; those of a drain `drain_row_bytes` and `far_drain_row_bytes`.
    Seconds are those of one copy beyond its bytes, of one convolution beyond its operations, of the
    host for one step, and until what waits for the end of other work begins. `wires`: what differs
    by "engine/order/rate" because tiles have another memory order than the caller's tensors; what
    staging does, by "page/rate" or "file/rate"; and by "beside/N/rate" the wire's rates while N
    other GPUs of the host copy too, of which `busy_gpus` are.
    `once`: what goes before calls, seconds by "engine/type/direction/prepare" and
    the bytes per second of "page/pin". `shared_engines`: copies and arithmetic take turns.
    `calibration`: "none" of rates that first calls measured; else "begun" or "complete".

    `machine`, `driver`, `engines` (with the libraries that they are from) and `date` say who was
    measured, and when. How each rate is known is its mark: "unmeasured", "measured", or
    "samples N spread S", by its name in the text ("flops direct/f32/fwd"). `measured`: the mark of
    those that have none.
    """

    machine: str = "unknown"
    driver: str = "none"
    engines: str = "none"
    date: str = ""
    measured: bool = False
    shared_engines: bool = False
    calibration: str = "none"
    fetch_bytes_per_second: float = 8e9
    drain_bytes_per_second: float = 8e9
    both_bytes_per_second: float = 12e9
    move_bytes_per_second: float = 20e9
    fetch_row_bytes: float = 64.0
    far_fetch_row_bytes: float = 64.0
    drain_row_bytes: float = 64.0
    far_drain_row_bytes: float = 64.0
    copy_seconds: float = 20e-6
    run_seconds: float = 30e-6
    step_seconds: float = 10e-6
    hop_seconds: float = 10e-6
    flops_fallback: float = 5e9
    flops: dict[str, float] = field(default_factory=dict)
    tiles: dict[str, float] = field(default_factory=dict)
    wires: dict[str, float] = field(default_factory=dict)
    once: dict[str, float] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    busy_gpus: int = 0

    def wire(self, engine: str, channels_last: bool) -> Wire:
        """The rates for an engine's tiles and the caller's memory order."""
        order = "nhwc" if channels_last else "nchw"

        def rate(name: str, general: float) -> float:
            return self.wires.get(f"{engine}/{order}/{name}", general)

        return Wire(
            fetch=rate("fetch", self.fetch_bytes_per_second) * self.share("fetch"),
            drain=rate("drain", self.drain_bytes_per_second) * self.share("drain"),
            both=rate("both", self.both_bytes_per_second) * self.share("both"),
            fetch_row_bytes=rate("fetch_row_bytes", self.fetch_row_bytes),
            far_fetch_row_bytes=rate("far_fetch_row_bytes", self.far_fetch_row_bytes),
            drain_row_bytes=rate("drain_row_bytes", self.drain_row_bytes),
            far_drain_row_bytes=rate("far_drain_row_bytes", self.far_drain_row_bytes),
            inside=rate("inside", self.move_bytes_per_second),
            inside_row_bytes=rate("inside_row_bytes", 0.0),
            hop=rate("hop", self.hop_seconds),
            finish=rate("finish", self.move_bytes_per_second),
            pool=rate("pool", self.move_bytes_per_second),
            restore=rate("restore", self.move_bytes_per_second),
            normalize=rate("normalize", self.move_bytes_per_second),
        )

    def share(self, rate: str) -> float:
        """What other busy GPUs leave of "fetch", "drain" or "both": as measured beside as many, or
        else beside the nearest fewer; all of it where no fewer were measured."""
        alone: float = getattr(self, f"{rate}_bytes_per_second")
        numbers = range(self.busy_gpus, 0, -1)
        known = (self.wires.get(f"beside/{others}/{rate}") for others in numbers)
        return min(next((found for found in known if found is not None), alone) / alone, 1.0)

    def staging(self, place: str) -> tuple[float, float, float]:
        """What staging of "page" or "file" does at most toward the device, from there, and both."""
        fetch, drain, both = (
            self.wires.get(f"{place}/{rate}", inf) for rate in ("fetch", "drain", "both")
        )
        return fetch, drain, both

    def arithmetic(
        self,
        engine: str,
        kind: str,
        direction: Direction,
        sums: bool = False,
        few: bool = False,
    ) -> Arithmetic:
        """Of a type, "f32" or "f32/tf32". Where no tile was measured, all have the rate of the key
        or of its nearest relative. `sums`: of tiles of results in the accumulator's type, another
        than theirs, which are as others where nothing of them was measured. `few`: of few
        channels in and more out, likewise."""
        own = "+few" if few and self._tiles_of(engine, f"{kind}+few", direction) else ""
        key = f"{engine}/{kind}+sums/{direction}"
        if sums and few and (measured := self._tiles_of(engine, f"{kind}+sums+few", direction)):
            return Arithmetic(measured)
        if sums and not own and (measured := self._tiles_of(engine, f"{kind}+sums", direction)):
            return Arithmetic(measured)
        if sums and not own and key in self.flops:
            return Arithmetic({(1, 1): self.flops[key]})
        measured = self._tiles_of(engine, kind + own, direction)
        return Arithmetic(measured or {(1, 1): self._flops(engine, kind, direction)})

    def _tiles_of(
        self, engine: str, kind: str, direction: Direction
    ) -> dict[tuple[int, int], float]:
        """Rates by channels and elements of y."""
        measured: dict[tuple[int, int], float] = {}
        for key, rate in self.tiles.items():
            channels, outputs, name = key.split(" ", 2)
            if name == f"{engine}/{kind}/{direction}":
                measured[int(channels), int(outputs)] = rate
        return measured

    def _flops(self, engine: str, kind: str, direction: Direction) -> float:
        relatives = [other for other in DIRECTIONS if other != "bwd_bias"]
        keys = [f"{kind}/{direction}", *(f"{kind}/{other}" for other in relatives)]
        keys += [f"f32/{direction}", "f32/fwd"]
        known = (self.flops.get(f"{engine}/{key}") for key in keys)
        return next((rate for rate in known if rate is not None), self.flops_fallback)

    def text(self) -> str:
        """The file's text, which the library reads (`Context(profile=...)`)."""
        lines = [f"{name} = {_value_text(getattr(self, name))}" for name in _header_names()]
        rates = self.rates().items()
        lines += [f"{_escaped(name)} = {rate!r} {self.mark(name)}" for name, rate in rates]
        return "\n".join([_HEADER, *lines, _END, ""])

    def rates(self) -> dict[str, float]:
        """All rates by their names in the text."""
        found: dict[str, float] = {name: getattr(self, name) for name in _rate_names()}
        for name, word in _TABLES.items():
            found |= {f"{word} {key}": rate for key, rate in getattr(self, name).items()}
        return found

    def mark(self, name: str) -> str:
        """How the rate of that name is known."""
        return self.marks.get(name, "measured" if self.measured else UNMEASURED)


def _header_names() -> list[str]:
    return [one.name for one in _plain_fields() if one.type in ("str", "bool")]


def _rate_names() -> list[str]:
    return [one.name for one in _plain_fields() if one.type == "float"]


def _plain_fields() -> list[Field[Any]]:
    return [one for one in fields(Profile) if one.name not in (*_TABLES, *_APART)]


def parse(text: str) -> Profile:
    """Reads a profile's text. Raises ValueError, with the line, for one that is damaged or of
    another version: whatever the library refuses."""
    header, *lines = text.split("\n")
    if header != _HEADER:
        raise ValueError(f"the profile begins with {header!r}, not with {_HEADER!r}")
    if _END not in lines:
        raise ValueError("the profile is cut off")
    found: dict[str, Any] = {"marks": {}} | {name: {} for name in _TABLES}
    names = set[str]()
    for number, line in enumerate(lines[: lines.index(_END)], 2):
        if line:
            _read(number, line, names, found)
    missing = {*_header_names(), *_rate_names()} - names
    if missing:
        raise ValueError(f"the profile lacks {sorted(missing)}")
    return Profile(**found)


def _read(number: int, line: str, names: set[str], found: dict[str, Any]) -> None:
    try:
        _read_entry(line, names, found)
    except ValueError as error:
        raise ValueError(f"the profile's line {number}, {line!r}: {error}") from error


def _read_entry(line: str, names: set[str], found: dict[str, Any]) -> None:
    """Puts one line where it belongs; `names` are those of the lines before."""
    key, sign, value = line.partition(" = ")
    if not sign:
        raise ValueError("it is not 'key = value'")
    name = _unescaped(key)
    if name in names:
        raise ValueError(f"{name!r} is there twice")
    names.add(name)
    if name in _header_names():
        found[name] = _header_value(name, value)
        return
    place, key = _place(name, found)
    rate, _, mark = value.partition(" ")
    place[key] = _rate(rate, _may_be_zero(name))
    _check_mark(mark)
    found["marks"][name] = mark


def _header_value(name: str, value: str) -> str | bool:
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"it is none of {', '.join(_CHOICES[name])}")
    return value == "true" if name == _FLAG else _unescaped(value)


def _place(name: str, found: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Where the rate of that name is kept, and by which key."""
    word, space, key = name.partition(" ")
    tables = {word: found[table] for table, word in _TABLES.items()}
    if space and word in tables:
        _check_tile(name)
        return tables[word], key
    if name not in _rate_names():
        raise ValueError(f"the key {name!r} is unknown")
    return found, name


def _check_tile(name: str) -> None:
    size = _TILE.fullmatch(name)
    if name.startswith("tile ") and not (size and _is_count(size[1]) and _is_count(size[2])):
        raise ValueError(f"{name!r} names no tile")


def _is_count(digits: str) -> bool:
    return 1 <= int(digits) <= _MOST


def _rate(text: str, may_be_zero: bool) -> float:
    rate = _number(text)
    if not (0 if may_be_zero else _LEAST_RATE) <= rate <= _MOST_RATE:
        raise ValueError(f"{text!r} is no rate")
    return rate


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else nan


def _may_be_zero(name: str) -> bool:
    if name.startswith("wire "):
        return name.endswith(("row_bytes", "/hop"))
    return name in _rate_names() and name.endswith(("row_bytes", "_seconds"))


def _check_mark(mark: str) -> None:
    if mark in ("measured", UNMEASURED):
        return
    samples = _SAMPLES.fullmatch(mark)
    if samples is None or not _is_count(samples[1]):
        raise ValueError(f"{mark!r} does not say how the rate is known")
    if samples[2] != "unknown" and not 0 <= _number(samples[2]) < inf:
        raise ValueError(f"{samples[2]!r} is no spread")


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _escaped(value) if isinstance(value, str) else repr(value)


def _escaped(text: str) -> str:
    return "".join(_WORDS.get(letter, letter) for letter in text)


def _unescaped(text: str) -> str:
    letters = {word[1]: letter for letter, word in _WORDS.items()}
    return re.sub(r"\\(.)", lambda found: letters.get(found[1], found[1]), text)
