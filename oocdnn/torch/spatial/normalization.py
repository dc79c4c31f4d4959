"""Batch, instance and group norm of split tensors, with statistics of the whole tensor.

Each process takes means and variances of its rows. Those of all processes are put together in
double precision, in the order of the processes, so that all have the same ones. Backward sums what
the gradients need over the processes. The normalized tensor is not kept.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from oocdnn.torch.spatial.exchange import constant, once_differentiable, replicated
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.tensor import SpatialTensor, implements, local, wrap

_BLOCKS = 2048  # columns that occupy a GPU; its kernels give each one block
_SHORTEST = 4096  # elements of a column


@dataclass(frozen=True)
class _Columns:
    """A tensor seen as columns, axis 1 of `of(x)`: each sample's channels, cut in `pieces`, or
    whole channels where the memory order is channels last.

    A norm's statistics are of units: `groups` for each sample, or channels where it is 0.
    """

    samples: int
    channels: int
    pieces: int
    groups: int

    @staticmethod
    def for_norm(x: Tensor, groups: int) -> "_Columns":
        if not x.is_contiguous() and not groups:
            return _Columns(1, x.shape[1], 1, groups)
        samples, channels = x.shape[:2]
        pieces = 1
        if x.is_cuda and x.numel():
            elements = x.numel() // (samples * channels)
            wanted = min(_BLOCKS // (samples * channels), elements // _SHORTEST)
            pieces = math.gcd(elements, 1 << max(wanted.bit_length() - 1, 0))
        return _Columns(samples, channels, pieces, groups)

    @property
    def count(self) -> int:
        return self.samples * self.channels * self.pieces

    def of(self, x: Tensor) -> Tensor:
        if self.count == x.shape[1] and (self.samples, self.pieces) == (1, 1):
            return x
        return x.reshape(1, self.count, x.numel() // max(self.count, 1))

    def to_units(self, values: Tensor) -> Tensor:
        """From a value for each column to (units, values of the columns of a unit)."""
        values = values.view(self.samples, self.channels, self.pieces)
        if self.groups:
            return values.reshape(self.samples * self.groups, -1)
        return values.transpose(0, 1).reshape(self.channels, -1)

    def from_units(self, values: Tensor) -> Tensor:
        """From a value for each unit to one for each of its columns."""
        if self.groups:
            return values.repeat_interleave(self.count // max(len(values), 1))
        return self.from_channels(values)

    def summed(self, values: Tensor) -> Tensor:
        """Sums of the values of columns: (sample, channel), or (1, channel) where statistics are of
        channels. The same sizes on all processes, whatever the memory order of their rows."""
        over = (2,) if self.groups else (0, 2)
        sums = values.view(self.samples, self.channels, self.pieces).sum(over)
        return sums.view(-1, self.channels)

    def from_channels(self, values: Tensor) -> Tensor:
        shape = (self.samples, self.channels, self.pieces)
        return values[None, :, None].expand(shape).reshape(-1)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _over(x: Tensor) -> list[int]:
    return [dim for dim in range(x.ndim) if dim != 1]


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each column, in double precision."""
    if not x.numel():
        zeros = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
        return zeros, zeros
    if x.is_cuda:  # the kernels of torch.nn.SyncBatchNorm, which read halves as they are
        mean, inverse = torch.batch_norm_stats(x, 0.0)
        # The kernel gives 0 for columns whose elements are all equal.
        variance = inverse.double().pow(-2).masked_fill(inverse == 0, 0)
        return mean.double(), variance
    variance, mean = torch.var_mean(x.to(_wide(x)), _over(x), correction=0)
    return mean.double(), variance.double()


def _combined(
    means: Tensor, variances: Tensor, shares: Tensor | float, dim: int
) -> tuple[Tensor, Tensor]:
    """Mean and variance of the union of sets with these and with shares of the elements."""
    mean = (means * shares).sum(dim, keepdim=True)
    variance = ((variances + (means - mean).square()) * shares).sum(dim)
    return mean.squeeze(dim), variance


def _statistics(x: Tensor, columns: _Columns, layout: Layout) -> tuple[Tensor, Tensor]:
    """Mean and variance of each unit over all processes."""
    means, variances = (columns.to_units(value) for value in _moments(columns.of(x)))
    own = torch.stack(_combined(means, variances, 1 / max(means.shape[1], 1), 1))
    every = torch.empty((len(layout.lengths), *own.shape), dtype=own.dtype, device=own.device)
    dist.all_gather(list(every.unbind()), own, group=layout.group)
    shares = tuple(length / layout.total for length in layout.lengths)
    weights = constant(shares, own.dtype, own.device)
    return _combined(every[:, 0], every[:, 1], weights[:, None], 0)


def _shape(x: Tensor) -> list[int]:
    """The shape that broadcasts a value for each column over `x`."""
    return [1, -1] + [1] * (x.ndim - 2)


def _sums(dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of each column: of dy, and of dy times the normalized x."""
    if x.is_cuda and x.numel():
        by_dy, by_both, _, _ = torch.batch_norm_backward_reduce(
            dy, x, mean, invstd, None, True, False, False
        )
        return by_dy, by_both * invstd
    shape, wide = _shape(x), _wide(x)
    normalized = (x - mean.view(shape)) * invstd.view(shape)
    return dy.sum(_over(x), dtype=wide), (dy * normalized).sum(_over(x), dtype=wide)


def _gradient(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, scale: Tensor | None,
    sums: tuple[Tensor, Tensor], count: int,
) -> Tensor:  # fmt: skip
    """(dy - sum(dy) / count - normalized x * sum(dy * normalized x) / count) * invstd * scale, from
    the sums of each column's unit, which has `count` elements."""
    if x.is_cuda:
        most = 1 << 30  # the kernel adds counts up in 64 bits
        parts = (*(most,) * (count // most), count % most)
        counts = constant(parts, torch.int32, x.device)
        of = (mean, invstd, scale, sums[0], sums[1] / invstd, counts)
        found: Tensor = torch.batch_norm_backward_elemt(dy, x, *of)
        return found
    shape = _shape(x)
    by_dy, by_both = ((value / count).view(shape) for value in sums)
    normalized = (x - mean.view(shape)) * invstd.view(shape)
    factor = invstd if scale is None else invstd * scale
    return ((dy - by_dy - normalized * by_both) * factor.view(shape)).to(x.dtype)


class _Normalize(Function):
    """`groups`: channels of each sample that have statistics in common; 0: all samples of a channel
    have. Returns the normalized tensor, and the mean and the variance of each unit."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float,
        layout: Layout, groups: int,
    ) -> Any:  # fmt: skip
        x = x.contiguous() if groups else x
        columns = _Columns.for_norm(x, groups)
        units = [value.to(_wide(x)) for value in _statistics(x, columns, layout)]
        mean, variance = (columns.from_units(value) for value in units)
        scale, shift = (
            None if value is None else columns.from_channels(value) for value in (weight, bias)
        )
        y = F.batch_norm(columns.of(x), mean, variance, scale, shift, training=False, eps=eps)
        ctx.save_for_backward(x, weight, mean, (variance + eps).rsqrt())
        ctx.layout, ctx.columns = layout, columns
        ctx.parameter_type = next((v.dtype for v in (weight, bias) if v is not None), x.dtype)
        ctx.mark_non_differentiable(*units)
        ctx.set_materialize_grads(False)
        if y.shape != x.shape:
            # In place: views that a custom function returns cannot be modified in place later.
            y.resize_(x.shape)
        return y, *units

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, *_: Any) -> Any:
        if dy is None:
            return (None,) * 6
        x, weight, mean, invstd = ctx.saved_tensors
        columns, layout = ctx.columns, ctx.layout
        if x.is_contiguous():
            dy = dy.contiguous()
        xs, dys = columns.of(x), columns.of(dy)
        # One collective serves both gradients: sums for each sample and channel.
        sums = torch.stack([columns.summed(value) for value in _sums(dys, xs, mean, invstd)])
        dist.all_reduce(sums, group=layout.group)
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = _input_gradient(dys, xs, mean, invstd, weight, sums, columns, layout).view(x.shape)
        per_channel = sums.sum(1)
        if ctx.needs_input_grad[1]:
            dw = per_channel[1].to(ctx.parameter_type)
        if ctx.needs_input_grad[2]:
            db = per_channel[0].to(ctx.parameter_type)
        return dx, dw, db, None, None, None


def _input_gradient(
    dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, sums: Tensor,
    columns: _Columns, layout: Layout,
) -> Tensor:  # fmt: skip
    """`sums`: over all processes, (dy or both, sample, channel)."""
    if not x.numel():
        return torch.zeros_like(x)
    scale = None if weight is None else columns.from_channels(weight)
    if weight is not None and 0 < columns.groups < columns.channels:
        # Channels of a unit have their own scales, so sums are of scaled gradients.
        dy = dy * columns.from_channels(weight).to(dy.dtype).view(_shape(x))
        sums = sums * weight
        scale = None
    units = [value.view(-1, value.shape[1] // max(columns.groups, 1)) for value in sums]
    units = [unit.sum(1) if columns.groups else unit.reshape(-1) for unit in units]
    rows = layout.lengths[layout.process]
    count = x.numel() // len(units[0]) // rows * layout.total
    whole = columns.from_units(units[0]), columns.from_units(units[1])
    return _gradient(dy, x, mean, invstd, scale, whole, count)


def _normalized(
    x: SpatialTensor, weight: Tensor | None, bias: Tensor | None, eps: float, groups: int
) -> tuple[SpatialTensor, Tensor, Tensor, int]:
    """The normalized tensor, mean and variance of each unit, and the elements of a unit."""
    layout = x.spatial_layout
    rows = local(x)
    if layout.dim(rows.ndim) < 2:
        raise NotImplementedError(
            f"a norm of a tensor that is split along axis {layout.dim(rows.ndim)}; split one of "
            "those from 2 on"
        )
    y, mean, variance = _Normalize.apply(rows, weight, bias, eps, layout, groups)
    whole = layout.whole(rows.shape)
    return wrap(y, layout), mean, variance, whole.numel() // max(mean.numel(), 1)


def _update(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is not None:
        with torch.no_grad():
            running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)


@implements(F.batch_norm)
def _batch_norm(
    input: Any, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if not training:
        layout = input.spatial_layout
        weight, bias = replicated(layout.group, weight, bias)
        rows = local(input)
        y = F.batch_norm(rows, running_mean, running_var, weight, bias, False, momentum, eps)
        return wrap(y, layout)
    y, mean, variance, count = _normalized(input, weight, bias, eps, 0)
    if count == 1:
        raise ValueError(
            f"batch_norm needs several values for each channel in training, has {count}"
        )
    _update(running_mean, mean, momentum)
    _update(running_var, variance * (count / max(count - 1, 1)), momentum)
    return y


@implements(F.instance_norm)
def _instance_norm(
    input: Any, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    if not use_input_stats:
        return _batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    channels = input.shape[1]
    y, mean, variance, count = _normalized(input, weight, bias, eps, channels)
    _update(running_mean, mean.view(-1, channels).mean(0), momentum)
    unbiased = variance.view(-1, channels).mean(0) * (count / max(count - 1, 1))
    _update(running_var, unbiased, momentum)
    return y


@implements(F.group_norm)
def _group_norm(
    input: Any, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    if input.shape[1] % num_groups:
        raise ValueError(f"{input.shape[1]} channels are not divisible into {num_groups} groups")
    # The rule of autocast on GPUs.
    widened = input.is_cuda and torch.is_autocast_enabled("cuda")
    x = input.float() if widened else input
    return _normalized(x, weight, bias, eps, num_groups)[0]
