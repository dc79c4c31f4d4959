"""Convolutions one after the other, each with what comes after it, in one call.

A chain runs depth first: a tile of its result is finished from x before the next one begins, and
what lies between links never leaves the device; a later link may add it again. Where not all links
fit the budget together it runs in sections, which leave their results in host memory for each
other. Arrays, keywords and errors are those of `oocdnn.functions`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from oocdnn._arguments import flag, need_kind, several
from oocdnn._arrays import pins
from oocdnn._arrays.allocation import allocate
from oocdnn._calls import call_geometry
from oocdnn._calls.call_geometry import Geometry, Moves, Shape
from oocdnn._calls.operation import (
    ActivationSpec,
    After,
    Common,
    Finish,
    MathName,
    ModeName,
    add_bits,
    convolution,
    read_finish,
    stream_of,
)
from oocdnn._calls.pooling import Pool
from oocdnn._calls.stack import current_context
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core.call import Convolution, Slot, Tensor
from oocdnn._core.cdefs import Direction
from oocdnn._core.native import Progress
from oocdnn._core.requests import saved_bytes
from oocdnn._shown import shown
from oocdnn.arrays import Operands, View, unwrap, view
from oocdnn.errors import InvalidDtype, InvalidProblem, Unsupported
from oocdnn.fused import Saved

if TYPE_CHECKING:
    from oocdnn.context import Context


# Where the core finds residuals that are no earlier link's.
_FROM_X, _OF_CALLER = -1, -2


@dataclass(frozen=True)
class Link:
    """One convolution of a chain: z = pool(activation(alpha * conv(x, w) * scale + b +
    residual_alpha * residual)).

    The fields are the arguments of `oocdnn.conv_bias_act_pool`.

    residual: what is added, shaped as the convolution's result: the number of an earlier link, of
        which the first is 0, for what that gives; "x" for what the chain reads; or an array.
    """

    w: Any
    b: Any = None
    stride: PerAxis = 1
    padding: Padding = 0
    dilation: PerAxis = 1
    groups: SupportsIndex = 1
    mode: ModeName = "cross_correlation"
    activation: ActivationSpec = None
    pool: Pool | PerAxis | None = None
    scale: Any = None
    alpha: float = 1.0
    residual: Any = None
    residual_alpha: float = 1.0

    def finish(self, source: int = _OF_CALLER) -> Finish:
        added = self.residual if source == _OF_CALLER else None
        return Finish(self.b, self.scale, added, self.residual_alpha, self.activation)

    def moves(self) -> Moves:
        return Moves(self.stride, self.padding, self.dilation, self.groups)


class Made(NamedTuple):
    """A link's parameters made plain, for an x of known shape."""

    link: Link
    w: View
    geometry: Geometry
    after: After
    source: int  # of the residual

    @property
    def shape(self) -> Shape:
        """Of what it writes."""
        return self.geometry.shape if self.after.pool is None else self.after.shape


def _source_of(link: Link, shapes: Sequence[Shape], sum_shape: Shape) -> int:
    """The number of the link that it adds the result of, or another place; `shapes`: of the
    chain's x, and of what the links before it give."""
    number = link.residual
    if isinstance(number, str):
        if number != "x":
            raise InvalidProblem(
                f'residual is {shown(number)}; pass the number of an earlier link, "x" or an array'
            )
        number = _FROM_X
    elif isinstance(number, bool) or not isinstance(number, (int, np.integer)):
        return _OF_CALLER
    elif not 0 <= number < len(shapes) - 1:
        raise InvalidProblem(f"residual is {number}, and no earlier link has that number")
    source = int(number)
    name = "x as residual" if source == _FROM_X else f"residual, what link {source} gives,"
    call_geometry.need_shape(name, shapes[source + 1], sum_shape, "the output's sizes")
    return source


def _make(link: Link, shapes: Sequence[Shape]) -> Made:
    """`shapes`: of the chain's x, and of what the links before this one give."""
    need_kind("it", link, Link, "a Link")
    x = shapes[-1]
    weights = view("w", link.w)
    geometry = call_geometry.forward(call_geometry.data_rank(x), x, weights.shape, *link.moves())
    after = After()
    if link.pool is not None:
        after = After(False, *call_geometry.pooled(geometry.shape, link.pool))
    return Made(link, weights, geometry, after, _source_of(link, shapes, geometry.shape))


@contextmanager
def error_at(number: int) -> Iterator[None]:
    """Has errors name the link that they are about."""
    try:
        yield
    except (InvalidProblem, InvalidDtype, Unsupported) as error:
        raise type(error)(f"link {number} of a chain: {error}") from None


def make_all(links: Iterable[Link], x: Shape) -> list[Made]:
    made: list[Made] = []
    shapes = [x]
    for number, link in enumerate(_several(links)):
        with error_at(number):
            made.append(_make(link, shapes))
        shapes.append(made[-1].shape)
    if not made:
        raise InvalidProblem("a chain without links")
    return made


def _several(links: Iterable[Link]) -> tuple[Link, ...]:
    return several("links", links, "several: write [link] for a single one")


def conv_chain(
    x: Any,
    links: Sequence[Link],
    *,
    save_for_backward: bool = False,
    out: Any = None,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> Any:
    """The links one after the other, depth first.

    x: [N, C, [D, [H,]] W]; links: of which each reads what the one before it gives.
    Returns the last link's z, or with `save_for_backward` (z, saved), a `Saved` of the last link;
    then no sample is cut while the last link runs with others. The other keywords are those of the
    module `oocdnn.functions`.
    """
    data = view("x", x)
    context = current_context()
    with ExitStack() as stack:
        made = make_all(links, data.shape)
        operands = [stack.enter_context(Operands(data)) for _ in made]
        operands[0].read("x", data)
        for number, (one, mine) in enumerate(zip(made, operands, strict=True)):
            with error_at(number):
                mine.read("w", one.w)
                read_finish(mine, one.link.finish(one.source), one.geometry.shape)
        last: Slot = "y" if made[-1].after.pool is None else "z"
        if out is None:
            output = allocate(data, made[-1].shape, True, context.results.empty)
        else:
            output = view("out", out)
        operands[-1].write(last, output, made[-1].shape)
        need_host(context, operands)
        common = Common(None, 1.0, 0.0, "cross_correlation", math, stream, progress, workspace)
        calls = list(calls_of(context, made, common, operands))
        saved = None
        if flag("save_for_backward", save_for_backward):
            saved = _saved(data, made, calls[-1], operands[-1], context.results.empty)
            calls[-1] = saved.call
        in_memory = (one for mine in operands for one in mine.in_memory)
        with pins.Use(context, in_memory):
            tensors = [mine.tensors for mine in operands]
            context.run_chain(calls, tensors, [one.source for one in made], progress)
    z = unwrap(output) if out is None else out
    return z if saved is None else (z, saved)


def _saved(
    data: View, made: Sequence[Made], call: Convolution, operands: Operands, make: Any
) -> Saved:
    """Of the last link, with what it saves among its operands."""
    last = made[-1]
    x = made[-2].shape if len(made) > 1 else data.shape
    call = call._replace(saves=True)
    count = saved_bytes(call, {**operands.tensors, "x": nowhere(data, x)})
    bits = add_bits(count, operands, data, make)
    shapes = x, last.w.shape, last.geometry.shape, last.shape
    call = call._replace(saves=bits is not None)
    return Saved(*shapes, last.link.activation, last.link.scale is not None, call, data.dtype, bits)


def nowhere(like: View, shape: Shape) -> Tensor:
    """Of elements as those of `like`, dense, and of no memory."""
    stride = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Tensor(like.dtype, shape, stride)


def need_host(context: "Context", operands: Iterable[Operands]) -> None:
    if "cuda" not in context.device:
        for mine in operands:
            mine.need_host()


def calls_of(
    context: "Context", made: Iterable[Made], common: Common, operands: Sequence[Operands]
) -> Iterator[Convolution]:
    ready = next((mine.stream for mine in operands if mine.stream is not None), None)
    stream = stream_of(common.stream, ready)
    for number, one in enumerate(made):
        finish = one.link.finish(one.source)
        mine = common._replace(mode=one.link.mode, alpha=one.link.alpha)
        forward, geometry, after = Direction.FORWARD, one.geometry, one.after
        with error_at(number):
            call = convolution(forward, geometry, mine, finish, after, context.math, stream)
        yield call


class Chain:
    """Links that are called like a function of x; see `conv_chain`."""

    def __init__(self, links: Iterable[Link]) -> None:
        self.links = _several(links)
        for i, link in enumerate(self.links):
            need_kind(f"link {i} of a chain", link, Link, "a Link")

    def __call__(self, x: Any, **keywords: Any) -> Any:
        return conv_chain(x, self.links, **keywords)
