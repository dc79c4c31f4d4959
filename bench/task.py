"""A problem with its arrays, for whoever computes it, and true elements of its results.

Elements are small integers, so that sums are exact in every order and the threshold is 0; chosen
elements are compared with sums of our own (`sampled`, and `passes` where a pool, relu or several
gradients are in it), whoever made them.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

import numpy as np
import numpy.typing as npt

import oocdnn
from oocdnn._arrays.mapped import Array
from oocdnn._calls.operation import MathName
from oocdnn._shown import bytes_text
from oocdnn.bench.amounts import flops, groups_of, longest_sum, operand_bytes
from oocdnn.bench.truth import sampled
from oocdnn.bench.truth.passes import Pass, is_pass, touching
from oocdnn.cli.common import free_host_bytes
from oocdnn.cli.problems import Problem, parse, random_call
from oocdnn.context import Stats
from oocdnn.plans import Plan

BUDGET_SHARE = 8  # the data divided by this is the budget where none is given
LEAST_BUDGET, LEAST_BUDGET_OF_GPU = 1 << 20, 64 << 20
EXACT_DOUBLE, EXACT_ELSEWHERE = 2**53, 2**24  # sums up to here are exact; others are as in float32
SAMPLES = 2000  # elements of a result that are compared
SAMPLES_OF_DX = 48  # where each of them takes a box of dy
FILTERS = 4  # whose gradients are compared, where each takes all of dy
SUMMED = 2e8  # products in all samples
LONG, SUMMING = 10**6, 6  # products of a long sum, and the threads that such are summed by
BLOCK = 16_777_213  # elements that repeat: a prime, so that no two rows of an array are alike
ROOM = 1.25  # of the operands' bytes that have to be free
_WORST = ("fail", "mistrusted", "pass")  # verdicts


def _exact_to(problem: Problem) -> int:
    return EXACT_DOUBLE if np.dtype(problem.dtype) == np.float64 else EXACT_ELSEWHERE


def largest_element(problem: Problem) -> int:
    """Of the integers to fill with: 2, or 1 where sums of these might not be exact."""
    return 2 if 4 * longest_sum(problem) <= _exact_to(problem) else 1


def objection(problem: Problem) -> str | None:
    """Why a problem is not one for here."""
    scaled = problem.scale or problem.residual or problem.beta or "alpha" in problem.keywords
    if scaled or problem.slopes or problem.keywords.get("activation", "relu") != "relu":
        return "only bias, relu and pools are compared here: no other epilogue, no alpha or beta"
    if problem.direction not in ("fwd", "bwd_data", "bwd_filter"):
        return f"{problem.direction} is not compared here"
    if is_pass(problem) and (touching(problem) is None or "mode" in problem.keywords):
        return "only maxima of windows that touch, and filters that are not mirrored, are compared"
    need, free = int(ROOM * operand_bytes(problem)), free_host_bytes()
    if need > free:
        return f"needs {bytes_text(need)} of host memory, {bytes_text(free)} are free"
    return None


def budget_for(data_bytes: int, device: str) -> int:
    """On a GPU not less than what any problem may ask for."""
    least = LEAST_BUDGET if device == "cpu" else LEAST_BUDGET_OF_GPU
    return max(data_bytes // BUDGET_SHARE, least)


def pieces_of(problem: Problem, plan: Plan, result: str) -> list[int]:
    """Into how many pieces the plan cuts each axis of a result."""
    split = plan.splits
    space = [split[axis] for axis in ("d", "h", "w")[3 - problem.rank :]]
    axes = {
        "y": [split["n"], split["groups"] * split["k"], *space],
        "dx": [split["n"], split["groups"] * split["c"], *space],
        "dw": [split["groups"] * split["k"], split["c"], *[1] * problem.rank],
        "db": [split["groups"] * split["k"]],
    }
    return axes[result]


PINNED = "x@pin w@pin y@pin b@pin z@pin input@pin also_dw@pin also_db@pin"


def placed(text: str, pinned: bool) -> str:
    """A problem with its arrays in such memory, where it says nothing else."""
    return f"{text} {PINNED}" if pinned and "@" not in text else text


def plan_with_room(context: oocdnn.Context, text: str, pinned: bool) -> Plan:
    """The plan for arrays in such memory; where one pass for several gradients does not fit the
    budget, and each has taken one of its own, that of one pass with more room. Its floor is the
    same."""
    text = placed(text, pinned)
    try:
        return context.plan(text)
    except oocdnn.OutOfMemory as error:
        with oocdnn.Context(context.device, 2 * error.least) as roomy:
            return roomy.plan(text)


def fill(array: Array, block: Array) -> None:
    """Fills an array without gaps with the block, again and again."""
    word = np.dtype(f"u{array.itemsize}")  # as what it is copied without the interpreter
    flat, block = array.reshape(-1).view(word), block.astype(array.dtype).view(word)

    def copy(begin: int) -> None:
        part = flat[begin : begin + block.size]
        part[...] = block[: part.size]

    with ThreadPoolExecutor() as threads:
        list(threads.map(copy, range(0, flat.size, max(block.size, 1))))


def apart(seen: Array, true: Array, rounding: float) -> npt.NDArray[np.bool_]:
    """Which elements differ by more than `rounding` of the largest, or are no numbers."""
    if rounding == 0.0:
        return np.asarray(seen != true)
    largest = float(np.abs(true).max(initial=0.0))
    return ~(np.abs(seen.astype(np.float64) - true) <= rounding * largest)


def worst(checks: Iterable[str]) -> str:
    """The first of the worst verdicts; "pass" where there is none."""
    return min(checks, key=lambda check: _WORST.index(check.partition(":")[0]), default="pass")


def alike(seen: Array, true: Array) -> bool:
    """Nearer to the true elements than nothing is, which those of other places still are."""
    off = float(np.linalg.norm((seen - true).astype(np.float64)))
    return off < float(np.linalg.norm(true.astype(np.float64)))


@dataclass(frozen=True)
class Compared:
    """True elements of a result, and where they are."""

    name: str
    places: list[sampled.Place]
    true: npt.NDArray[np.float64]

    @property
    def _columns(self) -> tuple[npt.NDArray[np.intp], ...]:
        return tuple(np.array(column) for column in zip(*self.places, strict=True))

    def differing(self, out: Array, rounding: float) -> tuple[int, str]:
        """How many are not those of `out`, and a text on the first. They may be off by `rounding`
        of the largest."""
        seen = self._seen(out)
        wrong = np.flatnonzero(apart(seen, self.true, rounding))
        if wrong.size == 0:
            return 0, ""
        at = int(wrong[0])
        return int(wrong.size), f"{self.places[at]}: {seen[at]:g}, not {self.true[at]:g}"

    def alike(self, out: Array) -> bool:
        """Whether those of `out` are at least nearer to them than nothing."""
        return alike(self._seen(out), self.true)

    def _seen(self, out: Array) -> npt.NDArray[np.float64]:
        seen: npt.NDArray[np.float64] = out[self._columns].astype(np.float64)
        return seen

    def spoil(self, out: Array) -> None:
        """Leaves no number there."""
        out[self._columns] = np.nan


class Task:
    """`inputs` are named x, w, b, dy, dz, those of a direction in its order; `outs`, results, y (z
    where a pool makes it), dx, dw and db."""

    def __init__(self, problem: Problem, context: oocdnn.Context, pinned: bool) -> None:
        self.problem, self.pinned = problem, pinned
        random, largest = np.random.default_rng(1), largest_element(self.problem)

        def integers(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
            array: Array = oocdnn.empty(shape, dtype, pinned)
            size = min(array.size, BLOCK)
            fill(array, random.integers(-largest, largest, size, np.int8, endpoint=True))
            return array

        with context:
            self._call = random_call(self.problem, context, integers)
        self.inputs, self.outs = self._named()
        self._compared: list[Compared] = []

    def _named(self) -> tuple[dict[str, Array], dict[str, Array]]:
        values, keywords = self._call.args, self._call.keywords
        out = keywords["out"]
        if self._call.func.__name__ == "conv_bias_act_pool_backward":
            dz, _, x, w = values
            return {"x": x, "w": w, "dz": dz}, dict(out)
        names = {"fwd": ("x", "w"), "bwd_data": ("dy", "w"), "bwd_filter": ("x", "dy")}
        inputs = dict(zip(names[self.problem.direction], values, strict=False))
        if self.problem.bias:
            inputs["b"] = keywords["b"]
        result = {"fwd": "y", "bwd_data": "dx", "bwd_filter": "dw"}[self.problem.direction]
        return inputs, {result: out}

    def call(
        self, context: oocdnn.Context, moved: Callable[[Array], object] = lambda array: array
    ) -> Callable[[], object]:
        """The problem on a context; `moved` gives what takes the place of an array."""
        values = [moved(one) if isinstance(one, np.ndarray) else one for one in self._call.args]
        keywords = dict(self._call.keywords)
        for name, value in keywords.items():
            if isinstance(value, np.ndarray):
                keywords[name] = moved(value)
        if isinstance(keywords["out"], dict):
            keywords["out"] = {need: moved(out) for need, out in keywords["out"].items()}
        return partial(getattr(context, self._call.func.__name__), *values, **keywords)

    def spoil(self) -> None:
        """Leaves no number where results are compared."""
        for compared in self._compared:
            compared.spoil(self.outs[compared.name])

    @cached_property
    def _pass(self) -> Pass:
        problem = self.problem
        exact = self._most <= EXACT_ELSEWHERE
        return Pass(
            problem, self.inputs["x"], self.inputs["w"], self.inputs.get("b"),
            problem.clips or problem.keywords.get("activation") == "relu",
            touching(problem) or (), np.float32 if exact else np.float64,
        )  # fmt: skip

    def stats(self, context: oocdnn.Context) -> Stats:
        """Of the last call."""
        return context.stats

    def choose(self, context: oocdnn.Context) -> None:
        """Sums the elements that results are held to: see `sampled.places`."""
        plan = plan_with_room(context, self.problem.text, self.pinned)
        of_pass = is_pass(self.problem)
        for name, out in self.outs.items():
            if of_pass and name in ("dw", "db"):
                continue
            count = int(max(min(SAMPLES, SUMMED / longest_sum(self.problem)), 16))
            count = min(count, SAMPLES_OF_DX) if of_pass and name == "dx" else count
            pieces = pieces_of(self.problem, plan, name)
            places = sampled.places(out.shape, pieces, count, seed=3)
            self._compare(name, places, self._elements(name, places))
        if of_pass and self.outs.keys() & {"dw", "db"}:
            self._compare_filters(pieces_of(self.problem, plan, "db"))

    def _elements(self, name: str, places: Sequence[sampled.Place]) -> list[float]:
        """Those of long sums by several threads."""
        element = partial(self._element, name)
        if is_pass(self.problem) or longest_sum(self.problem) < LONG:
            return list(map(element, places))
        with ThreadPoolExecutor(SUMMING) as threads:
            return list(threads.map(element, places))

    def _element(self, name: str, place: sampled.Place) -> float:
        if not is_pass(self.problem):
            first, second, *_ = self.inputs.values()
            return sampled.element(self.problem, first, second, place)
        n, channel, *at = place
        if name == "dx":
            return self._pass.dx(self.inputs["dz"], n, channel, at)
        box = [(position, position + 1) for position in at]
        return float(self._pass.z(n, range(channel, channel + 1), box).item())

    def _compare(self, name: str, places: list[sampled.Place], sums: Sequence[float]) -> None:
        with np.errstate(over="ignore"):
            true = np.array(sums).astype(self.problem.dtype).astype(np.float64)
        self._compared.append(Compared(name, places, true))

    def _compare_filters(self, pieces: Sequence[int]) -> None:
        """All of dw and db that some filters have, of either end and beside a seam."""
        per_group = self.problem.w[0] // groups_of(self.problem)
        chosen = {k for (k,) in sampled.places(self.problem.w[:1], pieces, FILTERS, seed=3)}
        sums: dict[str, list[tuple[sampled.Place, float]]] = {"dw": [], "db": []}
        for _, filters in groupby(sorted(chosen), lambda k: k // per_group):
            of_group = list(filters)
            dw, db = self._pass.dw_db(self.inputs["dz"], of_group)
            for row, k in enumerate(of_group):
                sums["dw"] += [((k, *at), value) for at, value in np.ndenumerate(dw[row])]
                sums["db"].append(((k,), float(db[row])))
        for name in self.outs.keys() & sums.keys():
            places, values = zip(*sums[name], strict=True)
            self._compare(name, list(places), values)

    @property
    def _most(self) -> int:
        """What a sum may reach."""
        return longest_sum(self.problem) * largest_element(self.problem) ** 2

    def check(self, rounding: float = 0.0) -> str:
        """Whether the results are right, up to `rounding` of the largest compared element."""
        return worst(self._verdict(compared, rounding) for compared in self._compared)

    def _verdict(self, compared: Compared, rounding: float) -> str:
        out = self.outs[compared.name]
        count, first = compared.differing(out, rounding)
        if count == 0:
            return "pass"
        of = f" of {compared.name}" if len(self.outs) > 1 else ""
        text = f"{count} of {len(compared.places)} compared elements{of} differ, the first at "
        if self._most > _exact_to(self.problem) and compared.alike(out):
            return f"mistrusted: sums of up to {self._most} may be rounded, and {text}{first}"
        return f"fail: {text}{first}"


class Convolution:
    """What a problem string asks for."""

    def __init__(self, text: str) -> None:
        self.text, self.problem = text, parse(text)

    @property
    def math(self) -> MathName:
        named: MathName = self.problem.keywords.get("math", "fp32")
        return named

    @property
    def flops(self) -> int:
        return (1 + ("dw" in self.problem.along)) * flops(self.problem)

    @property
    def data_bytes(self) -> int:
        return operand_bytes(self.problem)

    def objection(self) -> str | None:
        return objection(self.problem)

    def task(self, context: oocdnn.Context, pinned: bool) -> Task:
        return Task(self.problem, context, pinned)

    def floor_seconds(self, context: oocdnn.Context, pinned: bool) -> float:
        return plan_with_room(context, self.text, pinned).floor_seconds
