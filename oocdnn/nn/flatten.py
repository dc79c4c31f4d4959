"""From images to rows of features."""

from math import prod
from typing import Any

from oocdnn.errors import InvalidProblem
from oocdnn.nn._modules import module_of, need_like
from oocdnn.nn.layer import Layer


class Flatten(Layer):
    """y: [N, C * ...], each sample of x in row-major order. A view where x's memory allows it."""

    def forward(self, x: Any) -> Any:
        module_of("x", x)
        if x.ndim < 1:
            raise InvalidProblem("x has no axes; the first of several is the batch")
        self._keep(x.shape)
        return x.reshape(x.shape[0], prod(x.shape[1:]))

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (shape,) = self._take()
        need_like("dy", dy, (shape[0], prod(shape[1:])), "x and Flatten")
        return dy.reshape(shape) if needs_dx else None
