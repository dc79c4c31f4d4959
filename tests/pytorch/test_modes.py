"""Forward mode and the transforms of torch.func, for every function, operator and module.

Operands are integers, and a convolution is linear in each, so central differences are exact:
f(x + tx, w + tw) - f(x - tx, w - tw) is twice the tangent, in every mode that computes one.
"""

from __future__ import annotations

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from torch.autograd import forward_ad
from torch.nn import functional as F

import oocdnn
from oocdnn.torch import _operators

pytestmark = pytest.mark.usefixtures("ctx")
NAMES = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]
KEYWORDS = {
    "plain": {},
    "strided": {"stride": 2, "padding": 1},
    "grouped": {"groups": 2, "dilation": 2},
}


def operands(name: str, groups: int = 1, salt: int = 0) -> tuple[torch.Tensor, ...]:
    """x, w and b of a call, or tangents of them."""
    rank = int(name[-2])
    case = Case(rank, False, (), (), None, {}, torch.float64, seed=salt)
    shapes = (2, 2, *(4,) * rank), (2, 2 // groups, *(2,) * rank), (2 // groups * groups,)
    x, w, b = (case.filled(shape, i) for i, shape in enumerate(shapes))
    if "transpose" in name:  # w: [C, K/groups, ...]
        b = case.filled((w.shape[1] * groups,), 2)
    return x, w, b


def difference(function, at, tangents) -> torch.Tensor:
    """The tangent of a function that is at most quadratic, exactly."""
    tangents = [torch.zeros_like(a) if t is None else t for a, t in zip(at, tangents, strict=True)]
    ahead, behind = (
        function(*(a + sign * t for a, t in zip(at, tangents, strict=True))) for sign in (1, -1)
    )
    return (ahead - behind) / 2


def by_jvp(function, at, tangents):
    names = [i for i, t in enumerate(tangents) if t is not None]

    def of_some(*some):
        whole = list(at)
        for i, one in zip(names, some, strict=True):
            whole[i] = one
        return function(*whole)

    return torch.func.jvp(of_some, tuple(at[i] for i in names), tuple(tangents[i] for i in names))


def by_dual_numbers(function, at, tangents, grad=False):
    at = [one.clone().requires_grad_(grad) for one in at]
    with forward_ad.dual_level():
        duals = [
            a if t is None else forward_ad.make_dual(a, t)
            for a, t in zip(at, tangents, strict=True)
        ]
        y, tangent = forward_ad.unpack_dual(function(*duals))
        return y.detach(), tangent.detach()


def beside_gradients(function, at, tangents):
    return by_dual_numbers(function, at, tangents, grad=True)


def by_linearization(function, at, tangents):
    y, linear = torch.func.linearize(function, *at)
    return y, linear(*tangents)


WAYS = [by_jvp, by_dual_numbers, beside_gradients]
WANTED = {"x": (0,), "w": (1,), "b": (2,), "xw": (0, 1), "xwb": (0, 1, 2)}


def of_keywords(at, name, keywords):
    return lambda *tensors: getattr(at, name)(*tensors, **keywords)


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_tangents(name, way, wanted):
    keywords = KEYWORDS[list(KEYWORDS)[NAMES.index(name) % 3]]
    groups = keywords.get("groups", 1)
    at, steps = operands(name, groups), operands(name, groups, salt=1)
    tangents = [step if i in WANTED[wanted] else None for i, step in enumerate(steps)]
    y, tangent = way(of_keywords(oocdnn.torch, name, keywords), at, tangents)
    torchs = of_keywords(F, name, keywords)
    assert torch.equal(y, torchs(*at))
    assert torch.equal(tangent, difference(torchs, at, tangents))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("name", NAMES)
def test_linearization(name):
    at, tangents = operands(name), operands(name, salt=1)
    y, tangent = by_linearization(of_keywords(oocdnn.torch, name, {}), at, tangents)
    assert torch.equal(y, getattr(F, name)(*at))
    assert torch.equal(tangent, difference(getattr(F, name), at, tangents))


def nothing_is_in_silence(tangent):
    assert tangent.abs().max() > 0


@pytest.mark.parametrize("keywords", KEYWORDS)
@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d", "conv2d"])
@pytest.mark.parametrize("transform", [torch.func.jacfwd, torch.func.jacrev])
def test_jacobians(transform, name, keywords):
    keywords = KEYWORDS[keywords]
    at = operands(name, keywords.get("groups", 1))
    ours, torchs = (
        transform(of_keywords(side, name, keywords), argnums=(0, 1, 2))(*at)
        for side in (oocdnn.torch, F)
    )
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))
    nothing_is_in_silence(ours[0])


def square(side, name, keywords):
    return lambda x, w, b: (getattr(side, name)(x, w, b, **keywords) ** 2).sum()


def gradient(f, at, _):
    return torch.func.grad(f, argnums=(0, 1, 2))(*at)


def forward_over_reverse(f, at, steps):
    return torch.func.jvp(torch.func.grad(f, argnums=(0, 1, 2)), at, steps)[1]


def reverse_over_forward(f, at, steps):
    return torch.func.grad(lambda *one: torch.func.jvp(f, one, steps)[1], argnums=(0, 1, 2))(*at)


def reverse_over_reverse(f, at, steps):
    return torch.func.vjp(torch.func.grad(f, argnums=(0, 1, 2)), *at)[1](steps)


def of_autograd(f, at, steps):
    return torch.autograd.functional.hvp(f, at, steps)[1]


def forward_over_autograd(f, at, steps):
    at = [one.clone().requires_grad_() for one in at]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(a, t) for a, t in zip(at, steps, strict=True)]
        found = torch.autograd.grad(f(*duals), at)
        return [forward_ad.unpack_dual(one).tangent for one in found]


def each_sample(f, at, _):
    """Gradients of w for each sample."""
    x, w, b = at
    one = torch.func.grad(lambda w, x: f(x[None], w, b))
    return [torch.func.vmap(one, in_dims=(None, 0))(w, x)]


SECOND = [
    gradient,
    forward_over_reverse,
    reverse_over_forward,
    reverse_over_reverse,
    of_autograd,
    forward_over_autograd,
    each_sample,
]


@pytest.mark.parametrize("way", SECOND, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_products_with_hessians(name, way):
    keywords = KEYWORDS[list(KEYWORDS)[(NAMES.index(name) + 1) % 3]]
    groups = keywords.get("groups", 1)
    at, steps = operands(name, groups), operands(name, groups, salt=1)
    ours, torchs = (way(square(side, name, keywords), at, steps) for side in (oocdnn.torch, F))
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))
    nothing_is_in_silence(ours[0])


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_hessians(name):
    at = operands(name)
    ours, torchs = (
        torch.func.hessian(square(side, name, {}), argnums=1)(*at) for side in (oocdnn.torch, F)
    )
    assert torch.equal(ours, torchs)
    nothing_is_in_silence(ours)


@pytest.mark.parametrize("batched", [(0,), (1,), (2,), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("keywords", ["plain", "grouped"])
def test_vmap(name, batched, keywords, recwarn):
    """Batches of any operand, the batch on another axis each time; nothing warns of slowness."""
    keywords = KEYWORDS[keywords]
    groups = keywords.get("groups", 1)
    several = [operands(name, groups, salt) for salt in range(3)]
    in_dims = tuple(i if i in batched else None for i in range(3))
    stacked = tuple(
        several[0][i] if dim is None else torch.stack([one[i] for one in several], min(dim, 1))
        for i, dim in enumerate(in_dims)
    )
    in_dims = tuple(None if dim is None else min(dim, 1) for dim in in_dims)
    found = torch.func.vmap(of_keywords(oocdnn.torch, name, keywords), in_dims)(*stacked)
    for n, y in enumerate(found):
        one = [several[n if i in batched else 0][i] for i in range(3)]
        assert torch.equal(y, getattr(F, name)(*one, **keywords))
    assert not [warning for warning in recwarn if "performance drop" in str(warning.message)]


def operator_calls():
    """Each operator and operands of it, as torch.ops has them."""
    x, w, b = operands("conv2d")
    moves = ([1, 1], [1, 0], [0, 1], [1, 1], 1, torch.device("cpu"))
    dy = _operators.conv(x, w, None, *moves)
    ops = torch.ops.oocdnn
    return {
        "conv": ((x, w, b), lambda *t: ops.conv(*t, *moves)),
        "conv_transpose": ((x, w, b), lambda *t: ops.conv_transpose(*t, [0, 0], *moves)),
        "conv_backward_data": (
            (dy, w),
            lambda *t: ops.conv_backward_data(*t, list(x.shape), *moves),
        ),
        "conv_backward_filter": (
            (x, dy),
            lambda *t: ops.conv_backward_filter(*t, list(w.shape), *moves),
        ),
    }


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("name", operator_calls())
def test_operators(name, wanted, way):
    at, function = operator_calls()[name]
    steps = [torch.ones_like(one) + i for i, one in enumerate(at)]
    tangents = [step if i in wanted else None for i, step in enumerate(steps)]
    y, tangent = way(function, at, tangents)
    assert torch.equal(y, function(*at))
    assert torch.equal(tangent, difference(function, at, tangents))


MODULES = [f"Conv{kind}{rank}d" for kind in ("", "Transpose") for rank in (1, 2, 3)]


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name, taken):
    """Tangents with respect to the parameters, of modules that are taken and of those of ours."""
    torchs = getattr(torch.nn, name)(2, 2, 2, stride=2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in torchs.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) % 5 - 2)
    ours = copy.deepcopy(torchs)
    if taken:
        assert oocdnn.torch.take(ours) == [""]
    else:
        ours = getattr(oocdnn.torch, name)(2, 2, 2, stride=2, dtype=torch.float64)
        ours.load_state_dict(torchs.state_dict())
    x = operands(f"conv{name[-2]}d")[0]
    at = {key: value.detach() for key, value in torchs.named_parameters()}
    steps = {key: torch.ones_like(value) for key, value in at.items()}
    found = [
        torch.func.jvp(lambda p, m=m: torch.func.functional_call(m, p, (x,)), (at,), (steps,))
        for m in (ours, torchs)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    nothing_is_in_silence(found[0][1])


def test_a_chain_of_layers():
    """Convolutions with torch's functions between them."""

    def network(side):
        def of(x, w, v):
            y = torch.relu(side.conv2d(x, w, padding=1))
            return side.conv_transpose2d(F.avg_pool2d(y, 2), v, stride=2).sigmoid()

        return of

    x, w, _ = operands("conv2d")
    at, steps = (x, w, w + 1), (w.new_ones(x.shape), w + 2, w - 3)
    ours, torchs = (torch.func.jvp(network(side), at, steps) for side in (oocdnn.torch, F))
    torch.testing.assert_close(ours, torchs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype):
    x, w, b = (one.to(dtype) for one in operands("conv2d"))
    y, tangent = torch.func.jvp(oocdnn.torch.conv2d, (x, w, b), (x, w, b))
    assert y.dtype == tangent.dtype == dtype
    wide = difference(F.conv2d, *[[one.double() for one in (x, w, b)]] * 2)
    assert torch.equal(tangent, wide.to(dtype))


def test_autocast():
    x, w, b = (one.float() for one in operands("conv2d"))
    with torch.autocast("cpu", torch.bfloat16):
        y, tangent = torch.func.jvp(oocdnn.torch.conv2d, (x, w, b), (x, w, b))
    assert y.dtype == tangent.dtype == torch.bfloat16
    nothing_is_in_silence(tangent.float())


def test_what_is_expanded_has_tangents():
    x, w, _ = operands("conv2d")
    one, step = x[:1].clone(), w.new_ones(()).expand(1, 2, 4, 4)
    expanded = torch.func.jvp(
        lambda one: oocdnn.torch.conv2d(one.expand(3, -1, -1, -1), w), (one,), (step,)
    )
    assert torch.equal(expanded[0], F.conv2d(one, w).expand(3, -1, -1, -1))
    assert torch.equal(expanded[1], F.conv2d(step, w).expand(3, -1, -1, -1))


def test_no_tangent_is_kept_after_the_call():
    """The operands that a tangent reads are not held by what the backward pass holds."""
    x, w, _ = operands("conv2d")
    x.requires_grad_()
    with forward_ad.dual_level():
        y = oocdnn.torch.conv2d(forward_ad.make_dual(x, torch.ones_like(x)), w)
        assert [one is not None for one in y.grad_fn.saved_tensors] == [False, True]
        assert y.grad_fn.name() == "oocdnn_conv_Backward"


def test_operands_are_freed_after_the_call():
    """A tangent reads both operands, and the gradient of x only w."""
    x, w, _ = operands("conv2d")
    x.requires_grad_()
    with forward_ad.dual_level():
        twice = x * 2
        seen = weakref.ref(twice)
        y = oocdnn.torch.conv2d(twice, forward_ad.make_dual(w, w))
        del twice
        gc.collect()
        assert y.requires_grad
        assert seen() is None


@pytest.mark.parametrize("kind", ["jvp", "dual", "grad", "vmap"])
def test_functions_that_record_nothing_say_so(kind):
    """Those of oocdnn itself, given torch tensors."""
    x, w, _ = operands("conv2d")
    calls = {
        "jvp": lambda: torch.func.jvp(lambda one: oocdnn.conv2d(one, w), (x,), (x,)),
        "grad": lambda: torch.func.grad(lambda one: oocdnn.conv2d(one, w).sum())(x),
        "vmap": lambda: torch.func.vmap(lambda one: oocdnn.conv2d(one[None], w))(x),
        "dual": lambda: of_dual_numbers(lambda one: oocdnn.conv2d(one, w)),
    }

    def of_dual_numbers(function):
        with forward_ad.dual_level():
            return function(forward_ad.make_dual(x, x))

    with pytest.raises(oocdnn.Unsupported, match=r"oocdnn\.torch"):
        calls[kind]()
    with forward_ad.dual_level():
        assert oocdnn.conv2d(forward_ad.make_dual(x, x).detach(), w).shape == (2, 2, 3, 3)
