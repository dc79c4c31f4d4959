"""What the native planner prices, translated for the independent simulation."""

from __future__ import annotations

from collections.abc import Sequence

from geometry import core
from geometry.core import DType, Saved
from model.planner import HOST

from oocdnn.perfmodel.problem import AXES, DIRECTIONS, OPERANDS, Axis, Pool, Problem
from oocdnn.perfmodel.profile import Profile
from oocdnn.perfmodel.rates import Engine
from oocdnn.perfmodel.simulate import Candidate, Outcome, simulate

MATHS = ("fp32", "tf32", "fp32x3", "fp32_fast")  # by the numbers of Math
TIERS = {1: "page", 2: "host", 3: "device", 4: "file", 6: "tile"}  # by the numbers of Tier


def problem_of(native: core.Problem) -> Problem:
    shape, epilogue = native.shape, native.epilogue
    reads = {"bias": epilogue.bias, "scale": epilogue.scale, "residual": epilogue.residual}
    reads["old"] = native.beta != 0
    plain = native.alpha == 1 and not epilogue.activation and not any(reads.values())
    forward = DIRECTIONS[native.direction] == "fwd"
    (what, bits), pool = core.saving(native), native.pool
    windows = [tuple(getattr(pool, name)) for name in ("window", "stride", "pad_before")]
    pooled = Pool(*windows, tuple(pool.pad_after), pool.ceil) if pool.mode else None
    return Problem(
        direction=DIRECTIONS[native.direction],
        n=shape.n, groups=shape.g, k=shape.k, c=shape.c,
        extents=tuple(shape.input), taps=tuple(shape.filter), outputs=tuple(shape.out),
        pad_before=tuple(shape.pad_before), pad_after=tuple(shape.pad_after),
        stride=tuple(shape.stride), dilation=tuple(shape.dilation),
        dtype=DType(native.dtype).name.lower(), math=MATHS[native.math],
        finishes=not plain or (forward and (pooled is not None or what != Saved.NOTHING)),
        pool=pooled, saved=(what.name.lower(), bits) if what != Saved.NOTHING else None,
        normalizes=bool(native.prologue.affine or native.prologue.activation),
        affine=native.prologue.affine, sums=native.sums,
        along=frozenset(name for name in ("dw", "db") if getattr(native.also, name)),
        reads=frozenset(name for name, read in reads.items() if read),
        strides={name: tuple(native.stride[i]) for i, name in enumerate(OPERANDS)},
    )  # fmt: skip


def candidate_of(tiling: core.Tiling, order, depths, engine: Engine) -> Candidate:
    return Candidate(
        lengths=dict(zip(AXES, tiling.length, strict=True)),
        order=[AXES[axis] for axis in order],
        depths=dict(zip(OPERANDS, depths, strict=True)),
        engine=engine,
        padding_as_data=all_as_data(tiling),
        taper=taper_of(tiling),
    )


def all_as_data(tiling: core.Tiling) -> bool:
    """Whether the tiling may be of an engine that takes no padding: no tile has any."""
    return all(tiling.padding_as_data) and not tiling.full_padding


def taper_of(tiling: core.Tiling) -> tuple[Axis, int] | None:
    taper = tiling.taper
    return (AXES[taper.axis], taper.length) if taper.length else None


def simulated(
    problem: core.Problem,
    tiling: core.Tiling,
    order: Sequence[int],
    depths: Sequence[int],
    profile: Profile,
    tiers: Sequence[int] = HOST,
    engine: Engine | None = None,
) -> Outcome:
    """What `planner.price` prices, simulated."""
    places = {operand: TIERS[tier] for operand, tier in zip(OPERANDS, tiers, strict=True)}
    candidate = candidate_of(tiling, order, depths, engine or Engine("direct"))
    return simulate(problem_of(problem), candidate, profile, places)
