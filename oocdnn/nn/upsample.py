"""Nearest upsampling for inference. Before a convolution, in a `Chain` after `eval`, it takes no
pass, and what is upsampled is nowhere."""

from operator import mul
from typing import Any

from oocdnn._arrays.allocation import allocating
from oocdnn._calls.windows import PerAxis, per_axis
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.nn._modules import module_of
from oocdnn.nn.layer import Layer


class Upsample(Layer):
    """y: x with each element repeated `scale_factor` times along each spatial axis (an integer, or
    one per axis): PyTorch's layer in its mode "nearest". It has no backward."""

    def __init__(self, scale_factor: PerAxis) -> None:
        super().__init__()
        self.factor = scale_factor

    def forward(self, x: Any) -> Any:
        module_of("x", x)
        if x.ndim < 3:
            raise InvalidProblem(f"x has {x.ndim} axes {x.shape}; N, C and positions are needed")
        factors = per_axis("scale_factor", self.factor, x.ndim - 2, 1)
        shape = (*x.shape[:2], *map(mul, x.shape[2:], factors))
        with allocating(shape, x.dtype.itemsize, "take a smaller factor"):
            for axis, factor in enumerate(factors, 2):
                x = x.repeat(factor, axis)
        return x

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        raise Unsupported("Upsample has no backward: train elsewhere and load the parameters")
