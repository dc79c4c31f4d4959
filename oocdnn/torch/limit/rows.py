"""Which operands of a recipe go with the images of its result, so that slices of the batch are
computed one after the other.

Only operations that compute each image by itself have a rule. An image is the same number of rows,
entries of axis 0, in every tensor that has images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit.calls import Call, Constant, Leaf, Part
from oocdnn.torch.limit.entry import Like
from oocdnn.torch.limit.kinds import AGAIN, KINDS, RESHAPES

_META = torch.device("meta")  # has tensors without memory


@dataclass
class _Value:
    """An operand, or the result of a call.

    Args:
        cut: Whether it is cut to the images.
    """

    size: torch.Size
    call: Call | None = None
    operands: tuple[_Value | None, ...] = ()
    cut: bool = False

    @property
    def all(self) -> Iterator[_Value]:
        """This one and those behind it."""
        yield self
        for operand in self.operands:
            if operand is not None:
                yield from operand.all


class Rows:
    """How a recipe is computed for some of its images."""

    def __init__(self, value: _Value) -> None:
        self._value = value
        self.most = math.gcd(*(one.size[0] for one in value.all if one.cut))  # images
        self.cut = tuple([one.cut for one in value.all if one.call is None])  # of the leaves

    def calls(self, number: int, images: int) -> Call:
        """The recipe's calls for so many of its images."""
        return _resized(self._value, number, images)


def rows_of(root: Call, leaves: Sequence[Like]) -> Rows | None:
    """None where an operation does not compute each image by itself.

    Args:
        leaves: Forms of the leaves of the calls.
    """
    forms = iter([torch.empty_strided(o[1], o[2], dtype=o[0], device=_META) for o in leaves])
    with torch.no_grad(), torch._C._DisableAutocast():
        value, _ = _result(root, forms)
    return Rows(value) if _cuts(value) else None


def _result(call: Call, leaves: Iterator[Tensor]) -> tuple[_Value, Tensor]:
    """The result of a call, and a tensor of its form without memory."""
    operands: list[_Value | None] = []
    given: list[Any] = []
    for part in call.operands:
        operand, form = _operand(part, leaves)
        operands.append(operand)
        given.append(part.value if isinstance(part, Constant) else form)
    kind = KINDS[call.name]
    attributes = _replaced(call, "@device", lambda _: _META)
    made = kind.run(*given, *attributes, *call.settled)
    form = made[call.output] if kind.many else made
    return _Value(form.size(), call, tuple(operands)), form


def _operand(part: Part, leaves: Iterator[Tensor]) -> tuple[_Value | None, Tensor | None]:
    if isinstance(part, Leaf):
        leaf = next(leaves)
        return _Value(leaf.size()), leaf
    return _result(part[1], leaves) if isinstance(part, tuple) else (None, None)


def _cuts(value: _Value) -> bool:
    """Marks what is cut where the value is; False where that is not possible."""
    value.cut = len(value.size) > 0
    if value.call is None or not value.cut:
        return value.cut
    rule = _RULES.get(value.call.name)
    cut = None if rule is None else rule(value)
    if cut is None:
        return False
    return all(
        _cuts(operand)
        for operand, one in zip(value.operands, cut, strict=True)
        if operand is not None and one
    )


def _replaced(call: Call, name: str, other: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The attributes of a call with another value of one."""
    pairs = zip(KINDS[call.name].attributes, call.attributes, strict=True)
    return tuple([other(value) if one == name else value for one, value in pairs])


def _resized(value: _Value, number: int, images: int) -> Call:
    call = value.call
    assert call is not None
    if not value.cut:
        return call
    attributes = _replaced(call, "@shape", lambda shape: (shape[0] // images * number, *shape[1:]))
    operands = tuple(
        [
            (part[0], _resized(operand, number, images))
            if isinstance(part, tuple) and operand is not None
            else part
            for part, operand in zip(call.operands, value.operands, strict=True)
        ]
    )
    return replace(call, attributes=attributes, operands=operands)


# A rule tells of each operand whether it is cut where the result is; None: that is not possible.
_Cut = Sequence[bool] | None
_Rule = Callable[[_Value], _Cut]


def _elementwise(value: _Value) -> _Cut:
    """Operands broadcast: those without the result's axis 0 are read whole."""
    size = value.size
    return [
        one is not None and len(one.size) == len(size) and one.size[0] == size[0]
        for one in value.operands
    ]


def _all(value: _Value) -> _Cut:
    return [True] * len(value.operands)


def _first(value: _Value, count: int = 1) -> _Cut:
    return [place < count for place in range(len(value.operands))]


def _axes(value: _Value, place: int = 0) -> int:
    """Of an operand."""
    one = value.operands[place]
    assert one is not None
    return len(one.size)


def _attributes(value: _Value) -> tuple[Any, ...]:
    assert value.call is not None
    return value.call.attributes


def _last(axes: int) -> _Rule:
    """Operations on the last axes."""
    return lambda value: _first(value) if _axes(value) > axes else None


def _along(place: int, cut: _Rule = _first) -> _Rule:
    """Operations along the axes that an attribute names."""

    def rule(value: _Value) -> _Cut:
        axes, count = _attributes(value)[place], max(_axes(value), len(value.size))
        some = axes if isinstance(axes, tuple) else (axes,)
        if not some or any(axis is None or axis % count == 0 for axis in some):
            return None
        return cut(value)

    return rule


def _convolution(value: _Value) -> _Cut:
    return _first(value) if _axes(value) == _axes(value, 1) else None  # else it is one image


def _batch_norm(value: _Value) -> _Cut:
    assert value.call is not None
    return _first(value) if value.call.settled[-1] != AGAIN else None


def _layer_norm(value: _Value) -> _Cut:
    return _first(value, 3) if len(_attributes(value)[0]) < _axes(value) else None


def _group_norm(value: _Value) -> _Cut:
    return _first(value, 3)


def _with_bias(value: _Value, products: Sequence[bool]) -> _Cut:
    """A bias that broadcasts, and the operands of a product."""
    cut = _elementwise(value)
    return None if cut is None else [cut[0], *products]


def _pad(value: _Value) -> _Cut:
    return _first(value) if len(_attributes(value)[0]) // 2 < _axes(value) else None


def _repeat(value: _Value) -> _Cut:
    same = len(value.size) == _axes(value) and _attributes(value)[0][0] == 1
    return _first(value) if same else None


def _permute(value: _Value) -> _Cut:
    return _first(value) if _attributes(value)[0][0] % len(value.size) == 0 else None


def _reshape(value: _Value) -> _Cut:
    """Rows of the same elements, in order."""
    return _first(value) if _axes(value) else None


def _embedding(value: _Value) -> _Cut:
    return [False, True]


_RULES: dict[str, _Rule] = {
    "ConvolutionBackward0": _convolution,
    "AddmmBackward0": lambda value: _with_bias(value, (True, False)),
    "BaddbmmBackward0": lambda value: _with_bias(value, (True, True)),
    "MmBackward0": _first,
    "BmmBackward0": _all,
    **{
        f"{name}Backward{number}": _elementwise
        for number, names in enumerate(
            (
                "Relu LeakyRelu Gelu Silu Hardswish Hardsigmoid Hardtanh Sigmoid Tanh Elu Celu "
                "Softplus Mish LogSigmoid PreluKernel Exp Log Sqrt Rsqrt Reciprocal Neg Abs Pow "
                "Add Sub Mul Div Addcmul Maximum Minimum Where NativeDropout ToCopy Clone Alias "
                "Expand",
                "LeakyRelu Elu Clamp Mul",
            )
        )
        for name in names.split()
    },
    "ClampMinBackward0": _elementwise,
    "ClampMaxBackward0": _elementwise,
    "torch::autograd::CopySlices": _elementwise,
    "NativeBatchNormBackward0": _batch_norm,
    "CudnnBatchNormBackward0": _batch_norm,
    "NativeBatchNormBackward0, evaluation": _first,
    "CudnnBatchNormBackward0, evaluation": _first,
    "NativeLayerNormBackward0": _layer_norm,
    "NativeGroupNormBackward0": _group_norm,
    "GluBackward0": _along(0),
    "SoftmaxBackward0": _along(0),
    "SafeSoftmaxBackward0": _along(0),
    "LogSoftmaxBackward0": _along(0),
    "LinalgVectorNormBackward0": _along(1),
    "MeanBackward1": _along(0),
    "SumBackward1": _along(0),
    "CatBackward0": _along(0, _all),
    "StackBackward0": _along(0, _all),
    "EmbeddingBackward0": _embedding,
    **{
        f"{name}{axes}DBackward0": _last(axes)
        for axes, names in (
            (2, "UpsampleBilinear UpsampleBicubic ReflectionPad ReplicationPad"),
            (3, "UpsampleTrilinear"),
            *((axes, "AvgPool AdaptiveAvgPool UpsampleNearest") for axes in (2, 3)),
        )
        for name in names.split()
    },
    **{
        f"{name}Pool{axes}D{end}Backward0": _last(axes)
        for name, end in (("Max", "WithIndices"), ("AdaptiveMax", ""))
        for axes in (2, 3)
    },
    "ConstantPadNdBackward0": _pad,
    "PixelShuffleBackward0": _last(3),
    "PixelUnshuffleBackward0": _last(3),
    "ChannelShuffleBackward0": _last(2),
    "RollBackward0": _along(1),
    "FlipBackward0": _along(0),
    "RepeatBackward0": _repeat,
    **dict.fromkeys(
        RESHAPES,
        _reshape,
    ),
    "PermuteBackward0": _permute,
    "TransposeBackward0": lambda value: _along(1)(value) and _along(0)(value),
    "UnsqueezeBackward0": _along(0),
    "SelectBackward0": _along(0),
    "SliceBackward0": _along(0),
    "SplitBackward0": _along(1),
    "SplitWithSizesBackward0": _along(1),
    "UnbindBackward0": _along(0),
}
