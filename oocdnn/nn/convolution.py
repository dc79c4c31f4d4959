"""Convolutions, transposed ones, and matrix products as convolutions."""

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from oocdnn import functions, gradients
from oocdnn._calls.call_geometry import Moves, Shape
from oocdnn._calls.windows import Padding, PerAxis, integer, per_axis
from oocdnn.chain import Link
from oocdnn.errors import InvalidProblem
from oocdnn.nn._initial import Seed, uniform_pair
from oocdnn.nn.layer import Layer, OwnLink
from oocdnn.nn.parameter import Parameter
from oocdnn.normalization import Prologue, Sums
from oocdnn.upsampling import conv_upsample

CONVOLUTIONS = {1: functions.conv1d, 2: functions.conv2d, 3: functions.conv3d}
_TRANSPOSED = {
    1: functions.conv_transpose1d,
    2: functions.conv_transpose2d,
    3: functions.conv_transpose3d,
}


Channels = tuple[str, SupportsIndex]  # with the argument's name, for messages


def filter_shape(outer: Channels, inner: Channels, taps: Shape, groups: int) -> Shape:
    """[outer, inner / groups, taps]."""
    counts = []
    for name, channels in (outer, inner):
        counts.append(integer(name, channels, 1))
        if counts[-1] % groups:
            raise InvalidProblem(f"{name} is {counts[-1]}, which groups={groups} do not divide")
    return (counts[0], counts[1] // groups, *taps)


def add_bias_gradient(bias: Parameter | None, dy: Any) -> None:
    if bias is not None:
        bias.accumulate(partial(gradients.conv_backward_bias, dy))


def link_of(weight: Parameter, bias: Parameter | None, moves: Moves, **after: Any) -> Link:
    """A convolution of these parameters, and what comes after it, in a chain."""
    return Link(weight.data, bias and bias.data, **moves._asdict(), **after)


class Convolving(Layer):
    """A layer whose convolution takes what is done to x, and tells of y, in the same pass."""

    @abstractmethod
    def convolve(self, x: Any, prologue: Prologue | None = None, sums: Sums | None = None) -> Any:
        """y of x behind the prologue; keeps nothing."""

    def convolve_upsampled(
        self, x: Any, factor: PerAxis, prologue: Prologue | None = None, sums: Sums | None = None
    ) -> Any:
        """The same of what is upsampled; where `upsamples`."""
        raise NotImplementedError

    @property
    def upsamples(self) -> bool:
        return False


class _Convolution(Convolving):
    """A convolution of so many spatial axes; the arguments are those of PyTorch's layer.

    in_channels, out_channels: C and K; `groups` divide both.
    kernel_size, stride, dilation: an integer, or one per spatial axis.
    padding: an integer, one per spatial axis, ((before, after), ...), "same" or "valid".
    bias: whether a number per output channel is added.
    dtype: of the parameters, and so of all arrays: float64, float32, float16 or bfloat16.
    seed: of the first values, or a numpy Generator, which several layers may share.

    weight: [K, C/groups, taps]; bias: [K] or None. x: [N, C, [D, [H,]] W]; y: [N, K, ...].
    """

    rank: ClassVar[int]

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
        dtype: npt.DTypeLike = np.float32,
        seed: Seed = None,
    ) -> None:
        super().__init__()
        self.moves = Moves(stride, padding, dilation, groups)
        taps = per_axis("kernel_size", kernel_size, self.rank, 1)
        outer, inner = ("out_channels", out_channels), ("in_channels", in_channels)
        shape = filter_shape(outer, inner, taps, self.moves.checked_groups())
        self.weight, self.bias = uniform_pair(shape, shape[0], bias, dtype, seed)

    def forward(self, x: Any) -> Any:
        y = self.convolve(x)
        self._keep(x)
        return y

    def convolve(self, x: Any, prologue: Prologue | None = None, sums: Sums | None = None) -> Any:
        return CONVOLUTIONS[self.rank](
            x,
            self.weight.data,
            self.bias and self.bias.data,
            prologue=prologue,
            sums=sums,
            **self.moves._asdict(),
        )

    def convolve_upsampled(
        self, x: Any, factor: PerAxis, prologue: Prologue | None = None, sums: Sums | None = None
    ) -> Any:
        moves = self.moves._asdict()
        moves.pop("stride")
        return conv_upsample(
            x,
            self.weight.data,
            self.bias and self.bias.data,
            factor=factor,
            prologue=prologue,
            sums=sums,
            **moves,
        )

    @property
    def upsamples(self) -> bool:
        return set(per_axis("stride", self.moves.stride, self.rank, 1)) == {1}

    def link(self) -> Link | None:
        if self.training or not self.computes_itself():
            return None
        return link_of(self.weight, self.bias, self.moves)

    def trained(self) -> OwnLink:
        return OwnLink(self.weight, self.bias, self.moves, {})

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        (x,) = self._take()
        w, moves = self.weight.data, self.moves._asdict()
        add_bias_gradient(self.bias, dy)
        self.weight.accumulate(partial(gradients.conv_backward_filter, x, dy, w.shape, **moves))
        return gradients.conv_backward_data(dy, w, x.shape, **moves) if needs_dx else None


class Conv1d(_Convolution):
    __doc__ = _Convolution.__doc__
    rank = 1


class Conv2d(_Convolution):
    __doc__ = _Convolution.__doc__
    rank = 2


class Conv3d(_Convolution):
    __doc__ = _Convolution.__doc__
    rank = 3


class _Transposed(Convolving):
    """The gradient of a convolution with respect to its input, as a layer: PyTorch's.

    Arguments as of the convolutions, and output_padding: so many more elements at the end of each
    spatial axis, less than the stride.

    weight: [C, K/groups, taps]; bias: [K] or None. x: [N, C, [D, [H,]] W]; y: [N, K, ...].
    """

    rank: ClassVar[int]

    def __init__(
        self,
        in_channels: SupportsIndex,
        out_channels: SupportsIndex,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: Padding = 0,
        output_padding: PerAxis = 0,
        groups: SupportsIndex = 1,
        bias: bool = True,
        dilation: PerAxis = 1,
        *,
        dtype: npt.DTypeLike = np.float32,
        seed: Seed = None,
    ) -> None:
        super().__init__()
        self.moves = Moves(stride, padding, dilation, groups)
        self.output_padding = output_padding
        count = self.moves.checked_groups()
        taps = per_axis("kernel_size", kernel_size, self.rank, 1)
        outer, inner = ("in_channels", in_channels), ("out_channels", out_channels)
        shape = filter_shape(outer, inner, taps, count)
        self.weight, self.bias = uniform_pair(shape, shape[1] * count, bias, dtype, seed)

    def forward(self, x: Any) -> Any:
        y = self.convolve(x)
        self._keep(x)
        return y

    def convolve(self, x: Any, prologue: Prologue | None = None, sums: Sums | None = None) -> Any:
        return _TRANSPOSED[self.rank](
            x,
            self.weight.data,
            self.bias and self.bias.data,
            output_padding=self.output_padding,
            prologue=prologue,
            sums=sums,
            **self.moves._asdict(),
        )

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        """The convolution that this one is the gradient of leads from dy to dx."""
        (x,) = self._take()
        w, moves = self.weight.data, self.moves._asdict()
        add_bias_gradient(self.bias, dy)
        self.weight.accumulate(partial(gradients.conv_backward_filter, dy, x, w.shape, **moves))
        return CONVOLUTIONS[self.rank](dy, w, **moves) if needs_dx else None


class ConvTranspose1d(_Transposed):
    __doc__ = _Transposed.__doc__
    rank = 1


class ConvTranspose2d(_Transposed):
    __doc__ = _Transposed.__doc__
    rank = 2


class ConvTranspose3d(_Transposed):
    __doc__ = _Transposed.__doc__
    rank = 3
