"""The baseline computes convolutions: it is compared with the shared reference, bit by bit."""

import numpy as np
import oracle
import pytest
from bench_cases import SMALL

from oocdnn.bench import onednn_primitive
from oocdnn.bench.layers import DIRECTIONS, ROLES, Array, Direction, Layer, integers, operands
from oocdnn.bench.onednn_primitive import PROP_KINDS, OneDnnConvolution, OneDnnMissing, PropKind

try:
    onednn_primitive.version()
except OneDnnMissing as error:
    pytest.skip(str(error), allow_module_level=True)


def reference(case: Layer, direction: Direction, first: Array, second: Array) -> np.ndarray:
    keywords = {
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups,
    }
    if direction == "fwd":
        return oracle.forward(first, second, **keywords)
    if direction == "bwd_data":
        return oracle.backward_data(first, second, case.shape("x"), **keywords)
    return oracle.backward_filter(first, second, case.shape("w"), **keywords)


@pytest.mark.parametrize("kind", PROP_KINDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_result_is_exact(case: Layer, direction: Direction, kind: PropKind) -> None:
    first, second = operands(case, direction)
    out = np.full(case.shape(ROLES[direction][2]), np.nan, np.float32)
    OneDnnConvolution(case, direction, kind).run(first, second, out)
    assert np.array_equal(out, reference(case, direction, first, second))


def test_one_primitive_serves_many_arrays() -> None:
    case = SMALL[0]
    primitive = OneDnnConvolution(case, "fwd")
    out = np.empty(case.shape("y"), np.float32)
    for seed in (5, 6):
        x, w = integers(case.shape("x"), seed), integers(case.shape("w"), seed + 10)
        primitive.run(x, w, out)
        assert np.array_equal(out, reference(case, "fwd", x, w))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_fastest_is_one_that_computes(direction: Direction) -> None:
    case = SMALL[1]
    inputs = operands(case, direction)
    out = np.full(case.shape(ROLES[direction][2]), np.nan, np.float32)
    onednn_primitive.fastest(case, direction, *inputs, out).run(*inputs, out)
    assert np.array_equal(out, reference(case, direction, *inputs))


@pytest.mark.parametrize("wrong", ["shape", "dtype", "order"])
def test_arrays_that_do_not_fit_are_refused(wrong: str) -> None:
    case = SMALL[0]
    x, w = operands(case, "fwd")
    out = np.empty(case.shape("y"), np.float32)
    if wrong == "shape":
        out = out[:1]
    elif wrong == "dtype":
        x = x.astype(np.float64)
    else:
        x = np.asfortranarray(x)
    with pytest.raises(ValueError, match="must be a dense float32 array"):
        OneDnnConvolution(case, "fwd").run(x, w, out)


def test_matrix_product() -> None:
    a, b = integers((48, 48), 1), integers((48, 48), 2)
    c = np.empty_like(a)
    onednn_primitive.sgemm(a, b, c)
    assert np.array_equal(c, a @ b)
