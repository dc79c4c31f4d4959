"""Windows over an array and back: maxima with their places, averages.

The rules are those of the fused pass: the first of the largest in row-major order wins, a NaN is
larger than all; what a window holds is what lies within the array, padding never wins. The loops
run over the places of a window, so that nothing is copied once for each of them.
"""

from collections.abc import Iterator
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from oocdnn._call import Pool
from oocdnn._cdefs import PoolMode
from oocdnn.nn._modules import wide, zeros

Shape = tuple[int, ...]
Index = tuple[Any, ...]


def _rows(tap: int, before: int, step: int, extent: int, out: int) -> tuple[slice, slice] | None:
    """On one axis the rows of y that lie at `tap` of a window, and the windows, rows of z."""
    offset = tap - before
    first, last = max(0, -(offset // step)), min(out - 1, (extent - 1 - offset) // step)
    if first > last:
        return None
    return slice(first * step + offset, last * step + offset + 1, step), slice(first, last + 1)


def _places(pool: Pool, y: Shape, z: Shape) -> Iterator[tuple[int, Index, Index]]:
    """For each place in a window, by its number: what of y lies there, in which windows."""
    for place, taps in enumerate(np.ndindex(*pool.window)):
        axes = zip(taps, pool.before, pool.stride, y[2:], z[2:], strict=True)
        rows = [found for found in (_rows(*axis) for axis in axes) if found is not None]
        if len(rows) == len(taps):
            yield place, (..., *(at for at, _ in rows)), (..., *(to for _, to in rows))


def maximum(module: ModuleType, y: Any, pool: Pool, shape: Shape) -> tuple[Any, Any]:
    """z of that shape in y's memory order, and the place of each winner."""
    places = prod(pool.window)
    z = zeros(module, y, shape)
    winners = module.full(shape, places, np.min_scalar_type(places))
    for place, at, to in _places(pool, y.shape, shape):
        values, best = y[at], z[to]
        nan = (values != values) & (best == best)
        wins = (winners[to] == places) | (values > best) | nan
        module.copyto(best, values, where=wins)
        module.copyto(winners[to], winners.dtype.type(place), where=wins)
    return z, winners


def unpool(module: ModuleType, dz: Any, winners: Any, pool: Pool, shape: Shape) -> Any:
    """dy of that shape: each dz where its winner is. Places behind the last are nobody's."""
    terms = wide(dz)
    dy = zeros(module, terms, shape)
    for place, at, to in _places(pool, shape, dz.shape):
        dy[at] += module.where(winners[to] == place, terms[to], terms.dtype.type(0))
    return dy.astype(dz.dtype, copy=False)


def average(module: ModuleType, y: Any, pool: Pool, shape: Shape) -> Any:
    """z of that shape in y's memory order."""
    terms = wide(y)
    z = zeros(module, terms, shape)
    for _, at, to in _places(pool, y.shape, shape):
        z[to] += terms[at]
    z /= _counts(module, pool, y.shape, shape, terms.dtype)
    return z.astype(y.dtype, copy=False)


def spread(module: ModuleType, dz: Any, pool: Pool, shape: Shape) -> Any:
    """dy of that shape: each dz in equal parts over its window."""
    parts = wide(dz)
    parts = parts / _counts(module, pool, shape, dz.shape, parts.dtype)
    dy = zeros(module, parts, shape)
    for _, at, to in _places(pool, shape, dz.shape):
        dy[at] += parts[to]
    return dy.astype(dz.dtype, copy=False)


def _counts(module: ModuleType, pool: Pool, y: Shape, z: Shape, dtype: Any) -> Any:
    """What each window's sum is divided by, of the shape of z's spatial axes."""
    inside = pool.mode == PoolMode.AVERAGE_INSIDE
    counts = np.ones((), np.int64)
    for s, extent in enumerate(y[2:]):
        begin = np.arange(z[2 + s]) * pool.stride[s] - pool.before[s]
        end = np.minimum(begin + pool.window[s], extent + (0 if inside else pool.after[s]))
        held = end - (np.maximum(begin, 0) if inside else begin)
        counts = counts[..., None] * held
    return module.asarray(counts.astype(dtype))
