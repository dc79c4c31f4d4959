"""A convolution and what comes after it as one layer."""

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from oocdnn import fused
from oocdnn._calls import pooling
from oocdnn._calls.call_geometry import SPATIAL, Moves
from oocdnn._calls.operation import ActivationSpec
from oocdnn._calls.pooling import Pool
from oocdnn._calls.windows import Padding, PerAxis, integer, per_axis
from oocdnn.chain import Link
from oocdnn.errors import InvalidProblem
from oocdnn.nn import _fused_backward
from oocdnn.nn._initial import Seed, uniform_pair
from oocdnn.nn.convolution import filter_shape, link_of
from oocdnn.nn.layer import Layer, OwnLink


class ConvBiasActPool(Layer):
    """z = pool(activation(conv(x) + b)) in one pass, in which y, the convolution's result, stays on
    the device; what backward needs of it is kept in bits.

    The arguments before `activation` are those of `Conv1d`, `Conv2d` and `Conv3d`.

    activation: None, "relu", "sigmoid", "tanh", ("clipped_relu", top), ("elu", alpha),
        ("swish", beta), ("softplus", beta).
    pool: an `oocdnn.Pool`, or a number (or one per axis) for a maximum of windows of that size that
        touch; None: z is y.
    rank: how many spatial axes there are.

    weight: [K, C/groups, taps]; bias: [K] or None. x: [N, C, [D, [H,]] W]; z: [N, K, ...].
    """

    def __init__(
        self,
        in_channels: SupportsIndex,
        out_channels: SupportsIndex,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        groups: SupportsIndex = 1,
        bias: bool = True,
        *,
        activation: ActivationSpec = None,
        pool: Pool | PerAxis | None = None,
        rank: SupportsIndex = 2,
        dtype: npt.DTypeLike = np.float32,
        seed: Seed = None,
    ) -> None:
        super().__init__()
        axes = integer("rank", rank, 1)
        if axes not in SPATIAL:
            raise InvalidProblem(f"rank is {axes}; convolutions have 1, 2 or 3 spatial axes")
        if pool is not None:
            pooling.make(pool, axes)  # a wrong one is told of here
        self.moves = Moves(stride, padding, dilation, groups)
        self.activation, self.pool = activation, pool
        outer, inner = ("out_channels", out_channels), ("in_channels", in_channels)
        taps = per_axis("kernel_size", kernel_size, axes, 1)
        shape = filter_shape(outer, inner, taps, self.moves.checked_groups())
        self.weight, self.bias = uniform_pair(shape, shape[0], bias, dtype, seed)

    def forward(self, x: Any) -> Any:
        done = fused.conv_bias_act_pool(
            x,
            self.weight.data,
            self.bias and self.bias.data,
            activation=self.activation,
            pool=self.pool,
            save_for_backward=self.training,
            **self.moves._asdict(),
        )
        z, saved = done if self.training else (done, None)
        self._keep(x, saved)
        return z

    def link(self) -> Link | None:
        if self.training or not self.computes_itself():
            return None
        return link_of(self.weight, self.bias, self.moves, **self.trained().after)

    def trained(self) -> OwnLink:
        after = {"activation": self.activation, "pool": self.pool}
        return OwnLink(self.weight, self.bias, self.moves, after)

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """dx of dy, which is shaped as z."""
        x, saved = self._take()
        by = _fused_backward.Filter(self.weight, self.bias)
        return _fused_backward.backward(dy, x, saved, by, needs_dx)
