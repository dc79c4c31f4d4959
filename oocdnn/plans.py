"""Plans: what would be done with a problem, and why; also on machines that are not here, and how
to forget those that are remembered."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from oocdnn._calls.axes import by_axis
from oocdnn._calls.budget import budget_text, gpus_text
from oocdnn._core import plans

# How plans are chosen, see Context.
Planning = Literal["estimate", "gradual", "measure", "exhaustive"]


class RunnerUp(TypedDict):
    """A plan that was not chosen: as `Context.use_plan` takes it and in words, its engine, its
    predicted time and estimated bytes."""

    plan: str
    text: str
    engine: str
    predicted_seconds: float
    device_bytes: int


class Interval(TypedDict):
    """A piece of work of a step on a track, "fetch", "compute" or "drain"; seconds from the call's
    beginning."""

    track: str
    step: int
    begin: float
    end: float


@dataclass(frozen=True)
class Plan:
    """What would be done with a problem, operands in pageable memory. Bytes and seconds.

    `plan` is the plan itself, as `Context.use_plan` takes it. `machine` says whose rates these are.
    `seconds_by_engine` are the busy times of "fetch", "compute" and "drain". `floor_seconds` is the
    least that any plan needs for wires and arithmetic on any engine, `floor_compute_seconds` what
    arithmetic alone needs. `booked_bytes` are of the device, `estimated_bytes` what the search took
    them for, `host_bytes` of staging memory. `prepare_seconds` is what the engine takes, once in a
    process, to be prepared for the plan's tiles, `pin_seconds` what pinning the operands in
    pageable memory would; None where the profile does not know.
    `pinned` names the operands in pageable memory that the call pins while it runs, as they cross
    again and again; others are staged. `splits` gives the pieces on each axis: n, groups, k, c, d,
    h, w. `refused` are sentences with reasons, `unmeasured` the names of rates that are guesses,
    `timeline` the predicted intervals of the first and the last steps. Where `prepared` is False no
    engine was asked: bytes are estimates, without workspace. Where `remembered` is True an earlier
    search found the plan, else `search_seconds` is how long the search took.
    """

    problem: str
    machine: str
    plan: str
    engine: str
    prepared: bool
    remembered: bool
    search_seconds: float
    predicted_seconds: float
    floor_seconds: float
    floor_compute_seconds: float
    seconds_by_engine: dict[str, float]
    prepare_seconds: float | None
    pin_seconds: float | None
    data_bytes: int
    bytes_h2d: int
    bytes_d2h: int
    budget_bytes: int
    estimated_bytes: int
    booked_bytes: int
    host_bytes: int
    tiles: int
    splits: dict[str, int]
    pinned: list[str]
    runners_up: list[RunnerUp]
    refused: list[str]
    unmeasured: list[str]
    timeline: list[Interval]
    text: str

    def explain(self) -> str:
        """The chosen and the refused candidates with reasons, for people."""
        return self.text


def plan_of(problem: str, text: str) -> Plan:
    """The plan for a problem, as it was given, that the core describes in JSON."""
    fields = json.loads(text)
    return Plan(**{**fields, "problem": problem, "splits": by_axis(fields["splits"])})


@dataclass(frozen=True)
class Refinement:
    """How the profile's rate of one tile has come to agree with calls.

    `rate` is its name in the profile, `before` and `after` are operations per second. The seconds
    are of arithmetic for one tile: as the profile predicted them and does now, and as the fastest
    of so many `samples` took; the middle one took longer by a share of `spread`, below 0 where that
    is unknown.
    """

    rate: str
    before: float
    after: float
    predicted_seconds: float
    refined_seconds: float
    measured_seconds: float
    samples: int
    spread: float


def plan_for_profile(
    problem: str,
    profile: str | os.PathLike[str],
    budget: int | str | None = None,
    *,
    busy_gpus: int | None = None,
) -> Plan:
    """Plans a problem string for the machine of a profile, which need not be this one.

    No device is opened and no engine is prepared. `profile` is a file, or the name of one of those
    that come with the package: "h200" (`oocdnn.perfmodel.profiles.names`). `budget` is a number of
    bytes or "8GiB" (OOCDNN_BUDGET). `busy_gpus`: how many other GPUs of its host are busy too
    (OOCDNN_BUSY_GPUS, else 0).

    Raises InvalidProblem for a string that cannot be read, a profile that is neither, a budget that
    is no number of bytes or busy GPUs that are not 0 to 63, FileError for a file that is none,
    Unsupported where it names no engine that serves, OutOfMemory where nothing fits.
    """
    from oocdnn.perfmodel import profiles

    given = (budget_text(budget), gpus_text(busy_gpus))
    file = profiles.find(profile)
    return plan_of(problem, plans.plan_for_profile(file, problem, *given))


def forget_plans() -> Path | None:
    """Removes the file in which plans are remembered from one process to the next (OOCDNN_PLANS).

    Returns where it was, None where plans are not remembered. Raises FileError where it cannot be
    removed.
    """
    path = plans.forget_plans()
    return Path(path) if path else None
