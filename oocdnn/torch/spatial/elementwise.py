"""Functions of split tensors whose every row depends on the same row of their operands only."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.exchange import own_rows, redistribute, replicated
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.tensor import (
    SpatialTensor,
    implements,
    implements_each,
    local,
    named,
    plainly,
    split_in,
    wrap,
)


def aligned(value: Any, layout: Layout) -> Any:
    """The rows of an operand that belong to those of a split tensor with `layout`; a tensor with
    that layout itself, and other values as they are. Plain tensors are taken to be alike on all
    processes."""
    if isinstance(value, (tuple, list)):
        return type(value)(aligned(one, layout) for one in value)
    if isinstance(value, SpatialTensor):
        return _moved(value, layout)
    if not isinstance(value, torch.Tensor):
        return value
    rows = value.shape[layout.axis] if value.ndim >= -layout.axis else 1
    (value,) = replicated(layout.group, value)
    if rows == 1:
        return value
    if rows != layout.total:
        raise ValueError(
            f"an operand of the shape {tuple(value.shape)} has {rows} rows along axis "
            f"{layout.axis}, along which the split tensor has {layout.total}"
        )
    return own_rows(value, layout)


def _moved(value: SpatialTensor, layout: Layout) -> Tensor:
    own = value.spatial_layout
    if own == layout:
        return value  # itself, which may be changed in place
    if (own.group, own.axis) != (layout.group, layout.axis) or own.total != layout.total:
        raise ValueError(
            "operands are split differently: "
            f"{own.total} rows along axis {own.axis} over {len(own.lengths)} processes and "
            f"{layout.total} along axis {layout.axis} over {len(layout.lengths)}"
        )
    return redistribute(local(value), own, layout.lengths)


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function of the own rows; tensors in its results are split as the first split operand."""
    layout = next(split_in(*args, *kwargs.values())).spatial_layout
    own = [aligned(value, layout) for value in args]
    named_own = {name: aligned(value, layout) for name, value in kwargs.items()}
    with plainly():
        found = function(*own, **named_own)
    return _wrapped(found, layout)


def _wrapped(found: Any, layout: Layout) -> Any:
    if isinstance(found, SpatialTensor):
        return found  # an operand that was changed in place
    if isinstance(found, torch.Tensor):
        rows = layout.lengths[layout.process]
        if found.ndim < -layout.axis or found.shape[layout.axis] != rows:
            raise ValueError(
                f"a function of the own {rows} rows along axis {layout.axis} of a split tensor "
                f"returns a tensor of the shape {tuple(found.shape)}"
            )
        return wrap(found, layout)
    if isinstance(found, (tuple, list)):
        return type(found)(_wrapped(one, layout) for one in found)
    return found


def pointwise(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function` of split tensors, computed from the own rows of each process.

    For functions that torch.nn.functional does not have, such as kernels of one's own. Each row of
    the result must depend on the same row of the operands only; its shape along the axis must stay.
    Plain tensors among the arguments are those that all processes have alike, and are cut to the
    own rows where they have as many rows as the split tensor.
    """
    return run(function, *args, **kwargs)


_OF_TENSORS = """
abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div divide eq
erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac ge greater
greater_equal gt heaviside hypot isfinite isinf isnan le lerp less less_equal lgamma log log10 log1p
log2 logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum
mul multiply nan_to_num ne neg negative not_equal pow positive rad2deg reciprocal remainder round
rsqrt rsub sgn sigmoid sign signbit sin sinc sinh sqrt square sub subtract tan tanh true_divide
trunc where xlogy relu relu6 selu celu elu gelu silu mish leaky_relu hardtanh hardsigmoid hardswish
softplus softsign softshrink hardshrink tanhshrink threshold logsigmoid dropout alpha_dropout
zeros_like ones_like full_like empty_like rand_like randn_like clone detach float double
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

_CHANGING = "__iadd__ __isub__ __imul__ __itruediv__ __idiv__"

for _function in {*named(_OF_TENSORS, *_OWNERS), *named(_OPERATORS, torch.Tensor)}:
    implements_each(_function)(run)


@implements_each(*named(_IN_PLACE, *_OWNERS), *named(_CHANGING, torch.Tensor))
def _in_place(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(x, SpatialTensor):
        raise TypeError(
            f"{function.__name__} would change a plain tensor by a split one, of which this "
            "process has some rows only; call it on full_tensor()"
        )
    return run(function, x, *args, **kwargs)


@implements_each(*named(_LIKE, torch.Tensor))
def _like(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    plain = [local(value) if isinstance(value, SpatialTensor) else value for value in args]
    if isinstance(x, SpatialTensor):
        return run(function, x, *plain, **kwargs)
    return function(x, *plain, **kwargs)


_ALONG = {"normalize": (2, 1), "glu": (1, -1)}  # the place of `dim` among arguments, its default


@implements_each(
    *named("softmax log_softmax softmin normalize glu", F),
    *named("softmax log_softmax cumsum cumprod logcumsumexp", torch, torch.Tensor),
)
def _along(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Along an axis that is not the split one."""
    layout = args[0].spatial_layout
    place, default = _ALONG.get(function.__name__, (1, None))
    dim = kwargs.get("dim", args[place] if len(args) > place else default)
    ndim = args[0].ndim
    if dim is None or dim % ndim == layout.dim(ndim):
        raise NotImplementedError(
            f"{function.__name__} of a split tensor along axis {dim}: it is split along axis "
            f"{layout.dim(ndim)}; call it on full_tensor()"
        )
    return run(function, *args, **kwargs)


@implements(F.linear)
def _linear(input: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    layout = input.spatial_layout
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
def _cat(tensors: Any, dim: int = 0) -> Any:
    layout = next(split_in(tensors)).spatial_layout
    ndim = tensors[0].ndim
    if dim % ndim == layout.dim(ndim):
        raise NotImplementedError(
            "cat of split tensors along their split axis; call it on full_tensor()"
        )
    for one in tensors:
        if not isinstance(one, SpatialTensor) and one.shape[layout.axis] != layout.total:
            raise ValueError(
                f"cat of a split tensor of {layout.total} rows with one of {one.shape[layout.axis]}"
            )
    return run(torch.cat, tensors, dim)
