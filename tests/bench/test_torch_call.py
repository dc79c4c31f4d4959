"""What torch is asked to compute for a layer is what oocdnn computes."""

from __future__ import annotations

import numpy as np
import pytest
from bench_cases import SMALL

import oocdnn
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import DIRECTIONS, ROLES, Direction, Layer, operands
from oocdnn.bench.peers.torch_call import convolution
from oocdnn.cli.problems import parse

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_torch_gives_the_same_elements(case: Layer, direction: Direction) -> None:
    inputs = operands(case, direction)
    out = np.full(case.shape(ROLES[direction][2]), np.nan, np.float32)
    with oocdnn.Context("cpu", "1MiB", profile="none") as context:
        call_of(context, case, direction, inputs, out)()
    work = convolution(parse(case.problem(direction)))
    result = work(*(torch.from_numpy(array) for array in inputs))
    np.testing.assert_array_equal(result.numpy(), out)


@pytest.mark.parametrize("words", ["pad1:2", "pad1 flip"])
def test_what_torch_does_not_compute_is_said(words: str) -> None:
    with pytest.raises(ValueError, match="torch"):
        convolution(parse(f"conv2d:fwd x2x3x8x8 w4x3x3x3 {words}"))
