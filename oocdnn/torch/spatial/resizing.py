"""Padding and interpolation of split tensors."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from oocdnn.torch.spatial.exchange import NO_ROWS, collect, without_rows
from oocdnn.torch.spatial.layout import Layout, Rows, lengths_of
from oocdnn.torch.spatial.tensor import implements, local, wrap

_HALO = {"nearest": 0, "nearest-exact": 0, "linear": 1, "bilinear": 1, "trilinear": 1, "bicubic": 2}


@implements(F.pad)
def _pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    layout, rows = input.spatial_layout, local(input)
    place = 2 * (-layout.axis - 1)
    before, after = (list(pad) + [0, 0] * rows.ndim)[place : place + 2]
    others = [0 if place <= at < place + 2 else number for at, number in enumerate(pad)]
    if any(others):
        padded = partial(F.pad, pad=others, mode=mode, value=value)
        rows = padded(rows) if rows.numel() else without_rows(rows, layout.axis, padded)
    if not (before or after):
        return wrap(rows, layout)
    rims = _rims(mode, before, after, layout.total)
    bounds = [0, *(end for _, end in layout.owned)]
    shifted = [0, *(min(max(b + before, 0), _length(layout, before, after)) for b in bounds[1:-1])]
    outputs = layout.with_lengths(lengths_of([*shifted, _length(layout, before, after)]))
    wanted = tuple(_sources(rims, own, layout.total, before) for own in outputs.owned)
    return wrap(collect(rows, layout, wanted, 0.0 if value is None else value), outputs)


def _length(layout: Layout, before: int, after: int) -> int:
    length = layout.total + before + after
    if length <= 0:
        raise ValueError(f"pad by {before} and {after} leaves {length} of {layout.total} rows")
    return length


def _rims(mode: str, before: int, after: int, total: int) -> tuple[list[int], list[int]]:
    """The source rows of those in front and behind; those of a constant are outside."""
    front, behind = range(-before, 0), range(total, total + after)
    limits = {"reflect": total - 1, "circular": total, "constant": None, "replicate": None}
    if mode not in limits:
        raise ValueError(f"the mode {mode!r} of pad is none of {', '.join(limits)}")
    limit = limits[mode]
    if limit is not None and max(before, after) > limit:
        raise ValueError(f"pad in the mode {mode} by {max(before, after)} of {total} rows")

    def source(row: int) -> int:
        if mode == "replicate":
            return min(max(row, 0), total - 1)
        if mode == "circular":
            return row % total
        if mode == "reflect":
            return -row if row < 0 else 2 * (total - 1) - row
        return row

    return [source(row) for row in front], [source(row) for row in behind]


def _sources(
    rims: tuple[list[int], list[int]], own: Rows, total: int, before: int
) -> tuple[Rows, ...]:
    """Ranges of source rows of the output rows `own`."""
    front, behind = rims
    begin, end = own[0] - before, own[1] - before
    found = [(row, row + 1) for row in front[max(begin + before, 0) : max(end + before, 0)]]
    if max(begin, 0) < min(end, total):
        found.append((max(begin, 0), min(end, total)))
    found += [(row, row + 1) for row in behind[max(begin - total, 0) : max(end - total, 0)]]
    return tuple(found)


@implements(F.interpolate)
def _interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    layout, rows = input.spatial_layout, local(input)
    at = rows.ndim - 2 + layout.axis
    given = scale_factor if size is None else size
    numbers = list(given) if isinstance(given, (tuple, list)) else [given] * (rows.ndim - 2)
    factor = numbers[at] if size is None else numbers[at] / layout.total
    halo = _HALO.get(mode)
    if factor != int(factor) or factor < 1 or halo is None or align_corners or antialias or at < 0:
        raise NotImplementedError(
            f"interpolate of a split tensor of {layout.total} rows along axis "
            f"{layout.dim(rows.ndim)} with size={size}, scale_factor={scale_factor}, "
            f"mode={mode!r}: along that axis it must grow by a whole factor, without align_corners "
            "and antialias; call it on full_tensor()"
        )
    factor = int(factor)
    outputs = layout.with_lengths([length * factor for length in layout.lengths])
    ranges = [(max(b - halo, 0), min(e + halo, layout.total)) for b, e in layout.owned]
    wanted = tuple(
        (rows,) if own[0] < own[1] else NO_ROWS
        for rows, own in zip(ranges, layout.owned, strict=True)
    )
    rows = collect(rows, layout, wanted)

    def resized(rows: Tensor) -> Tensor:
        if size is None:
            return F.interpolate(
                rows, None, tuple(numbers), mode, align_corners, recompute_scale_factor
            )
        sizes = [*numbers[:at], rows.shape[layout.axis] * factor, *numbers[at + 1 :]]
        return F.interpolate(rows, tuple(sizes), None, mode, align_corners)

    begin, end = layout.own
    if begin == end:
        return wrap(without_rows(rows, layout.axis, resized), outputs)
    skipped = begin - ranges[layout.process][0]
    y = resized(rows)
    return wrap(y.narrow(layout.axis, skipped * factor, (end - begin) * factor), outputs)
