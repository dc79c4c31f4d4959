"""Convolution, bias, activation and pool in one pass: exact against the reference operations one
after the other, whatever is cut, and no byte more than z and its bits leaves the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle
import pytest
from engine.cases import AXES, DEVICE, DTYPES, HypothesisDraw, RandomDraw, lay_out
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

ACTIVATIONS = {"identity": None, "relu": "relu", "clip": ("clipped_relu", 6.0)}
CURVED = {
    "elu": ("elu", 0.5),
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "swish": ("swish", 1.5),
    "softplus": ("softplus", 0.5),
}
# With slopes that are exact: 0 and 1, or a half.
STEPS = {"elu0": ("elu", 0.0), "swish0": ("swish", 0.0)}
SPECS: dict[str, Any] = {**ACTIVATIONS, **CURVED, **STEPS}
MODES = {"max": ("max", True), "avg": ("avg", True), "avg_inside": ("avg", False)}


@dataclass(frozen=True)
class Case:
    """One call: sizes per group, and what comes after the sum."""

    n: int
    groups: int
    k: int
    c: int
    extent: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    pool: oracle.Pool | None
    activation: str = "identity"
    bias: bool = False
    scale: bool = False
    residual: bool = False
    alpha: float = 1.0
    dtype: str = "f32"
    layout: str = "channels_first"
    seed: int = 0
    budget: int = 1 << 20

    @property
    def window(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding, "groups": self.groups}

    @property
    def y_extents(self) -> tuple[int, ...]:
        window = oracle.Window.of(len(self.extent), self.stride, self.padding, 1)
        lift = 3 - len(self.extent)
        return tuple(window.out(lift + a, e, self.taps[a]) for a, e in enumerate(self.extent))


def arrays_of(case: Case) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(case.seed)
    channels = case.groups * case.k

    def integers(*shape):
        return rng.integers(-3, 4, shape).astype(DTYPES[case.dtype])

    made = {
        "x": lay_out(integers(case.n, case.groups * case.c, *case.extent), case.layout),
        "w": integers(channels, case.c, *case.taps),
    }
    if case.bias:
        made["b"] = integers(channels)
    if case.scale:
        made["scale"] = integers(channels)
    if case.residual:
        made["residual"] = lay_out(integers(case.n, channels, *case.y_extents), case.layout)
    return made


def keywords_of(case: Case) -> dict[str, Any]:
    pool = None
    if case.pool is not None:
        mode, counted = MODES[case.pool.mode]
        pool = oocdnn.Pool(
            mode, case.pool.window, case.pool.stride, case.pool.padding, case.pool.ceil, counted
        )
    activation = SPECS[case.activation]
    return {**case.window, "alpha": case.alpha, "activation": activation, "pool": pool}


def parameter_of(case: Case) -> float:
    spec = SPECS[case.activation]
    return spec[1] if isinstance(spec, tuple) else 0.0


def function_of(case: Case) -> tuple[str, float]:
    """The activation as the oracle knows it."""
    return case.activation.removesuffix("0"), parameter_of(case)


def is_smooth(case: Case) -> bool:
    return case.activation in CURVED or case.activation in STEPS


def sums_of(case: Case, arrays) -> np.ndarray:
    """What is activated, in float64."""
    return oracle.finish(
        oracle.forward(arrays["x"], arrays["w"], **case.window),
        alpha=case.alpha, scale=arrays.get("scale"), bias=arrays.get("b"),
        residual=arrays.get("residual"),
    )  # fmt: skip


def composed(case: Case, arrays) -> tuple[np.ndarray, np.ndarray | None]:
    """z and what is saved, by the reference operations one after the other in float64."""
    sums = sums_of(case, arrays)
    y = oracle.activate(sums, *function_of(case))
    z = y if case.pool is None else oracle.pool(y, case.pool)[0]
    if not is_smooth(case):
        return z, oracle.saved(y, case.pool, case.activation, parameter_of(case))
    slopes = oracle.slopes(sums, case.pool, *function_of(case))
    return z, oracle.sloped(*slopes, oracle.code_bytes(case.pool), DTYPES[case.dtype])


@dataclass
class Ran:
    z: np.ndarray
    saved: Any
    stats: Any
    budget: int
    reports: list[str] = field(default_factory=list)


def context(**options) -> oocdnn.Context:
    """One that measures nothing of its machine, and whose memory is soon filled with poison."""
    return oocdnn.Context(**{"device": DEVICE, "profile": "none", "budget": 4 << 20, **options})


def run(case: Case, arrays, saves: bool, **options) -> Ran:
    """Within the case's budget, or within the least that the library says works."""
    budget = case.budget
    for _ in range(2):
        with context(budget=budget, **{"wrap": "check", **options}) as ctx:
            try:
                made = ctx.conv_bias_act_pool(
                    **arrays, **keywords_of(case), save_for_backward=saves
                )
            except oocdnn.OutOfMemory as error:
                if budget != case.budget or not error.least > budget:
                    raise
                budget = error.least
                continue
            z, saved = made if saves else (made, None)
            return Ran(z, saved, ctx.stats, budget, ctx.check_reports())
    raise AssertionError("unreachable")


def check(case: Case, saves: bool, **options) -> Ran:
    arrays = arrays_of(case)
    ran = run(case, arrays, saves, **options)
    z, bits = composed(case, arrays)
    assert ran.reports == []
    assert ran.stats.peak_device_bytes <= ran.budget
    expected = z.astype(DTYPES[case.dtype])
    np.testing.assert_array_equal(ran.z.astype(np.float64), expected.astype(np.float64))
    out = ran.z.nbytes
    if saves and bits is None:
        assert ran.saved.bits is None
    elif saves:
        np.testing.assert_array_equal(ran.saved.bits, bits.ravel())
        out += bits.nbytes
    assert ran.stats.bytes_d2h == out
    return ran


def pool_of(draw, extents: tuple[int, ...]) -> oracle.Pool | None:
    mode = draw.choice((None, "max", "max", "max", "avg", "avg_inside"))
    if mode is None:
        return None
    axes, ceil = [], draw.choice((0, 1)) == 1
    for extent in extents:
        size = draw.integer(1, 4 if ceil else min(4, extent))
        step = draw.choice((size, 1, 2, 3))
        pads = draw.integer(0, size - 1), draw.integer(0, size - 1)
        fits = oracle.pooled_extent(extent, *pads, size, step, ceil) > 0
        axes.append((size, step, pads) if fits else (1, step, (0, 0)))
    return oracle.Pool(mode, *zip(*axes, strict=True), ceil)


def random_case(draw, rank: int | None = None, **fixed) -> Case:
    rank = rank or draw.choice((1, 2, 2, 3))
    most = {1: 40, 2: 14, 3: 7}[rank]
    taps = tuple(draw.choice((1, 2, 3, 3)) for _ in range(rank))
    padding = tuple((draw.integer(0, 2), draw.integer(0, 2)) for _ in range(rank))
    extent = tuple(draw.integer(max(1, taps[a] - sum(padding[a])), most) for a in range(rank))
    depthwise = draw.choice((False, False, True))
    case = Case(
        n=draw.integer(1, 3),
        groups=draw.integer(1, 5) if depthwise else draw.choice((1, 1, 2)),
        k=1 if depthwise else draw.integer(1, 20),
        c=1 if depthwise else draw.integer(1, 9),
        extent=extent,
        taps=taps,
        stride=tuple(draw.choice((1, 1, 2)) for _ in range(rank)),
        padding=padding,
        pool=None,
        activation=draw.choice(tuple(ACTIVATIONS)),
        bias=draw.choice((False, True)),
        scale=draw.choice((False, False, True)),
        residual=draw.choice((False, False, True)),
        alpha=draw.choice((1.0, 1.0, 2.0)),
        dtype=draw.choice(("f32", "f32", "f64", "f16", "bf16")),
        layout=draw.choice(("channels_first", "channels_last", "gapped")),
        seed=draw.integer(0, 2**31),
        budget=draw.choice((2 << 10, 8 << 10, 32 << 10, 256 << 10)),
    )
    case = Case(**{**case.__dict__, "pool": pool_of(draw, case.y_extents)})
    return Case(**{**case.__dict__, **fixed})


@st.composite
def cases(draw) -> Case:
    return random_case(HypothesisDraw(draw))


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases(), st.booleans())
def test_random_chains(case, saves):
    check(case, saves)


ENGINES = ["onednn", "direct", "reference"] if DEVICE == "cpu" else ["direct"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(8))
def test_every_engine(engine, seed):
    case = random_case(RandomDraw(np.random.default_rng(seed)))
    if engine == "onednn" and case.dtype == "f64":
        case = Case(**{**case.__dict__, "dtype": "f32"})
    check(case, seed % 2 == 0, engine=engine)


OVERLAPPING = oracle.Pool("max", (3, 3), (2, 2), ((1, 1), (1, 1)))
APART = oracle.Pool("max", (2, 2), (3, 3), ((0, 0), (0, 0)))
AVERAGED = oracle.Pool("avg", (2, 2), (1, 1), ((1, 1), (1, 1)))


def small(pool: oracle.Pool, **changes) -> Case:
    sizes = {
        "n": 3, "groups": 2, "k": 4, "c": 4, "extent": (15, 50), "taps": (3, 3), "stride": (1, 1),
        "padding": ((1, 1), (1, 1)), "pool": pool, "activation": "relu", "bias": True, "seed": 5,
    }  # fmt: skip
    return Case(**{**sizes, **changes})


def problem_of(case: Case, saves: bool) -> str:
    """The case's problem string; its pool has one window for both axes, and no ceil."""
    pool = case.pool
    word = {"max": "maxpool", "avg": "avgpool"}[pool.mode]
    layout = {"channels_first": "", "channels_last": " nhwc"}[case.layout]
    x = "x".join(map(str, (case.n, case.groups * case.c, *case.extent)))
    return (
        f"conv2d:fwd x{x} w{case.groups * case.k}x{case.c}x3x3 pad1 grp{case.groups}{layout} +bias "
        f"+{case.activation} +{word}{pool.window[0]} poolstr{pool.stride[0]} "
        f"poolpad{pool.padding[0][0]}{' +saved' if saves else ''}"
    )


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("pool", [OVERLAPPING, APART, AVERAGED], ids=["over", "apart", "avg"])
@pytest.mark.parametrize("plan", ["n1", "g1", "k3", "c1", "h1", "h3", "w8", "w16", "n1 k2 h2 w8"])
def test_every_split(plan, pool, layout):
    case, axis = small(pool, layout=layout), {"g": "groups"}.get(plan[0], plan[0])
    arrays = arrays_of(case)
    if plan[0] == "k":
        case = small(pool, layout=layout, groups=1, k=8)
        arrays = arrays_of(case)
    z, bits = composed(case, arrays)
    with context(wrap="check", engine="direct") as ctx:
        ctx.use_plan(problem_of(case, True), f"{plan} slots 2")
        got, saved = ctx.conv_bias_act_pool(**arrays, **keywords_of(case), save_for_backward=True)
        assert ctx.stats.split[axis] > 1
        assert ctx.check_reports() == []
        np.testing.assert_array_equal(got, z)
        np.testing.assert_array_equal(saved.bits, bits.ravel())
        assert ctx.stats.bytes_d2h == got.nbytes + saved.nbytes


@pytest.mark.parametrize("axis", ["N", "K", "C", "H", "W"])
def test_the_axis_that_has_to_be_split_is_split(axis):
    long = {"N": 3000, "K": 1500, "C": 1500, "H": 900, "W": 900}[axis]
    sizes = {"N": 1, "K": 1, "C": 1, "H": 4, "W": 4} | {axis: long}
    case = Case(
        n=sizes["N"], groups=1, k=sizes["K"], c=sizes["C"], extent=(sizes["H"], sizes["W"]),
        taps=(1, 3), stride=(1, 1), padding=((0, 0), (1, 1)), activation="relu", seed=3,
        pool=oracle.Pool("max", (2, 2), (2, 2), ((0, 0), (0, 0))), budget=4 << 10,
    )  # fmt: skip
    ran = check(case, True)
    assert ran.stats.split[AXES[axis]] > 1


@pytest.mark.parametrize(
    ("pool", "activation", "bits_of"),
    [
        (oracle.Pool("max", (2, 2), (2, 2), ((0, 0),) * 2), "relu", ("z", 3)),
        (oracle.Pool("max", (2, 2), (2, 2), ((0, 0),) * 2), "identity", ("z", 2)),
        (oracle.Pool("max", (3, 3), (2, 2), ((1, 1),) * 2), "clip", ("z", 4)),
        (oracle.Pool("max", (3, 3), (2, 2), ((1, 1),) * 2), "sigmoid", ("z", 32 + 8)),
        (oracle.Pool("max", (1, 1), (2, 2), ((0, 0),) * 2), "elu", ("z", 32)),
        (oracle.Pool("avg", (2, 2), (2, 2), ((0, 0),) * 2), "relu", ("y", 1)),
        (oracle.Pool("avg", (2, 2), (2, 2), ((0, 0),) * 2), "tanh", ("y", 32)),
        (None, "relu", ("y", 1)),
        (None, "identity", ("y", 0)),
        (None, "swish", ("y", 32)),
    ],
)
def test_bits_of_an_element(pool, activation, bits_of):
    """With 16 columns of z and 32 of y no row has bits to spare."""
    case = Case(
        n=2, groups=1, k=3, c=2, extent=(32, 32), taps=(3, 3), stride=(1, 1),
        padding=((1, 1), (1, 1)), pool=pool, activation=activation,
    )  # fmt: skip
    with context() as ctx:
        z, saved = ctx.conv_bias_act_pool(
            **arrays_of(case), **keywords_of(case), save_for_backward=True
        )
        place, bits = bits_of
        elements = z.size if place == "z" else 2 * 3 * 32 * 32
        assert saved.nbytes * 8 == bits * elements
        assert ctx.stats.bytes_d2h == z.nbytes + saved.nbytes


@pytest.mark.parametrize("activation", CURVED)
@pytest.mark.parametrize("pool", [None, OVERLAPPING, AVERAGED], ids=["none", "over", "avg"])
def test_curved_activations(activation, pool):
    case = small(pool, activation=activation, budget=16 << 10)
    arrays = arrays_of(case)
    ran = run(case, arrays, False)
    assert ran.reports == []
    np.testing.assert_allclose(ran.z, composed(case, arrays)[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("budget", [1 << 20, 12 << 10])
def test_a_nan_wins_and_the_first_of_equals(budget):
    case = small(OVERLAPPING, n=1, groups=1, k=2, c=1, taps=(1, 1), padding=((0, 0),) * 2)
    case = Case(**{**case.__dict__, "bias": False, "budget": budget})
    arrays = arrays_of(case)
    arrays["x"] = np.clip(arrays["x"], 1, 2)  # many equals
    for place in ((0, 0, 4, 4), (0, 0, 4, 5), (0, 0, 9, 30)):
        arrays["x"][place] = np.nan
    arrays["w"][:] = 1
    ran = run(case, arrays, True)
    z, bits = composed(case, arrays)
    assert np.isnan(z).sum() > 0
    np.testing.assert_array_equal(ran.z, z)
    np.testing.assert_array_equal(ran.saved.bits, bits.ravel())


@pytest.mark.parametrize("seed", range(6))
def test_reproducible_bits_do_not_depend_on_the_budget(seed):
    case = random_case(RandomDraw(np.random.default_rng(40 + seed)), activation="relu")
    arrays = arrays_of(case)
    rng = np.random.default_rng(seed)
    for array in arrays.values():
        array[...] = rng.standard_normal(array.shape).astype(array.dtype)
    whole = run(Case(**{**case.__dict__, "budget": 1 << 26}), arrays, True, reproducible=True)
    tiled = run(case, arrays, True, reproducible=True)
    np.testing.assert_array_equal(whole.z.astype(np.float64), tiled.z.astype(np.float64))
    if whole.saved.bits is not None:
        np.testing.assert_array_equal(whole.saved.bits, tiled.saved.bits)


@pytest.mark.parametrize("seed", range(8))
def test_random_delays_change_nothing(seed):
    case = random_case(RandomDraw(np.random.default_rng(200 + seed)), budget=8 << 10)
    check(case, True, link_gb_per_s=0.5)


def test_warm_calls_prepare_and_allocate_nothing():
    case = small(OVERLAPPING)
    arrays = arrays_of(case)
    with context(budget=24 << 10) as ctx:
        for call in range(5):
            ctx.conv_bias_act_pool(**arrays, **keywords_of(case), save_for_backward=True)
            assert call == 0 or ctx.stats.device_allocations == ctx.stats.prepared == 0


def test_predicted_bytes_are_those_that_cross():
    case = small(OVERLAPPING, budget=24 << 10)
    with context(budget=24 << 10) as ctx:
        plan = ctx.plan(problem_of(case, True))
        ctx.conv_bias_act_pool(**arrays_of(case), **keywords_of(case), save_for_backward=True)
        assert plan.bytes_h2d == ctx.stats.bytes_h2d
        assert plan.bytes_d2h == ctx.stats.bytes_d2h
        assert plan.booked_bytes == ctx.stats.peak_device_bytes
        assert plan.tiles == ctx.stats.tiles > 1


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (1, 3, 0, 2)])
@pytest.mark.parametrize("gap", [1, 2])
def test_results_go_to_out(order, gap):
    """Whatever its memory order, with gaps or without."""
    case = small(OVERLAPPING)
    arrays = arrays_of(case)
    z, _ = composed(case, arrays)
    wide = np.full([z.shape[axis] * gap for axis in order], np.nan, np.float32)
    out = wide[(slice(None, None, gap),) * 4].transpose(np.argsort(order))
    with context(budget=24 << 10) as ctx:
        assert ctx.conv_bias_act_pool(**arrays, **keywords_of(case), out=out) is out
    np.testing.assert_array_equal(out, z)


def test_an_empty_batch():
    x, w = np.zeros((0, 3, 8, 8), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    with context() as ctx:
        z, saved = ctx.conv_bias_act_pool(x, w, activation="relu", pool=2, save_for_backward=True)
    assert z.shape == (0, 4, 3, 3)
    assert saved.nbytes == 0


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (9, "z would be empty on axis H: 6 of y"),
        (oocdnn.Pool("max", 2, padding=2), "it must be less than the window, 2"),
        (oocdnn.Pool("min", 2), "the pool's mode is 'min'; the values are 'max', 'avg'"),
        (oocdnn.Pool("max", (2, 2, 2)), "the pool's window is (2, 2, 2); one integer or 2"),
        (oocdnn.Pool("max", 0), "the pool's window is 0; it must be at least 1"),
        (oocdnn.Pool("max", 2, 0), "the pool's stride is 0; it must be at least 1"),
    ],
)
def test_bad_pools_are_told(pool, text):
    x, w = np.zeros((1, 3, 8, 8), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    with context() as ctx, pytest.raises(oocdnn.InvalidProblem) as error:
        ctx.conv_bias_act_pool(x, w, pool=pool)
    assert text in str(error.value)


def test_too_large_windows_for_bits():
    x, w = np.zeros((1, 1, 300, 300), np.float32), np.ones((1, 1, 1, 1), np.float32)
    with context() as ctx:
        assert ctx.conv_bias_act_pool(x, w, pool=300).shape == (1, 1, 1, 1)
        with pytest.raises(oocdnn.Unsupported, match="90000 elements take 17 bits"):
            ctx.conv_bias_act_pool(x, w, pool=300, save_for_backward=True)
