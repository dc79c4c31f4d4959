"""Rows 3 and 4: random reals within the bound of summation; NaN and infinity stay local."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
from engine.cases import DIRECTIONS, DTYPES, Case, RandomDraw, call, make_inputs, random_case
from engine.test_properties import result_within, spoiled, with_values

import oocdnn
from reliability.processes import tally
from reliability.rows import Finding, Size, Tally

ENGINES = ("onednn", "direct", "reference")
# Unit roundoff of the sums and of the stored result, and half the smallest subnormal of the latter.
SUM_ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-24, "bf16": 2.0**-24}
OUT_ROUNDOFF = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}
OUT_TINIEST = {"f32": 2.0**-150, "f64": 2.0**-1074, "f16": 2.0**-25, "bf16": 2.0**-134}


def plain(case: Case, **changes: Any) -> Case:
    return replace(case, alpha=1.0, beta=0.0, **changes)


def exact_sum(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    window = {**case.window(), "flip": case.mode == "convolution"}
    x, w, y = (arrays[name].astype(np.float64) for name in "xwy")
    if case.direction == "forward":
        return oracle.forward(x, w, **window)
    if case.direction == "backward_data":
        return oracle.backward_data(y, w, case.x_shape, **window)
    if case.direction == "backward_filter":
        return oracle.backward_filter(x, y, case.w_shape, **window)
    return oracle.backward_bias(y)


PIXEL_BLOCK = 256  # terms that the direct engine sums in float32; blocks are added in float64


def terms(case: Case) -> int:
    """The most products (or numbers, for the bias) that one result sums."""
    positions = case.n * math.prod(case.out)
    taps = math.prod(case.taps)
    return {
        "forward": case.c * taps,
        "backward_data": case.k * taps,
        "backward_filter": positions,
        "backward_bias": positions,
    }[case.direction]


def share_of_bound(
    case: Case, arrays: dict[str, np.ndarray], result: Any, parts: int, engine: str
) -> float:
    """The largest error over its bound, gamma_n * sum|x||w| + u_out * |y|; n counts one more
    addition for each part of a split sum. In float64 the reference errs as much again."""
    exact = exact_sum(case, arrays)
    magnitude = exact_sum(case, {name: abs(array) for name, array in arrays.items()})
    chain = terms(case)
    if engine == "direct" and case.direction == "backward_filter" and case.dtype != "f64":
        chain = min(chain, PIXEL_BLOCK)
    n = (chain + parts) * SUM_ROUNDOFF[case.dtype]
    gamma = n / (1 - n) * (2 if case.dtype == "f64" else 1)
    u = OUT_ROUNDOFF[case.dtype]
    bound = gamma * (1 + u) * magnitude + u * abs(exact) + OUT_TINIEST[case.dtype]
    error = abs(result.astype(np.float64) - exact)
    wrong = error != 0  # also where it is not a number; a bound of 0 divides nothing
    return float((error[wrong] / bound[wrong]).max(initial=0.0))


def bound_chunk(engine: str, dtype: str, direction: str, first: int, count: int) -> Tally:
    done = Tally()
    for seed in range(first, first + count):
        draw = RandomDraw(np.random.default_rng((seed, 3)))
        case = plain(random_case(draw, small=False), direction=direction, dtype=dtype)
        if case.c * case.k * math.prod(case.out) * math.prod(case.taps) > 1 << 22:
            case = plain(random_case(draw), direction=direction, dtype=dtype)
        arrays = with_values(case, make_inputs(case), seed)
        where = f"{engine} seed {seed}: {case}"
        done.cases += 1
        result, stats = result_within(case, arrays, case.budget, engine=engine, threads=1)
        share = share_of_bound(case, arrays, result, math.prod(stats.split.values()), engine)
        if share <= 1:
            done.at_least("most, in ppm of the bound", round(share * 1e6))
        else:
            done.fail(f"{where}: {share:.3f} of the bound")
    return done


def serves(engine: str, dtype: str, direction: str) -> bool:
    return engine != "onednn" or (dtype != "f64" and direction != "backward_bias")


def measure_error(size: Size) -> Finding:
    count = size.of(1, 4, 40)
    every = size.of(7, 1, 1)
    served = [
        (engine, dtype, direction)
        for engine in ENGINES
        for dtype in DTYPES
        for direction in DIRECTIONS
        if serves(engine, dtype, direction)
    ][::every]
    done = tally(bound_chunk, [(*key, 0, count) for key in served], size)
    inside = done.cases - len(done.failures)
    figure = (
        f"{inside} of {done.cases} results within the bound ({len(served)} of engine x type x "
        f"direction); the largest error is "
        f"{done['most, in ppm of the bound'] / 1e4:.1f} % of its bound"
    )
    return Finding(figure, not done.failures, done.failures, done.counts)


def local_chunk(engine: str, first: int, count: int) -> Tally:
    """One NaN or infinity somewhere in x or dy: exactly the outputs that read it are not finite."""
    warnings.filterwarnings("ignore", message="invalid value")
    done = Tally()
    for seed in range(first, first + count):
        draw = RandomDraw(np.random.default_rng((seed, 4)))
        value = draw.choice((np.nan, np.inf, -np.inf))
        case = plain(random_case(draw), mode="cross_correlation", dtype=draw.choice(("f32", "f16")))
        arrays = make_inputs(case)
        arrays["w"][arrays["w"] == 0] = 1  # zero times infinity is a matter of its own
        expected = spoiled(case, arrays, seed, value)
        budget = max(case.budget // 4, 1024)
        result, _ = result_within(case, arrays, budget, engine=engine, threads=1)
        done.cases += 1
        result = result.astype(np.float64)
        if not np.array_equal(np.isfinite(result), np.isfinite(expected)):
            done.fail(f"{engine} seed {seed} value {value} budget {budget}: {case}")
        done.count("outputs reached", int(np.count_nonzero(~np.isfinite(expected))))
    return done


class Into:
    """A context whose functions write to `out`."""

    def __init__(self, ctx: Any, out: np.ndarray) -> None:
        self._ctx, self._out = ctx, out

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._ctx, name), out=self._out)


def unread_chunk(engine: str, first: int, count: int) -> Tally:
    """With beta = 0 an output full of NaN is overwritten, not read."""
    done = Tally()
    for seed in range(first, first + count):
        draw = RandomDraw(np.random.default_rng((seed, 5)))
        case = plain(random_case(draw))
        if not serves(engine, case.dtype, case.direction):
            case = replace(case, dtype="f32", direction="forward")
        arrays = make_inputs(case)
        expected = exact_sum(case, arrays).astype(DTYPES[case.dtype])
        out = np.full(expected.shape, np.nan, expected.dtype)
        with oocdnn.Context("cpu", 256 << 10, engine=engine, threads=1, profile="none") as ctx:
            call(Into(ctx, out), case, arrays)
        done.cases += 1
        if not np.array_equal(out, expected):
            done.fail(f"beta=0 {engine} seed {seed}: {case}")
    return done


def measure_specials(size: Size) -> Finding:
    count = size.of(4, 100, 1000)
    local = tally(local_chunk, [("direct", 0, count), ("reference", 0, count)], size)
    unread = tally(unread_chunk, [(engine, 0, count // 2) for engine in ENGINES], size)
    figure = (
        f"{local.cases} placements of a NaN or an infinity, {local['outputs reached']} outputs "
        f"reached: {len(local.failures)} differ from the reference; {unread.cases} outputs full "
        f"of NaN with beta = 0: {len(unread.failures)} were read"
    )
    failures = local.failures + unread.failures
    return Finding(figure, not failures, failures)
