"""Normalisations for inference. In a `Chain` after `eval` they are part of the convolutions around
them; alone they are a pass in the arrays' own module.

They have no backward: train where there is one, and load the parameters, whose names are PyTorch's.
"""

from abc import abstractmethod
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from oocdnn import normalization
from oocdnn._arguments import dtype_of, flag, real
from oocdnn._arrays.allocation import allocating
from oocdnn._calls.operation import ActivationSpec
from oocdnn._calls.windows import integer
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.nn._modules import module_of, narrow, wide
from oocdnn.nn.layer import Layer
from oocdnn.nn.parameter import Buffer, Parameter
from oocdnn.normalization import Prologue, Sums


def _counted(x: Any) -> Sums:
    """The sums of an array that no call made."""
    sums, module, count = Sums(), module_of("x", x), prod(x.shape[2:])
    values = x.reshape(*x.shape[:2], count).astype(np.float64)
    first = values[..., :1].copy()
    numbers = [values.sum(2), (values * values).sum(2), module.full(x.shape[:2], float(count))]
    values -= first  # equal elements have exactly no deviations
    between = values.sum(2) / max(count, 1)
    values -= between[..., None]
    numbers += [first.sum(2) + between, (values * values).sum(2)]
    sums.receive(module.stack(numbers, 2), x.shape)
    return sums


class Norm(Layer):
    """y = x * scale + shift, by channel and, where statistics are of samples, by sample.

    weight, bias: [C], or None. x: [N, C, [D, [H,]] W]; y: shaped as x.
    """

    by_sums: ClassVar[bool] = True  # statistics are of x

    def __init__(self, channels: int, eps: float, affine: bool, dtype: npt.DTypeLike) -> None:
        super().__init__()
        self.channels, self.eps = integer("channels", channels, 1), real("eps", eps)
        dtype, affine = dtype_of("dtype", dtype), flag("affine", affine)
        self.weight = Parameter(self._filled(1.0, dtype)) if affine else None
        self.bias = Parameter(self._filled(0.0, dtype)) if affine else None

    def _filled(self, value: float, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A value for each channel."""
        with allocating((self.channels,), np.dtype(dtype).itemsize, "take fewer channels"):
            return np.full(self.channels, value, dtype)

    @abstractmethod
    def _made(self, sums: Sums | None, samples: int, activation: Any, dtype: Any) -> Prologue:
        """Scale and shift."""

    def constants(self) -> tuple[Any, Any] | None:
        """Scale and shift by channel, [C] of float64, where no statistics of x are needed."""
        return None

    def prologue(self, x: Any, sums: Sums | None, activation: ActivationSpec) -> Prologue:
        """What the convolution does that reads x; `sums` are those of x, counted here if None."""
        module_of("x", x)
        if x.ndim < 3 or x.shape[1] != self.channels:
            raise InvalidProblem(
                f"x has the shape {x.shape}; {type(self).__name__} takes {self.channels} channels "
                "on axis 1 and positions behind it"
            )
        if sums is None and self.by_sums:
            sums = _counted(x)
        return self._made(
            sums, x.shape[0], activation, "float64" if x.dtype == np.float64 else "float32"
        )

    def forward(self, x: Any) -> Any:
        table = self.prologue(x, None, None).table
        pairs = table.reshape(*x.shape[:2], *[1] * (x.ndim - 2), 2)
        return narrow(wide(x) * pairs[..., 0] + pairs[..., 1], x)

    def backward(self, dy: Any, needs_dx: bool = True) -> Any:
        raise Unsupported(
            f"{type(self).__name__} has no backward: train elsewhere and load the parameters"
        )

    def _values(self) -> tuple[Any, Any]:
        return self.weight and self.weight.data, self.bias and self.bias.data


class GroupNorm(Norm):
    """Group norm; the arguments are those of PyTorch's layer, and so are the parameters' names.

    num_groups: of neighbouring channels; they divide num_channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        super().__init__(num_channels, eps, affine, dtype)
        self.groups = integer("num_groups", num_groups, 1)
        if self.channels % self.groups:
            raise InvalidProblem(f"{self.groups} groups do not divide {self.channels} channels")

    def _made(self, sums: Sums | None, samples: int, activation: Any, dtype: Any) -> Prologue:
        assert sums is not None
        return normalization.group_norm(
            sums, self.groups, *self._values(), activation, eps=self.eps, dtype=dtype
        )


class _InstanceNorm(Norm):
    """Instance norm, by the statistics of each sample and channel; the arguments are those of
    PyTorch's layer, without running statistics."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = False,
        *,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        super().__init__(num_features, eps, affine, dtype)

    def _made(self, sums: Sums | None, samples: int, activation: Any, dtype: Any) -> Prologue:
        assert sums is not None
        return normalization.instance_norm(
            sums, *self._values(), activation, eps=self.eps, dtype=dtype
        )


class InstanceNorm1d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class InstanceNorm2d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class InstanceNorm3d(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class _BatchNorm(Norm):
    """Batch norm by running statistics, so after `eval` alone; the arguments are those of PyTorch's
    layer, and so are the names: weight, bias, running_mean, running_var, num_batches_tracked."""

    by_sums = False

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        super().__init__(num_features, eps, affine, dtype)
        self.running_mean = Buffer(self._filled(0.0, dtype))
        self.running_var = Buffer(self._filled(1.0, dtype))
        self.num_batches_tracked = Buffer(np.zeros((), np.int64))

    def _made(self, sums: Sums | None, samples: int, activation: Any, dtype: Any) -> Prologue:
        if self.training:
            raise Unsupported(f"{type(self).__name__} knows running statistics only: call eval()")
        mean, variance = self.running_mean.data, self.running_var.data
        return normalization.batch_norm(
            mean.astype(np.float64), variance.astype(np.float64), *self._values(), activation,
            samples=samples, eps=self.eps, dtype=dtype,
        )  # fmt: skip

    def constants(self) -> tuple[Any, Any] | None:
        table = self._made(None, 1, None, "float64").table[0]
        return table[:, 0], table[:, 1]


class BatchNorm1d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNorm2d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNorm3d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__
