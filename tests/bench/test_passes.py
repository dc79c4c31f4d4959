"""What the benchmarks hold passes with relu, pools and several gradients to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocdnn
from oocdnn.bench import suite
from oocdnn.bench.amounts import operand_bytes
from oocdnn.bench.task import Convolution, Task, objection
from oocdnn.bench.truth.passes import Pass, touching
from oocdnn.cli.problems import parse

SHAPES = "x3x4x9x11 w6x4x3x3 pad1"
FORWARD = f"conv2d:fwd {SHAPES} f32 +bias +relu +maxpool2 +saved"
BACKWARD = f"conv2d:bwd_data {SHAPES} f32 +maxpool2 +clipped +dw +db"


def checked(text: str, budget: str = "16KiB") -> tuple[Task, oocdnn.Context]:
    with oocdnn.Context("cpu", budget, profile="none") as context:
        task = Convolution(text).task(context, pinned=False)
        task.call(context)()
        task.choose(context)
    return task, context


@pytest.mark.parametrize(
    "text",
    [
        FORWARD,
        BACKWARD,
        f"conv2d:fwd {SHAPES} f64 +bias",
        f"conv2d:fwd {SHAPES} bf16 nhwc +relu +maxpool2x3",
        f"conv2d:bwd_filter {SHAPES} f32 +maxpool2x3 +clipped +db",
        f"conv2d:bwd_data {SHAPES} f32 +clipped",
        f"conv2d:bwd_data {SHAPES} f32 +dw",
        "conv2d:bwd_data x2x6x9x8 w4x3x3x2 pad1:0x0 str2x1 dil1x2 grp2 +maxpool2 +clipped +dw +db",
        "conv1d:fwd x3x4x40 w5x4x5 pad2 str2 f16 +bias +relu +maxpool3",
        "conv3d:bwd_data x2x3x5x6x7 w4x3x3x3x3 pad1 f32 +maxpool2 +clipped +dw +db",
    ],
)
def test_passes_are_right(text: str) -> None:
    assert objection(parse(text)) is None
    task, context = checked(text, "64KiB")
    assert task.check() == "pass"
    assert context.stats.peak_device_bytes > 0


@settings(max_examples=10, deadline=None)
@given(
    st.tuples(*(st.integers(1, 3) for _ in range(3))),
    st.tuples(st.integers(4, 9), st.integers(4, 9)),
    st.integers(0, 1),
    st.integers(1, 2),
    st.sampled_from(("", "+maxpool2", "+maxpool3x1")),
    st.sampled_from(("", "+clipped")),
)
def test_any_pass_is_right(
    channels: tuple[int, ...], size: tuple[int, ...], pad: int, stride: int, pool: str, clip: str
) -> None:
    (n, c, k), (h, w) = channels, size
    shapes = f"x{n}x{c}x{h}x{w} w{k}x{c}x2x3 pad{pad} str{stride} f32"
    window = touching(parse(f"conv2d:fwd {shapes} {pool}")) or ()
    if any(e < size for e, size in zip(parse(f"conv2d:fwd {shapes}").y[2:], window, strict=True)):
        return  # no window fits
    relu = "+relu" if clip else ""
    for text in (
        f"conv2d:fwd {shapes} +bias {relu} {pool} {'+saved' if relu or pool else ''}",
        f"conv2d:bwd_data {shapes} {pool} {clip} +dw +db",
    ):
        task, _ = checked(" ".join(text.split()), "64KiB")
        assert task.check() == "pass", text


@pytest.mark.parametrize("name", ["dx", "dw", "db"])
def test_a_wrong_element_of_any_gradient_is_found(name: str) -> None:
    task, _ = checked(BACKWARD)
    (compared,) = (one for one in task._compared if one.name == name)
    task.outs[name][compared.places[-1]] += 1
    of = f" of {len(compared.places)} compared elements of {name} differ"
    assert of in task.check()


def test_the_gradient_goes_to_the_first_of_equals_and_not_where_relu_is_flat() -> None:
    problem = parse("conv2d:bwd_data x1x1x2x4 w1x1x1x1 f32 +maxpool2 +clipped")
    x = np.array([[[[1, 3, -1, 0], [3, 3, -2, 0]]]], np.float32)
    one = Pass(problem, x, np.ones((1, 1, 1, 1), np.float32), relu=True, window=(2, 2))
    dz = np.array([[[[5, 7]]]], np.float32)
    dy = one.dy(dz, 0, range(1), one.everything())
    np.testing.assert_array_equal(dy[0], [[0, 5, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(one.dx_image(dz, 0)[0], dy[0])


def test_data_of_a_pass_is_what_crosses() -> None:
    assert operand_bytes(parse(FORWARD)) == 4 * (3 * 4 * 99 + 6 * 4 * 9 + 3 * 6 * 4 * 5)
    both = 4 * 2 * (3 * 4 * 99 + 6 * 4 * 9)
    assert operand_bytes(parse(BACKWARD)) == both + 4 * 3 * 6 * 4 * 5


def test_torch_computes_the_same_passes() -> None:
    pytest.importorskip("torch")
    patience = dataclasses.replace(suite.QUICK, least=1, most=1)
    made = suite.Bench(suite.Settings("cpu", peers=("torch",), patience=patience))
    for text in (FORWARD, BACKWARD, f"conv2d:bwd_filter {SHAPES} f32 +maxpool2x3 +clipped +db"):
        ours, torchs = made.rows(suite.case_of(text, "cpu"))
        assert (ours["check"], torchs["check"]) == ("pass", "pass"), text
