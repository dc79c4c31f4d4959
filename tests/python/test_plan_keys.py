"""The keys by which plans are found again: every field of a problem counts. A field that is left
out of the key has one problem computed with another's plan."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from geometry import core
from model import planner

import oocdnn
from oocdnn.cli import problems

GEOM = Path(__file__).resolve().parents[2] / "native" / "geom"
# Those of the source's types whose members are fields, with their names in the list.
PARTS = {
    "Problem": ("problem.hpp", ""),
    "ConvShape": ("problem.hpp", "shape."),
    "Epilogue": ("problem.hpp", "epilogue."),
    "Prologue": ("problem.hpp", "prologue."),
    "Also": ("problem.hpp", "also."),
    "Pool": ("pool.hpp", "pool."),
}
MEMBER = re.compile(
    r"^  (?:[A-Za-z_]\w*|std::array<[^;]*?>) ((?:\w+(?:\{[^}]*\}| = [^,;]+)?(?:, )?)+);"
)
OPERANDS, X, W, Y = 14, 0, 1, 2


def members(name: str) -> list[str]:
    """Those of a struct, from its source."""
    text = (GEOM / PARTS[name][0]).read_text(encoding="utf-8")
    body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert body is not None, name
    found = []
    for line in body[1].splitlines():
        if declared := MEMBER.match(line):
            names = re.sub(r"\{[^}]*\}", "", declared[1])
            found += [one.split(" = ")[0] for one in names.split(", ")]
    return found


def sources() -> set[str]:
    """Every field by its name, but those that are parts."""
    names = {PARTS[part][1] + name for part in PARTS for name in members(part)}
    return names - {"shape", "epilogue", "prologue", "also", "pool"}


def listed(problem: str) -> dict[str, bool]:
    """True for a key that stays the same if a field has another value, by field and number."""
    text = ctypes.create_string_buffer(1 << 16)
    library = planner.library()
    library.oocdnn_testing_key_fields.restype = None
    library.oocdnn_testing_key_fields(
        ctypes.byref(core.parse(problem)), text, ctypes.c_int64(len(text))
    )
    lines = text.value.decode().splitlines()
    return {line.removesuffix(" same"): line.endswith(" same") for line in lines}


def test_the_list_of_fields_is_the_sources():
    assert {"dtype", "flip", "shape.dilation", "epilogue.parameter", "pool.ceil"} <= sources()
    names = {name.split(" ")[0] for name in listed("conv2d:fwd x1x1x8x8 w1x1x3x3")}
    assert names - {"stride"} == sources() - {"stride"}


def test_every_field_changes_the_key():
    found = listed("conv2d:fwd x2x4x6x7 w4x4x3x3 pad1")
    strides = {name: same for name, same in found.items() if name.startswith("stride ")}
    assert [name for name, same in found.items() if same and name not in strides] == []
    steps = {X: (0, 2, 4, 5), W: (1, 2, 4, 5), Y: (0, 2, 4, 5)}  # where there are more elements
    for operand in range(OPERANDS):
        for dimension in range(6):
            counts = dimension in steps.get(operand, ())
            assert strides[f"stride {operand} {dimension}"] != counts, (operand, dimension)


def test_where_operands_lie_and_the_workspace_change_the_key():
    problem = core.parse("conv2d:fwd x2x4x6x7 w4x4x3x3 pad1")

    def same(home: int = -1, in_place: int = -1, workspace: int = 2**63 - 1) -> bool:
        made = planner.library().oocdnn_testing_same_key(
            ctypes.byref(problem), home, in_place, ctypes.c_int64(workspace)
        )
        return bool(made)

    assert same()
    assert not any(same(home=operand) for operand in range(OPERANDS))
    assert not any(same(in_place=operand) for operand in range(OPERANDS))
    assert not same(workspace=1 << 20)


BASE = "conv2d:fwd x2x4x9x10 w4x4x3x3"
GRADIENT = "conv2d:bwd_data x2x4x9x10 w4x4x3x3"
# For each field problems that differ in it, and otherwise in as little as may be. Those of a field
# of which the CPU's arithmetic knows nothing are alike in their results.
PAIRS: dict[str, tuple[str, str]] = {
    "direction": (GRADIENT, "conv2d:bwd_filter x2x4x9x10 w4x4x3x3"),
    "rank": ("conv2d:fwd x2x4x1x10 w4x4x1x3", "conv1d:fwd x2x4x10 w4x4x3"),
    "dtype": (BASE, f"{BASE} f64"),
    "math": (BASE, f"{BASE} f32/tf32"),
    "flip": (BASE, f"{BASE} flip"),
    "alpha": (f"{BASE} alpha1.5", f"{BASE} alpha1.25"),
    "beta": (f"{BASE} beta1.5", f"{BASE} beta1.25"),
    "saves": (f"{BASE} +relu +maxpool2", f"{BASE} +relu +maxpool2 +saved"),
    "clips": (f"{GRADIENT} +maxpool2", f"{GRADIENT} +maxpool2 +clipped"),
    "slopes": (f"{GRADIENT} +avgpool2", f"{GRADIENT} +avgpool2 +sloped"),
    "sums": (BASE, f"{BASE} +sums"),
    "shape.n": (BASE, "conv2d:fwd x3x4x9x10 w4x4x3x3"),
    "shape.g": (f"{BASE.replace('w4x4', 'w4x2')} grp2", f"{BASE.replace('w4x4', 'w4x1')} grp4"),
    "shape.k": (BASE, "conv2d:fwd x2x4x9x10 w6x4x3x3"),
    "shape.c": (BASE, "conv2d:fwd x2x6x9x10 w4x6x3x3"),
    "shape.in": (f"{BASE} str4", "conv2d:fwd x2x4x10x9 w4x4x3x3 str4"),
    "shape.filter": (f"{BASE} str4", "conv2d:fwd x2x4x9x10 w4x4x5x5 str4"),
    "shape.out": (f"{BASE} pad0", f"{BASE} pad0:1"),
    "shape.pad_before": (f"{BASE} str4", f"{BASE} str4 pad1:0"),
    "shape.pad_after": (f"{BASE} str4", f"{BASE} str4 pad0:1"),
    "shape.stride": (f"{BASE} str4", f"{BASE} str5"),
    "shape.dilation": (f"{BASE} str4 dil1", f"{BASE} str4 dil2"),
    "shape.pooled": (f"{BASE} +maxpool2", f"{BASE} +maxpool2 poolceil"),
    "shape.saved": (
        f"{BASE} +relu +maxpool2 +saved",
        f"{BASE.replace('x10', 'x40')} +relu +maxpool2 +saved",
    ),
    "shape.tables": (BASE, f"{BASE} +sums"),
    "epilogue.scale": (f"{BASE} +bias", f"{BASE} +scale +bias"),
    "epilogue.bias": (BASE, f"{BASE} +bias"),
    "epilogue.residual": (BASE, f"{BASE} +residual"),
    "epilogue.residual_alpha": (f"{BASE} +residual0.5", f"{BASE} +residual0.25"),
    "epilogue.activation": (f"{BASE} +elu0.5", f"{BASE} +swish0.5"),
    "epilogue.parameter": (f"{BASE} +clip0.5", f"{BASE} +clip0.25"),
    "prologue.affine": (f"{BASE} +prerelu", f"{BASE} +prenorm +prerelu"),
    "prologue.activation": (f"{BASE} +preelu0.5", f"{BASE} +preswish0.5"),
    "prologue.parameter": (f"{BASE} +preelu0.5", f"{BASE} +preelu0.25"),
    "also.dw": (f"{GRADIENT} +db", f"{GRADIENT} +dw +db"),
    "also.db": (f"{GRADIENT} +dw", f"{GRADIENT} +dw +db"),
    "pool.mode": (f"{BASE} +maxpool3", f"{BASE} +avgpool3"),
    "pool.window": (f"{BASE} +maxpool2 poolstr2", f"{BASE} +maxpool3x2 poolstr2"),
    "pool.stride": (f"{BASE} +maxpool3 poolstr2", f"{BASE} +maxpool3 poolstr1"),
    "pool.pad_before": (f"{BASE} +avgpool3 poolpad1:0", f"{BASE} +avgpool3 poolpad0:1"),
    "pool.pad_after": (f"{BASE} +avgpool3 poolpad0:1", f"{BASE} +avgpool3 poolpad1:0"),
    "pool.ceil": (f"{BASE} +maxpool2", f"{BASE} +maxpool2 poolceil"),
    "stride": (BASE, f"{BASE} nhwc"),
}


def bits(context: oocdnn.Context, problem: str) -> list[bytes]:
    """A call with all arrays, on data that no type of the call's peers holds."""
    random, arrays = np.random.default_rng(0), []

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        arrays.append(random.standard_normal(shape).astype(dtype))
        return arrays[-1]

    result = problems.random_call(problems.parse(problem), context, make)()
    results = result if isinstance(result, tuple) else (result,)
    arrays += [one for one in results if isinstance(one, np.ndarray)]
    return [np.ascontiguousarray(one).tobytes() for one in arrays]


def differing(first: str, second: str) -> list[str]:
    text = ctypes.create_string_buffer(1 << 12)
    library = planner.library()
    library.oocdnn_testing_differing_fields.restype = None
    problems = (ctypes.byref(core.parse(problem)) for problem in (first, second))
    library.oocdnn_testing_differing_fields(*problems, text, ctypes.c_int64(len(text)))
    return text.value.decode().split()


def test_every_field_has_its_pair():
    assert PAIRS.keys() == sources() - {"pairs"}  # of C's tables: no problem string says it
    for field, pair in PAIRS.items():
        assert field in differing(*pair), field
    alone = ("dtype", "math", "flip", "alpha", "shape.stride", "shape.dilation")
    assert all(differing(*PAIRS[field]) == [field] for field in alone)


@pytest.mark.parametrize("field", PAIRS)
def test_no_problem_is_computed_with_the_plan_of_another(field):
    def opened() -> oocdnn.Context:
        return oocdnn.Context("cpu", "64KiB", engine="direct")

    alone = []
    for problem in PAIRS[field]:
        with opened() as context:
            alone.append(bits(context, problem))
    with opened() as context:
        for number in (0, 1, 0):
            assert bits(context, PAIRS[field][number]) == alone[number], PAIRS[field][number]
