"""A convolution and what comes after it in one pass: bias, activation, pool; and its gradients.

y never leaves the device; z, the pool of it, does, and in training the few bits, or slopes, that
the backward pass needs. That makes dy of dz and these on the device. Arrays, keywords and errors
are those of `oocdnn.functions`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, SupportsIndex

from oocdnn._arguments import flag, need_kind, real, several
from oocdnn._arrays.allocation import allocate
from oocdnn._calls import call_geometry, windows
from oocdnn._calls.call_geometry import Geometry, Moves
from oocdnn._calls.operation import (
    ACTIVATIONS,
    ActivationSpec,
    After,
    Along,
    Common,
    Done,
    Finish,
    MathName,
    ModeName,
    launch,
)
from oocdnn._calls.pooling import Pool
from oocdnn._calls.prepared import remembered
from oocdnn._calls.stack import current_context
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core.call import Convolution, Slot
from oocdnn._core.cdefs import Direction, DType
from oocdnn._core.native import Progress
from oocdnn._shown import shown
from oocdnn.arrays import Operands, View, type_name, unwrap, view
from oocdnn.errors import InvalidDtype, InvalidProblem, OutOfMemory, Unsupported
from oocdnn.normalization import Prologue

__all__ = ["Pool", "Saved", "conv_bias_act_pool", "conv_bias_act_pool_backward"]

Need = Literal["dx", "dw", "db"]


@dataclass(frozen=True)
class Saved:
    """What the backward pass needs of a forward pass, beside x and w.

    `bits` is an array of bytes of x's library and on its side, or None where nothing is needed. Of
    a max pool, for each element of z the place of the winner in its window, and one more value
    where relu or clipped relu are flat, in as few bits as that takes: 3 for 2x2, 4 for 3x3. Without
    a max pool, where the activation is one of the two, a bit for each element of y. Behind
    smooth activations instead, for each element of z (of y where averages are pooled) the
    slope, which is the activation's derivative at the value, in x's type; of a max pool the
    winner's place follows it in a byte, or two where a window has more than 256 places. Rows along
    W begin with a byte of their own, elements follow each other from the lowest bit on.
    """

    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    z_shape: tuple[int, ...]
    activation: ActivationSpec
    scaled: bool
    call: Convolution = field(repr=False)
    dtype: DType = field(repr=False)
    view: View | None = field(repr=False)

    @property
    def bits(self) -> Any:
        return None if self.view is None else unwrap(self.view)

    @property
    def nbytes(self) -> int:
        return 0 if self.bits is None else int(self.bits.nbytes)


@remembered
def conv_bias_act_pool(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: SupportsIndex = 1,
    mode: ModeName = "cross_correlation",
    activation: ActivationSpec = None,
    pool: Pool | PerAxis | None = None,
    scale: Any = None,
    residual: Any = None,
    residual_alpha: float = 1.0,
    prologue: Prologue | None = None,
    save_for_backward: bool = False,
    out: Any = None,
    alpha: float = 1.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> Done:
    """z = pool(activation(alpha * conv(x, w) * scale + b + residual_alpha * residual)).

    x: [N, C, [D, [H,]] W]; w: [K, C/groups, ...], 1-, 2- or 3-D by the axes of x; b: [K] or None;
    residual: shaped as y, the convolution's result.
    pool: a `Pool`; a number (or one per axis) is a maximum of windows of that size that touch, and
    what is left over at the end is dropped; None: z is y.
    prologue: a `Prologue`, what x goes through before; not together with `save_for_backward`.
    Returns z, or with `save_for_backward` (z, saved), a `Saved`.
    """
    save_for_backward = flag("save_for_backward", save_for_backward)
    if prologue is not None and save_for_backward:
        raise Unsupported(
            "the gradients behind a prologue are not computed; normalise x beforehand"
        )
    data, weights = view("x", x), view("w", w)
    rank = call_geometry.data_rank(data.shape)
    moves = Moves(stride, padding, dilation, groups)
    geometry = call_geometry.forward(rank, data.shape, weights.shape, *moves)
    after = After(save_for_backward)
    if pool is not None:
        after = After(save_for_backward, *call_geometry.pooled(geometry.shape, pool))
    finish = Finish(b, scale, residual, residual_alpha, activation)
    common = Common(out, alpha, 0.0, mode, math, stream, progress, workspace, prologue)
    inputs: dict[Slot, View] = {"x": data, "w": weights}
    done = launch(Direction.FORWARD, inputs, "y", geometry, common, finish, after)
    if not save_for_backward:
        return done
    shapes = data.shape, weights.shape, geometry.shape, done.shape
    saved = partial(Saved, *shapes, activation, scale is not None, done.call, data.dtype)
    return done._replace(finish=lambda z, bits: (z, saved(bits)))


def conv_bias_act_pool_backward(
    dz: Any,
    saved: Saved,
    x: Any = None,
    w: Any = None,
    *,
    needs: Sequence[Need] = ("dx", "dw", "db"),
    out: Mapping[Need, Any] | None = None,
    beta: float = 0.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> tuple[Any, ...]:
    """The gradients of `conv_bias_act_pool` with respect to x, w and b, in the order of `needs`.

    In one pass over dz, where w, dw and db fit the device as a whole, else in one for each. dz: the
    gradient with respect to its result; saved: what it saved; x, needed for "dw", and w,
    needed for "dx": as it got them. `out` may hold arrays for some of the results, and with
    `beta=1` these are added to what it holds for all of them. A maximum's gradient goes to the
    first of the largest. An array of `out` shares no memory with others or what is read, and is for
    one of `needs`. `scale` is Unsupported. Returns a tuple, also of one.
    """
    need_kind("saved", saved, Saved, "what the forward call saved")
    gradient = _of_forward("dz", dz, saved.z_shape)
    check_slopes(saved, gradient)
    needs = several("needs", needs, 'a tuple, as ("dx", "dw")')
    _check_needs(saved, needs)
    given = {} if out is None else out
    need_kind("out", given, Mapping, "a dictionary of arrays by what is needed")
    if gradient.empty:  # so is dy, and nothing was saved
        gradient = allocate(gradient, saved.y_shape)
    results, factor, beta = dict(given), saved.call.alpha, real("beta", beta)
    _check_results(gradient, saved, x, w, needs, results)
    how: ModeName = "convolution" if saved.call.mode else "cross_correlation"
    common = Common(None, 1.0, beta, how, math, stream, progress, workspace)

    def alone(need: Need) -> Any:
        alpha = 1.0 if need == "db" else factor
        its = common._replace(out=results.get(need), alpha=alpha)
        return _GRADIENTS[need](gradient, saved, x, w, its, {}).result

    made: dict[Need, Any] = {}
    if beta == 0.0 and factor == 1.0 and not gradient.empty and len(set(needs)) > 1:
        _allocate(gradient, saved, needs, results)
        made = _together(gradient, saved, x, w, needs, results, common)
    return tuple(made[need] if need in made else alone(need) for need in needs)


def _of_forward(name: str, value: Any, shape: tuple[int, ...]) -> View:
    """The view of an array that is to be shaped as the forward call's."""
    operand = view(name, value)
    call_geometry.need_shape(name, operand.shape, shape, "the forward call's arrays")
    return operand


_SMOOTH = {row.kind for row in ACTIVATIONS.values() if row.smooth}


def check_slopes(saved: Saved, dz: View) -> None:
    """The core knows slopes as bytes, and takes them for numbers of dz's type."""
    if saved.call.epilogue.activation in _SMOOTH and dz.dtype != saved.dtype:
        raise InvalidDtype(
            f"dz has elements of type {type_name(dz.dtype)}, and the slopes that were saved are "
            f"{type_name(saved.dtype)}; pass all arrays in the type that the forward call got"
        )


def _check_needs(saved: Saved, needs: Sequence[Need]) -> None:
    for need in needs:
        if not isinstance(need, str) or need not in _GRADIENTS:
            raise InvalidProblem(f"needs has {shown(need)}; the values are {', '.join(_GRADIENTS)}")
    if saved.scaled:
        raise Unsupported("the gradient behind scale is not computed; scale w beforehand")


def _shape_of(need: Need, saved: Saved) -> tuple[int, ...]:
    shapes = {"dx": saved.x_shape, "dw": saved.w_shape, "db": saved.w_shape[:1]}
    return shapes[need]


_SLOTS: dict[Need, Slot] = {"dx": "x", "dw": "dw", "db": "db"}


def _check_results(
    dz: View, saved: Saved, x: Any, w: Any, needs: Sequence[Need], results: Mapping[Need, Any]
) -> None:
    """Before any call: one of several might write what another is still to read."""
    for need in results:
        if need not in needs:
            raise InvalidProblem(f"out has {shown(need)}, which is not among needs={tuple(needs)}")
    given = {need: view(need, value) for need, value in results.items() if value is not None}
    if not given:
        return
    with Operands(dz) as operands:
        operands.read("z", dz)
        if saved.view is not None:
            operands.read("saved", saved.view)
        if "dw" in needs:
            operands.read("input", _of_forward("x", x, saved.x_shape))
        if "dx" in needs:
            operands.read("w", _of_forward("w", w, saved.w_shape))
        for need, result in given.items():
            operands.write(_SLOTS[need], result, _shape_of(need, saved))


def _allocate(dz: View, saved: Saved, needs: Sequence[Need], results: dict[Need, Any]) -> None:
    """Adds the arrays that the caller does not have, which a pass that is refused leaves to the
    calls in its place."""
    make = current_context().results.empty
    for need in needs:
        if results.get(need) is None:
            results[need] = unwrap(allocate(dz, _shape_of(need, saved), need == "dx", make))


def _launch(
    direction: Direction,
    slot: Slot,
    saved: Saved,
    geometry: Geometry,
    inputs: Any,
    common: Common,
    along: Mapping[Slot, Along],
) -> Done:
    """`inputs` begin with dz, which is dy where nothing came after y and nothing comes along."""
    restores = saved.call.pool is not None or saved.view is not None
    passes = (restores or bool(along)) and not inputs["z"].empty
    operands: dict[Slot, View] = dict(inputs)
    if not passes:
        operands = {"y" if name == "z" else name: operand for name, operand in operands.items()}
    if saved.view is not None:
        operands["saved"] = saved.view
    y_shape = saved.y_shape if passes and direction == Direction.BACKWARD_BIAS else ()
    after = After(pool=saved.call.pool if passes else None, y_shape=y_shape)
    finish = Finish(activation=saved.activation if passes else None)
    return launch(direction, operands, slot, geometry, common, finish, after, along)


def _together(
    dz: View,
    saved: Saved,
    x: Any,
    w: Any,
    needs: Sequence[Need],
    out: Mapping[Need, Any],
    common: Common,
) -> dict[Need, Any]:
    """What is needed in one pass over dz, or nothing where the core refuses: what it has to hold at
    once may be too much where each gradient alone is not."""
    first: Literal["dx", "dw"] = "dx" if "dx" in needs else "dw"
    shapes: dict[Literal["dw", "db"], tuple[int, ...]]
    shapes = {"dw": saved.w_shape, "db": saved.w_shape[:1]}
    along: dict[Slot, Along] = {
        need: Along(out.get(need), shape)
        for need, shape in shapes.items()
        if need in needs and need != first
    }
    if first not in needs or not along:
        return {}
    compute = _data if first == "dx" else _filter
    try:
        done = compute(dz, saved, x, w, common._replace(out=out.get(first)), along)
    except (Unsupported, OutOfMemory):
        return {}
    return {first: done.result, **done.along}  # type: ignore[dict-item]


def _data(
    dz: View, saved: Saved, x: Any, w: Any, common: Common, along: Mapping[Slot, Along]
) -> Done:
    inputs: dict[Slot, View] = {"z": dz, "w": _of_forward("w", w, saved.w_shape)}
    if "dw" in along:
        inputs["input"] = _of_forward("x", x, saved.x_shape)
    geometry = Geometry(saved.call.window, saved.call.groups, saved.x_shape)
    return _launch(Direction.BACKWARD_DATA, "x", saved, geometry, inputs, common, along)


def _filter(
    dz: View, saved: Saved, x: Any, w: Any, common: Common, along: Mapping[Slot, Along]
) -> Done:
    inputs = {"z": dz, "x": _of_forward("x", x, saved.x_shape)}
    geometry = Geometry(saved.call.window, saved.call.groups, saved.w_shape)
    return _launch(Direction.BACKWARD_FILTER, "w", saved, geometry, inputs, common, along)


def _bias(
    dz: View, saved: Saved, x: Any, w: Any, common: Common, along: Mapping[Slot, Along]
) -> Done:
    rank = len(saved.y_shape) - 2
    window = windows.make(rank, (1,) * rank, 1, 0, 1)
    geometry = Geometry(window, 1, saved.w_shape[:1])
    common = common._replace(mode="cross_correlation")
    return _launch(Direction.BACKWARD_BIAS, "bias", saved, geometry, {"z": dz}, common, along)


_GRADIENTS = {"dx": _data, "dw": _filter, "db": _bias}
