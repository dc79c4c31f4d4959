"""What follows from a call's shapes and from how its filter moves: the window and all sizes.

Calls of one shape come again and again, so that what was found is remembered (see `_remembered`).
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, SupportsIndex, TypeVar

from oocdnn._arguments import several
from oocdnn._calls import pooling, windows
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core import call
from oocdnn._core.call import Window
from oocdnn.errors import InvalidProblem

P = ParamSpec("P")
T = TypeVar("T")
Shape = tuple[int, ...]

# The letters of the axes, by the number of spatial axes, for messages.
SPATIAL = {1: "W", 2: "H, W", 3: "D, H, W"}
TAPS = {1: "taps on W", 2: "taps on H, W", 3: "taps on D, H, W"}


class Moves(NamedTuple):
    """Keywords that say how the filter moves."""

    stride: PerAxis = 1
    padding: Padding = 0
    dilation: PerAxis = 1
    groups: SupportsIndex = 1

    def window(self, taps: Shape) -> Window:
        return windows.make(len(taps), taps, self.stride, self.padding, self.dilation)

    def checked_groups(self) -> int:
        return windows.integer("groups", self.groups, 1)


class Geometry(NamedTuple):
    """How the filter moves, made plain, and the shape of the result."""

    window: Window
    groups: int
    shape: Shape


_DEEPEST = 4  # lists in lists; one that holds itself has no end


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` of integers, strings, tuples and lists, as Python's own and hashable."""
    if isinstance(value, (tuple, list)):
        if depth > _DEEPEST:
            raise TypeError("lists within lists without end")
        return tuple([one if type(one) is int else _plain(one, depth + 1) for one in value])
    return value if isinstance(value, str) else operator.index(value)


def _remembered(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose result follows from its arguments, computed once for those met lately.

    They are made plain first, since 1.0 is refused, but equals 1. What cannot be made plain, or is
    refused, is looked at as the caller wrote it: so the message tells it.
    """
    known: Callable[..., T] = functools.lru_cache(maxsize=512)(function)

    @functools.wraps(function)
    def find(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return known(*_plain(args), **kwargs)
        except (TypeError, InvalidProblem):
            pass
        return function(*args, **kwargs)

    return find


def of_symbols(function: Callable[P, T]) -> Callable[P, T]:
    """One of the functions below for sizes that are no numbers yet, whose results are not
    remembered."""
    plain: Callable[P, T] = function.__wrapped__  # type: ignore[attr-defined]
    return plain


def need_shape(name: str, have: Shape, want: Shape, why: str) -> None:
    if have != want:
        raise InvalidProblem(f"{name} has shape {have}; {why} make it {want}")


def need_axes(name: str, shape: Shape, rank: int, function: str, axes: str) -> None:
    """`shape` must have `rank` spatial axes and two more, which are called `axes`."""
    have = len(shape)
    if have == rank + 2:
        return
    text = f"{name} has {have} axes {shape}; {function} needs {rank + 2}: {axes}"
    if have == rank + 1 and name != "w":
        text += f"; arrays are batched, pass {name}[None] for a single sample"
    raise InvalidProblem(text)


def _need_divided(what: str, channels: int, groups: int) -> None:
    if channels % groups:
        raise InvalidProblem(f"{what} has {channels} channels, which groups={groups} do not divide")


def _need_channels(w: Shape, axis: int, want: int, why: str, groups: int) -> None:
    if w[axis] != want:
        divided = f" / {groups} groups" if groups > 1 else ""
        raise InvalidProblem(
            f"w has {w[axis]} on axis {axis} (shape {w}); {why}{divided} make it {want}"
        )


def gradient_rank(dy: Shape) -> int:
    """How many spatial axes dy has."""
    rank = len(dy) - 2
    if rank not in SPATIAL:
        raise InvalidProblem(
            f"dy has {len(dy)} axes {dy}; 3, 4 or 5 are possible: N, K, [D, [H,]] W"
        )
    return rank


def data_rank(x: Shape) -> int:
    """How many spatial axes x has."""
    rank = len(x) - 2
    if rank not in SPATIAL:
        raise InvalidProblem(
            f"x has {len(x)} axes {x}; 3, 4 or 5 are possible: N, C, [D, [H,]] W; arrays are "
            "batched, pass x[None] for a single sample"
        )
    return rank


def _wanted(name: str, shape: Any, axes: int) -> Shape:
    """The shape of a gradient, as its caller wants it."""
    if len(getattr(shape, "shape", (0,))) != 1:
        raise InvalidProblem(f"{name} is an array of shape {tuple(shape.shape)}; pass its shape")
    given = several(name, shape, "a shape, one size for each axis")
    sizes = tuple(windows.integer(f"{name}[{i}]", size, 0) for i, size in enumerate(given))
    if len(sizes) != axes:
        raise InvalidProblem(f"{name} is {sizes}; dy has {axes} axes, and so must {name}")
    return sizes


@_remembered
def forward(rank: int, x: Shape, w: Shape, *keywords: Any) -> Geometry:
    """Of conv1d, conv2d, conv3d."""
    name = f"conv{rank}d"
    need_axes("x", x, rank, name, f"N, C, {SPATIAL[rank]}")
    need_axes("w", w, rank, name, f"K, C/groups, {TAPS[rank]}")
    moves = Moves(*keywords)
    groups, taps = moves.checked_groups(), w[2:]
    _need_divided("x", x[1], groups)
    _need_divided("w", w[0], groups)
    _need_channels(w, 1, x[1] // groups, f"{x[1]} channels of x", groups)
    window = moves.window(taps)
    extents = windows.forward_extents(window, x[2:], taps)
    return Geometry(window, groups, (x[0], w[0], *extents))


def pooled(y: Shape, pool: Any) -> tuple[call.Pool, Shape]:
    """The pool of a call, made plain, and the shape of z."""
    made = pooling.make(pool, len(y) - 2)
    return made, (*y[:2], *pooling.extents(made, y[2:]))


@_remembered
def transposed(rank: int, x: Shape, w: Shape, output_padding: Any, *keywords: Any) -> Geometry:
    """Of conv_transpose1d, conv_transpose2d, conv_transpose3d."""
    name = f"conv_transpose{rank}d"
    need_axes("x", x, rank, name, f"N, C, {SPATIAL[rank]}")
    need_axes("w", w, rank, name, f"C, K/groups, {TAPS[rank]}")
    moves = Moves(*keywords)
    groups, taps = moves.checked_groups(), w[2:]
    _need_divided("x", x[1], groups)
    _need_channels(w, 0, x[1], "channels of x", 1)
    window = moves.window(taps)
    extents = windows.transposed_extents(window, x[2:], taps, output_padding)
    return Geometry(window, groups, (x[0], w[1] * groups, *extents))


@_remembered
def backward_data(dy: Shape, w: Shape, x_shape: Any, *keywords: Any) -> Geometry:
    """Of the gradient with respect to the input, which is to have `x_shape`."""
    rank = gradient_rank(dy)
    need_axes("w", w, rank, "conv_backward_data", f"K, C/groups, {TAPS[rank]}")
    shape = _wanted("x_shape", x_shape, rank + 2)
    moves = Moves(*keywords)
    groups, taps = moves.checked_groups(), w[2:]
    _need_divided("x_shape", shape[1], groups)
    _need_divided("w", w[0], groups)
    _need_channels(w, 1, shape[1] // groups, f"{shape[1]} channels of x_shape", groups)
    window = moves.window(taps)
    extents = windows.forward_extents(window, shape[2:], taps)
    need_shape("dy", dy, (shape[0], w[0], *extents), "x_shape, w and the other parameters")
    return Geometry(window, groups, shape)


@_remembered
def backward_filter(x: Shape, dy: Shape, w_shape: Any, *keywords: Any) -> Geometry:
    """Of the gradient with respect to the filter, which is to have `w_shape`."""
    rank = gradient_rank(dy)
    need_axes("x", x, rank, "conv_backward_filter", f"N, C, {SPATIAL[rank]}")
    shape = _wanted("w_shape", w_shape, rank + 2)
    moves = Moves(*keywords)
    groups, taps = moves.checked_groups(), shape[2:]
    _need_divided("x", x[1], groups)
    _need_divided("w_shape", shape[0], groups)
    need_shape("w_shape", shape, (shape[0], x[1] // groups, *taps), "x and groups")
    window = moves.window(taps)
    extents = windows.forward_extents(window, x[2:], taps)
    need_shape("dy", dy, (x[0], shape[0], *extents), "x, w_shape and the other parameters")
    return Geometry(window, groups, shape)
