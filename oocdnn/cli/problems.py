"""Problem strings, read far enough to make the arrays of a problem and to run it.

The grammar is the core's, which also checks the string (`Context.plan`); here a valid string is
taken for granted. Strides of one's own (xs:, ws:, ...) are not served.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from oocdnn._arrays.mapped import Array
from oocdnn._calls import pooling, windows
from oocdnn._calls.pooling import Pool
from oocdnn._core.call import Window
from oocdnn.context import Context
from oocdnn.errors import Unsupported
from oocdnn.fused import Need
from oocdnn.normalization import Prologue, Sums

_DTYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
_ACTIVATIONS = {"clip": "clipped_relu"}  # words that are not the name
_FLAGS = {"saved": "saves", "clipped": "clips", "sloped": "slopes"}
_NEEDS: dict[str, Need] = {"bwd_data": "dx", "bwd_filter": "dw", "bwd_bias": "db"}
_POOLS: dict[str, dict[str, Any]] = {
    "maxpool": {"mode": "max"},
    "avgpool": {"mode": "avg"},
    "avgpoolin": {"mode": "avg", "count_padding": False},
}


@dataclass
class Problem:
    """What a problem string says. `keywords` are those of the function that computes it."""

    text: str
    rank: int
    direction: str
    x: tuple[int, ...] = ()
    w: tuple[int, ...] = ()
    y: tuple[int, ...] = ()
    dtype: npt.DTypeLike = np.float32
    channels_last: bool = False
    beta: float = 0.0
    bias: bool = False
    scale: bool = False
    residual: bool = False
    prologue: bool = False
    affine: bool = False  # the prologue has scale and shift
    before: Any = None  # its activation
    sums: bool = False
    saves: bool = False
    clips: bool = False
    slopes: bool = False
    along: tuple[Need, ...] = ()  # gradients that come along with dx
    pool: dict[str, Any] = field(default_factory=dict)  # keywords of `Pool`; empty: none
    keywords: dict[str, Any] = field(default_factory=dict)


def parse(text: str) -> Problem:
    """Reads a valid problem string."""
    head, *words = text.split()
    problem = Problem(text, int(head[4]), head.partition(":")[2])
    for word in words:
        if "@" not in word:
            _read(word, problem)
    if not problem.y:
        extents = windows.forward_extents(window_of(problem), problem.x[2:], problem.w[2:])
        problem.y = (problem.x[0], problem.w[0], *extents)
    return problem


def window_of(problem: Problem) -> Window:
    """Stride, padding and dilation of a problem."""
    given = problem.keywords
    return windows.make(
        problem.rank,
        problem.w[2:],
        given.get("stride", 1),
        given.get("padding", 0),
        given.get("dilation", 1),
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _spread(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    return sizes[0] if len(sizes) == 1 else sizes


def _padding(text: str, rank: int) -> list[tuple[int, int]]:
    pads = [part.partition(":") for part in text.split("x")]
    pairs = [(int(before), int(after or before)) for before, _, after in pads]
    return pairs * rank if len(pairs) == 1 else pairs


def _read(word: str, problem: Problem) -> None:
    keywords = problem.keywords
    name, rest = re.match(r"(\+?[a-z]*?)(?=[\d.-]|$|/)(.*)", word).groups()  # type: ignore[union-attr]
    if name in ("x", "w", "y"):
        setattr(problem, name, _sizes(rest))
    elif name == "pad":
        keywords["padding"] = _padding(rest, problem.rank)
    elif name in ("str", "dil"):
        keywords["stride" if name == "str" else "dilation"] = _spread(_sizes(rest))
    elif name == "grp":
        keywords["groups"] = int(rest)
    elif word.partition("/")[0] in _DTYPES:
        problem.dtype = _DTYPES[word.partition("/")[0]]
        keywords["math"] = word.partition("/")[2] or "fp32"
    elif word in ("nwc", "nhwc", "ndhwc", "ncw", "nchw", "ncdhw"):
        problem.channels_last = word.endswith("c")
    elif name == "alpha":
        keywords["alpha"] = float(rest)
    elif name == "beta":
        problem.beta = float(rest)
    elif name.startswith("pool"):
        _read_pool(name.removeprefix("pool"), rest, problem)
    elif word == "flip":
        keywords["mode"] = "convolution"
    elif name.startswith("+"):
        _read_finish(name[1:], rest, problem)
    else:
        raise Unsupported(f"{word!r}: only plain layouts can be filled here; leave the word out")


def _read_pool(name: str, rest: str, problem: Problem) -> None:
    if name == "str":
        problem.pool["stride"] = _spread(_sizes(rest))
    elif name == "pad":
        problem.pool["padding"] = _padding(rest, problem.rank)
    else:
        problem.pool["ceil"] = True


def _read_finish(name: str, rest: str, problem: Problem) -> None:
    if name in _POOLS:
        problem.pool |= {**_POOLS[name], "window": _spread(_sizes(rest))}
    elif name in ("dw", "db"):
        problem.along = (*problem.along, cast(Need, name))
    elif name in _FLAGS:
        setattr(problem, _FLAGS[name], True)
    elif name in ("bias", "scale", "residual", "sums"):
        setattr(problem, name, True)
        if name == "residual" and rest:
            problem.keywords["residual_alpha"] = float(rest)
    elif name.startswith("pre"):
        problem.prologue = True
        problem.affine = problem.affine or name == "prenorm"
        if name != "prenorm":
            problem.before = _activation(name.removeprefix("pre"), rest)
    else:
        problem.keywords["activation"] = _activation(name, rest)


def _activation(name: str, rest: str) -> Any:
    return (_ACTIVATIONS.get(name, name), float(rest)) if rest else name


Make = Callable[[tuple[int, ...], npt.DTypeLike], Array]


def random_arrays(seed: int) -> Make:
    """Plain arrays of random numbers."""
    rng = np.random.default_rng(seed)
    return lambda shape, dtype: rng.standard_normal(shape, np.float32).astype(dtype)


def random_call(problem: Problem, context: Context, make: Make | None = None) -> partial[Any]:
    """The problem on random data: a function that runs it, taking further keywords. `make` gives
    the arrays."""
    maker = make or random_arrays(0)

    def array(shape: tuple[int, ...]) -> Array:
        return maker(shape, problem.dtype)

    def data(shape: tuple[int, ...]) -> Array:
        """An array in the layout of the problem, which is that of x and y."""
        if not problem.channels_last:
            return array(shape)
        return np.moveaxis(array((shape[0], *shape[2:], shape[1])), -1, 1)

    keywords = dict(problem.keywords)
    restores = problem.pool or problem.clips or problem.slopes or problem.along
    if problem.direction != "fwd" and restores:
        return _fused_gradient(problem, context, array, data)
    if problem.direction == "bwd_bias":
        out = array(problem.y[1:2])
        return partial(context.conv_backward_bias, data(problem.y), out=out, beta=problem.beta)
    if problem.direction == "bwd_filter":
        keywords |= {"out": array(problem.w), "beta": problem.beta}
        x, dy = data(problem.x), data(problem.y)
        return partial(context.conv_backward_filter, x, dy, problem.w, **keywords)
    forward = problem.direction == "fwd"
    source, result = (problem.x, problem.y) if forward else (problem.y, problem.x)
    fused = bool(problem.pool) or problem.saves
    keywords |= {"out": data(pooled(problem) if fused else result)}
    if fused:
        keywords["pool"] = Pool(**problem.pool) if problem.pool else None
        keywords["save_for_backward"] = problem.saves
    else:
        keywords["beta"] = problem.beta
    if problem.bias:
        keywords["b"] = array(result[1:2])
    if problem.scale:
        keywords["scale"] = array(result[1:2])
    if problem.residual:
        keywords["residual"] = data(result)
    if problem.prologue:
        wide = np.float64 if problem.dtype == np.float64 else np.float32
        table = maker((*source[:2], 2), wide) if problem.affine else None
        keywords["prologue"] = Prologue(table, problem.before)
    if problem.sums:
        keywords["sums"] = Sums()
    # A transposed convolution is backward data that also takes an epilogue.
    if not forward:
        keywords["output_padding"] = _output_padding(problem)
    name = f"conv{'' if forward else '_transpose'}{problem.rank}d"
    function = getattr(context, "conv_bias_act_pool" if fused else name)
    return partial(function, data(source), array(problem.w), **keywords)


def _fused_gradient(
    problem: Problem,
    context: Context,
    array: Callable[[tuple[int, ...]], Array],
    data: Callable[[tuple[int, ...]], Array],
) -> partial[Any]:
    """The gradients of a pass whose y was only on the way; a bias's of one with filters of 1."""
    if problem.bias or problem.scale or problem.residual or "activation" in problem.keywords:
        raise Unsupported(f"{problem.text}: what is made of dz has no epilogue here")
    keywords = {name: value for name, value in problem.keywords.items() if name != "math"}
    channels = problem.y[1]
    if problem.direction == "bwd_bias":
        keywords["groups"] = channels
    x = data(problem.x or problem.y)
    w = array(problem.w or (channels, 1, *(1,) * problem.rank))
    _, saved = context.conv_bias_act_pool(
        x,
        w,
        **keywords,
        activation="relu" if problem.clips else "tanh" if problem.slopes else None,
        pool=Pool(**problem.pool) if problem.pool else None,
        save_for_backward=True,
    )
    needs = (_NEEDS[problem.direction], *problem.along)
    shapes: dict[Need, tuple[int, ...]] = {"dw": w.shape, "db": (channels,)}
    out = {need: data(x.shape) if need == "dx" else array(shapes[need]) for need in needs}
    return partial(
        context.conv_bias_act_pool_backward,
        data(pooled(problem)), saved, x, w, needs=needs, out=out, beta=problem.beta,
        math=problem.keywords.get("math"),
    )  # fmt: skip


def pooled(problem: Problem) -> tuple[int, ...]:
    """The shape of z."""
    if not problem.pool:
        return problem.y
    pool = pooling.make(Pool(**problem.pool), problem.rank)
    return (*problem.y[:2], *pooling.extents(pool, problem.y[2:]))


def _output_padding(problem: Problem) -> tuple[int, ...]:
    """What tells this x from the smallest one that leads to the same y."""
    window = window_of(problem)
    least = windows.transposed_extents(window, problem.y[2:], problem.w[2:], 0)
    return tuple(have - low for have, low in zip(problem.x[2:], least, strict=True))
