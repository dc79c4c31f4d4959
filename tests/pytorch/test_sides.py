"""On which side results and gradients are, for tensors that only say that they are on a GPU."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._subclasses import FakeTensorMode

from oocdnn.torch import _derivatives, _operators

HOST, GPU = torch.device("cpu"), torch.device("cuda", 0)
MOVES = ((2, 2), (1, 1), (1, 1), (1, 1), 1)
SIDES = list(itertools.product((HOST, GPU), repeat=3))


@pytest.fixture(autouse=True)
def fake():
    with FakeTensorMode():
        yield


class Graph(SimpleNamespace):
    """What autograd hands to derivatives, since its own needs a GPU for such tensors."""

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors


def gradients(keep, differentiate, inputs, y):
    """Of the tensors among the inputs."""
    needed = [isinstance(one, torch.Tensor) for one in inputs]
    graph = Graph(needs_input_grad=needed)
    keep(graph, inputs, y)
    found = differentiate(graph, torch.empty_like(y))
    assert [one is not None for one in found] == needed
    return [one for one in found if one is not None]


def assert_like(found, tensors):
    assert [(one.shape, one.device) for one in found] == [(t.shape, t.device) for t in tensors]


@pytest.mark.parametrize("side", SIDES, ids=str)
def test_conv(side):
    x = torch.empty(2, 4, 9, 9, device=side[0])
    w, b = torch.empty(6, 4, 3, 3, device=side[1]), torch.empty(6, device=side[1])
    inputs = (x, w, b, *MOVES, side[2])
    y = _operators.conv(*inputs)
    assert (y.shape, y.device) == ((2, 6, 5, 5), side[2])
    found = gradients(_derivatives._keep_conv, _derivatives._differentiate_conv, inputs, y)
    assert_like(found, (x, w, b))


@pytest.mark.parametrize("side", SIDES, ids=str)
def test_conv_transpose(side):
    x = torch.empty(2, 4, 9, 9, device=side[0])
    w, b = torch.empty(4, 6, 3, 3, device=side[1]), torch.empty(6, device=side[1])
    inputs = (x, w, b, (1, 0), *MOVES, side[2])
    y = _operators.conv_transpose(*inputs)
    assert (y.shape, y.device) == ((2, 6, 18, 17), side[2])
    keep, differentiate = _derivatives._keep_transposed, _derivatives._differentiate_transposed
    assert_like(gradients(keep, differentiate, inputs, y), (x, w, b))


@pytest.mark.parametrize("side", SIDES, ids=str)
def test_gradients_of_gradients(side):
    dy, w = torch.empty(2, 6, 5, 5, device=side[0]), torch.empty(6, 4, 3, 3, device=side[1])
    inputs = (dy, w, (2, 4, 10, 9), *MOVES, side[2])
    dx = _operators.conv_backward_data(*inputs)
    assert (dx.shape, dx.device) == ((2, 4, 10, 9), side[2])
    keep, differentiate = _derivatives._keep_gradient, _derivatives._differentiate_transposed
    assert_like(gradients(keep, differentiate, inputs, dx), (dy, w))
    x = torch.empty(2, 4, 10, 9, device=side[1])
    inputs = (x, dy, (6, 4, 3, 3), *MOVES, side[2])
    dw = _operators.conv_backward_filter(*inputs)
    assert (dw.shape, dw.device) == ((6, 4, 3, 3), side[2])
    keep, differentiate = _derivatives._keep_gradient, _derivatives._differentiate_filter
    assert_like(gradients(keep, differentiate, inputs, dw), (x, dy))
