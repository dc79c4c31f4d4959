"""Matrix products, as convolutions whose filter has one tap."""

from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from oocdnn import functions, gradients
from oocdnn._calls.windows import integer
from oocdnn.errors import InvalidProblem
from oocdnn.nn._initial import Seed, uniform_pair
from oocdnn.nn._modules import module_of
from oocdnn.nn.convolution import add_bias_gradient
from oocdnn.nn.layer import Layer


class Linear(Layer):
    """y = x wᵀ + b, as a convolution over one element; the arguments are those of PyTorch's layer.

    in_features, out_features: C and K. `bias`, `dtype` and `seed` as of the convolutions.

    weight: [K, C]; bias: [K] or None. x: [N, C]; y: [N, K].
    """

    def __init__(
        self,
        in_features: SupportsIndex,
        out_features: SupportsIndex,
        bias: bool = True,
        *,
        dtype: npt.DTypeLike = np.float32,
        seed: Seed = None,
    ) -> None:
        super().__init__()
        shape = (integer("out_features", out_features, 1), integer("in_features", in_features, 1))
        self.weight, self.bias = uniform_pair(shape, shape[0], bias, dtype, seed)

    def forward(self, x: Any) -> Any:
        module_of("x", x)
        if x.ndim != 2:
            raise InvalidProblem(f"x has shape {x.shape}; Linear takes [N, C], see Flatten")
        bias = self.bias and self.bias.data
        y = functions.conv1d(_column(x), _column(self.weight.data), bias)
        self._keep(x)
        return y[:, :, 0]

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (x,) = self._take()
        gradient, w = _column(dy), _column(self.weight.data)
        add_bias_gradient(self.bias, gradient)
        self.weight.accumulate(
            partial(gradients.conv_backward_filter, _column(x), gradient, w.shape), w.shape
        )
        if not needs_dx:
            return None
        return gradients.conv_backward_data(gradient, w, (*x.shape, 1))[:, :, 0]


def _column(array: Any) -> Any:
    """[N, C] as [N, C, 1]."""
    return array[:, :, None]
