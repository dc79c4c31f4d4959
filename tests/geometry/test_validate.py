"""What Validate refuses, and the words that its texts hold."""

from __future__ import annotations

import pytest
from geometry import core
from geometry.cases import make
from geometry.core import Activation, Direction, DType, W, X, Y

HUGE = 2**61


def valid():
    return make(
        Direction.FWD, n=2, g=2, k=2, c=3, input=(1, 8, 8), filter=(1, 3, 3),
        pad_before=(0, 1, 1), pad_after=(0, 1, 1),
    )  # fmt: skip


def change(path: str, value):
    """A function that sets problem.<path> ("shape.out[1]") to value."""

    def apply(problem):
        *parents, last = path.replace("[", ".[").split(".")
        target = problem
        for name in parents:
            target = target[int(name[1:-1])] if name[0] == "[" else getattr(target, name)
        if last[0] == "[":
            target[int(last[1:-1])] = value
        else:
            setattr(target, last, value)

    return apply


BAD = [
    (change("dtype", 9), 2, ["element type 9", "bf16"]),
    (change("dtype", -1), 2, ["element type -1"]),
    (change("direction", 4), 1, ["direction is 4"]),
    (change("math", 4), 1, ["math is 4"]),
    (change("epilogue.activation", 8), 1, ["activation is 8"]),
    (change("rank", 0), 1, ["0 spatial axes"]),
    (change("rank", 4), 1, ["4 spatial axes", "1, 2 or 3"]),
    (change("rank", 1), 1, ["axis H is in use", "only 1 spatial"]),
    (change("alpha", float("nan")), 1, ["alpha nan"]),
    (change("beta", float("inf")), 1, ["beta inf", "finite"]),
    (change("epilogue.parameter", float("inf")), 1, ["parameter inf", "finite"]),
    (change("epilogue.residual_alpha", float("nan")), 1, ["residual's alpha nan"]),
    (change("shape.n", -1), 1, ["N is -1"]),
    (change("shape.k", 0), 1, ["K per group is 0", "at least 1"]),
    (change("shape.c", HUGE), 1, ["C per group", "2^60"]),
    (change("shape.g", 0), 1, ["groups is 0", "at least 1"]),
    (change("shape.stride[1]", 0), 1, ["stride on axis H is 0", "at least 1"]),
    (change("shape.dilation[2]", -1), 1, ["dilation on axis W is -1"]),
    (change("shape.filter[1]", 0), 1, ["filter extent on axis H is 0"]),
    (change("shape.input[1]", 0), 1, ["input extent on axis H is 0"]),
    (change("shape.pad_before[2]", -1), 1, ["padding before on axis W is -1"]),
    (change("shape.pad_after[2]", HUGE), 1, ["padding after on axis W", "2^60"]),
    (change("shape.filter[1]", 11), 1, ["empty on axis H", "reach 11", "more padding"]),
    (change("shape.dilation[1]", 2**59), 1, ["empty on axis H"]),
    (change("shape.out[2]", 7), 1, ["y has 7 on axis W", "make it 8"]),
    (change("shape.n", 2**59), 1, ["more than 2^60 bytes"]),
    (change(f"stride[{X}][5]", -1), 1, ["x has stride -1 in dimension 5", "positive"]),
    (change(f"stride[{W}][2]", 0), 1, ["w has stride 0", "positive"]),
    (change(f"stride[{X}][0]", 2**60), 1, ["x spans more than 2^60 bytes"]),
    (change(f"stride[{Y}][4]", 1), 1, ["y is written", "share an address"]),
]


def test_the_starting_point_is_valid():
    core.validate(valid())


@pytest.mark.parametrize(("wrong", "code", "words"), BAD, ids=[bad[2][0] for bad in BAD])
def test_wrong_numbers_are_named(wrong, code, words):
    problem = valid()
    wrong(problem)
    with pytest.raises(core.Refused) as refused:
        core.validate(problem)
    assert refused.value.code == code
    for word in words:
        assert word in refused.value.text


def test_a_tensor_may_span_as_much_as_is_said():
    """2^60 bytes, of which its last element is the last."""
    problem = valid()
    others = 2 * 3 * 8 * 8 - 1  # steps from the first element of a sample to its last
    problem.stride[X][0] = 2**58 - 1 - others
    core.validate(problem)
    problem.stride[X][0] += 1
    with pytest.raises(core.Refused, match=r"x spans more than 2\^60 bytes"):
        core.validate(problem)


def test_names_are_those_of_the_direction():
    problem = make(Direction.BWD_DATA, n=2, c=2, k=2, input=(1, 4, 4), filter=(1, 3, 3))
    problem.stride[X][4] = 1
    with pytest.raises(core.Refused, match="dx is written"):
        core.validate(problem)


@pytest.mark.parametrize("direction", [Direction.BWD_FILTER, Direction.BWD_BIAS])
def test_bias_and_scale_need_channels_of_the_output(direction):
    problem = make(direction, input=(1, 4, 4))
    problem.epilogue.bias = True
    with pytest.raises(core.Refused, match="bias and scale go with fwd and bwd_data only"):
        core.validate(problem)


def test_what_is_fine():
    empty_batch = make(Direction.FWD, n=0, c=2, k=2, input=(1, 4, 4), filter=(1, 3, 3))
    core.validate(empty_batch)
    strided = valid()
    strided.stride[X][:] = [10_000, 3_000, 1_000, 0, 100, 10]
    strided.dtype, strided.epilogue.activation = DType.BF16, Activation.SWISH
    core.validate(strided)
