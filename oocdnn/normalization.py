"""Normalisation in two passes that are none of their own: the sums of a result come along with the
convolution that makes it, and the next one applies what follows from them when it has x on the
device. So each tensor is written once and read once by each convolution that reads it.

    sums = oocdnn.Sums()
    y = oocdnn.conv3d(x, w, padding=1, sums=sums)
    z = oocdnn.conv3d(y, v, padding=1, prologue=oocdnn.group_norm(sums, 8, weight, bias, "relu"))

`oocdnn.concatenate` joins prologues for an array whose channels several results share: each of
these is written to its slice of it by `out=`. What is small is computed in NumPy or, where it is
CuPy's, there; torch tensors go to host memory for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oocdnn import _gpu_arrays, _torch_tensors, _window
from oocdnn._arguments import need_kind, several
from oocdnn.errors import InvalidDtype, InvalidProblem


@dataclass(frozen=True)
class Prologue:
    """What x goes through on the device, where padding stays zero:
    activation(x * scale[n, c] + shift[n, c]), rounded to x's type once.

    table: [N, C, 2], scale and shift, float64 beside float64, else float32; None: there is but the
    activation. An array of any library that calls take, dense.
    activation: as in `oocdnn.functions`.
    """

    table: Any = None
    activation: str | tuple[str, float] | None = None


class Sums:
    """Receives, in a call, what statistics of its result are made from.

    table: [N, K, 2], float64, an array of x's library and on its side: of each sample and channel
    the sum of the elements, rounded as they are written, and that of their squares, complete when
    the result is. They are rounded in an order that depends on the plan, so a context with
    reproducible=True gives none (Unsupported). count: the elements of each.
    """

    def __init__(self) -> None:
        self._table: Any = None
        self.count = 0

    @property
    def table(self) -> Any:
        if self._table is None:
            raise InvalidProblem("these sums have been in no call: pass them as sums=")
        return self._table

    def receive(self, table: Any, shape: tuple[int, ...]) -> None:
        """Those of a result of that shape."""
        self._table, self.count = table, math.prod(shape[2:])


def group_norm(
    sums: Sums,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    activation: str | tuple[str, float] | None = None,
    *,
    eps: float = 1e-5,
    dtype: Any = "float32",
) -> Prologue:
    """Group norm of the result that `sums` are of, and the activation behind it.

    groups: of neighbouring channels, which they divide; each is normalised by its own mean and
    (biased) variance in each sample. weight, bias: [C] or None. dtype: "float64" where the arrays
    are. All is computed in float64. InvalidProblem where the groups do not divide the channels.
    """
    table = _table_of(sums)
    samples, channels, _ = table.shape
    groups = _window.integer("groups", groups, 1)
    if channels % groups != 0:
        raise InvalidProblem(f"{groups} groups do not divide {channels} channels")
    each = channels // groups
    means = table.reshape(samples, groups, each, 2).sum(2) / (each * max(sums.count, 1))
    return _made(means.repeat(each, 1), weight, bias, activation, eps, dtype)


def instance_norm(
    sums: Sums,
    weight: Any = None,
    bias: Any = None,
    activation: str | tuple[str, float] | None = None,
    *,
    eps: float = 1e-5,
    dtype: Any = "float32",
) -> Prologue:
    """Instance norm: group norm with each channel a group of its own."""
    channels = _table_of(sums).shape[1]
    return group_norm(sums, channels, weight, bias, activation, eps=eps, dtype=dtype)


def batch_norm(
    mean: Any,
    variance: Any,
    weight: Any = None,
    bias: Any = None,
    activation: str | tuple[str, float] | None = None,
    *,
    samples: int,
    eps: float = 1e-5,
    dtype: Any = "float32",
) -> Prologue:
    """Batch norm by statistics that are known, as in inference, of a batch of so many samples.

    mean, variance, weight, bias: [C]; weight and bias may be None.
    """
    samples = _window.integer("samples", samples, 0)
    for name, value in (("mean", mean), ("variance", variance)):
        if not hasattr(value, "dtype"):
            raise InvalidDtype(f"{name} is of type {type(value).__name__}; pass an array")
    mean, variance = _plain(mean), _plain(variance)
    squares = variance + mean * mean
    means = squares.astype("float64")[None, :, None].repeat(2, 2).repeat(samples, 0)
    means[:, :, 0] = mean
    return _made(means, weight, bias, activation, eps, dtype, variance)


def batch_statistics(sums: Sums) -> tuple[Any, Any]:
    """The mean and the (biased) variance of each channel over samples and positions: [C], float64;
    for `batch_norm` as in training."""
    table = _table_of(sums)
    means = table.sum(0) / max(table.shape[0] * sums.count, 1)
    return means[:, 0], _variance(means)


def concatenate(prologues: Sequence[Prologue]) -> Prologue:
    """The prologue of an array that has the channels of several results one behind the other.

    All have one activation. InvalidProblem where that is not so, or where one has no table.
    """
    prologues = several("prologues", prologues, "several in a list")
    for number, prologue in enumerate(prologues):
        need_kind(f"prologues[{number}]", prologue, Prologue, "a Prologue")
    activations = {prologue.activation for prologue in prologues}
    if len(activations) != 1 or any(prologue.table is None for prologue in prologues):
        raise InvalidProblem(
            "prologues with different activations, or without scale and shift, cannot be joined; "
            "apply the activation when the array is written, and give it scale 1 and shift 0"
        )
    tables = [_plain(prologue.table) for prologue in prologues]
    first = tables[0]
    width = sum(table.shape[1] for table in tables)
    joined = first[:, :1].repeat(width, 1)
    at = 0
    for table in tables:
        joined[:, at : at + table.shape[1]] = table
        at += table.shape[1]
    return Prologue(joined, activations.pop())


def _table_of(sums: Sums) -> Any:
    need_kind("sums", sums, Sums, "the Sums that a convolution received")
    return _plain(sums.table)


def _plain(array: Any) -> Any:
    """NumPy's or CuPy's array, which have one set of methods."""
    return _torch_tensors.host_copy(array) if _gpu_arrays.is_torch(array) else array


def _variance(means: Any) -> Any:
    variance = means[..., 1] - means[..., 0] ** 2
    return variance * (variance > 0)  # that of equal elements may come out below 0


def _made(
    means: Any,
    weight: Any,
    bias: Any,
    activation: str | tuple[str, float] | None,
    eps: float,
    dtype: Any,
    variance: Any = None,
) -> Prologue:
    """From the mean and the mean square of each sample and channel, [N, C, 2]."""
    weight, bias = _plain(weight), _plain(bias)
    spread = _variance(means) if variance is None else variance
    scale = (spread + eps) ** -0.5 * (1.0 if weight is None else weight)
    table = means.copy()
    table[..., 1] = (0.0 if bias is None else bias) - means[..., 0] * scale
    table[..., 0] = scale
    return Prologue(table.astype(dtype), activation)
