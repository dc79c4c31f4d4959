"""Workspace division: faster engines within less workspace, after µ-cuDNN (Oyama et al., 2018).

Measure a convolution on micro-batches of a few sizes, with each engine that it may run on. Then
`divide_batch` finds the fastest way to run a whole batch within a workspace limit, and `pareto`
every such way that is worth having. Many layers that hold their workspaces at once share one by
`divide_workspace`. Everything here is arithmetic on measured numbers, in seconds and bytes: nothing
is run, and no device is needed. Results are exact.

`Context.measure_parts` measures on a device. A call follows its layer's share by `workspace=`:

    layers = {name: ctx.divisions(problem) for name, problem in problems.items()}
    shares = divide_workspace(layers, 256 << 20).chosen
    ctx.conv2d(x, w, out=y, workspace=shares["conv1"].workspace_bytes)

Raises InvalidProblem for numbers that make no sense, and OutOfMemory, whose `least` is the least
limit or total in bytes that works.
"""

import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args

from oocdnn._arguments import need_kind, number_of, several
from oocdnn._calls import windows
from oocdnn._core import workspace as native
from oocdnn._core.cdefs import BatchPolicy
from oocdnn._shown import shown
from oocdnn.errors import InvalidProblem, OutOfMemory

Policy = Literal["undivided", "powers_of_two", "all"]


_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class MicroBatch:
    """One measured way to run a convolution on `samples` of its batch, at least one.

    `seconds` are finite, and like `workspace_bytes` not negative. `engine` is the caller's name for
    the way, and not looked at.
    """

    samples: int
    seconds: float
    workspace_bytes: int
    engine: str = ""


@dataclass(frozen=True)
class Parts:
    """`count` parts of a batch that all run as `choice`."""

    choice: MicroBatch
    count: int


@dataclass(frozen=True)
class Division:
    """A batch of `batch` samples in parts, those of most samples first.

    `seconds` is the sum over the parts, `workspace_bytes` what the one that needs most takes, since
    they run one after the other. The very last part may hold fewer samples than its choice was
    measured for, and counts as a full one.
    """

    batch: int
    seconds: float
    workspace_bytes: int
    parts: tuple[Parts, ...]

    @property
    def samples(self) -> list[int]:
        """Of each part; they add up to the batch."""
        sizes = [
            operator.index(part.choice.samples) for part in self.parts for _ in range(part.count)
        ]
        if sizes:
            sizes[-1] -= sum(sizes) - self.batch
        return sizes


class Option(Protocol):
    """One way to run a layer, for instance a Division: finite seconds, and bytes of workspace."""

    @property
    def seconds(self) -> float: ...
    @property
    def workspace_bytes(self) -> int: ...


K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Option)


@dataclass(frozen=True)
class WorkspaceDivision(Generic[K, O]):
    """What each layer was given: `chosen`, by layer. `seconds` and `workspace_bytes` are sums.

    No division takes less than `least_seconds`, where that is known (else 0). By `divide_workspace`
    it is equal to `seconds`, which says that nothing is faster, but for instances far from those of
    networks, where 65,536 partial divisions are too few to go on from.
    """

    chosen: dict[K, O]
    seconds: float
    workspace_bytes: int
    least_seconds: float = 0.0


def micro_batch_sizes(batch: int, policy: Policy = "powers_of_two") -> list[int]:
    """The sizes of micro-batches worth measuring, smallest first and the batch itself last.

    "undivided" is the batch alone, "powers_of_two" 1, 2, 4, ..., "all" every size.
    """
    return native.micro_batch_sizes(batch_policy(policy), _integer("batch", batch))


def batch_policy(policy: Policy) -> BatchPolicy:
    """The number of a policy's name."""
    if not isinstance(policy, str) or policy not in get_args(Policy):
        raise InvalidProblem(
            f"there is no policy {shown(policy)}, only {', '.join(get_args(Policy))}"
        )
    return BatchPolicy[policy.upper()]


def pareto(choices: Sequence[MicroBatch], batch: int) -> list[Division]:
    """All divisions of `batch` samples of which none is at least as good as another in both seconds
    and bytes of workspace, fastest first.

    Choices may be used any number of times, or not at all. Raises InvalidProblem for none, or for
    ones that are not as MicroBatch says, and Unsupported above 2**20 samples.
    """
    choices, batch = _several(choices), _integer("batch", batch)
    found = native.pareto_divisions(_numbers(choices), batch)
    return [_division(one, choices, batch) for one in found]


def even(choices: Sequence[MicroBatch], batch: int) -> list[Division]:
    """The same of divisions whose parts are all one choice.

    This is what a call runs whose workspace is limited: equal parts, and one that is shorter where
    they do not divide the batch. `Context.divisions` makes them from measurement.
    """
    choices, batch = _several(choices), _integer("batch", batch)
    found = native.even_divisions(_numbers(choices), batch)
    return [_division(one, choices, batch) for one in found]


def divide_batch(choices: Sequence[MicroBatch], batch: int, limit: int) -> Division:
    """The fastest division of `batch` samples whose workspace is at most `limit` bytes.

    Raises what `pareto` does, and OutOfMemory where there is none.
    """
    choices, batch = _several(choices), _integer("batch", batch)
    found = native.divide_batch(_numbers(choices), batch, _integer("limit", limit))
    return _division(found, choices, batch)


def divide_workspace(layers: Mapping[K, Sequence[O]], total: int) -> WorkspaceDivision[K, O]:
    """Divides a workspace of `total` bytes among layers so that their seconds add up to the least.

    Each layer has a list of options, for instance its `pareto`, and is given one. Forward and the
    two backward directions of a layer are three layers here, where all hold workspace at once.

    Raises OutOfMemory where even the options of least workspace are more than `total` together, and
    InvalidProblem for a layer without options.
    """
    options = _options_of(layers)
    kernels = [_costs(layer, theirs) for layer, theirs in options.items()]
    indices, seconds, least_seconds = native.divide_workspace(kernels, _integer("total", total))
    chosen = {layer: theirs[i] for (layer, theirs), i in zip(options.items(), indices, strict=True)}
    size = sum(costs[i][1] for costs, i in zip(kernels, indices, strict=True))
    return WorkspaceDivision(chosen, seconds, size, least_seconds)


def equal_shares(layers: Mapping[K, Sequence[O]], total: int) -> WorkspaceDivision[K, O]:
    """What `divide_workspace` is to be compared with: each layer has `total // len(layers)` bytes,
    and the fastest of its options that fits.

    Raises OutOfMemory where a layer has none that fits, and InvalidProblem for one without options.
    """
    given = _options_of(layers)
    if not all(given.values()):
        raise InvalidProblem("a layer has no option; measure at least one")
    share = _integer("total", total) // max(len(given), 1)
    costs = {layer: _costs(layer, options) for layer, options in given.items()}
    needed = max((min(bytes_ for _, bytes_ in theirs) for theirs in costs.values()), default=0)
    if needed > share:
        least = needed * len(given)
        raise OutOfMemory(
            f"a share of {share} bytes is too little for a layer that needs {needed}; allow {least}"
            " bytes in all, or divide by divide_workspace",
            least,
        )
    fastest = {
        layer: min((cost, i) for i, cost in enumerate(theirs) if cost[1] <= share)
        for layer, theirs in costs.items()
    }
    chosen = {layer: given[layer][i] for layer, (_, i) in fastest.items()}
    seconds = sum(cost[0] for cost, _ in fastest.values())
    return WorkspaceDivision(chosen, seconds, sum(cost[1] for cost, _ in fastest.values()))


def _integer(name: str, value: Any) -> int:
    """An integer, of which the core says whether it is one that is possible."""
    return windows.integer(name, value, -_MOST, _MOST)


def _several(choices: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
    given = several("choices", choices, "a list of MicroBatch")
    for number, one in enumerate(given):
        need_kind(f"choices[{number}]", one, MicroBatch, "a MicroBatch")
    return given


def _numbers(choices: Sequence[MicroBatch]) -> list[native.Choice]:
    return [
        (
            _integer(f"samples of choices[{number}]", one.samples),
            number_of(f"seconds of choices[{number}]", one.seconds),
            _integer(f"workspace_bytes of choices[{number}]", one.workspace_bytes),
        )
        for number, one in enumerate(choices)
    ]


def _options_of(layers: Mapping[K, Sequence[O]]) -> dict[K, tuple[O, ...]]:
    need_kind("layers", layers, Mapping, "a dictionary of lists of options")
    return {
        layer: several(f"layer {shown(layer)}", options, "a list of options")
        for layer, options in layers.items()
    }


def _costs(layer: Any, options: Sequence[Option]) -> list[native.Option]:
    costs = []
    for option in options:
        seconds, size = (getattr(option, name, None) for name in ("seconds", "workspace_bytes"))
        name = f"an option of layer {shown(layer)}"
        costs.append(
            (number_of(f"seconds of {name}", seconds), _integer(f"workspace_bytes of {name}", size))
        )
    return costs


def _division(made: native.Division, choices: Sequence[MicroBatch], batch: int) -> Division:
    parts = tuple(Parts(choices[choice], count) for choice, count in made.parts)
    return Division(batch, made.seconds, made.workspace_bytes, parts)
