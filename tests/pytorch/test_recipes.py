"""Recipes of saved tensors: the bits of forward, in the recorded step and in later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch.limit_coverage import Coverage, coverage, table
from pytorch.limit_nets import NETS, SqueezeExcitation, stochastic_depth
from torch import Tensor, nn
from torch.nn import functional as F

from oocdnn.torch.limit.kinds import KINDS

CHANNELS = 4
aten = torch.ops.aten


def p(*shape: int) -> Tensor:
    """A parameter."""
    return torch.randn(shape, requires_grad=True)


def like(a: Tensor, *shape: int) -> Tensor:
    """A parameter of the type of a."""
    return p(*shape).to(a.dtype).detach().requires_grad_()


def evaluated(a: Tensor) -> Tensor:
    norm = nn.BatchNorm2d(CHANNELS).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    return norm(a.float())


def instance(a: Tensor, affine: bool, after: Callable[[Tensor], Tensor]) -> Tensor:
    weight, bias = (p(CHANNELS), p(CHANNELS)) if affine else (None, None)
    return after(F.instance_norm(a, None, None, weight, bias))


Case = Callable[[Tensor], Tensor]

# Of an activation of N x 4 x H x W that is saved, to a tensor that is saved next.
CASES: dict[str, Case] = {
    "convolution": lambda a: F.conv2d(a, like(a, 5, 4, 3, 3), like(a, 5), padding=1),
    "convolution without bias": lambda a: F.conv2d(a, like(a, 4, 1, 3, 3), stride=2, groups=4),
    "transposed": lambda a: F.conv_transpose2d(a, like(a, 4, 3, 2, 2), like(a, 3), stride=2),
    "linear": lambda a: F.linear(a, like(a, 3, a.shape[-1]), like(a, 3)),
    "linear without bias": lambda a: F.linear(a, like(a, 3, a.shape[-1])),
    "baddbmm": lambda a: torch.baddbmm(like(a, 1, 1, 3), a[0], like(a, 4, a.shape[-1], 3)),
    "relu": torch.relu,
    "relu in place": lambda a: torch.relu_(a.neg()),
    "leaky relu": lambda a: F.leaky_relu(a, 0.2),
    "leaky relu in place": lambda a: F.leaky_relu_(a.neg(), 0.2),
    "gelu": F.gelu,
    "gelu, tanh": lambda a: F.gelu(a, approximate="tanh"),
    "silu": F.silu,
    "silu in place": lambda a: F.silu(a.neg(), inplace=True),
    "hardswish": F.hardswish,
    "hardswish in place": lambda a: F.hardswish(a.neg(), inplace=True),
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda a: F.hardtanh(a, -0.5, 0.5),
    "relu6": F.relu6,
    "relu6 in place": lambda a: F.relu6(a.neg(), inplace=True),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": lambda a: F.elu(a, 0.7),
    "elu in place": lambda a: F.elu(a.neg(), 0.7, inplace=True),
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "mish": F.mish,
    "log sigmoid": F.logsigmoid,
    "glu": lambda a: F.glu(a, 1),
    "prelu": lambda a: F.prelu(a, like(a, CHANNELS)),
    "softmax": lambda a: torch.softmax(a, -1),
    "log softmax": lambda a: torch.log_softmax(a, 1),
    "safe softmax": lambda a: aten._safe_softmax(a, -1),
    "log": torch.log,
    "exp": lambda a: a.neg().exp(),
    "square root": torch.sqrt,
    "inverse square root": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "absolute": torch.abs,
    "power": lambda a: a**3,
    "clamp": lambda a: a.clamp(0.5, 1.5),
    "clamp min": lambda a: a.clamp_min(0.5),
    "clamp max": lambda a: a.clamp_max(0.5),
    "batch norm": lambda a: F.batch_norm(a, None, None, p(4), p(4), True),
    "batch norm, plain": lambda a: F.batch_norm(a, None, None, None, None, True),
    "batch norm, float64": lambda a: F.batch_norm(a.double(), None, None, None, None, True),
    "batch norm in evaluation": evaluated,
    "layer norm": lambda a: F.layer_norm(a, a.shape[-1:], p(a.shape[-1]), p(a.shape[-1])),
    "layer norm, no bias": lambda a: F.layer_norm(a.float(), a.shape[-1:], p(a.shape[-1])),
    "layer norm, plain": lambda a: F.layer_norm(a.float(), a.shape[-2:]),
    "layer norm over channels": lambda a: F.layer_norm(
        a.permute(0, 2, 3, 1), (4,), p(4), p(4), 1e-6
    ).permute(0, 3, 1, 2),
    "group norm": lambda a: F.group_norm(a, 2, p(4), p(4)),
    "group norm, plain": lambda a: F.group_norm(a.float(), 4),
    "instance norm": lambda a: instance(a, True, lambda y: y),
    "instance norm, plain": lambda a: instance(a, False, lambda y: y.neg()),
    "instance norm, leaky in place": lambda a: instance(a, True, lambda y: F.leaky_relu_(y, 0.01)),
    "instance norm, relu in place": lambda a: instance(a, False, torch.relu_),
    "normalized": lambda a: F.normalize(a, dim=1),
    "sum": lambda a: a + a.neg(),
    "sum, scaled": lambda a: torch.add(a, a.neg(), alpha=0.3),
    "difference": lambda a: a - a.neg(),
    "product": lambda a: a * like(a, CHANNELS, 1, 1),
    "product with a number": lambda a: a * 1.7,
    "product, scalar": lambda a: aten.mul.Scalar(a, 1.7),
    "quotient": lambda a: a / like(a, CHANNELS, 1, 1),
    "quotient by a number": lambda a: a / 1.7,
    "addcmul": lambda a: torch.addcmul(a, a.neg(), like(a, CHANNELS, 1, 1), value=0.5),
    "maximum": lambda a: torch.maximum(a, a.neg().exp()),
    "minimum": lambda a: torch.minimum(a, a.neg().exp()),
    "where": lambda a: torch.where(a > 1, a, a.neg()),
    "concatenation": lambda a: torch.cat([a, a.neg(), torch.relu(a)], 1),
    "stack": lambda a: torch.stack([a, a.neg()], 1),
    "mean": lambda a: a.mean((2, 3), keepdim=True),
    "total": lambda a: a.sum(1),
    "dropout": lambda a: F.dropout(a, 0.3),
    "dropout of channels": lambda a: F.dropout2d(a, 0.3),
    "dropout as on GPUs": lambda a: torch.native_dropout(a.float(), 0.3, True)[0],
    "stochastic depth": lambda a: stochastic_depth(a, 0.3, True),
    "squeeze and excite": lambda a: SqueezeExcitation(CHANNELS, 2)(a.float()),
    "embedding": lambda a: F.embedding((a[0, 0] * 2).long().clamp(0, 9), p(10, 8).exp()),
    "max pool": lambda a: F.max_pool2d(a, 3, 2, 1),
    "max pool, 3-D": lambda a: F.max_pool3d(a[None], 2),
    "average pool": lambda a: F.avg_pool2d(a, 2),
    "average pool, 3-D": lambda a: F.avg_pool3d(a[None], 2),
    "adaptive average": lambda a: F.adaptive_avg_pool2d(a, (3, 2)),
    "adaptive average, 3-D": lambda a: F.adaptive_avg_pool3d(a[None], (2, 3, 2)),
    "adaptive maximum": lambda a: F.adaptive_max_pool2d(a, (3, 2)),
    "adaptive maximum, 3-D": lambda a: F.adaptive_max_pool3d(a[None], (2, 3, 2)),
    "nearest": lambda a: F.interpolate(a, scale_factor=2),
    "nearest, 3-D": lambda a: F.interpolate(a[None], scale_factor=2),
    "bilinear": lambda a: F.interpolate(a, (9, 7), mode="bilinear"),
    "bicubic": lambda a: F.interpolate(a, (9, 7), mode="bicubic", align_corners=True),
    "trilinear": lambda a: F.interpolate(a[None], scale_factor=2, mode="trilinear"),
    "pad": lambda a: F.pad(a, (1, 2, 0, 1)),
    "reflection": lambda a: F.pad(a, (1, 2, 0, 1), mode="reflect"),
    "replication": lambda a: F.pad(a, (1, 2, 0, 1), mode="replicate"),
    "pixel shuffle": lambda a: F.pixel_shuffle(a, 2),
    "pixel unshuffle": lambda a: F.pixel_unshuffle(a, 2),
    "channel shuffle": lambda a: aten.channel_shuffle(a, 2),
    "roll": lambda a: a.roll((1, -1), (2, 3)),
    "flip": lambda a: a.flip(-1),
    "repeat": lambda a: a.repeat(1, 2, 1, 1),
    "to a type": lambda a: a.to(torch.float64),
    "another memory order": lambda a: a.permute(0, 3, 1, 2).contiguous(),
    "clone": torch.clone,
    "flatten of another order": lambda a: a.transpose(1, 2).reshape(a.shape[0], -1),
    "merged axes": lambda a: a.transpose(2, 3).reshape(-1, a.shape[3], a.shape[2]).neg(),
    "einsum": lambda a: torch.einsum("nchw,ck->nkhw", a, like(a, CHANNELS, 3)),
    "views": lambda a: (
        a.unsqueeze(1).expand(-1, 2, -1, -1, -1).transpose(1, 2).flatten(1, 2)[:, 1:].neg()
    ),
    "more views": lambda a: a[:, 1].squeeze(0).unsqueeze(-1).squeeze(-1).view_as(a[:, 1]).neg(),
    "squeezed": lambda a: a[:1].squeeze().unsqueeze(0).squeeze(0).squeeze((0, 1)).neg(),
    "strided": lambda a: a.as_strided((2, 3), (1, 2)).neg(),
    "alias": lambda a: aten.alias(a).neg(),
    "split": lambda a: torch.cat(a.split(2, 1)[::-1], 1),
    "split into sizes": lambda a: a.split((1, 3), 1)[1].neg(),
    "chunk": lambda a: a.chunk(2, 1)[1].neg(),
    "unbind": lambda a: a.unbind(1)[2].neg(),
    "part of a storage": lambda a: a.neg()[:, 0],
}
NO_RECIPE: dict[str, Case] = {
    "sum with a number": lambda a: a + 1.5,
    "difference from a number": lambda a: 1.5 - a,
    "sum with a constant": lambda a: a + torch.ones(4, 1, 1),
    "random": lambda a: F.rrelu(a, training=True),
    "in place on a view": lambda a: F.relu6(a.neg().view(-1), inplace=True),
    "frozen bias": lambda a: F.batch_norm(a.float(), None, None, p(4), torch.ones(4), True),
}
# On the CPU neither kernel nor name: of cuDNN.
ELSEWHERE = {"CudnnBatchNormBackward0", "CudnnBatchNormBackward0, evaluation"}


def activation(shape: tuple[int, ...], dtype: torch.dtype, last: bool) -> Tensor:
    memory = torch.channels_last if last else torch.contiguous_format
    return torch.randn(shape).to(dtype).contiguous(memory_format=memory).requires_grad_()


def run(case: Case, x: Tensor, recipes: Any = None, autocast: Any = None) -> Coverage:
    return coverage(lambda: case(x.exp()).square(), autocast, recipes=recipes)


seen: set[str] = set()
ran: set[str] = set()


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8, deadline=None)
@given(
    size=st.tuples(st.integers(1, 3), st.sampled_from((4, 6)), st.sampled_from((4, 6, 10))),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float16)),
    last=st.booleans(),
    autocast=st.sampled_from((None, torch.bfloat16)),
)
def test_a_row_gives_the_bits_in_this_step_and_the_next(
    name: str, size: tuple[int, int, int], dtype: torch.dtype, last: bool, autocast: Any
) -> None:
    ran.add(name)
    torch.manual_seed(0)  # of few numbers, several operations may give the bits by chance
    shape = (size[0], CHANNELS, *size[1:])
    try:
        first = run(CASES[name], activation(shape, dtype, last), None, autocast)
    except (RuntimeError, NotImplementedError):
        if dtype == torch.float32:
            raise
        return  # the CPU does not have everything in 16 bits
    seen.update(call.name for recipe in first.found.values() for call in recipe.root.calls)
    if dtype == torch.float32:  # in 16 bits a norm's arithmetic may be none of the known ones
        assert not first.saved[-1].why, table(first)
    again = run(CASES[name], activation(shape, dtype, last), first.found, autocast)
    bound = [[one.bound is not None for one in some.saved] for some in (first, again)]
    assert bound[0] == bound[1] or dtype != torch.float32, table(again)


def test_the_cases_above_cover_the_table() -> None:
    if ran != CASES.keys():
        pytest.skip("not all cases ran in this process")
    assert seen == KINDS.keys() - ELSEWHERE


@pytest.mark.parametrize("name", NO_RECIPE)
def test_what_a_node_does_not_tell_has_no_recipe(name: str) -> None:
    found = run(NO_RECIPE[name], activation((2, 4, 6, 6), torch.float32, False))
    assert found.saved[-1].why


OTHERS: dict[str, tuple[Case, Case]] = {
    "operands swapped": (lambda a: a - a.neg(), lambda a: a.neg() - a),
    "slope": (lambda a: F.leaky_relu(a, 0.1), lambda a: F.leaky_relu(a, 0.2)),
    "number": (lambda a: a * 1.5, lambda a: a * 1.25),
    "scale": (
        lambda a: torch.add(a, a.neg(), alpha=0.5),
        lambda a: torch.add(a, a.neg(), alpha=0.25),
    ),
    "axis": (lambda a: a.softmax(2), lambda a: a.softmax(3)),
    "number of a dropout": (
        lambda a: torch.native_dropout(a, 0.5, True)[0],
        lambda a: torch.native_dropout(a, 0.25, True)[0],
    ),
    "mode": (evaluated, lambda a: F.batch_norm(a, torch.zeros(4), torch.ones(4), p(4), p(4), True)),
    "type": (lambda a: torch.relu(a), lambda a: torch.relu(a.double())),
    "no bias": (
        lambda a: F.conv2d(a, p(4, 4, 3, 3), p(4)),
        lambda a: F.conv2d(a, p(4, 4, 3, 3)),
    ),
    "part": (lambda a: a.chunk(2, 1)[0].neg(), lambda a: a.chunk(2, 1)[1].neg()),
    "order": (
        lambda a: (lambda b, c: b + c)(a.neg(), a.relu()),
        lambda a: (lambda c, b: b + c)(a.relu(), a.neg()),
    ),
    "memory order": (
        lambda a: a.neg(),
        lambda a: a.contiguous(memory_format=torch.channels_last).neg(),
    ),
    "another activation": (torch.sigmoid, torch.tanh),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_recipe_does_not_bind_in_another_computation(name: str) -> None:
    first, other = OTHERS[name]
    x = activation((2, 4, 6, 6), torch.float32, False)
    found = run(first, x)
    last = len(found.saved) - 1
    assert last in found.found, table(found)
    again = run(other, x, dict.fromkeys(range(9), found.found[last]))
    assert again.saved[-1].why == "not bound", table(again)


def test_a_weight_that_is_written_after_forward_is_pytorchs_error() -> None:
    weight = p(4, 4, 3, 3)
    found = run(lambda a: F.conv2d(a, weight), activation((2, 4, 6, 6), torch.float32, False))
    bound = found.saved[-1].bound
    assert bound is not None
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        bound.recipe.compute([found.tensor(source) for source in bound.sources])


# Saved tensors that nothing computes: inputs, statistics, masks, indices, random numbers.
GIVEN = "not computed from what is saved"


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("name", NETS)
def test_networks_have_recipes_for_what_is_computed(name: str, dtype: Any) -> None:
    make, shape = NETS[name]
    torch.manual_seed(0)
    net = make()
    first = coverage(lambda: net(torch.randn(shape)), dtype, 1 << 12)
    why = {one.why.rpartition(": ")[2] for one in first.saved if one.bound is None}
    assert why <= {GIVEN, "too much arithmetic"}, table(first)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    again = coverage(lambda: net(torch.randn(shape)), dtype, 1 << 12, first.found)
    assert [one.bound is None for one in again.saved] == [
        one.bound is None for one in first.saved
    ], table(again)
