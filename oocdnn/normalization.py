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

from oocdnn._arguments import dtype_of, need_kind, real, several
from oocdnn._arrays import gpu_arrays, torch_tensors
from oocdnn._arrays.allocation import allocating
from oocdnn._calls import windows
from oocdnn._calls.call_geometry import need_shape
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


# Numbers of each sample and channel: the sum of the elements, the sum of their squares, their
# count, their mean, the sum of their squared deviations from the mean.
SUM_NUMBERS = 5


class Sums:
    """Receives, in a call, what statistics of its result are made from.

    table: [N, K, 2], float64, an array of x's library and on its side: of each sample and channel
    the sum of the elements, rounded as they are written, and that of their squares, complete when
    the result is. They are rounded in an order that depends on the plan, so a context with
    reproducible=True gives none (Unsupported). count: the elements of each.
    entries: [N, K, 5]; the first two numbers are the table, then follow the count, the mean and the
    sum of squared deviations from the mean. Variances come from the last number: it is exactly 0
    where all elements are equal, and accurate where the mean is large beside the deviations.
    """

    def __init__(self) -> None:
        self._entries: Any = None
        self.count = 0

    @property
    def entries(self) -> Any:
        if self._entries is None:
            raise InvalidProblem("these sums have been in no call: pass them as sums=")
        return self._entries

    @property
    def table(self) -> Any:
        return self.entries[..., :2]

    def receive(self, entries: Any, shape: tuple[int, ...]) -> None:
        """Those of a result of that shape."""
        self._entries, self.count = entries, math.prod(shape[2:])


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
    mean, deviations = _moments_of(sums)
    samples, channels = mean.shape
    groups = windows.integer("groups", groups, 1)
    if channels % groups != 0:
        raise InvalidProblem(f"{groups} groups do not divide {channels} channels")
    each = channels // groups
    grouped = (samples, groups, each)
    mean, variance = _merged(mean.reshape(grouped), deviations.reshape(grouped), sums.count)
    return _made(
        mean.repeat(each, 1), variance.repeat(each, 1), weight, bias, activation, eps, dtype
    )


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
    channels = _moments_of(sums)[0].shape[1]
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
    samples = windows.integer("samples", samples, 0)
    mean = _vector("mean", mean)
    variance = _vector("variance", variance, mean.shape)
    one = _made(mean[None], variance[None], weight, bias, activation, eps, dtype)
    with allocating((samples, *one.table.shape[1:]), one.table.itemsize, "take fewer samples"):
        return Prologue(one.table.repeat(samples, 0), activation)


def batch_statistics(sums: Sums) -> tuple[Any, Any]:
    """The mean and the (biased) variance of each channel over samples and positions: [C], float64;
    for `batch_norm` as in training."""
    mean, deviations = _moments_of(sums)
    merged: tuple[Any, Any] = _merged(mean.T, deviations.T, sums.count)
    return merged


def concatenate(prologues: Sequence[Prologue]) -> Prologue:
    """The prologue of an array that has the channels of several results one behind the other.

    All have one activation. InvalidProblem where that is not so, or where one has no table.
    """
    prologues = several("prologues", prologues, "several in a list")
    for number, prologue in enumerate(prologues):
        need_kind(f"prologues[{number}]", prologue, Prologue, "a Prologue")
        kinds = (str, tuple, type(None))
        need_kind(f"activation of prologues[{number}]", prologue.activation, kinds, "a name")
    activations = [prologue.activation for prologue in prologues]
    alike = all(one == activations[0] for one in activations)
    if not prologues or not alike or any(prologue.table is None for prologue in prologues):
        raise InvalidProblem(
            "prologues with different activations, or without scale and shift, cannot be joined; "
            "apply the activation when the array is written, and give it scale 1 and shift 0"
        )
    tables = [_table(number, prologue) for number, prologue in enumerate(prologues)]
    first = tables[0]
    width = sum(table.shape[1] for table in tables)
    joined = first[:, :1].repeat(width, 1)
    at = 0
    for table in tables:
        joined[:, at : at + table.shape[1]] = table
        at += table.shape[1]
    return Prologue(joined, activations[0])


def _table(number: int, prologue: Prologue) -> Any:
    table = _plain(prologue.table)
    shape: tuple[int, ...] = getattr(table, "shape", ())
    if len(shape) == 3 and shape[2] == 2:
        return table
    raise InvalidProblem(f"the table of prologues[{number}] is no array of shape [N, C, 2]")


def _moments_of(sums: Sums) -> tuple[Any, Any]:
    """The mean and the sum of squared deviations of each sample and channel, [N, C]."""
    need_kind("sums", sums, Sums, "the Sums that a convolution received")
    entries = _plain(sums.entries)
    return entries[..., 3], entries[..., 4]


def _merged(mean: Any, deviations: Any, count: int) -> tuple[Any, Any]:
    """The mean and the variance of sets of `count` elements each, which lie along the last axis.

    Means are summed relative to the first, so that equal means give exactly that mean and no
    variance between sets."""
    sets, first = mean.shape[-1], mean[..., :1]
    apart = mean - first
    between = apart.sum(-1) / max(sets, 1)
    spread = ((apart - between[..., None]) ** 2).sum(-1)
    variance = (deviations.sum(-1) + count * spread) / max(sets * count, 1)
    return first.sum(-1) + between, variance


def _plain(array: Any) -> Any:
    """NumPy's or CuPy's array, which have one set of methods."""
    return torch_tensors.host_copy(array) if gpu_arrays.is_torch(array) else array


def _vector(name: str, array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An array of one axis, or of a shape, in float64."""
    plain = _plain(array)
    try:
        wide = plain.astype("float64")
    except (AttributeError, TypeError, ValueError):
        raise InvalidDtype(
            f"{name} is of type {type(array).__name__}; pass an array of numbers"
        ) from None
    if wide.ndim != 1:
        raise InvalidProblem(f"{name} has the shape {wide.shape}; pass one number for each channel")
    need_shape(name, wide.shape, shape or wide.shape, "the channels")
    return wide


def _made(
    mean: Any,
    variance: Any,
    weight: Any,
    bias: Any,
    activation: str | tuple[str, float] | None,
    eps: float,
    dtype: Any,
) -> Prologue:
    """The prologue for a mean and a variance of each sample and channel, [N, C].

    The shift is computed from the rounded scale: an element equal to the mean becomes exactly the
    bias where the bias is 0, and within one rounding of it elsewhere."""
    dtype, channels = dtype_of("dtype", dtype), mean.shape[1:]
    if dtype.kind != "f":
        raise InvalidDtype(f"dtype is {dtype}; pass float32, or float64 beside float64")
    scale = (variance + real("eps", eps)) ** -0.5
    if weight is not None:
        scale = scale * _vector("weight", weight, channels)
    scale = scale.astype(dtype).astype("float64")
    table = mean[..., None].repeat(2, 2)
    table[..., 1] = (0.0 if bias is None else _vector("bias", bias, channels)) - mean * scale
    table[..., 0] = scale
    return Prologue(table.astype(dtype), activation)
