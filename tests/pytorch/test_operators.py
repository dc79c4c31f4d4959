"""What torch asks of operators: by its own checks, and derivatives by finite differences."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch.cases import DTYPES, Case, cases

import oocdnn
from oocdnn.torch import _operators

pytestmark = pytest.mark.usefixtures("ctx")
HOST = torch.device("cpu")


def moves(rank: int, stride: int = 1, groups: int = 1):
    """stride, before, after, dilation, groups; the padding is uneven."""
    return [stride] * rank, [1] * rank, [0] * rank, [1] * rank, groups


def calls(rank: int, stride: int, groups: int, channels_last: bool):
    """Arguments of every operator that belong together."""

    def tensor(*shape, salt=0):
        case = Case(rank, False, (), (), None, {}, torch.float64, channels_last, salt)
        return case.filled(shape, 0).requires_grad_()

    x = tensor(2, 2 * groups, *(4,) * rank)
    w = tensor(3 * groups, 2, *(2,) * rank, salt=1)
    b = tensor(3 * groups, salt=2)
    how = (*moves(rank, stride, groups), HOST)
    dy = _operators.conv(x, w, b, *how).detach().requires_grad_()
    short = tensor(2 * groups, salt=3)
    return {
        "conv": (x, w, b, *how),
        "conv without bias": (x.detach(), w, None, *how),
        "conv_transpose": (dy, w, short, [stride - 1] * rank, *how),
        "conv_backward_data": (dy, w, list(x.shape), *how),
        "conv_backward_filter": (x, dy, list(w.shape), *how),
    }


@pytest.mark.parametrize("name", calls(1, 1, 1, False))
@pytest.mark.parametrize(
    ("rank", "stride", "groups", "channels_last"),
    [(1, 2, 1, False), (2, 1, 2, False), (2, 1, 2, True), (3, 2, 1, True)],
)
def test_opcheck(name, rank, stride, groups, channels_last):
    arguments = calls(rank, stride, groups, channels_last)[name]
    operator = getattr(_operators, name.split()[0])
    found = torch.library.opcheck(operator, arguments)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", calls(1, 1, 1, False))
@pytest.mark.parametrize(("rank", "stride", "groups"), [(1, 2, 2), (2, 1, 1)])
def test_derivatives_of_first_and_second_order(name, rank, stride, groups):
    arguments = calls(rank, stride, groups, False)[name]
    operator = getattr(_operators, name.split()[0])
    assert torch.autograd.gradcheck(operator, arguments)
    assert torch.autograd.gradgradcheck(operator, arguments)


@settings(max_examples=20, deadline=None)
@given(cases(dtypes=(torch.float64,), largest=3))
def test_derivatives_of_functions(case):
    assert torch.autograd.gradcheck(case.ours, case.operands(), fast_mode=True)


@settings(max_examples=60, deadline=None)
@given(cases(dtypes=DTYPES), st.sampled_from(["whole", "cut", "swapped", "expanded"]))
def test_strides_are_foretold(case, look):
    """The fake results that compilers plan by have the strides of the real ones."""
    operands = [None if one is None else one.detach() for one in case.operands()]
    x = operands[0]
    if look == "cut":
        operands[0] = torch.cat([x, x], -1)[..., ::2]
    elif look == "swapped":
        operands[0] = x.transpose(1, -1).contiguous().transpose(1, -1)
    elif look == "expanded":
        operands[0] = x[:1].expand(x.shape)
    real = case.ours(*operands)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = case.ours(*(None if one is None else mode.from_tensor(one) for one in operands))
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_wrong_calls_say_what_is_wrong(rank):
    convolve = getattr(oocdnn.torch, f"conv{rank}d")
    x, w = torch.zeros(1, 4, *(9,) * rank), torch.zeros(4, 4, *(3,) * rank)
    with pytest.raises(oocdnn.InvalidProblem, match=r"w has \d+ axes"):
        convolve(x, w[0])
    with pytest.raises(oocdnn.InvalidProblem, match=r"x has \d+ axes"):
        convolve(x[0, 0], w)
    with pytest.raises(oocdnn.InvalidProblem, match="4 channels of x"):
        convolve(x, w[:, :3])
    with pytest.raises(oocdnn.InvalidProblem, match="stride is"):
        convolve(x, w, stride=(1,) * 4)
    with pytest.raises(oocdnn.InvalidProblem, match="would be empty"):
        convolve(x, w, dilation=9)
    with pytest.raises(oocdnn.InvalidDtype, match="float64"):
        convolve(x, w.double())
    with pytest.raises(oocdnn.InvalidDtype, match="int64"):
        convolve(x.long(), w.long())


def test_errors_of_the_backward_pass_arrive(ctx):
    x = torch.zeros(1, 4, 9, 9, requires_grad=True)
    y = oocdnn.torch.conv2d(x, torch.zeros(4, 4, 3, 3))
    other = oocdnn.Context("cpu", "1MiB")
    other.close()
    with pytest.raises(oocdnn.DeviceError, match="closed"), other:
        y.sum().backward()


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.zeros(1, 4, 9, 9, requires_grad=True)
        oocdnn.torch.conv2d(x, torch.zeros(4, 4, 3, 3)).sum().backward()
