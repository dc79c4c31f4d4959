"""Operations of PyTorch that can run again on what autograd has: one row for each kind of node.

A row names the operands of the forward operation, each by the attribute under which the node saves
it or by the edge to the node that computed it, and the attributes that the operation needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from oocdnn.torch.limit import fused

Node = Any


@dataclass(frozen=True)
class Operand:
    """Found under the attribute where the node saves it, else behind the edge."""

    attribute: str = ""
    edge: int = -1
    optional: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of node.

    Args:
        run: Called with the operands in order, then the attributes.
        operands: Of the forward operation; empty with `all_edges`: one for each edge.
        attributes: Of the node without their prefix; `@shape` and `@dtype` are those of its output.
        heavy: True for operations whose time is arithmetic rather than memory traffic.
        settle: Finds what the node does not tell, called like `run`; None where nothing gives the
            bits that forward had. What it finds is handed to `run` after the attributes.
    """

    run: Callable[..., Tensor]
    operands: tuple[Operand, ...] = (Operand(edge=0),)
    attributes: tuple[str, ...] = ()
    heavy: bool = False
    all_edges: bool = False
    settle: Callable[..., tuple[Any, ...] | None] | None = None

    def read(self, node: Node) -> tuple[Any, ...]:
        """The attributes of a node."""
        return tuple(_attribute(node, name) for name in self.attributes)


def _attribute(node: Node, name: str) -> Any:
    if name[0] != "@":
        return getattr(node, f"_saved_{name}")
    metadata = node._input_metadata[0]
    return tuple(metadata.shape) if name == "@shape" else metadata.dtype


_SELF = (Operand("self", 0),)
_BOTH = (Operand("self", 0), Operand("other", 1))


_AFFINE = (Operand("weight", 1, optional=True), Operand(edge=2, optional=True))


def _cat(*operands: Any) -> Tensor:
    return torch.cat(operands[:-1], operands[-1])


def _dropped(x: Tensor, mask: Tensor, p: float) -> Tensor:
    return torch.ops.aten.native_dropout_backward(x, mask, 1.0 / (1.0 - p) if p < 1 else 0.0)


def _normed(
    x: Tensor,
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    *order: Any,
) -> Tensor:
    del epsilon
    return fused.join([term_of(x, mean, deviation, weight, bias, *order)], relu=False)


def term_of(
    x: Tensor,
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    order: int,
) -> fused.Term:
    """Batch normalisation by saved statistics, as a term of `fused.join`."""
    weight = torch.ones_like(mean) if weight is None else weight
    bias = torch.zeros_like(mean) if bias is None else bias
    return fused.Term(x, (mean, deviation, weight, bias), order)


def _order(name: str) -> Callable[..., tuple[Any, ...] | None]:
    def settle(x: Tensor, *others: Any) -> tuple[int] | None:
        order = fused.order_of(name, fused.like(x, others[4]))
        return None if order is None else (order,)

    return settle


_EPSILONS = (1e-5, 1e-6, 1e-3, 1e-12, 1e-8, 1e-4, 1e-7, 0.0)  # nodes of these norms do not tell


def _layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Any, epsilon: float
) -> Tensor:
    return F.layer_norm(x, shape, weight, bias, epsilon)


def _linear(bias: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float) -> Tensor:
    return torch.addmm(bias, mat1, mat2, beta=beta, alpha=alpha)


KINDS: dict[str, Kind] = {
    # Arithmetic.
    "ConvolutionBackward0": Kind(
        torch.convolution,
        (Operand("input", 0), Operand("weight", 1), Operand(edge=2, optional=True)),
        ("stride", "padding", "dilation", "transposed", "output_padding", "groups"),
        heavy=True,
    ),
    "AddmmBackward0": Kind(
        _linear,
        (Operand(edge=0), Operand("mat1", 1), Operand("mat2", 2)),
        ("beta", "alpha"),
        heavy=True,
    ),
    "MmBackward0": Kind(torch.mm, (Operand("self", 0), Operand("mat2", 1)), heavy=True),
    "BmmBackward0": Kind(torch.bmm, (Operand("self", 0), Operand("mat2", 1)), heavy=True),
    # Activations.
    "ReluBackward0": Kind(torch.relu),
    "LeakyReluBackward0": Kind(F.leaky_relu, _SELF, ("negative_slope",)),
    "LeakyReluBackward1": Kind(F.leaky_relu, attributes=("negative_slope",)),
    "GeluBackward0": Kind(lambda x, how: F.gelu(x, approximate=how), _SELF, ("approximate",)),
    "SiluBackward0": Kind(F.silu, _SELF),
    "HardswishBackward0": Kind(F.hardswish, _SELF),
    "HardsigmoidBackward0": Kind(F.hardsigmoid, _SELF),
    "HardtanhBackward0": Kind(F.hardtanh, _SELF, ("min_val", "max_val")),
    "HardtanhBackward1": Kind(F.hardtanh, attributes=("min_val", "max_val")),
    "SigmoidBackward0": Kind(torch.sigmoid),
    "TanhBackward0": Kind(torch.tanh),
    # Normalisation. That of the running statistics is run again; else the saved ones are applied.
    **{
        name: Kind(
            _normed,
            (Operand("input", 0), Operand("result1"), Operand("result2"), *_AFFINE),
            (attribute,),
            settle=_order(name),
        )
        for name, attribute in (
            ("NativeBatchNormBackward0", "eps"),
            ("CudnnBatchNormBackward0", "epsilon"),
        )
    },
    # Sums, products, concatenations.
    "AddBackward0": Kind(
        lambda a, b, alpha: torch.add(a, b, alpha=alpha),
        (Operand(edge=0), Operand(edge=1)),
        ("alpha",),
    ),
    "MulBackward0": Kind(torch.mul, _BOTH),
    "CatBackward0": Kind(_cat, (), ("dim",), all_edges=True),
    "NativeDropoutBackward0": Kind(_dropped, (Operand(edge=0), Operand("result1")), ("p",)),
    # Pooling and upsampling.
    "MaxPool2DWithIndicesBackward0": Kind(
        F.max_pool2d,
        _SELF,
        ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    ),
    "MaxPool3DWithIndicesBackward0": Kind(
        F.max_pool3d,
        _SELF,
        ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    ),
    "AvgPool2DBackward0": Kind(
        F.avg_pool2d,
        _SELF,
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    "UpsampleNearest2DBackward0": Kind(
        torch._C._nn.upsample_nearest2d, attributes=("output_size", "scales_h", "scales_w")
    ),
    "UpsampleNearest3DBackward0": Kind(
        torch._C._nn.upsample_nearest3d,
        attributes=("output_size", "scales_d", "scales_h", "scales_w"),
    ),
    # Types and views.
    "ToCopyBackward0": Kind(lambda x, dtype: x.to(dtype), attributes=("@dtype",)),
    "CloneBackward0": Kind(torch.clone),
    "ViewBackward0": Kind(lambda x, shape: x.view(shape), attributes=("@shape",)),
    "UnsafeViewBackward0": Kind(lambda x, shape: x.view(shape), attributes=("@shape",)),
    "ReshapeAliasBackward0": Kind(lambda x, shape: x.view(shape), attributes=("@shape",)),
    "PermuteBackward0": Kind(lambda x, dims: x.permute(dims), attributes=("dims",)),
    "TransposeBackward0": Kind(torch.transpose, attributes=("dim0", "dim1")),
    "TBackward0": Kind(torch.t),
    "UnsqueezeBackward0": Kind(torch.unsqueeze, attributes=("dim",)),
    "ExpandBackward0": Kind(lambda x, shape: x.expand(shape), attributes=("@shape",)),
    "RepeatBackward0": Kind(lambda x, repeats: x.repeat(repeats), attributes=("repeats",)),
}
