"""A training step as the planner sees it: operations in order and saved tensors.

Nothing here knows a framework. A recorder fills these types from one measured step; tests fill them
by hand. Positions are indices into `Timeline.operations`; bytes are integers, times are seconds.

The device does what the host enqueues, one after the other: it begins an operation no earlier than
the host begins to enqueue it, and ends it no earlier than the host. `host` is the time that this
takes the host, 0 where it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from oocdnn.errors import InvalidProblem


@dataclass(frozen=True)
class Operation:
    """One operation of the step.

    Args:
        name: For reports.
        seconds: Measured time on the device.
        fixed_bytes: Device bytes in use while the operation runs, besides the saved tensors of the
            timeline: parameters, gradients so far, operands that are not saved, workspace.
        begin_bytes: Those of them that are in use when it begins, and while recipes run for it;
            None: all.
        host: Time in which the host enqueues it.
    """

    name: str
    seconds: float
    fixed_bytes: int = 0
    begin_bytes: int | None = None
    host: float = 0.0

    def extra_bytes(self, recipe: Recipe) -> int:
        """Device bytes beyond the fixed ones while a recipe runs for this operation."""
        return max(self.first_bytes + recipe.temporary_bytes - self.fixed_bytes, 0)

    @property
    def first_bytes(self) -> int:
        """`begin_bytes` as a number."""
        return self.fixed_bytes if self.begin_bytes is None else self.begin_bytes


@dataclass(frozen=True)
class Recipe:
    """A way to compute a saved tensor again before its first use in backward.

    Args:
        inputs: Indices of the saved tensors that it reads, each produced before the result.
        seconds: Time of the computation.
        temporary_bytes: Device bytes besides inputs and result while it runs.
        name: For reports: `rebuild` for an elementwise pass, `replay` for the operation itself.
        host: Time in which the host enqueues it.
    """

    inputs: tuple[int, ...]
    seconds: float
    temporary_bytes: int = 0
    name: str = "rebuild"
    host: float = 0.0


@dataclass(frozen=True)
class Squeeze:
    """A smaller form that stays on the device: mask bits, places in a pooling window.

    Args:
        nbytes: Device bytes of the form, from after the production to the last use.
        seconds: Time of both ways, one half each.
        whole: False where only the uses in backward can read what comes back, not recipes.
        name: For reports.
        host: Time in which the host enqueues both ways, one half each.
    """

    nbytes: int
    seconds: float
    whole: bool = True
    name: str = "squeeze"
    host: float = 0.0


@dataclass(frozen=True)
class Saved:
    """A tensor that forward leaves for backward.

    Args:
        name: For reports.
        nbytes: Device bytes.
        produced: Position of the operation that writes it.
        last_forward_use: Last position in forward that reads it; `produced` if none does.
        uses: Positions in backward that read it, ascending, at least one.
        movable: False for what has to stay where it is.
        recipes: Ways to compute it again.
        squeeze: A smaller form, or None.
    """

    name: str
    nbytes: int
    produced: int
    last_forward_use: int
    uses: tuple[int, ...]
    movable: bool = True
    recipes: tuple[Recipe, ...] = ()
    squeeze: Squeeze | None = None

    @property
    def first_use(self) -> int:
        return self.uses[0]

    @property
    def last_use(self) -> int:
        return self.uses[-1]


@dataclass(frozen=True)
class Timeline:
    """A step: operations in the order in which they run, the first `forward` of them forward.

    `starts` are the times at which the operations begin where everything is kept, and the end;
    `spare` are the times by which the host can be later at each of them, and the end be the same.
    `plain_seconds` is the time of the step where everything is kept and nothing delays the host.

    Raises InvalidProblem where positions, sizes or recipes contradict each other.
    """

    operations: tuple[Operation, ...]
    forward: int
    saved: tuple[Saved, ...] = ()
    label: str = ""
    plain_seconds: float = field(init=False, repr=False, compare=False)
    starts: tuple[float, ...] = field(init=False, repr=False, compare=False)
    spare: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts, hosts, now, host = [], [], 0.0, 0.0
        for operation in self.operations:
            starts.append(now)
            hosts.append(host)
            host += operation.host
            now = max(now + operation.seconds, host)
        spare, device, rest = [now - host], 0.0, 0.0  # these two: from the operation to the end
        for operation, begun in zip(reversed(self.operations), reversed(hosts), strict=True):
            device += operation.seconds
            rest = max(device, operation.host + rest)
            spare.append(now - begun - rest)
        object.__setattr__(self, "starts", (*starts, now))
        object.__setattr__(self, "spare", tuple(reversed(spare)))
        object.__setattr__(self, "plain_seconds", self.seconds)
        self._check()

    @property
    def seconds(self) -> float:
        """The step where everything is kept: the sum of its operations, and of the device's waits
        for the host."""
        return self.starts[-1]

    @property
    def peak_bytes(self) -> int:
        """Most device bytes where every saved tensor is kept."""
        return max(kept_bytes(self), default=0)

    def added(self, position: int, seconds: float, host: float) -> float:
        """What the step takes longer where the host enqueues something else there: its time on the
        device, or what it takes the host beyond what that can spare."""
        return max(seconds, host - self.spare[position])

    def delayed(
        self, host: Mapping[int, float], device: Mapping[int, float] | None = None
    ) -> Timeline:
        """With so many more seconds of the host and of the device at positions, that
        `plain_seconds` has not."""
        device = device or {}
        if not (host or device):
            return self
        operations = tuple(
            replace(
                one,
                seconds=one.seconds + device.get(position, 0.0),
                host=one.host + host.get(position, 0.0),
            )
            for position, one in enumerate(self.operations)
        )
        made = replace(self, operations=operations)
        object.__setattr__(made, "plain_seconds", self.plain_seconds)
        return made

    def _check(self) -> None:
        count = len(self.operations)
        if not 0 <= self.forward <= count:
            raise InvalidProblem(
                f"forward is {self.forward}; a step of {count} operations has 0 to {count}"
            )
        for operation in self.operations:
            begin = operation.begin_bytes or 0
            times = operation.seconds >= 0 and operation.host >= 0
            if not times or operation.fixed_bytes < 0 or begin < 0:
                raise InvalidProblem(
                    f"operation {operation.name!r} takes {operation.seconds} s, {operation.host} s "
                    f"of the host, {operation.fixed_bytes} bytes and {begin} at its beginning; all "
                    "must be at least 0"
                )
        for index, one in enumerate(self.saved):
            if index and one.produced < self.saved[index - 1].produced:
                raise InvalidProblem(
                    f"saved tensor {one.name!r} is produced at {one.produced}, before the one in "
                    "front of it; saved tensors are listed in the order of production"
                )
            self._check_saved(index, one)

    def _check_saved(self, index: int, one: Saved) -> None:
        in_order = 0 <= one.produced <= one.last_forward_use < self.forward
        uses = one.uses
        later = bool(uses) and self.forward <= uses[0] and uses[-1] < len(self.operations)
        if one.nbytes < 0 or not in_order or not later or list(uses) != sorted(uses):
            raise InvalidProblem(
                f"saved tensor {one.name!r}: {one.nbytes} bytes, produced at {one.produced}, "
                f"last used in forward at {one.last_forward_use}, in backward at {uses}; a step of "
                f"{len(self.operations)} operations has backward from {self.forward} on"
            )
        for recipe in one.recipes:
            for source in recipe.inputs:
                if not 0 <= source < index:
                    raise InvalidProblem(
                        f"saved tensor {one.name!r}, number {index}, cannot be computed from "
                        f"number {source}: a recipe reads saved tensors of smaller numbers"
                    )


@dataclass(frozen=True)
class Link:
    """A wire between the device and memory that holds what is swapped. Rates in bytes a second.

    Args:
        to_host: Rate of copies away from the device while compute runs.
        from_host: Rate of copies to the device while compute runs.
        both: Sum of the rates of both directions where both are in use.
        latency: Seconds from enqueueing a copy to its first byte.
        name: For reports.
        host: Seconds in which the host enqueues one copy.
    """

    to_host: float
    from_host: float
    both: float
    latency: float = 10e-6
    name: str = "host"
    host: float = 0.0

    def __post_init__(self) -> None:
        rates = (self.to_host, self.from_host, self.both)
        times = 0 <= self.latency < 1 and 0 <= self.host < 1
        if not all(0 < rate < float("inf") for rate in rates) or not times:
            raise InvalidProblem(
                f"link {self.name!r} has rates {rates} bytes/s, a latency of {self.latency} s and "
                f"takes the host {self.host} s; rates must be positive and finite, times below a "
                "second"
            )


def available(timeline: Timeline, one: Saved) -> list[int]:
    """The recipes whose inputs backward still has where the result is needed."""
    return [
        number
        for number, recipe in enumerate(one.recipes)
        if all(timeline.saved[source].last_use >= one.first_use for source in recipe.inputs)
    ]


Spans = Sequence[tuple[int, int]]


def resident_bytes(timeline: Timeline, spans: Sequence[Spans]) -> list[int]:
    """Device bytes at each position: fixed ones, and each saved tensor from the first to the last
    position of each of its spans."""
    steps = [0] * (len(timeline.operations) + 1)
    for one, held in zip(timeline.saved, spans, strict=True):
        for first, last in held:
            steps[first] += one.nbytes
            steps[last + 1] -= one.nbytes
    total, found = 0, []
    for change, operation in zip(steps, timeline.operations, strict=False):
        total += change
        found.append(total + operation.fixed_bytes)
    return found


def kept_bytes(timeline: Timeline) -> list[int]:
    """Device bytes at each position where every saved tensor is kept."""
    return resident_bytes(timeline, [((one.produced, one.last_use),) for one in timeline.saved])


def certain_bytes(timeline: Timeline) -> list[int]:
    """Device bytes at each position whatever the plan: fixed ones, and each movable tensor only
    while an operation reads it."""
    spans = [
        ((one.produced, one.last_forward_use), (one.first_use, one.last_use))
        if one.movable
        else ((one.produced, one.last_use),)
        for one in timeline.saved
    ]
    return resident_bytes(timeline, spans)
