"""The native planner, seen from Python: profiles, prices and searches of the testing library."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64

from geometry import core
from geometry.core import Problem, Tiling

from oocdnn.perfmodel import profile as machine

ONEDNN = "onednn+symmetric+blocks"
DIRECT = "direct+invariant+double"
ENGINES = ",".join((ONEDNN, DIRECT, "reference+invariant+double"))
OUT_OF_MEMORY, UNSUPPORTED, FILE_ERROR = 3, 4, 7
ROOM = 1 << 20
PAGEABLE, ON_HOST, ON_DEVICE, IN_FILE, IS_TILE = 1, 2, 3, 4, 6  # numbers of Tier
HOST = (ON_HOST,) * len(core.OPERANDS)
_TiersAndBusy = c_int32 * (len(core.OPERANDS) + 1)


@dataclasses.dataclass
class Profile(machine.Profile):
    """A machine whose wires, arithmetic and launches matter about alike for small problems."""

    machine: str = "a test"
    date: str = "2024-01-01"
    measured: bool = True
    fetch_bytes_per_second: float = 1e9
    drain_bytes_per_second: float = 1e9
    both_bytes_per_second: float = 2e9
    move_bytes_per_second: float = 1e10
    far_fetch_row_bytes: float = 200.0
    far_drain_row_bytes: float = 200.0
    copy_seconds: float = 1e-6
    run_seconds: float = 1e-6
    step_seconds: float = 5e-7
    hop_seconds: float = 3e-7
    flops_fallback: float = 1e10


ROWS = ("fetch_row_bytes", "far_fetch_row_bytes", "drain_row_bytes", "far_drain_row_bytes")
NO_ROWS = dict.fromkeys(ROWS, 0.0)  # a profile's rates, where rows cost nothing

# The rates of design.md's reference machine: PCIe 5, TF32.
H200 = Profile(
    fetch_bytes_per_second=55e9,
    drain_bytes_per_second=55e9,
    both_bytes_per_second=100e9,
    move_bytes_per_second=2e12,
    copy_seconds=5e-6,
    run_seconds=10e-6,
    flops_fallback=400e12,
)


class Refused(Exception):
    """The planner's answer was a Status: its code, its text and its number."""

    def __init__(self, code: int, text: str, detail: int = 0):
        super().__init__(text)
        self.code, self.text, self.detail = code, text, detail


@dataclasses.dataclass
class Candidate:
    problem: Problem
    engine: int
    tiling: Tiling
    order: list[int]
    depths: list[int]
    cost: dict
    facts: dict

    @property
    def seconds(self) -> float:
        return self.cost["seconds"]

    def counts(self) -> list[int]:
        return core.counts(self.tiling)


@dataclasses.dataclass
class Found:
    ranked: list[Candidate]
    refused: list[str]
    considered: int
    seconds: float


def library() -> ctypes.CDLL:
    loaded = core.library()
    loaded.oocdnn_testing_estimate.restype = c_int64
    loaded.oocdnn_testing_default_profile.argtypes = [c_char_p, c_int64]
    loaded.oocdnn_testing_profile.argtypes = [
        c_char_p, c_char_p, c_int, c_int, c_int, POINTER(c_double), c_char_p, c_int64,
    ]  # fmt: skip
    loaded.oocdnn_testing_price.argtypes = [
        POINTER(Problem), POINTER(Tiling), core.Order, core.PerOperand, _TiersAndBusy,
        c_char_p, c_char_p, c_char_p, c_int64,
    ]  # fmt: skip
    loaded.oocdnn_testing_floor.restype = c_double
    loaded.oocdnn_testing_enumerate.restype = c_int64
    loaded.oocdnn_testing_enumerate.argtypes = [
        POINTER(Problem), c_int64, c_char_p, c_char_p, c_double * 2, c_double * 2,
    ]  # fmt: skip
    loaded.oocdnn_testing_search.argtypes = [
        POINTER(Problem), c_int64, c_char_p, c_int, c_int, c_char_p, POINTER(c_int64), c_char_p,
        c_int64,
    ]  # fmt: skip
    return loaded


def default_profile() -> str:
    text = ctypes.create_string_buffer(ROOM)
    library().oocdnn_testing_default_profile(text, ROOM)
    return text.value.decode()


def reprint(
    text: str, engine: str = "e", dtype: int = 0, direction: int = 0, tf32: bool = False
) -> tuple[str, float]:
    """The profile's text as printed from what was read, and the rate of one key."""
    printed, flops = ctypes.create_string_buffer(ROOM), c_double()
    raw = text.encode(errors="surrogateescape")
    code = library().oocdnn_testing_profile(
        raw, engine.encode(), dtype, tf32, direction, byref(flops), printed, ROOM
    )
    if code != 0:
        raise Refused(code, printed.value.decode(errors="replace"))
    return printed.value.decode(errors="surrogateescape"), flops.value


def price(problem, tiling, order, depths, profile, engines=ENGINES, tiers=HOST) -> dict:
    """The cost of a candidate on the first engine."""
    text = ctypes.create_string_buffer(ROOM)
    code = library().oocdnn_testing_price(
        byref(problem), byref(tiling), core.Order(*order), core.PerOperand(*depths),
        _TiersAndBusy(*tiers, profile.busy_gpus), engines.encode(), profile.text().encode(),
        text, ROOM,
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    return json.loads(text.value)


def floor_of(problem, profile, engines=ENGINES) -> float:
    """The seconds that no plan on the first engine undercuts."""
    return library().oocdnn_testing_floor(byref(problem), engines.encode(), profile.text().encode())


def estimate(problem, tiling, depths, engines=ENGINES) -> int:
    rings = core.PerOperand(*depths)
    return library().oocdnn_testing_estimate(byref(problem), byref(tiling), rings, engines.encode())


@dataclasses.dataclass
class TimedPlan:
    seconds: float
    prepared: int
    learnt: int  # rates that are kept beside the profile
    text: str


# Nanoseconds of a run by the bytes of x and of y in its tile.
_RUN = ctypes.CFUNCTYPE(c_int64, c_int64, c_int64)


def timed_plan(problem, budget, profile, runs, measure_seconds=-1.0, twin=None) -> TimedPlan:
    """What is chosen on a device of one engine, "plain". `runs`: seconds of a run, or what gives
    them for the bytes of x and of y in its tile. `twin`: seconds of a run of a second engine of
    that name. Measured with a limit of 0 or more."""
    seconds, counts = c_double(), (c_int64 * 2)()
    of_tile = runs if callable(runs) else lambda *_: runs
    nanoseconds = _RUN(lambda *tile: round(of_tile(*tile) * 1e9))
    others = _RUN() if twin is None else _RUN(lambda *_: round(twin * 1e9))
    text = ctypes.create_string_buffer(ROOM)
    code = library().oocdnn_testing_timed_plan(
        byref(problem), c_int64(budget), profile.text().encode(), (_RUN * 2)(nanoseconds, others),
        c_double(measure_seconds), byref(seconds), counts, text, c_int64(ROOM),
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    return TimedPlan(seconds.value, *counts, text.value.decode())


@dataclasses.dataclass
class NextPlan:
    seconds: float
    timed: int  # tiles, until then
    settled: bool


def timed_again(problem, budget, profile, runs, on_device, worth=math.nan) -> list[NextPlan]:
    """As `timed_plan`, for operands on the device as the bits of each number say, in one context.
    `worth`: planned gradually, where calls have been worth so many seconds more of planning than
    there were."""
    nanoseconds = _RUN(lambda *tile: round(runs(*tile) * 1e9))
    count = len(on_device)
    seconds, counts = (c_double * count)(), (c_int64 * (2 * count))()
    code = library().oocdnn_testing_timed_again(
        byref(problem), c_int64(budget), profile.text().encode(), nanoseconds,
        (c_int64 * count)(*on_device), c_int64(count), c_double(worth), seconds, counts,
    )  # fmt: skip
    if code != 0:
        raise Refused(code, "")
    return list(map(NextPlan, seconds, counts[::2], map(bool, counts[1::2])))


@dataclasses.dataclass
class Speeds:
    """Seconds of a run and of each sample in it: of an engine with `workspace` bytes for each
    sample, and of one without."""

    run: float
    hungry: float
    frugal: float
    workspace: int

    def numbers(self):
        seconds = (self.run, self.hungry, self.frugal)
        return (c_int64 * 4)(*(round(one * 1e9) for one in seconds), self.workspace)


WHOLE, DIVIDED, TIMED_WHOLE, TIMED = range(4)  # bits: divided, timed


@dataclasses.dataclass
class DividedPlan:
    engine: str
    plan: str
    seconds: float
    bytes: int
    prepared: int


def divided_plan(problem, budget, limit, profile, speeds, batch=TIMED) -> DividedPlan:
    """What is chosen for operands on a device of one engine, which runs so fast."""
    seconds, counts = c_double(), (c_int64 * 2)()
    text = ctypes.create_string_buffer(ROOM)
    code = library().oocdnn_testing_divided_plan(
        byref(problem), (c_int64 * 2)(budget, limit), profile.text().encode(), speeds.numbers(),
        c_int(batch), byref(seconds), counts, text, c_int64(ROOM),
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    engine, plan = text.value.decode().split(": ")
    return DividedPlan(engine, plan, seconds.value, *counts)


def measured_parts(problem, budget, limit, profile, speeds, policy=1) -> list[tuple]:
    """Samples, seconds and workspace of each way that is timed."""
    room = 10_000
    ways, count = (c_int64 * (3 * room))(), c_int64(room)
    text = ctypes.create_string_buffer(ROOM)
    code = library().oocdnn_testing_measured_parts(
        byref(problem), (c_int64 * 3)(budget, limit, policy), profile.text().encode(),
        speeds.numbers(), ways, byref(count), text, c_int64(ROOM),
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    assert count.value <= room
    return [(ways[3 * i], ways[3 * i + 1] * 1e-9, ways[3 * i + 2]) for i in range(count.value)]


def refined(problem, budget, engines, profile, factor: float) -> tuple[float, float, str]:
    """The busy seconds of what computes in the best plan, and as predicted once the profile agrees
    with a call that took `factor` times as long; and the name of the rate."""
    seconds, text = (c_double * 2)(), ctypes.create_string_buffer(ROOM)
    code = library().oocdnn_testing_refined(
        byref(problem), c_int64(budget), engines.encode(), profile.text().encode(),
        c_double(factor), seconds, text, c_int64(ROOM),
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode())
    return seconds[0], seconds[1], text.value.decode()


def _measured(what: str, *arguments) -> machine.Profile:
    text = ctypes.create_string_buffer(ROOM)
    code = getattr(library(), f"oocdnn_testing_measured_{what}")(*arguments, text, c_int64(ROOM))
    if code != 0:
        raise Refused(code, text.value.decode())
    return machine.parse(text.value.decode())


def measured_copies(fetch, drain) -> machine.Profile:
    """What is found of a device of which each direction copies so many bytes a second, and takes so
    many nanoseconds for a row that begins near the one before, and for a far one."""
    return _measured("copies", (c_double * 3)(*fetch), (c_double * 3)(*drain))


def measured_tiles(problem, profile, run_seconds) -> machine.Profile:
    """The profile with what is found of a device whose runs take so long by bytes of x and y."""
    runs = _RUN(lambda *tile: round(run_seconds(*tile) * 1e9))
    return _measured("tiles", byref(problem), profile.text().encode(), runs)


def _candidate(problem: Problem, entry: dict) -> Candidate:
    tiling = Tiling()
    for name in ("extent", "length", "padding_as_data"):
        getattr(tiling, name)[:] = entry[name]
    tiling.full_padding = entry["full_padding"]
    tiling.taper = core.Taper(*entry["taper"])
    return Candidate(
        problem, entry["engine"], tiling, entry["order"], entry["depths"], entry["cost"], entry
    )


def search(
    problem, budget, profile=None, engines=ENGINES, reproducible=False, exhaustive=False, best=8
) -> Found:
    text, detail = ctypes.create_string_buffer(ROOM), c_int64()
    code = library().oocdnn_testing_search(
        byref(problem), int(budget), engines.encode(), reproducible + 2 * exhaustive, best,
        (profile or Profile()).text().encode(), byref(detail), text, ROOM,
    )  # fmt: skip
    if code != 0:
        raise Refused(code, text.value.decode(), detail.value)
    found = json.loads(text.value)
    ranked = [_candidate(problem, entry) for entry in found["ranked"]]
    return Found(ranked, found["refused"], found["considered"], found["seconds"])


@dataclasses.dataclass
class Enumerated:
    """The least of all candidates without partial sums, and of those with them."""

    count: int
    seconds: tuple[float, float]
    rank: tuple[float, float]


def enumerate_all(problem, budget, profile, engine) -> Enumerated:
    """Prices every candidate within the budget; one engine only."""
    seconds, ranks = (c_double * 2)(), (c_double * 2)()
    count = library().oocdnn_testing_enumerate(
        byref(problem), int(budget), engine.encode(), profile.text().encode(), seconds, ranks
    )
    assert count > 0
    return Enumerated(count, tuple(seconds), tuple(ranks))
