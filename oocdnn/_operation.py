"""What the public functions share: from checked arrays and keywords to one call of the core."""

import math as _math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex

from oocdnn import _pins, _window
from oocdnn._call import Convolution, Epilogue, Slot, Window
from oocdnn._cdefs import Activation, Direction, Math, Mode
from oocdnn._native import Progress
from oocdnn._stack import current_context
from oocdnn._window import Padding, PerAxis
from oocdnn.arrays import Operands, View, allocate, unwrap, view
from oocdnn.errors import InvalidProblem

ModeName = Literal["cross_correlation", "convolution"]
MathName = Literal["fp32", "tf32"]
ActivationSpec = str | tuple[str, float] | None

# The letters of the axes, by the number of spatial axes, for messages.
SPATIAL = {1: "W", 2: "H, W", 3: "D, H, W"}
TAPS = {1: "S", 2: "R, S", 3: "T, R, S"}

_MODES = {"cross_correlation": Mode.CROSS_CORRELATION, "convolution": Mode.CONVOLUTION}
_MATHS = {"fp32": Math.FP32, "tf32": Math.TF32}
# The parameter's default; None: it has to be given; nan: there is none.
_ACTIVATIONS: dict[str, tuple[Activation, float | None]] = {
    "identity": (Activation.IDENTITY, _math.nan),
    "relu": (Activation.RELU, _math.nan),
    "clipped_relu": (Activation.CLIPPED_RELU, None),
    "elu": (Activation.ELU, 1.0),
    "sigmoid": (Activation.SIGMOID, _math.nan),
    "tanh": (Activation.TANH, _math.nan),
    "swish": (Activation.SWISH, 1.0),
}


def _one_of(name: str, value: Any, table: dict[str, Any]) -> Any:
    if not isinstance(value, str) or value not in table:
        raise InvalidProblem(f"{name} is {value!r}; the values are {', '.join(map(repr, table))}")
    return table[value]


def math_of(name: MathName) -> Math:
    """The arithmetic of "fp32" or "tf32"."""
    result: Math = _one_of("math", name, _MATHS)
    return result


def _activation(spec: ActivationSpec) -> Epilogue:
    name: Any = spec
    given: Any = None
    if spec is None:
        name = "identity"
    elif isinstance(spec, tuple) and len(spec) == 2:
        name, given = spec
    kind, default = _one_of("activation", name, _ACTIVATIONS)
    if default is None and given is None:
        raise InvalidProblem(f'activation {name!r} needs a parameter: ("{name}", 6.0)')
    if default is not None and _math.isnan(default):
        if given is not None:
            raise InvalidProblem(f"activation {name!r} has no parameter, and {given!r} was given")
        return Epilogue(kind)
    return Epilogue(kind, _real(f"the parameter of {name}", default if given is None else given))


def _real(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidProblem(f"{name} is {value!r}; it must be a number") from None
    if not _math.isfinite(number):
        raise InvalidProblem(f"{name} is {number}; it must be finite")
    return number


def _stream(stream: Any, ready: int | None) -> int:
    """A CUDA stream as a number: 0, 1 and 2 are the default streams, others are addresses. Where
    the caller names none, that on which the arrays are ready."""
    for attribute in ("ptr", "cuda_stream"):
        stream = getattr(stream, attribute, stream)
    if stream is None:
        stream = ready or 0
    return _window.integer("stream", stream, 0)


@dataclass(frozen=True)
class Common:
    """Keywords of every function."""

    out: Any = None
    alpha: float = 1.0
    beta: float = 0.0
    mode: ModeName = "cross_correlation"
    math: MathName | None = None
    stream: Any = None
    progress: Progress | None = None


@dataclass(frozen=True)
class Moves:
    """Keywords that say how the filter moves."""

    stride: PerAxis = 1
    padding: Padding = 0
    dilation: PerAxis = 1
    groups: SupportsIndex = 1

    def window(self, taps: Sequence[int]) -> Window:
        return _window.make(len(taps), tuple(taps), self.stride, self.padding, self.dilation)

    def checked_groups(self) -> int:
        return _window.integer("groups", self.groups, 1)


@dataclass(frozen=True)
class Finish:
    """Keywords of what happens to the finished sum."""

    bias: Any = None
    scale: Any = None
    residual: Any = None
    residual_alpha: float = 1.0
    activation: ActivationSpec = None

    def epilogue(self) -> Epilogue:
        alpha = _real("residual_alpha", self.residual_alpha)
        return replace(_activation(self.activation), residual_alpha=alpha)


@dataclass(frozen=True)
class Result:
    """Where a call writes, its shape, and whether its memory order follows the first input."""

    slot: Slot
    shape: tuple[int, ...]
    keep_order: bool = True


def need_axes(operand: View, rank: int, function: str, axes: str) -> None:
    """`operand` must have `rank` spatial axes and two more."""
    have = operand.ndim
    if have == rank + 2:
        return
    text = f"{operand.name} has {have} axes {operand.shape}; {function} needs {rank + 2}: {axes}"
    if have == rank + 1 and operand.name != "w":
        text += f"; arrays are batched, pass {operand.name}[None] for a single sample"
    raise InvalidProblem(text)


def need_divided(what: str, channels: int, groups: int) -> None:
    if channels % groups:
        raise InvalidProblem(f"{what} has {channels} channels, which groups={groups} do not divide")


def need_channels(weights: View, axis: int, want: int, why: str, groups: int) -> None:
    if weights.shape[axis] != want:
        divided = f" / {groups} groups" if groups > 1 else ""
        raise InvalidProblem(
            f"w has {weights.shape[axis]} on axis {axis} (shape {weights.shape}); {why}{divided} "
            f"make it {want}"
        )


def need_shape(name: str, have: tuple[int, ...], want: tuple[int, ...], why: str) -> None:
    if have != want:
        raise InvalidProblem(f"{name} has shape {have}; {why} make it {want}")


def launch(
    direction: Direction,
    inputs: dict[Slot, View],
    window: Window,
    groups: int,
    result: Result,
    common: Common,
    finish: Finish | None = None,
) -> Any:
    """Runs a call; the first of `inputs` decides the type, the library and the memory order."""
    finish = finish or Finish()
    context = current_context()
    leader = next(iter(inputs.values()))
    call = Convolution(
        direction=direction,
        window=window,
        groups=groups,
        mode=_one_of("mode", common.mode, _MODES),
        math=context.math if common.math is None else math_of(common.math),
        alpha=_real("alpha", common.alpha),
        beta=_real("beta", common.beta),
        epilogue=finish.epilogue(),
    )
    if call.beta != 0.0 and common.out is None:
        raise InvalidProblem(f"beta={call.beta} adds to the old values of out: pass out=")
    with Operands(leader) as operands:
        for slot, operand in inputs.items():
            operands.read(slot, operand)
        _read_finish(operands, finish, result)
        if context.device == "cpu":
            operands.need_host()
        if common.out is None:
            make = context.results.empty
            output = allocate(leader, result.shape, result.keep_order, make)
        else:
            output = view("out", common.out)
        operands.write(result.slot, output, result.shape)
        if context.device == "cpu":
            operands.need_host()
        call = replace(call, stream=_stream(common.stream, operands.stream))
        with _pins.using(context, operands.in_memory):
            context.run(call, operands.tensors, common.progress)
    return unwrap(output) if common.out is None else common.out


def _read_finish(operands: Operands, finish: Finish, result: Result) -> None:
    channels = (result.shape[1],) if len(result.shape) > 1 else ()
    vectors: tuple[tuple[Slot, str, Any], ...] = (
        ("bias", "b", finish.bias),
        ("scale", "scale", finish.scale),
    )
    for slot, name, value in vectors:
        if value is not None:
            operand = view(name, value)
            need_shape(name, operand.shape, channels, "the output's channels")
            operands.read(slot, operand)
    if finish.residual is not None:
        operand = view("residual", finish.residual)
        need_shape("residual", operand.shape, result.shape, "the output's sizes")
        operands.read("residual", operand)
