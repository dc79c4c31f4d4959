"""True sums of a convolution with bias, relu and a maximum of windows that touch, and gradients.

By products of matrices over boxes of y, an image at a time: an order of summing that no tile has.
Exact where `dtype` holds the sums; slow, and meant for a few filters or a few places.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oocdnn._arrays.mapped import Array
from oocdnn._core.call import Window
from oocdnn.bench.amounts import groups_of
from oocdnn.cli.problems import Problem, window_of

Box = Sequence[tuple[int, int]]  # begin and end on each spatial axis
Filters = Sequence[int]  # of one group; a range is not copied
Key = tuple[Any, ...]


def is_pass(problem: Problem) -> bool:
    """Whether something comes after the sums, or several gradients are made at once."""
    extra = problem.bias or problem.pool or problem.saves or problem.clips or problem.along
    return bool(extra) or "activation" in problem.keywords


def touching(problem: Problem) -> tuple[int, ...] | None:
    """The window of the problem's pool, of ones where there is none; None where it is not a maximum
    of windows that touch."""
    pool = problem.pool
    if not pool:
        return (1,) * problem.rank
    if pool["mode"] != "max" or pool.keys() - {"mode", "window"}:
        return None
    size = pool["window"]
    return (size,) * problem.rank if isinstance(size, int) else tuple(size)


def _index(filters: Filters) -> slice | list[int]:
    return slice(filters.start, filters.stop) if isinstance(filters, range) else list(filters)


@dataclass(frozen=True)
class Pass:
    """The arrays of a forward pass, and what comes after its sums; the pool is `touching`."""

    problem: Problem
    x: Array
    w: Array
    b: Array | None = None
    relu: bool = False
    window: tuple[int, ...] = ()
    dtype: npt.DTypeLike = np.float64

    @property
    def moves(self) -> Window:
        return window_of(self.problem)

    @property
    def z_extents(self) -> tuple[int, ...]:
        return tuple(e // size for e, size in zip(self.problem.y[2:], self.window, strict=True))

    def everything(self) -> Box:
        return [(0, extent) for extent in self.problem.y[2:]]

    def _channels(self, filters: Filters) -> slice:
        """Those of x that filters of one group read."""
        group = filters[0] // (self.problem.w[0] // groups_of(self.problem))
        return slice(group * self.problem.w[1], (group + 1) * self.problem.w[1])

    def _read(self, n: int, filters: Filters, box: Box) -> Array:
        """What a box of y reads of x, zeros around it; channels first."""
        stride, dilation, before, _ = self.moves
        source: list[slice] = []
        target: list[slice] = []
        extents: list[int] = []
        for axis, (begin, end) in enumerate(box):
            start = begin * stride[axis] - before[axis]
            reach = (self.problem.w[2 + axis] - 1) * dilation[axis]
            extents.append((end - begin - 1) * stride[axis] + reach + 1)
            low, high = max(start, 0), min(start + extents[-1], self.problem.x[2 + axis])
            source.append(slice(low, max(high, low)))
            target.append(slice(low - start, max(high, low) - start))
        read: Array = np.zeros((self.problem.w[1], *extents), self.dtype)
        here: Key = (slice(None), *target)
        there: Key = (n, self._channels(filters), *source)
        read[here] = self.x[there]
        return read

    def _by_tap(self, read: Array, box: Box) -> Iterator[tuple[Key, Array]]:
        """For each tap what it meets in `read`: a view of channels and the box."""
        stride, dilation, _, _ = self.moves
        for tap in itertools.product(*map(range, self.problem.w[2:])):
            steps = zip(tap, dilation, stride, box, strict=True)
            met = [slice(t * d, t * d + (e - b - 1) * s + 1, s) for t, d, s, (b, e) in steps]
            key: Key = (slice(None), *met)
            yield tap, read[key]

    def y(self, n: int, filters: Filters, box: Box) -> Array:
        """What the pool, or the caller, sees of some filters of one group over a box."""
        lengths = tuple(end - begin for begin, end in box)
        filter_ = self.w[_index(filters)].astype(self.dtype)
        sums: Array = np.zeros((len(filter_), int(np.prod(lengths))), self.dtype)
        for tap, met in self._by_tap(self._read(n, filters, box), box):
            at: Key = (slice(None), slice(None), *tap)
            sums += filter_[at] @ met.reshape(len(met), -1)
        if self.b is not None:
            sums += self.b[_index(filters)].astype(self.dtype)[:, None]
        found: Array = (np.maximum(sums, 0) if self.relu else sums).reshape(-1, *lengths)
        return found

    def _windows(self, y: Array) -> Array:
        """y over whole windows, with the elements of each along a last axis."""
        rank, filters = len(self.window), len(y)
        pairs = [(e // s, s) for e, s in zip(y.shape[1:], self.window, strict=True)]
        apart = y.reshape(filters, *itertools.chain(*pairs))
        order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2))
        return apart.transpose(order).reshape(filters, *(count for count, _ in pairs), -1)

    def _together(self, windows: Array) -> Array:
        """The reverse."""
        rank, counts = len(self.window), windows.shape[1:-1]
        apart = windows.reshape(len(windows), *counts, *self.window)
        order = (0, *itertools.chain(*((1 + i, 1 + rank + i) for i in range(rank))))
        extents = [count * size for count, size in zip(counts, self.window, strict=True)]
        return apart.transpose(order).reshape(len(windows), *extents)

    def z(self, n: int, filters: Filters, box: Box) -> Array:
        """What is pooled, over a box of z."""
        sized = zip(box, self.window, strict=True)
        over = [(begin * size, end * size) for (begin, end), size in sized]
        found: Array = self._windows(self.y(n, filters, over)).max(axis=-1)
        return found

    def z_image(self, n: int) -> Array:
        """Of one image; of one group."""
        return self.z(n, range(self.problem.w[0]), [(0, e) for e in self.z_extents])

    def dy(self, dz: Array, n: int, filters: Filters, box: Box) -> Array:
        """The gradient of the sums over a box of y: of each window at the first of the largest, and
        nowhere where relu is flat. Elements in no window have none."""
        cells = [
            (min(begin // size, extent), min(-(-end // size), extent))
            for (begin, end), size, extent in zip(box, self.window, self.z_extents, strict=True)
        ]
        result: Array = np.zeros((len(filters), *(e - b for b, e in box)))
        if any(first == last for first, last in cells):
            return result.astype(self.dtype)
        sized = list(zip(cells, self.window, strict=True))
        over = [(first * size, last * size) for (first, last), size in sized]
        windows = self._windows(self.y(n, filters, over))
        at: Key = (_index(filters), *(slice(*cell) for cell in cells))
        gradient = dz[n][at].astype(self.dtype)
        if self.relu:
            gradient = gradient * (windows.max(axis=-1) > 0)
        winners = windows.argmax(axis=-1)[..., None] == np.arange(windows.shape[-1])
        spread = self._together(winners * gradient[..., None])
        inner, outer = list[slice](), list[slice]()
        for (begin, end), (low, high) in zip(box, over, strict=True):
            first, last = max(begin, low), min(end, high)
            inner.append(slice(first - low, last - low))
            outer.append(slice(first - begin, last - begin))
        to, source = (slice(None), *outer), (slice(None), *inner)
        result[to] = spread[source]
        return result.astype(self.dtype)

    def dx(self, dz: Array, n: int, channel: int, at: Sequence[int]) -> float:
        """One element."""
        stride, dilation, before, _ = self.moves
        problem, box = self.problem, list[tuple[int, int]]()
        for axis, place in enumerate(at):
            reach, padded = (problem.w[2 + axis] - 1) * dilation[axis], place + before[axis]
            begin = max(0, -(-(padded - reach) // stride[axis]))
            box.append((begin, min(problem.y[2 + axis], padded // stride[axis] + 1)))
        if any(begin >= end for begin, end in box):
            return 0.0
        count = problem.w[0] // groups_of(problem)
        group, own = divmod(channel, problem.w[1])
        filters, total = range(group * count, (group + 1) * count), 0.0
        gradient = self.dy(dz, n, filters, box).astype(np.float64)
        for out in itertools.product(*(range(*ends) for ends in box)):
            steps = [
                place + b - o * s for place, b, o, s in zip(at, before, out, stride, strict=True)
            ]
            taps = [divmod(step, d) for step, d in zip(steps, dilation, strict=True)]
            if any(rest for _, rest in taps):
                continue
            seen: Key = (slice(None), *(o - begin for o, (begin, _) in zip(out, box, strict=True)))
            met: Key = (_index(filters), own, *(tap for tap, _ in taps))
            total += float(gradient[seen] @ self.w[met].astype(np.float64))
        return total

    def dw_db(
        self, dz: Array, filters: Filters, images: Sequence[int] | None = None
    ) -> tuple[Array, Array]:
        """Of some filters of one group, over some images, or all."""
        dw: Array = np.zeros((len(filters), *self.problem.w[1:]))
        db: Array = np.zeros(len(dw))
        box = self.everything()
        for n in range(self.problem.x[0]) if images is None else images:
            gradient = self.dy(dz, n, filters, box).reshape(len(dw), -1)
            db += gradient.sum(axis=1, dtype=np.float64)
            for tap, met in self._by_tap(self._read(n, filters, box), box):
                at: Key = (slice(None), slice(None), *tap)
                dw[at] += gradient @ met.reshape(len(met), -1).T
        return dw, db

    def dx_image(self, dz: Array, n: int) -> Array:
        """dx of one image; of one group."""
        everything = range(self.problem.w[0])
        box = self.everything()
        gradient = self.dy(dz, n, everything, box)
        columns = gradient.reshape(len(gradient), -1)
        padded = np.zeros_like(self._read(n, everything, box))
        for tap, part in self._by_tap(padded, box):
            at: Key = (slice(None), slice(None), *tap)
            part += (self.w[at].astype(self.dtype).T @ columns).reshape(part.shape)
        _, _, before, _ = self.moves
        result: Array = np.zeros(self.problem.x[1:], self.dtype)
        ends = zip(before, self.problem.x[2:], padded.shape[1:], strict=True)
        inside = [slice(b, min(b + extent, have)) for b, extent, have in ends]
        target: Key = (slice(None), *(slice(0, one.stop - one.start) for one in inside))
        source: Key = (slice(None), *inside)
        result[target] = padded[source]
        return result
