"""Windows over an array and back: maxima with their places, averages.

The rules are those of the fused pass: the first of the largest in row-major order wins, a NaN is
larger than all; what a window holds is what lies within the array, padding never wins. The loops
run over the places of a window that meet the array, so that nothing is copied once for each of
them, and a window may be far larger than the array.
"""

from itertools import product
from types import ModuleType
from typing import Any

import numpy as np

from oocdnn._core.call import Pool
from oocdnn._core.cdefs import PoolMode
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


def _taps(pool: Pool, s: int, extent: int, out: int) -> list[tuple[slice, slice]]:
    """The same of each tap on axis `s` that meets y in a window."""
    before, step = pool.before[s], pool.stride[s]
    taps = range(max(before - (out - 1) * step, 0), min(before + extent, pool.window[s]))
    rows = [_rows(tap, before, step, extent, out) for tap in taps]
    return [found for found in rows if found is not None]


def _places(pool: Pool, y: Shape, z: Shape) -> list[tuple[Index, Index]]:
    """For each place in a window that meets y, in row-major order: what of y lies there, in which
    windows."""
    taps = [_taps(pool, s, *axis) for s, axis in enumerate(zip(y[2:], z[2:], strict=True))]
    return [
        ((..., *(at for at, _ in rows)), (..., *(to for _, to in rows))) for rows in product(*taps)
    ]


def maximum(module: ModuleType, y: Any, pool: Pool, shape: Shape) -> tuple[Any, Any]:
    """z of that shape in y's memory order, and the place of each winner, by its number."""
    places = _places(pool, y.shape, shape)
    z, nobody = zeros(module, y, shape), len(places)
    winners = module.full(shape, nobody, np.min_scalar_type(nobody))
    for place, (at, to) in enumerate(places):
        values, best = y[at], z[to]
        nan = (values != values) & (best == best)
        wins = (winners[to] == nobody) | (values > best) | nan
        module.copyto(best, values, where=wins)
        module.copyto(winners[to], winners.dtype.type(place), where=wins)
    return z, winners


def unpool(module: ModuleType, dz: Any, winners: Any, pool: Pool, shape: Shape) -> Any:
    """dy of that shape: each dz where its winner is. Places behind the last are nobody's."""
    terms = wide(dz)
    dy = zeros(module, terms, shape)
    for place, (at, to) in enumerate(_places(pool, shape, dz.shape)):
        dy[at] += module.where(winners[to] == place, terms[to], terms.dtype.type(0))
    return dy.astype(dz.dtype, copy=False)


def average(module: ModuleType, y: Any, pool: Pool, shape: Shape) -> Any:
    """z of that shape in y's memory order."""
    terms = wide(y)
    z = zeros(module, terms, shape)
    for at, to in _places(pool, y.shape, shape):
        z[to] += terms[at]
    z /= _counts(module, pool, y.shape, shape, terms.dtype)
    return z.astype(y.dtype, copy=False)


def spread(module: ModuleType, dz: Any, pool: Pool, shape: Shape) -> Any:
    """dy of that shape: each dz in equal parts over its window."""
    parts = wide(dz)
    parts = parts / _counts(module, pool, shape, dz.shape, parts.dtype)
    dy = zeros(module, parts, shape)
    for at, to in _places(pool, shape, dz.shape):
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
