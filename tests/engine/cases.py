"""Random convolutions with integer filling, run through the public API and compared exactly.

One generator serves hypothesis (which shrinks) and the long runs (which count): it asks a `Draw`
for numbers. Integers are small enough that every partial sum is exact in the arithmetic of each
type, so the threshold is 0: the result must equal the float64 reference rounded once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import oracle

import oocdnn

# Where the suites of this folder run; tests/gpu sets it.
DEVICE = os.environ.get("OOCDNN_TEST_DEVICE", "cpu")
DIRECTIONS = ("forward", "backward_data", "backward_filter", "backward_bias")
# The axes that can be split, and their names in a context's stats.
AXES = {"N": "n", "groups": "groups", "K": "k", "C": "c", "D": "d", "H": "h", "W": "w"}
DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
LAYOUTS = ("channels_first", "channels_last", "gapped")


class Draw(Protocol):
    def integer(self, low: int, high: int) -> int: ...
    def choice(self, options: Sequence[Any]) -> Any: ...


class RandomDraw:
    """Numbers from a seeded generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]


class HypothesisDraw:
    """Numbers from hypothesis, inside a composite strategy."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies as st

        return int(self.draw(st.integers(low, high)))

    def choice(self, options: Sequence[Any]) -> Any:
        from hypothesis import strategies as st

        return self.draw(st.sampled_from(list(options)))


@dataclass(frozen=True)
class Case:
    """One call: sizes per group and per axis, and how its arrays are made."""

    direction: str
    n: int
    groups: int
    k: int
    c: int
    extent: tuple[int, ...]  # of x
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    dtype: str = "f32"
    layout: str = "channels_first"
    mode: str = "cross_correlation"
    alpha: float = 1.0
    beta: float = 0.0
    seed: int = 0
    budget: int = 1 << 20
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> tuple[int, ...]:
        window = oracle.Window.of(len(self.extent), self.stride, self.padding, self.dilation)
        lift = 3 - len(self.extent)
        return tuple(
            window.out(lift + a, self.extent[a], self.taps[a]) for a in range(len(self.extent))
        )

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.n, self.groups * self.c, *self.extent)

    @property
    def w_shape(self) -> tuple[int, ...]:
        return (self.groups * self.k, self.c, *self.taps)

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (self.n, self.groups * self.k, *self.out)

    @property
    def data_bytes(self) -> int:
        elements = sum(int(np.prod(s)) for s in (self.x_shape, self.w_shape, self.y_shape))
        return elements * np.dtype(DTYPES[self.dtype]).itemsize

    def window(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }


@dataclass
class Outcome:
    """What a run did: the result, the reference, and the context's stats."""

    result: np.ndarray
    expected: np.ndarray
    stats: Any
    budget: int
    reports: list[str]

    def mismatches(self) -> int:
        same = (self.result == self.expected) | (
            np.isnan(self.result.astype(np.float64)) & np.isnan(self.expected.astype(np.float64))
        )
        return int(same.size - np.count_nonzero(same))


def sized_case(direction: str, **values: Any) -> Case:
    """A case whose filters keep the size, unless `padding` says otherwise. Numbers are of all
    axes."""
    rank = len(values["extent"])
    for name in ("taps", "stride", "dilation"):
        if isinstance(values[name], int):
            values[name] = (values[name],) * rank
    reach = [(t - 1) * d for t, d in zip(values["taps"], values["dilation"], strict=True)]
    values.setdefault("padding", tuple((r // 2, r // 2) for r in reach))
    return Case(direction, **values)


def random_case(draw: Draw, *, rank: int | None = None, small: bool = True) -> Case:
    """Any convolution the library claims: all directions, types, layouts, strides and paddings."""
    rank = rank or draw.choice((1, 2, 2, 3))
    most = {1: 40, 2: 14, 3: 7}[rank] if small else {1: 300, 2: 40, 3: 12}[rank]
    stride = tuple(draw.choice((1, 1, 2, 3)) for _ in range(rank))
    dilation = tuple(draw.choice((1, 1, 1, 2)) for _ in range(rank))
    taps = tuple(draw.choice((1, 2, 3, 3, 5)) for _ in range(rank))
    padding = tuple((draw.integer(0, 3), draw.integer(0, 3)) for _ in range(rank))
    if draw.choice((True, False)):
        padding = tuple((before, before) for before, _ in padding)
    extent = []
    for a in range(rank):
        reach = (taps[a] - 1) * dilation[a] + 1
        least = max(1, reach - sum(padding[a]))
        extent.append(draw.integer(least, max(least, most)))
    depthwise = draw.choice((False, False, False, True))
    groups = draw.integer(1, 6) if depthwise else draw.choice((1, 1, 2, 3))
    beta = draw.choice((0.0, 0.0, 1.0, -1.0))
    return Case(
        direction=draw.choice(DIRECTIONS),
        n=draw.integer(1, 4),
        groups=groups,
        k=1 if depthwise else draw.integer(1, 9),
        c=1 if depthwise else draw.integer(1, 9),
        extent=tuple(extent),
        taps=taps,
        stride=stride,
        padding=padding,
        dilation=dilation,
        dtype=draw.choice(("f32", "f32", "f32", "f64", "f16", "bf16")),
        layout=draw.choice(LAYOUTS),
        mode=draw.choice(("cross_correlation", "cross_correlation", "convolution")),
        alpha=draw.choice((1.0, 1.0, 2.0)),
        beta=beta,
        seed=draw.integer(0, 2**31),
        budget=draw.choice((4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)),
    )


def forced_case(
    draw: Draw, direction: str, axis: str, lengths: tuple[int, int] = (6_000, 9_000)
) -> Case:
    """A case and a budget in which `axis`, so long, has to be split: with every other axis cut to
    a single element, a tile with all of `axis` is still larger than the budget."""
    long = draw.integer(*lengths)
    rank = 3 if axis == "D" else draw.choice((2, 3)) if axis == "H" else draw.choice((1, 2, 3))
    sizes = {"N": draw.integer(1, 2), "groups": draw.integer(1, 2)}
    sizes |= {"K": draw.integer(1, 3), "C": draw.integer(1, 3)}
    extent = [draw.integer(3, 5) for _ in range(rank)]
    taps = [draw.choice((1, 2, 3)) for _ in range(rank)]
    stride = [draw.choice((1, 1, 2)) for _ in range(rank)]
    if axis in sizes:
        sizes[axis] = long
    else:
        a = {"D": 0, "H": rank - 2, "W": rank - 1}[axis]
        stride[a] = 1
        extent[a] = long
    if direction == "backward_bias" and axis in ("C", "groups"):
        raise ValueError("backward bias has neither C nor groups")
    padding = tuple((p, p) for p in (draw.integer(0, t - 1) for t in taps))
    case = Case(
        direction=direction,
        n=sizes["N"],
        groups=sizes["groups"],
        k=sizes["K"],
        c=sizes["C"],
        extent=tuple(extent),
        taps=tuple(taps),
        stride=tuple(stride),
        padding=padding,
        dilation=(1,) * rank,
        layout=draw.choice(LAYOUTS),
        seed=draw.integer(0, 2**31),
    )
    smallest = least_with_whole(case, axis)
    return Case(**{**case.__dict__, "budget": smallest * draw.integer(45, 90) // 100})


def least_with_whole(case: Case, axis: str) -> int:
    """Bytes of the smallest conceivable tile that holds all of `axis`: one element of every other
    axis, one copy of each operand, no alignment."""
    rank = len(case.extent)
    size = {"N": 1, "groups": 1, "K": 1, "C": 1} | {
        name: full
        for name, full in (
            ("N", case.n),
            ("groups", case.groups),
            ("K", case.k),
            ("C", case.c),
        )
        if name == axis
    }
    inside, outside = [1] * rank, [1] * rank
    for a in range(rank):
        if list(AXES)[7 - rank + a] == axis:
            inside[a], outside[a] = case.extent[a], case.out[a]
    taps = int(np.prod(case.taps))
    x = size["N"] * size["groups"] * size["C"] * int(np.prod(inside))
    w = size["groups"] * size["K"] * size["C"] * taps
    y = size["N"] * size["groups"] * size["K"] * int(np.prod(outside))
    if case.direction == "backward_bias":
        return 4 * (y + size["groups"] * size["K"])
    return (x + w + y) * np.dtype(DTYPES[case.dtype]).itemsize


def make_array(rng: np.random.Generator, shape: tuple[int, ...], case: Case) -> np.ndarray:
    """Small integers in the case's type and memory order."""
    # 16-bit results are rounded once from an exact sum, so values stay small but need not be tiny.
    values = rng.integers(-3, 4, size=shape).astype(DTYPES[case.dtype])
    return lay_out(values, case.layout)


def lay_out(values: np.ndarray, layout: str) -> np.ndarray:
    if layout == "channels_last":
        order = (0, *range(2, values.ndim), 1)
        back = (0, values.ndim - 1, *range(1, values.ndim - 1))
        return np.ascontiguousarray(values.transpose(order)).transpose(back)
    if layout == "gapped":
        wide = np.full((*values.shape[:-1], values.shape[-1] * 2 + 1), 77, dtype=values.dtype)
        view = wide[..., 1::2]
        view[...] = values
        return view
    return np.ascontiguousarray(values)


def make_inputs(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.seed)
    return {
        "x": make_array(rng, case.x_shape, case),
        "w": np.ascontiguousarray(make_array(rng, case.w_shape, case)),
        "y": make_array(rng, case.y_shape, case),
        "b": rng.integers(-3, 4, size=case.y_shape[1]).astype(DTYPES[case.dtype]),
    }


def reference(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The result in float64, not rounded."""
    window = {**case.window(), "flip": case.mode == "convolution"}
    x, w, y, b = (arrays[name].astype(np.float64) for name in "xwyb")
    if case.direction == "forward":
        total, old = oracle.forward(x, w, **window), y
    elif case.direction == "backward_data":
        total, old = oracle.backward_data(y, w, case.x_shape, **window), x
    elif case.direction == "backward_filter":
        total, old = oracle.backward_filter(x, y, case.w_shape, **window), w
    else:
        total, old = oracle.backward_bias(y), b
    return oracle.finish(total, alpha=case.alpha, beta=case.beta, old=old)


def call(ctx: Any, case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The case through the public API; the output is a fresh array or, with beta, a copy."""
    keywords: dict[str, Any] = {**case.window(), "mode": case.mode}
    output = {"forward": "y", "backward_data": "x", "backward_filter": "w", "backward_bias": "b"}
    keywords |= {"alpha": case.alpha, "beta": case.beta}
    if case.beta:
        keywords["out"] = lay_out(arrays[output[case.direction]].copy(), "channels_first")
        if case.direction in ("forward", "backward_data"):
            keywords["out"] = lay_out(keywords["out"], case.layout)
    if case.direction == "forward":
        function = getattr(ctx, f"conv{len(case.extent)}d")
        return function(arrays["x"], arrays["w"], **keywords)
    if case.direction == "backward_data":
        return ctx.conv_backward_data(arrays["y"], arrays["w"], case.x_shape, **keywords)
    if case.direction == "backward_filter":
        return ctx.conv_backward_filter(arrays["x"], arrays["y"], case.w_shape, **keywords)
    kept = ("alpha", "beta", "out")
    return ctx.conv_backward_bias(arrays["y"], **{k: v for k, v in keywords.items() if k in kept})


def run_case(case: Case, **options: Any) -> Outcome:
    """Runs within the case's budget, or within the least that the library says works."""
    arrays = make_inputs(case)
    budget = case.budget
    settings: dict[str, Any] = {"device": DEVICE, "wrap": "check", **case.options, **options}
    for _ in range(2):
        with oocdnn.Context(budget=budget, **settings) as ctx:
            try:
                result = call(ctx, case, arrays)
            except oocdnn.OutOfMemory as error:
                if budget != case.budget or not error.least > budget:
                    raise
                budget = error.least
                continue
            return Outcome(result, _round(case, arrays), ctx.stats, budget, ctx.check_reports())
    raise AssertionError("unreachable")


def _round(case: Case, arrays: dict[str, np.ndarray]) -> np.ndarray:
    return reference(case, arrays).astype(DTYPES[case.dtype])
