"""Problem strings: printing and reading agree, and what is wrong is said, never crashed on."""

from __future__ import annotations

import pytest
from geometry import core
from geometry.cases import draw_tables, make, problems
from geometry.core import Activation, Direction, DType, Problem
from hypothesis import given, settings
from hypothesis import strategies as st

PARAMETERS = {Activation.CLIP, Activation.ELU, Activation.SWISH, Activation.SOFTPLUS}


def meaning(problem: Problem) -> tuple:
    """Everything that something reads: not the strides of extents of 1, nor relu's parameter."""
    epilogue = problem.epilogue
    activation = Activation(epilogue.activation)
    return (
        problem.direction, problem.rank, problem.dtype, problem.math, problem.flip,
        problem.alpha, problem.beta, bytes(problem.shape),
        epilogue.scale, epilogue.bias, epilogue.residual,
        epilogue.residual_alpha if epilogue.residual else None,
        activation, epilogue.parameter if activation in PARAMETERS else None,
        [
            [step for extent, step in zip(core.dims_of(problem, i), problem.stride[i], strict=True)
             if extent > 1]
            for i in range(len(core.OPERANDS))
            if core.uses(problem, i) and not core.stays(problem, i)
        ],
        bytes(problem.pool), problem.saves, problem.clips, problem.slopes,
        problem.prologue.affine, problem.prologue.activation, problem.sums,
        problem.prologue.parameter if problem.prologue.activation in PARAMETERS else None,
    )  # fmt: skip


def stretched(dims, order, gaps) -> list[int]:
    """Strides with the dimensions in `order`, fastest first, and gaps between them."""
    strides, step = [0] * 6, 1
    for d, gap in zip(order, gaps, strict=True):
        strides[d] = step
        step *= dims[d] + gap
    return strides


@st.composite
def any_problems(draw) -> Problem:
    problem = draw(problems())
    problem.dtype, problem.math = draw(st.sampled_from(DType)), draw(st.integers(0, 1))
    finite = st.floats(allow_nan=False, allow_infinity=False)
    problem.alpha, problem.beta = draw(finite), draw(st.one_of(st.just(0.0), finite))
    if problem.pool.mode:
        problem.beta = 0.0
    problem.epilogue.activation = draw(st.sampled_from(Activation))
    problem.epilogue.parameter = draw(finite)
    problem.epilogue.residual_alpha = draw(finite)
    draw_tables(draw, problem)
    if problem.prologue.activation:
        problem.prologue.activation = draw(st.sampled_from(Activation))
        problem.prologue.parameter = draw(finite)
    core.set_pooled(problem)
    if core.uses(problem, core.SAVED):  # always dense
        problem.stride[core.SAVED][:] = core.strides_of(core.dims_of(problem, core.SAVED))
    lie = st.sampled_from(("dense", "last", "filter_last", "any", "merged"))
    for i in (*range(6), core.Z):
        if core.uses(problem, i) and not core.stays(problem, i):
            dims = core.dims_of(problem, i)
            problem.stride[i][:] = draw_strides(draw, dims, draw(lie))
    if problem.beta != 0.0:
        problem.stride[core.OLD][:] = problem.stride[core.output_of(problem)][:]
    return problem


def draw_strides(draw, dims, lie: str) -> list[int]:
    if lie in ("dense", "last"):
        return list(core.strides_of(dims, lie == "last"))
    if lie == "filter_last":
        return stretched(dims, (2, 5, 4, 3, 1, 0), [0] * 6)
    gaps = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    order = draw(st.permutations(range(6)))
    if lie == "merged":
        order, gaps = (5, 4, 3, 2, 1, 0), [0, gaps[0], 0, 0, gaps[1], 0]
    return stretched(dims, order, gaps)


@settings(max_examples=300, deadline=None)
@given(any_problems())
def test_reading_what_was_printed_gives_the_same_problem(problem):
    text = core.text_of(problem)
    again = core.parse(text)
    assert meaning(again) == meaning(problem), text
    assert core.text_of(again) == text


@pytest.mark.parametrize(
    "text",
    [
        "conv2d:fwd x1x3x8x8 w4x3x3x3",
        "conv1d:fwd x2x4x9 w6x2x3 pad0:2 grp2",
        "conv2d:bwd_data x1x64x56x56 w64x64x3x3 pad1x2 str2 dil1x3 f64",
        "conv3d:bwd_filter x1x4x8x8x8 w4x4x3x3x3 pad0:1x2x0 bf16 ndhwc ws:ndhwc",
        "conv2d:bwd_bias y1x64x56x56 grp4 f16",
        "conv2d:fwd x1x64x56x56 w64x64x3x3 pad1 f32/tf32 nhwc",
        "conv2d:fwd x1x64x56x56 w64x64x3x3 pad1 f32/fp32x3",
        "conv2d:bwd_data x1x64x56x56 w64x64x3x3 pad1 f32/fp32_fast nhwc",
        "conv2d:fwd x1x3x8x8 w4x3x3x3 xs:0x100x10x1 alpha2 beta-0.5 flip",
        "conv2d:fwd x2x4x8x8 w4x2x3x3 grp2 xs:2048x1000x64x0x8x1",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +scale +bias +residual0.5 +clip6",
        "conv2d:fwd x0x3x8x8 w4x3x3x3 bs:2 +bias +relu",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +residual +elu0.1",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +bias +relu +maxpool2 +saved",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +avgpool3x2 poolstr2 poolpad1:0x0 poolceil",
        "conv3d:fwd x1x3x8x8x8 w4x3x3x3x3 ndhwc +avgpoolin2 poolstr3x2x1",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 zs:nhwc +maxpool2",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 +relu +maxpool2 +clipped",
        "conv2d:bwd_filter x2x3x8x8 w4x3x3x3 zs:nhwc +clipped",
        "conv2d:bwd_bias y2x4x6x6 +avgpool3 poolstr1 poolpad1",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 f16 +swish1.5 +maxpool2 +saved",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 +maxpool2 +sloped +dw +db",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +prenorm +preclip6 +bias +relu +sums",
        "conv2d:bwd_data x2x3x8x8 w4x3x3x3 +preswish1 alpha2 +sums",
        "conv2d:fwd x2x3x8x8 w4x3x3x3 +prenorm +maxpool2 +saved",
    ],
)
def test_shortest_text_is_printed_back(text):
    assert core.text_of(core.parse(text)) == text


def test_defaults_may_be_said_and_are_not_printed():
    said = "conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 str1 dil1 grp1 f32/tf32 nchw"
    short = "conv2d:fwd x1x2048x1024x1024 w2048x2048x3x3 pad1 f32/tf32"
    assert core.text_of(core.parse(said)) == short
    assert core.text_of(core.parse("  conv1d:fwd\tncw w1x1x1 alpha1 beta0 x1x1x4\n")) == (
        "conv1d:fwd x1x1x4 w1x1x1"
    )


def test_sizes_of_y_follow():
    shape = core.parse("conv2d:fwd x2x6x11x9 w8x3x3x2 pad1x0:2 str2x1 dil2x3 grp2").shape
    assert (shape.n, shape.g, shape.k, shape.c) == (2, 2, 4, 3)
    assert list(shape.out) == [1, (11 + 2 - 5) // 2 + 1, 9 + 2 - 4 + 1]


def test_backward_data_keeps_the_rows_that_no_tap_reaches():
    """x's shape is given, so a transposed convolution's output padding is implied."""
    for rows in (7, 8):
        shape = core.parse(f"conv1d:bwd_data x1x1x{rows} w1x1x3 str2").shape
        assert (shape.input[2], shape.out[2]) == (rows, 3)


def test_channels_last_means_channels_fastest():
    problem = core.parse("conv2d:fwd x2x6x5x4 w8x3x3x3 grp2 nhwc")
    assert list(problem.stride[core.X]) == [120, 3, 1, 120, 24, 6]
    assert list(problem.stride[core.W]) == [108, 27, 9, 9, 3, 1]


BAD = [
    ("", ["conv2d:fwd"]),
    ("conv4d:fwd x1x1x1 w1x1x1", ["conv4d:fwd", "conv1d", "bwd_filter"]),
    ("conv2d:forward x1x1x4x4 w1x1x1x1", ["conv2d:forward", "fwd"]),
    ("conv2d:fwd", ["x is missing", "N, C"]),
    ("conv2d:fwd x1x3x8x8", ["w is missing", "K, C / groups"]),
    ("conv2d:fwd x1x3x8 w4x3x3x3", ["x has 3 sizes", "4"]),
    ("conv1d:fwd x1x3x8 w4x3x3x3", ["w has 4 sizes", "3"]),
    ("conv2d:fwd x1x3x8x8 w4x2x3x3", ["w has 2 input channels", "expects 3"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 grp2", ["x has 3 channels", "multiple of 2"]),
    ("conv2d:fwd x1x4x8x8 w3x2x3x3 grp2", ["w has 3 channels", "multiple of 2"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 padding1", ["padding1", "pad0:1x2:2"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 pad-1", ["pad-1", "negative"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 pad1x1x1", ["pad has 3 numbers", "1 or 2"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 str0", ["str0", "at least 1"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 dil", ["dil", "at least 1"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 grp0", ["grp0", "at least 1"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 f32 f64", ["f64", "twice"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 f32/bf16", ["f32/bf16", "/tf32, /fp32x3, /fp32_fast"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 f32/fp32", ["f32/fp32", "/tf32"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 fp8", ["fp8", "f32 f64 f16 bf16"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 ncdhw", ["ncdhw", "nchw or nhwc"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 xs:1x2", ["xs:1x2", "4 strides"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 bs:1", ["bs:1", "no such operand"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 xs:100x-1x8x1", ["x has stride -1", "positive"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 y1x4x6x6", ["y's shape", "follows"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 alpha", ["alpha", "number"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 betanan", ["beta", "finite"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 flipped", ["flipped", "expected flip"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 +relu +tanh", ["+tanh", "once"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 +clip", ["+clip", "+clip6"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 +softmax", ["+softmax", "+sigmoid"]),
    ("conv2d:bwd_filter x1x3x8x8 w4x3x3x3 +bias", ["bias and scale", "bwd_filter"]),
    ("conv2d:bwd_bias x1x3x8x8 w4x3x3x3", ["bwd_bias", "y's shape"]),
    ("conv2d:bwd_bias y1x3x8x8 pad1", ["bwd_bias", "pad"]),
    ("conv2d:fwd x1x3x2x2 w4x3x3x3", ["empty on axis H", "reach 3"]),
    ("conv2d:fwd x1x3x8x8x w4x3x3x3", ["x1x3x8x8x", "sizes N, C"]),
    ("conv2d:fwd x99999999999999999999x3x8x8 w4x3x3x3", ["x9999", "sizes N, C"]),
    ("conv2d:fwd x1x3x8x8 w4x3x3x3 " + "q" * 5000, ["qqq...", "begins with"]),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[text[:60] for text, _ in BAD])
def test_what_is_wrong_is_named(text, words):
    with pytest.raises(core.Refused) as refused:
        core.parse(text)
    assert refused.value.code == 1
    for word in words:
        assert word in refused.value.text


PIECES = (
    "conv2d:fwd", "conv1d:bwd_bias", "conv3d:", "x", "y", "w", "xs:", "ws:nhwc", "1x2", "x1x3x8x8",
    "w4x3x3x3", "pad", "0:1", "str", "dil", "grp", "-", "9223372036854775807", "f32", "/tf32",
    "1152921504606846976", "bf16", "nhwc", "alpha", "beta", "1e308", "nan", "+", "+bias", "+clip",
    "@", "x@pin", "flip", " ", " ", " ", "\0", "é",
)  # fmt: skip


@settings(max_examples=800, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.binary(max_size=60),
        st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
        st.lists(st.sampled_from(PIECES), max_size=8).map(
            lambda pieces: " ".join(["conv2d:fwd x1x3x8x8 w4x3x3x3", *pieces])
        ),
    )
)
def test_any_text_is_read_or_refused(text):
    refusal = None
    try:
        problem = core.parse(text)
    except core.Refused as refused:
        refusal = refused
    if refusal is None:
        printed = core.text_of(problem)
        assert core.text_of(core.parse(printed)) == printed
    else:
        assert refusal.code == 1
        assert refusal.text


def test_one_layout_word_rather_than_one_for_an_operand():
    """With one channel x is dense and channels-last alike; y says which was meant."""
    text = "conv2d:fwd x1x1x8x8 w4x1x3x3 nhwc"
    assert core.text_of(core.parse(text)) == text
    mixed = "conv2d:fwd x1x2x8x8 w4x2x3x3 ys:nhwc"
    assert core.text_of(core.parse(mixed)) == mixed


def test_wrong_problems_are_printed_too():
    """The text stands in the message that says what is wrong, so it never fails."""
    problem = make(Direction.FWD, input=(2, 8, 8))
    problem.rank = 2
    assert core.text_of(problem).startswith("conv3d:fwd x1x1x2x8x8")
    problem.rank, problem.direction, problem.epilogue.activation, problem.dtype = 99, 7, 50, 12
    assert core.text_of(problem).startswith("conv3d:")


def test_placement_is_kept_apart():
    text = "conv2d:fwd x1x3x8x8 w4x3x3x3 pad1 x@pin w@dev y@file"
    assert core.text_of(core.parse(text)) == "conv2d:fwd x1x3x8x8 w4x3x3x3 pad1"
    places = core.parse_placement(text)
    assert places == [2, 3, 4] + [0] * (len(core.OPERANDS) - 3)
    assert core.placement_text(places) == "x@pin w@dev y@file"
    assert core.parse_placement("conv2d:bwd_data dx@page dy@pin")[:3] == [1, 0, 2]


@pytest.mark.parametrize("text", ["x@", "@pin", "x@gpu", "v@pin", "x@pin x@dev", "dscale@@pin"])
def test_wrong_placement_is_named(text):
    with pytest.raises(core.Refused, match=r"@page, @pin, @dev or @file|once"):
        core.parse_placement("conv2d:fwd x1x3x8x8 w4x3x3x3 " + text)
