"""Operations of PyTorch that can run again on what autograd has: one row for each kind of node.

A row names the operands of the forward operation, each by the attribute under which the node saves
it or by the edge to the node that computed it, and the attributes that the operation needs. An
operation with a number that its node does not tell, as in `x + 1`, has no recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from oocdnn.torch.limit import fused, norms

Node = Any
Settle = Callable[..., tuple[Any, ...] | None]
aten = torch.ops.aten


@dataclass(frozen=True)
class Operand:
    """Found under the attribute where the node saves it, else behind the edge.

    Args:
        given: An attribute that is empty where the operand was left out.
    """

    attribute: str = ""
    edge: int = -1
    given: str = ""

    @cached_property
    def raw(self) -> str:
        """The name under which the node has what it saved."""
        return f"_raw_saved_{self.attribute}"

    @cached_property
    def raw_given(self) -> str:
        """The name under which the node has what is empty if the operand was left out."""
        return f"_raw_saved_{self.given}"


@dataclass(frozen=True)
class Kind:
    """A kind of node.

    Args:
        run: Called with the operands in order, then the attributes.
        operands: Of the forward operation; empty with `all_edges`: one for each edge.
        attributes: Of the node without their prefix; `@shape`, `@dtype` and `@device` are those of
            its output.
        fuse: Gives the operation as part of an expression, called like `run` with expressions.
        view: The operation gives a view of its operand; called like `run`, it must fail where
            it would copy.
        heavy: True for operations whose time is arithmetic rather than memory traffic.
        many: The operation gives several results.
        settle: Finds what the node does not tell, called like `run`; None where nothing gives the
            bits that forward had. What it finds is handed to `run` after the attributes.
        guesses: Values for what neither the node nor the operands tell, of an operation that is
            saving its result: those that alone give the bits are taken.
    """

    run: Callable[..., Any]
    operands: tuple[Operand, ...] = (Operand(edge=0),)
    attributes: tuple[str, ...] = ()
    fuse: Callable[..., fused.Expression] | None = None
    view: Callable[..., Tensor] | None = None
    heavy: bool = False
    many: bool = False
    all_edges: bool = False
    settle: Settle | None = None
    guesses: tuple[tuple[Any, ...], ...] = ()

    def read(self, node: Node) -> tuple[Any, ...]:
        """The attributes of a node."""
        return tuple(map(_signed, self._raw(node)))

    def has(self, node: Node, attributes: tuple[Any, ...]) -> bool:
        """Whether these are the attributes of a node."""
        raw = self._raw(node)
        return raw == attributes or tuple(map(_signed, raw)) == attributes

    @cached_property
    def _raw(self) -> Callable[[Node], tuple[Any, ...]]:
        """Reads the attributes as the node has them."""
        readers = tuple(map(_reader, self.attributes))
        # One call for all; for a single name it would give no tuple.
        if len(readers) > 1 and not any(name[0] == "@" for name in self.attributes):
            return attrgetter(*(f"_saved_{name}" for name in self.attributes))
        return lambda node: tuple([read(node) for read in readers])

    def operands_of(self, node: Node) -> tuple[Operand, ...]:
        if self.all_edges:
            return tuple(Operand(edge=edge) for edge in range(len(node.next_functions)))
        return self.operands


def kind_of(node: Node) -> tuple[str, Kind | None]:
    """The row of a node, and its name in the table."""
    name = _NAME_BY_TYPE.get(type(node))
    if name is None:
        name = str(node.name())
        if name in KINDS and type(node).__name__ == name:  # not a type that several kinds share
            _NAME_BY_TYPE[type(node)] = name
    if name in _NORMS and not node._saved_training:
        name += ", evaluation"
    return name, KINDS.get(name)


_NAME_BY_TYPE: dict[type, str] = {}  # of nodes; `node.name()` takes longer


def is_given(operand: Operand, node: Node) -> bool:
    """Whether the forward operation had the operand."""
    if not operand.given:
        return True
    if operand.given == _BIAS_SIZES:
        return getattr(node, f"_saved_{_BIAS_SIZES}") not in _ABSENT
    return getattr(node, operand.raw_given).data is not None


_BIAS_SIZES = "bias_sym_sizes_opt"  # numbers, where other nodes save a tensor
_ABSENT = (None, (), (0,))  # its value where there is no bias


def _reader(name: str) -> Callable[[Node], Any]:
    """Reads an attribute."""
    if name[0] == "@":
        metadata = _METADATA[name]
        return lambda node: metadata(node._input_metadata[0])
    return attrgetter(f"_saved_{name}")


def _signed(value: Any) -> Any:
    """Negative axes come as unsigned numbers of 64 bits."""
    if isinstance(value, int):
        return value - (1 << 64) if value >= 1 << 63 else value
    return tuple(map(_signed, value)) if isinstance(value, (tuple, list)) else value


_METADATA: dict[str, Callable[[Any], Any]] = {
    "@shape": lambda metadata: tuple(metadata.shape),
    "@dtype": lambda metadata: metadata.dtype,
    "@device": lambda metadata: metadata.device,
}

_SELF = (Operand("self", 0),)
_BOTH = (Operand("self", 0), Operand("other", 1))
_EDGES = (Operand(edge=0), Operand(edge=1))
_NORMS = ("NativeBatchNormBackward0", "CudnnBatchNormBackward0")


# Activations.


def _unary(run: Callable[..., Tensor], name: str, *attributes: str, edge: bool = False) -> Kind:
    """An activation, fused under that name. Nodes that save its result lead to its operand by their
    edge only."""
    return Kind(
        run,
        (Operand(edge=0),) if edge else _SELF,
        attributes,
        lambda x, *numbers: fused.apply(name, x, *map(float, numbers)),
    )


def _gelu_fused(x: fused.Expression, how: str) -> fused.Expression:
    return fused.apply("gelu" if how == "none" else "gelu_tanh", x)


# The node of an operation in place on a view does not name the operation. Operations that save
# their result are distinguished by its bits.
_IN_PLACE = {
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": F.elu,
}
_IN_PLACE_GUESSES: tuple[tuple[Any, ...], ...] = (
    *(("leaky_relu", slope) for slope in (0.01, 0.1, 0.2, 0.3, 0.05, 0.02)),
    *((name,) for name in ("relu", "sigmoid", "tanh", "elu")),
)


def _in_place(x: Tensor, name: str, *numbers: float) -> Tensor:
    return _IN_PLACE[name](x, *numbers)


def _in_place_fused(x: fused.Expression, name: str, *numbers: float) -> fused.Expression:
    return fused.apply(name, x, *numbers)


# Normalisation by the saved statistics; batch norm in training by new ones where no order of
# the arithmetic gives the bits.

AGAIN = -1


def _norm(kind: str, operands: tuple[Operand, ...], attribute: str) -> Kind:
    def term(*values: Any) -> norms.Term:
        return norms.TERMS[kind](*values[:5])

    def run(*values: Any) -> Tensor:
        order = values[-1]
        if order == AGAIN:
            x, _, _, weight, bias, setting, _ = values
            return norms.RUN[kind](x, weight, bias, setting)[0]
        return fused.normalized(term(*values), order).view(values[0].shape)

    def fuse(*values: Any) -> fused.Expression:
        if values[-1] == AGAIN:
            raise fused.NotFusable
        return fused.norm(term(*values), values[-1]).view(values[0].shape)

    def settle(*values: Any) -> tuple[Any, ...] | None:
        x, _, _, weight, bias, setting = values
        order = norms.order_of(kind, setting, x, weight, bias, fused.normalized)
        if order is None:
            return (AGAIN,) if kind == "batch" else None
        return (order,)

    return Kind(run, operands, (attribute,), fuse, settle=settle)


_STATISTICS = (Operand("input", 0), Operand("result1"), Operand("result2"))
_WEIGHT = Operand("weight", 1, "weight")
_AFFINE = (_WEIGHT, Operand(edge=2, given="weight"))


def _evaluated(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Any, bias: Any, epsilon: float
) -> Tensor:
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, epsilon)


# Sums, products, concatenations.


def _sum(a: fused.Expression, b: fused.Expression, alpha: float) -> fused.Expression:
    return fused.apply("add", a, b) if alpha == 1 else fused.apply("add_scaled", a, b, float(alpha))


def _product(a: Any, b: Any) -> fused.Expression:
    return fused.apply("mul", a, b)


def _cat(*operands: Any) -> Tensor:
    return torch.cat(operands[:-1], operands[-1])


def _stack(*operands: Any) -> Tensor:
    return torch.stack(operands[:-1], operands[-1])


def _scale(p: float, on_gpu: bool) -> float:
    """A GPU's kernel computes it in float32."""
    if p >= 1:
        return 0.0
    return float(1.0 / torch.tensor(1.0 - p, dtype=torch.float32)) if on_gpu else 1.0 / (1.0 - p)


def _dropped(x: Tensor, mask: Tensor, p: float) -> Tensor:
    return aten.native_dropout_backward(x, mask, _scale(p, x.is_cuda))


def _dropped_fused(x: Any, mask: Any, p: float) -> fused.Expression:
    return fused.apply("dropped", x, mask, _scale(p, on_gpu=True), dtype=x.dtype)


def _addmm(bias: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addmm(bias, mat1, mat2, beta=beta, alpha=alpha)


def _baddbmm(bias: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.baddbmm(bias, mat1, mat2, beta=beta, alpha=alpha)


# Views. Rows of the same elements in another memory order are views of what they copied.


def _view(view: Callable[..., Tensor], *attributes: str) -> Kind:
    return Kind(view, attributes=attributes, view=view)


def _shaped() -> Kind:
    return Kind(
        lambda x, shape: x.reshape(shape),
        attributes=("@shape",),
        view=lambda x, shape: x.view(shape),
    )


def _pool(run: Callable[..., Tensor], *attributes: str) -> Kind:
    return Kind(run, _SELF, ("kernel_size", "stride", "padding", *attributes))


def _upsample(name: str, scales: str, *attributes: str) -> Kind:
    run = getattr(torch._C._nn, name)
    return Kind(run, attributes=("output_size", *attributes, *(f"scales_{one}" for one in scales)))


# Nodes whose result has the operand's elements in another shape.
RESHAPES = (
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "SqueezeBackward2",
)

KINDS: dict[str, Kind] = {
    # Arithmetic.
    "ConvolutionBackward0": Kind(
        torch.convolution,
        (Operand("input", 0), Operand("weight", 1), Operand(edge=2, given="bias_sym_sizes_opt")),
        ("stride", "padding", "dilation", "transposed", "output_padding", "groups"),
        heavy=True,
    ),
    "AddmmBackward0": Kind(
        _addmm,
        (Operand(edge=0), Operand("mat1", 1), Operand("mat2", 2)),
        ("beta", "alpha"),
        heavy=True,
    ),
    "BaddbmmBackward0": Kind(
        _baddbmm,
        (Operand(edge=0), Operand("batch1", 1), Operand("batch2", 2)),
        ("beta", "alpha"),
        heavy=True,
    ),
    "MmBackward0": Kind(torch.mm, (Operand("self", 0), Operand("mat2", 1)), heavy=True),
    "BmmBackward0": Kind(torch.bmm, (Operand("self", 0), Operand("mat2", 1)), heavy=True),
    # Activations.
    "ReluBackward0": _unary(torch.relu, "relu", edge=True),
    "LeakyReluBackward0": _unary(F.leaky_relu, "leaky_relu", "negative_slope"),
    "LeakyReluBackward1": _unary(F.leaky_relu, "leaky_relu", "negative_slope", edge=True),
    "GeluBackward0": Kind(
        lambda x, how: F.gelu(x, approximate=how), _SELF, ("approximate",), _gelu_fused
    ),
    "SiluBackward0": _unary(F.silu, "silu"),
    "HardswishBackward0": _unary(F.hardswish, "hardswish"),
    "HardsigmoidBackward0": _unary(F.hardsigmoid, "hardsigmoid"),
    "HardtanhBackward0": _unary(F.hardtanh, "hardtanh", "min_val", "max_val"),
    "SigmoidBackward0": _unary(torch.sigmoid, "sigmoid", edge=True),
    "TanhBackward0": _unary(torch.tanh, "tanh", edge=True),
    "EluBackward0": Kind(aten.elu, _SELF, ("alpha", "scale", "input_scale")),
    "EluBackward1": Kind(aten.elu, attributes=("alpha", "scale", "input_scale")),
    "CeluBackward0": Kind(F.celu, _SELF, ("alpha",)),
    "SoftplusBackward0": Kind(F.softplus, _SELF, ("beta", "threshold")),
    "MishBackward0": Kind(F.mish, _SELF),
    "LogSigmoidBackward0": Kind(F.logsigmoid, _SELF),
    "GluBackward0": Kind(F.glu, _SELF, ("dim",)),
    "PreluKernelBackward0": Kind(aten._prelu_kernel, (Operand("self", 0), Operand("weight", 1))),
    "SoftmaxBackward0": Kind(
        lambda x, dim, dtype: torch.softmax(x, dim, dtype=dtype), attributes=("dim", "@dtype")
    ),
    "SafeSoftmaxBackward0": Kind(
        lambda x, dim, dtype: aten._safe_softmax(x, dim, dtype), attributes=("dim", "@dtype")
    ),
    "LogSoftmaxBackward0": Kind(
        lambda x, dim, dtype: torch.log_softmax(x, dim, dtype=dtype), attributes=("dim", "@dtype")
    ),
    "torch::autograd::CopySlices": Kind(_in_place, fuse=_in_place_fused, guesses=_IN_PLACE_GUESSES),
    # Elementwise functions.
    "ExpBackward0": Kind(torch.exp),
    "LogBackward0": Kind(torch.log, _SELF),
    "SqrtBackward0": Kind(torch.sqrt),
    "RsqrtBackward0": Kind(torch.rsqrt),
    "ReciprocalBackward0": Kind(torch.reciprocal),
    "NegBackward0": Kind(torch.neg),
    "AbsBackward0": Kind(torch.abs, _SELF),
    "PowBackward0": Kind(torch.pow, _SELF, ("exponent",)),
    "ClampBackward1": Kind(torch.clamp, _SELF, ("min", "max")),
    "ClampMinBackward0": Kind(torch.clamp_min, _SELF, ("min",)),
    "ClampMaxBackward0": Kind(torch.clamp_max, _SELF, ("max",)),
    # Normalisation.
    **{
        name: _norm("batch", (*_STATISTICS, *_AFFINE), epsilon)
        for name, epsilon in zip(_NORMS, ("eps", "epsilon"), strict=True)
    },
    **{
        f"{name}, evaluation": Kind(
            _evaluated,
            (Operand("input", 0), Operand("running_mean"), Operand("running_var"), *_AFFINE),
            (epsilon,),
        )
        for name, epsilon in zip(_NORMS, ("eps", "epsilon"), strict=True)
    },
    "NativeLayerNormBackward0": _norm(
        "layer", (*_STATISTICS, _WEIGHT, Operand("bias", 2, "bias")), "normalized_shape"
    ),
    "NativeGroupNormBackward0": _norm("group", (*_STATISTICS, *_AFFINE), "group"),
    "LinalgVectorNormBackward0": Kind(torch.linalg.vector_norm, _SELF, ("ord", "dim", "keepdim")),
    # Sums, products, concatenations.
    "AddBackward0": Kind(
        lambda a, b, alpha: torch.add(a, b, alpha=alpha), _EDGES, ("alpha",), _sum
    ),
    "SubBackward0": Kind(
        lambda a, b, alpha: torch.sub(a, b, alpha=alpha),
        _EDGES,
        ("alpha",),
        lambda a, b, alpha: _sum(a, b, -alpha),
    ),
    "MulBackward0": Kind(torch.mul, _BOTH, fuse=_product),
    "MulBackward1": Kind(torch.mul, attributes=("other",), fuse=_product),
    "DivBackward0": Kind(torch.div, _BOTH),
    "AddcmulBackward0": Kind(
        lambda x, a, b, value: torch.addcmul(x, a, b, value=value),
        (Operand(edge=0), Operand("tensor1", 1), Operand("tensor2", 2)),
        ("value",),
    ),
    "MaximumBackward0": Kind(torch.maximum, _BOTH),
    "MinimumBackward0": Kind(torch.minimum, _BOTH),
    "WhereBackward0": Kind(torch.where, (Operand("condition"), *_EDGES)),
    "CatBackward0": Kind(_cat, (), ("dim",), all_edges=True),
    "StackBackward0": Kind(_stack, (), ("dim",), all_edges=True),
    "MeanBackward1": Kind(
        lambda x, dim, keep, dtype: torch.mean(x, dim, keep, dtype=dtype),
        attributes=("dim", "keepdim", "@dtype"),
    ),
    "SumBackward1": Kind(
        lambda x, dim, keep, dtype: torch.sum(x, dim, keep, dtype=dtype),
        attributes=("dim", "keepdim", "@dtype"),
    ),
    "NativeDropoutBackward0": Kind(
        _dropped, (Operand(edge=0), Operand("result1")), ("p",), _dropped_fused
    ),
    "EmbeddingBackward0": Kind(
        lambda weight, indices: F.embedding(indices, weight),
        (Operand(edge=0), Operand("indices")),
    ),
    # Pooling and upsampling.
    "MaxPool2DWithIndicesBackward0": _pool(F.max_pool2d, "dilation", "ceil_mode"),
    "MaxPool3DWithIndicesBackward0": _pool(F.max_pool3d, "dilation", "ceil_mode"),
    "AvgPool2DBackward0": _pool(F.avg_pool2d, "ceil_mode", "count_include_pad", "divisor_override"),
    "AvgPool3DBackward0": _pool(F.avg_pool3d, "ceil_mode", "count_include_pad", "divisor_override"),
    "AdaptiveAvgPool2DBackward0": Kind(
        lambda x, shape: F.adaptive_avg_pool2d(x, shape[-2:]), _SELF, ("@shape",)
    ),
    "AdaptiveAvgPool3DBackward0": Kind(
        lambda x, shape: F.adaptive_avg_pool3d(x, shape[-3:]), _SELF, ("@shape",)
    ),
    "AdaptiveMaxPool2DBackward0": Kind(
        lambda x, shape: F.adaptive_max_pool2d(x, shape[-2:]), _SELF, ("@shape",)
    ),
    "AdaptiveMaxPool3DBackward0": Kind(
        lambda x, shape: F.adaptive_max_pool3d(x, shape[-3:]), _SELF, ("@shape",)
    ),
    "UpsampleNearest2DBackward0": _upsample("upsample_nearest2d", "hw"),
    "UpsampleNearest3DBackward0": _upsample("upsample_nearest3d", "dhw"),
    "UpsampleBilinear2DBackward0": _upsample("upsample_bilinear2d", "hw", "align_corners"),
    "UpsampleBicubic2DBackward0": _upsample("upsample_bicubic2d", "hw", "align_corners"),
    "UpsampleTrilinear3DBackward0": _upsample("upsample_trilinear3d", "dhw", "align_corners"),
    "ConstantPadNdBackward0": Kind(F.pad, attributes=("pad",)),
    "ReflectionPad2DBackward0": Kind(lambda x, pad: F.pad(x, pad, "reflect"), _SELF, ("padding",)),
    "ReplicationPad2DBackward0": Kind(
        lambda x, pad: F.pad(x, pad, "replicate"), _SELF, ("padding",)
    ),
    "PixelShuffleBackward0": Kind(F.pixel_shuffle, attributes=("upscale_factor",)),
    "PixelUnshuffleBackward0": Kind(F.pixel_unshuffle, attributes=("downscale_factor",)),
    "ChannelShuffleBackward0": Kind(F.channel_shuffle, attributes=("groups",)),
    "RollBackward0": Kind(torch.roll, attributes=("shifts", "dims")),
    "FlipBackward0": Kind(torch.flip, attributes=("dims",)),
    "RepeatBackward0": Kind(lambda x, repeats: x.repeat(repeats), attributes=("repeats",)),
    # Types and views.
    "ToCopyBackward0": Kind(
        lambda x, dtype, device: x.to(device, dtype),
        attributes=("@dtype", "@device"),
        fuse=lambda x, dtype, device: fused.cast(x, dtype, device),
    ),
    "CloneBackward0": Kind(torch.clone, view=lambda x: x.view_as(x)),
    **{name: _shaped() for name in RESHAPES},
    "AliasBackward0": _view(lambda x: x.view_as(x)),
    "PermuteBackward0": _view(lambda x, dims: x.permute(dims), "dims"),
    "TransposeBackward0": _view(torch.transpose, "dim0", "dim1"),
    "TBackward0": _view(torch.t),
    "UnsqueezeBackward0": _view(torch.unsqueeze, "dim"),
    "ExpandBackward0": _view(lambda x, shape: x.expand(shape), "@shape"),
    "SelectBackward0": _view(torch.select, "dim", "index"),
    "SliceBackward0": _view(aten.slice.Tensor, "dim", "start", "end", "step"),
    "AsStridedBackward0": Kind(
        lambda x, size, stride, offset: x.as_strided(size, stride, offset),
        attributes=("size", "stride", "storage_offset"),
        view=lambda x, size, stride, offset: fused.restrided(x, size, stride, offset),
    ),
    "SplitBackward0": Kind(torch.split, attributes=("split_size", "dim"), many=True),
    "SplitWithSizesBackward0": Kind(torch.split, attributes=("split_sizes", "dim"), many=True),
    "UnbindBackward0": Kind(torch.unbind, attributes=("dim",), many=True),
}
