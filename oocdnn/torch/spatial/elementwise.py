"""Functions of split tensors that compute each row from the same row of their operands."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.exchange import own_rows, replicated
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.operands import aligned, run
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    axis_of,
    functions_named,
    implements,
    implements_each,
    layout_of,
    local,
    split_in,
    wrap,
)

_OF_TENSORS = """
abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div divide eq
erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac ge greater
greater_equal gt heaviside hypot isfinite isinf isnan le lerp less less_equal lgamma log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum
mul multiply nan_to_num ne neg negative not_equal pow positive rad2deg reciprocal remainder round
rsqrt rsub sgn sigmoid sign signbit sin sinc sinh sqrt square sub subtract tan tanh true_divide
trunc where xlogy relu relu6 selu celu elu gelu silu mish leaky_relu hardtanh hardsigmoid hardswish
softplus softsign softshrink hardshrink tanhshrink threshold logsigmoid
zeros_like ones_like full_like empty_like clone detach float double
half bfloat16 int long bool contiguous cuda cpu
"""
_OPERATORS = """
__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__
__rtruediv__ __rdiv__ __div__ __floordiv__ __rfloordiv__ __mod__ __rmod__
__pow__ __rpow__ __neg__ __pos__ __abs__ __invert__ __and__ __or__ __xor__ __rand__ __ror__ __rxor__
__eq__ __ne__ __lt__ __le__ __gt__ __ge__
"""
_LIKE = "to type_as"  # whose second operand may be split, and says a type and a device only
_IN_PLACE = " ".join(f"{name}_" for name in f"{_OF_TENSORS} requires_grad zero fill copy".split())
_OWNERS = (torch, torch.Tensor, F, torch.special)

_CHANGING = "__iadd__ __isub__ __imul__ __itruediv__ __idiv__ __iand__ __ior__ __ixor__ __ipow__"

for _function in {
    *functions_named(_OF_TENSORS, *_OWNERS),
    *functions_named(_OPERATORS, torch.Tensor),
}:
    implements_each(_function)(run)


@implements_each(*functions_named(_IN_PLACE, *_OWNERS), *functions_named(_CHANGING, torch.Tensor))
def _in_place(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x, SpatialTensor):
        raise TypeError(
            f"{function.__name__} would change a plain tensor by a split one, of which this "
            "process has some rows only; call it on full_tensor()"
        )
    return run(function, x, *args, **kwargs)


@implements_each(*functions_named(_LIKE, torch.Tensor))
def _like(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    plain = [local(value) if isinstance(value, SpatialTensor) else value for value in args]
    if isinstance(x, SpatialTensor):
        return run(lambda rows: function(rows, *plain, **kwargs), x)
    return function(x, *plain, **kwargs)


# The place of `dim` among the arguments behind the input, and its default.
_ALONG = {"normalize": (1, 1), "glu": (0, -1)}


@implements_each(
    *functions_named("softmax log_softmax softmin normalize glu", F),
    *functions_named("softmax log_softmax cumsum cumprod logcumsumexp", torch, torch.Tensor),
)
def _along(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Along axes other than the split one."""
    layout = layout_of(input, function)
    place, default = _ALONG.get(function.__name__, (0, None))
    dim = kwargs.get("dim", args[place] if len(args) > place else default)
    ndim = input.ndim
    if dim is None:
        raise TypeError(f"{function.__name__} of a split tensor without a dim")
    dims = [axis_of(d, ndim) for d in (dim if isinstance(dim, (tuple, list)) else [dim])]
    if layout.dim(ndim) in dims:
        raise NotImplementedError(
            f"{function.__name__} of a split tensor along axis {dim}: it is split along axis "
            f"{layout.dim(ndim)}; call it on full_tensor()"
        )
    return run(function, input, *args, **kwargs)


@implements(F.linear)
def _linear(input: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    layout = layout_of(input, F.linear)
    if layout.axis == -1:
        raise NotImplementedError(
            "linear of a split tensor along its split axis; call it on full_tensor()"
        )
    weight, bias = replicated(layout.group, weight, bias)
    return wrap(F.linear(local(input), weight, bias), layout)


@implements(F.layer_norm)
def _layer_norm(
    input: Any, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    layout = input.spatial_layout
    if len(normalized_shape) >= -layout.axis:
        raise NotImplementedError(
            f"layer_norm of a split tensor over {len(normalized_shape)} axes, one of which is "
            "split; call it on full_tensor(), or group_norm with one group"
        )
    weight, bias = replicated(layout.group, weight, bias)
    return wrap(F.layer_norm(local(input), normalized_shape, weight, bias, eps), layout)


@implements(F.prelu, torch.prelu, torch.Tensor.prelu)
def _prelu(input: Any, weight: Tensor) -> Any:
    (weight,) = replicated(input.spatial_layout.group, weight)
    return wrap(F.prelu(local(input), weight), input.spatial_layout)


@implements(torch.cat, torch.concat, torch.concatenate)
def _cat(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Any:
    return _joined(torch.cat, tensors, dim if axis is None else axis, tensors[0].ndim)


@implements(torch.stack)
def _stack(tensors: Any, dim: int = 0) -> Any:
    return _joined(torch.stack, tensors, dim, tensors[0].ndim + 1)


def _joined(function: Any, tensors: Any, dim: int, ndim: int) -> Any:
    """cat and stack. Operands are not broadcast."""
    layout = next(split_in(tensors)).spatial_layout
    at, old = axis_of(dim, ndim), layout.dim(tensors[0].ndim)
    if function is torch.cat and at == old:
        raise NotImplementedError(
            "cat of split tensors along their split axis; call it on full_tensor()"
        )
    rows = []
    for one in tensors:
        if not isinstance(one, SpatialTensor):
            if one.shape[layout.axis] != layout.total:
                raise ValueError(
                    f"{function.__name__} of a split tensor of {layout.total} rows with one of "
                    f"{one.shape[layout.axis]}"
                )
            (value,) = replicated(layout.group, one)
            assert value is not None
            rows.append(own_rows(value, layout))
        else:
            rows.append(local(aligned(one, layout)))
    shifted = layout.axis - (function is torch.stack and at > old)
    return wrap(function(rows, at), Layout(layout.group, shifted, layout.lengths))


# Random functions. Each call takes one number from the CPU's generator, so that generators that
# begin alike stay alike on all processes, whatever rows they have.
_RANDOM = "dropout alpha_dropout rand_like randn_like rrelu"
_RANDOM_CHANNELS = "dropout1d dropout2d dropout3d feature_alpha_dropout"


@implements_each(*functions_named(_RANDOM, torch, F))
def _random(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Other numbers on each process."""
    layout = next(split_in(*args, *kwargs.values())).spatial_layout
    return _seeded(1 + layout.process, function, *args, **kwargs)


@implements_each(*functions_named(_RANDOM_CHANNELS, F))
def _random_channels(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The same channels on all processes."""
    return _seeded(0, function, *args, **kwargs)


def _seeded(offset: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    x = next(split_in(*args, *kwargs.values()))
    seed = int(torch.randint(1 << 62, ())) + offset
    with torch.random.fork_rng([x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        return run(function, *args, **kwargs)
