"""One problem, by ours and by the peers: seconds with their noise, and whether the result is right.

Elements are small integers, so that sums are exact in every order and the threshold is 0; chosen
elements of the result are compared with sums of our own (`oocdnn.bench.sampled`), whoever made it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._mapped import Array
from oocdnn._problem import Problem, random_call
from oocdnn.bench import sampled
from oocdnn.bench.amounts import longest_sum, operand_bytes
from oocdnn.bench.cpu import timed
from oocdnn.cli.common import bytes_text, free_host_bytes
from oocdnn.plans import Plan

BUDGET_SHARE = 8  # the data divided by this is the budget where none is given
LEAST_BUDGET = 1 << 20
EXACT_DOUBLE, EXACT_ELSEWHERE = 2**53, 2**24  # sums up to here are exact; others are as in float32
SAMPLES = 2000  # elements of a result that are compared
SUMMED = 2e8  # products in all of these
MUCH_LONGER = 5  # than the seconds that warm calls should take
ROOM = 1.25  # of the operands' bytes that have to be free


@dataclass(frozen=True)
class Patience:
    """When enough warm calls were timed: `least`, and the noise or the seconds. Where calls take so
    long that these are passed by far, one is enough."""

    least: int = 5
    most: int = 50
    noise: float = 0.01
    seconds: float = 2.0


@dataclass(frozen=True)
class Case:
    """A problem of a set. The string is whole: type and layout are in it. `times` says how often it
    occurs in its network."""

    set: str
    layer: str
    problem: str
    flops: int
    times: int


@dataclass
class Times:
    """Warm calls in order, and how many more were dropped since others used the machine."""

    cold: float = 0.0
    warm: list[float] = field(default_factory=list)
    dropped: int = 0

    @property
    def median(self) -> float:
        return median(self.warm)

    @property
    def noise(self) -> float:
        """Half the width of the median's 95 % interval over the median."""
        low, high = interval(self.warm)
        return (high - low) / 2 / self.median


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, whatever the distribution: by order statistics. Fewer than
    six values have none so narrow, and give their least and greatest."""
    ordered, count = sorted(values), len(values)
    tail, rank = 0.5**count, 0  # the chance that at most `rank` values are below the median
    while rank + 1 < count / 2:
        more = tail + math.comb(count, rank + 1) * 0.5**count
        if more > 0.025:
            break
        tail, rank = more, rank + 1
    if tail > 0.025:
        return ordered[0], ordered[-1]
    return ordered[rank], ordered[count - 1 - rank]


def time_calls(call: Callable[[], object], patience: Patience) -> Times:
    """The first call, and warm ones until their median is known well enough. A call in which other
    programs used much of the processor is dropped, as long as there were as many that count."""
    start = time.perf_counter()
    call()
    times = Times(cold=time.perf_counter() - start)
    spent = 0.0
    while len(times.warm) < patience.most:
        one = timed(call)
        spent += one.seconds
        if one.quiet or times.dropped > len(times.warm):
            times.warm.append(one.seconds)
        else:
            times.dropped += 1
        long = spent >= MUCH_LONGER * patience.seconds
        if len(times.warm) < (1 if long else patience.least):
            continue
        if times.noise <= patience.noise or spent >= patience.seconds:
            break
    return times


def _exact_to(problem: Problem) -> int:
    return EXACT_DOUBLE if np.dtype(problem.dtype) == np.float64 else EXACT_ELSEWHERE


def largest_element(problem: Problem) -> int:
    """Of the integers to fill with: 2, or 1 where sums of these might not be exact."""
    return 2 if 4 * longest_sum(problem) <= _exact_to(problem) else 1


def objection(problem: Problem) -> str | None:
    """Why a problem is not one for here."""
    extra = problem.bias or problem.scale or problem.residual or problem.beta
    fused = problem.pool or problem.saves or problem.clips or problem.along
    if extra or fused or problem.keywords.keys() & {"alpha", "activation"}:
        return "only plain convolutions are compared here: no epilogue, pool, alpha or beta"
    if problem.direction not in ("fwd", "bwd_data", "bwd_filter"):
        return f"{problem.direction} is not compared here"
    need, free = int(ROOM * operand_bytes(problem)), free_host_bytes()
    if need > free:
        return f"needs {bytes_text(need)} of host memory, {bytes_text(free)} are free"
    return None


def budget_for(problem: Problem) -> int:
    return max(operand_bytes(problem) // BUDGET_SHARE, LEAST_BUDGET)


class Task:
    """A problem with its arrays, for whoever computes it, and true elements of the result.

    The inputs are in the order of the direction: x and w, dy and w, x and dy."""

    def __init__(self, problem: Problem, context: oocdnn.Context, pinned: bool) -> None:
        self.problem = problem
        random, largest = np.random.default_rng(1), largest_element(self.problem)

        def integers(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
            array: Array = oocdnn.empty(shape, dtype, pinned)
            array[...] = random.integers(-largest, largest, shape, np.int8, endpoint=True)
            return array

        with context:
            self._call = random_call(self.problem, context, integers)
        self.first, self.second = self._call.args[:2]
        self.out: Array = self._call.keywords["out"]
        self._places: list[sampled.Place] = []
        self._true = np.empty(0)

    def call(self, context: oocdnn.Context) -> Callable[[], object]:
        """The problem on a context."""
        function = getattr(context, self._call.func.__name__)
        return partial(function, *self._call.args, **self._call.keywords)

    def choose(self, pieces: Sequence[int]) -> None:
        """Sums the elements that results are held to, see `sampled.places`."""
        count = int(max(min(SAMPLES, SUMMED / longest_sum(self.problem)), 16))
        self._places = sampled.places(self.out.shape, pieces, count, seed=3)
        sums = [sampled.element(self.problem, self.first, self.second, at) for at in self._places]
        with np.errstate(over="ignore"):
            self._true = np.array(sums).astype(self.problem.dtype).astype(np.float64)

    def check(self) -> str:
        """Whether `out` holds the result."""
        columns = tuple(np.array(column) for column in zip(*self._places, strict=True))
        seen = self.out[columns].astype(np.float64)
        wrong = np.flatnonzero(seen != self._true)
        if wrong.size == 0:
            return "pass"
        at = int(wrong[0])
        text = (
            f"{wrong.size} of {len(self._places)} compared elements differ, the first at "
            f"{self._places[at]}: {seen[at]:g}, not {self._true[at]:g}"
        )
        most = longest_sum(self.problem) * largest_element(self.problem) ** 2
        if most > _exact_to(self.problem):
            return f"mistrusted: sums of up to {most} may be rounded, and {text}"
        return f"fail: {text}"


def pieces_of(problem: Problem, plan: Plan) -> list[int]:
    """Into how many pieces the plan cuts each axis of the result."""
    split = plan.splits
    space = [split[axis] for axis in ("d", "h", "w")[3 - problem.rank :]]
    axes = {
        "fwd": [split["n"], split["groups"] * split["k"], *space],
        "bwd_data": [split["n"], split["groups"] * split["c"], *space],
        "bwd_filter": [split["groups"] * split["k"], split["c"], *[1] * problem.rank],
    }
    return axes[problem.direction]
