"""`oocdnn bench`: which problems, by whom, and the rows of results."""

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Protocol

import oocdnn
from oocdnn._page import si
from oocdnn.bench import network
from oocdnn.bench.cases import Case
from oocdnn.bench.gpu import wires as gpu_wires
from oocdnn.bench.gpu.memory import ordinal_of
from oocdnn.bench.gpu.throttle import watch
from oocdnn.bench.measure import Patience, Times, time_calls, timed
from oocdnn.bench.peers.card import CARD_PEERS
from oocdnn.bench.peers.in_core import in_core
from oocdnn.bench.peers.network import NETWORK_PEERS
from oocdnn.bench.peers.peer import PEERS, Absent, Peer, give_back
from oocdnn.bench.provenance import provenance
from oocdnn.bench.report.timeline import Timeline, fit, record
from oocdnn.bench.results import About, Row
from oocdnn.bench.sgemm import Sgemm
from oocdnn.bench.task import Convolution, budget_for
from oocdnn.context import Stats
from oocdnn.errors import DeviceError, OutOfMemory, Unsupported

OURS = "oocdnn"
PATIENT = Patience()
QUICK = Patience(least=3, most=5, noise=0.05, seconds=0.3)
RICH = "conv2d:fwd x32x512x56x56 w512x512x3x3 pad1"  # in arithmetic, for a GPU's ceiling
ONCE = Patience(least=0, most=0)
NO_TIME = "skipped: no time was left"
LEAST_RATIO = 0.9  # of a time over its floor; two measurements differ by less than a tenth
ROUNDING = 2.0**-10  # of the largest element, by others: TF32's step; Winograd's is far less
CONVOLUTION_PEERS: dict[str, Peer] = {**PEERS, "in-core": in_core, **CARD_PEERS}
OF_OURS = ("whole", "in-core", "auto", "layer-by-layer")  # who computes with our engines
WITHIN = ("auto", "layer-by-layer")  # who has the same budget as ours
ALL_PEERS = tuple(dict.fromkeys((*CONVOLUTION_PEERS, *NETWORK_PEERS)))


class Task(Protocol):
    """The arrays of a problem, whoever computes it."""

    def call(self, context: oocdnn.Context) -> Callable[[], object]: ...

    def stats(self, context: oocdnn.Context) -> Stats: ...

    def spoil(self) -> None: ...

    def choose(self, context: oocdnn.Context) -> None: ...

    def check(self, rounding: float = 0.0) -> str: ...


class Subject(Protocol):
    """What is measured: a convolution, or a network."""

    text: str

    @property
    def math(self) -> Any: ...

    @property
    def flops(self) -> int: ...

    @property
    def data_bytes(self) -> int: ...

    def objection(self) -> str | None: ...

    def task(self, context: oocdnn.Context, pinned: bool) -> Task: ...

    def floor_seconds(self, context: oocdnn.Context, pinned: bool) -> float: ...


def subject_of(text: str) -> Subject:
    return network.read(text) or Convolution(text)


def peers_of(subject: Subject) -> Mapping[str, Peer]:
    return NETWORK_PEERS if isinstance(subject, network.Network) else CONVOLUTION_PEERS


@dataclass(frozen=True)
class Settings:
    """How cases are measured. `device` None: the default; `budget` None: a share of each problem's
    data."""

    device: str | None = None
    budget: int | str | None = None
    pinned: bool = False
    peers: tuple[str, ...] | None = None  # all that fit the device
    patience: Patience = PATIENT
    until: float = math.inf  # by `time.monotonic`: after it nobody else begins

    @property
    def placement(self) -> str:
        return "pinned" if self.pinned else "pageable"


def case_of(text: str, device: str | None = None) -> Case:
    """A problem of the user's own. Raises InvalidProblem where the string cannot be read."""
    if (found := network.read(text)) is not None:
        return Case("", f"vgg16 n{found.batch}", found.text, found.flops, 1)
    with oocdnn.Context(device) as context:
        context.plan(text)  # the core's words for what is wrong
    return Case("", "", text, Convolution(text).flops, 1)


def _libraries(facts: Mapping[str, Any]) -> dict[str, str]:
    """The versions of the driver, of engines' libraries, and of torch where it is installed."""
    found = {"driver": facts["driver"]} if facts["driver"] else {}
    for engine in facts["engines"]:
        name, _, version = engine["library"].partition(" ")
        if version:
            found[name] = version
    with suppress(PackageNotFoundError):
        found["torch"] = metadata.version("torch")
    return found


class Bench:
    """Measures cases on one device, or on several together: peers compute on the first one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        with oocdnn.Context(settings.device) as context:
            self.device, facts = context.device, json.loads(context.info())
        self.first = self.device.split(",")[0]
        origin = provenance("oocdnn", 0, (), **_libraries(facts))
        machine = origin["machine"]
        host = f"{machine['processor']}, {machine['cores']} cores"
        self._throttled = watch(self.first)
        self.floors_anew = 0  # of rows whose calls took less than the floor by the profile
        self.about = About(
            date=origin["date"],
            machine=host if self.first == "cpu" else f"{facts['description']}; {host}",
            versions=origin["versions"],
            command="",
            commit=origin["commit"] or "",
            rates={},
        )

    def rows(self, case: Case) -> Iterator[Row]:
        """What ours does with a case, then each peer."""
        settings, subject = self._settings, subject_of(case.problem)
        budget = settings.budget or budget_for(subject.data_bytes, self.first)
        row = self._row(case, subject, budget)
        if (why := subject.objection()) is not None:
            yield {**row, "check": f"skipped: {why}"}
            return
        with oocdnn.Context(self.device, budget, math=subject.math) as context:
            try:
                task = subject.task(context, settings.pinned)
                times = time_calls(task.call(context), settings.patience, throttled=self._throttled)
                floor = subject.floor_seconds(context, settings.pinned)
                row["floor_seconds"] = self._floor_anew(subject, budget, times, floor)
            except (OutOfMemory, Unsupported) as error:
                yield {**row, "check": f"skipped: {error}"}
                return
            except DeviceError as error:  # the other problems are measured all the same
                yield {**row, "check": f"fail: {error}"}
                return
            stats = task.stats(context)
            row["budget"] = context.stats.budget_bytes
            task.choose(context)
            yield _timed({**row, "check": _trusted(task.check(), times, row)}, times, stats)
        for who, peer in peers_of(subject).items():
            if self._wants(who):
                yield self._peer_row(who, peer, task, row)

    def _floor_anew(self, subject: Subject, budget: int | str, times: Times, floor: float) -> float:
        """The floor by rates that are measured now, where calls took less than that by the
        machine's profile: it was measured while other work went on, or for other sizes."""
        if not _passes(times, floor):
            return floor
        self.floors_anew += 1
        with (
            tempfile.TemporaryDirectory() as folder,
            oocdnn.Context(
                self.device, budget, math=subject.math, profile=Path(folder) / "profile.txt"
            ) as context,
        ):
            return min(floor, subject.floor_seconds(context, self._settings.pinned))

    def _wants(self, who: str) -> bool:
        if self._settings.peers is not None:
            return who in self._settings.peers
        return self.first != "cpu" or who not in ("in-core", *CARD_PEERS)

    def _peer_row(self, who: str, peer: Peer, task: Task, row: Row) -> Row:
        budget = row["budget"] if who in WITHIN else 0
        row = {**row, "who": who, "budget": budget, "command": f"{row['command']} --peer {who}"}
        if time.monotonic() > self._settings.until:
            return {**row, "check": NO_TIME}
        task.spoil()
        try:
            measured = self._measured(peer, task, row)
        except (Absent, MemoryError, RuntimeError) as error:
            return {**row, "check": f"skipped: {error}"}
        finally:
            give_back(self.first)
        return {**measured, "check": task.check(0.0 if who in OF_OURS else ROUNDING)}

    def _measured(self, peer: Peer, task: Task, row: Row) -> Row:
        """A function of its own, so that nothing of the peer is left after it."""
        with peer(task, self.first) as ready:
            patience = self._settings.patience
            times = time_calls(ready.call, patience, ready.reset, self._throttled)
            row = {**row, "floor_seconds": ready.floor_seconds() or row["floor_seconds"]}
            return _timed(row, times, Stats(peak_device_bytes=ready.peak()))

    def _row(self, case: Case, subject: Subject, budget: int | str) -> Row:
        settings = self._settings
        options = f"--device {self.device} --budget {budget} --placement {settings.placement}"
        return Row(
            set=case.set,
            layer=case.layer,
            times=case.times,
            problem=case.problem,
            who=OURS,
            device=self.device,
            dtype=_word_of(case.problem),
            placement=settings.placement,
            budget=0,
            seconds=None,
            cold_seconds=None,
            noise=None,
            samples=0,
            dropped=0,
            floor_seconds=None,
            tiles=0,
            peak_device_bytes=0,
            bytes_h2d=0,
            bytes_d2h=0,
            data_bytes=subject.data_bytes,
            flops=case.flops,
            check="",
            machine=self.about["machine"],
            commit=self.about["commit"],
            command=f'oocdnn bench "{case.problem}" {options}',
        )


def _passes(times: Times, floor: float | None) -> bool:
    """True if calls took less than a floor that is true leaves room for."""
    return floor is not None and bool(times.warm) and times.median < LEAST_RATIO * floor


def _trusted(check: str, times: Times, row: Row) -> str:
    """The check of a row, "mistrusted" where its result is right and its floor is not."""
    floor = row["floor_seconds"]
    if check != "pass" or floor is None or not _passes(times, floor):
        return check
    return (
        f"mistrusted: {si(times.median, 's')} are less than the floor of {si(floor, 's')}, by "
        "rates that were measured twice"
    )


def _timed(row: Row, times: Times, stats: Stats) -> Row:
    known = bool(times.warm)
    return {
        **row,
        "seconds": times.median if known else None,
        "cold_seconds": times.cold,
        "noise": times.noise if len(times.warm) > 1 else None,
        "samples": len(times.warm),
        "dropped": times.dropped,
        "tiles": stats.tiles,
        "peak_device_bytes": stats.peak_device_bytes,
        "bytes_h2d": stats.bytes_h2d,
        "bytes_d2h": stats.bytes_d2h,
    }


def timeline(rows: Sequence[Row]) -> Timeline | None:
    """Of one of the results of ours, None where no convolution ran in tiles."""
    row = fit(row for row in rows if row["who"] == OURS and network.read(row["problem"]) is None)
    return None if row is None else record(row)


def _word_of(text: str) -> str:
    """The type in a problem string."""
    types = [word for word in text.split() if re.fullmatch(r"b?f\d\d(/\w+)?", word)]
    return types[0] if types else "f32"


def rates(device: str, text: str) -> dict[str, float]:
    """The machine's ceilings for `About`, as far as they are quickly measured, of arithmetic for
    the type of a problem."""
    if device == "cpu":
        products = Sgemm(2048, onednn=False)
        for _ in range(5):
            products.measure()
        return {"arithmetic": products.best}
    wires = gpu_wires.measure(ordinal_of(device))
    found = {"inward": wires.inward, "outward": wires.outward, "both": wires.both}
    arithmetic = gpu_arithmetic(device, f"{RICH} {_word_of(text)}")
    return {**{name: rate * 1e9 for name, rate in found.items()}, "arithmetic": arithmetic}


def gpu_arithmetic(device: str, text: str) -> float:
    """Operations per second of a problem with its arrays on the GPU: the best of three calls."""
    subject = Convolution(text)
    with oocdnn.Context(device, "256MiB") as context:
        task = subject.task(context, pinned=True)
    with in_core(task, device) as ready:
        ready.call()
        return subject.flops / min(timed(ready.call).seconds for _ in range(3))
