"""From images to rows of features."""

from math import prod
from typing import Any

from oocdnn._geometry import need_shape
from oocdnn.nn.layer import Layer


class Flatten(Layer):
    """y: [N, C * ...], each sample of x in row-major order. A view where x's memory allows it."""

    def forward(self, x: Any) -> Any:
        self._keep(x.shape)
        return x.reshape(x.shape[0], prod(x.shape[1:]))

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (shape,) = self._take()
        need_shape("dy", dy.shape, (shape[0], prod(shape[1:])), "x and Flatten")
        return dy.reshape(shape) if needs_dx else None
