"""What the public functions share: from checked arrays and keywords to one call of the core."""

import math as _math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, SupportsIndex

from oocdnn._arguments import need_kind, real
from oocdnn._arrays import pins
from oocdnn._arrays.allocation import allocate, allocate_bytes, allocate_sums
from oocdnn._calls import windows
from oocdnn._calls.call_geometry import Geometry, need_shape
from oocdnn._calls.stack import current_context
from oocdnn._core.call import Before, Convolution, Epilogue, Pool, Slot, Tensor
from oocdnn._core.cdefs import Activation, Direction, Math, Mode
from oocdnn._core.native import Progress
from oocdnn._core.requests import saved_bytes
from oocdnn._shown import shown
from oocdnn.arrays import Operands, View, unwrap, view
from oocdnn.errors import InvalidProblem
from oocdnn.normalization import SUM_NUMBERS, Prologue, Sums

ModeName = Literal["cross_correlation", "convolution"]
MathName = Literal["fp32", "tf32", "fp32x3", "fp32_fast"]
ActivationSpec = str | tuple[str, float] | None

_MODES = {"cross_correlation": Mode.CROSS_CORRELATION, "convolution": Mode.CONVOLUTION}
_MATHS = {
    "fp32": Math.FP32,
    "tf32": Math.TF32,
    "fp32x3": Math.FP32X3,
    "fp32_fast": Math.FP32_FAST,
}


class ActivationRow(NamedTuple):
    """An activation as functions take it. `default`: of the parameter; None: the parameter is
    required; nan: there is none. `smooth`: backward needs its slope."""

    kind: Activation
    default: float | None = _math.nan
    smooth: bool = False


ACTIVATIONS = {
    "identity": ActivationRow(Activation.IDENTITY),
    "relu": ActivationRow(Activation.RELU),
    "clipped_relu": ActivationRow(Activation.CLIPPED_RELU, None),
    "elu": ActivationRow(Activation.ELU, 1.0, smooth=True),
    "sigmoid": ActivationRow(Activation.SIGMOID, smooth=True),
    "tanh": ActivationRow(Activation.TANH, smooth=True),
    "swish": ActivationRow(Activation.SWISH, 1.0, smooth=True),
    "softplus": ActivationRow(Activation.SOFTPLUS, 1.0, smooth=True),
}


def _one_of(name: str, value: Any, table: dict[str, Any]) -> Any:
    if not isinstance(value, str) or value not in table:
        raise InvalidProblem(
            f"{name} is {shown(value)}; the values are {', '.join(map(repr, table))}"
        )
    return table[value]


def mode_of(name: ModeName) -> Mode:
    """The filter as it is, or mirrored."""
    result: Mode = _one_of("mode", name, _MODES)
    return result


def math_of(name: MathName) -> Math:
    """The arithmetic of that name."""
    result: Math = _one_of("math", name, _MATHS)
    return result


def activation_of(spec: ActivationSpec) -> tuple[Activation, float]:
    """The kind and its parameter, 0 where it has none."""
    name: Any = spec
    given: Any = None
    if spec is None:
        name = "identity"
    elif isinstance(spec, tuple) and len(spec) == 2:
        name, given = spec
    kind, default, _ = _one_of("activation", name, ACTIVATIONS)
    if default is None and given is None:
        raise InvalidProblem(f'activation {name!r} needs a parameter: ("{name}", 6.0)')
    if default is not None and _math.isnan(default):
        if given is not None:
            raise InvalidProblem(
                f"activation {name!r} has no parameter, and {shown(given)} was given"
            )
        return kind, 0.0
    return kind, real(f"the parameter of {name}", default if given is None else given)


def stream_of(stream: Any, ready: int | None) -> int:
    """A CUDA stream as a number: 0, 1 and 2 are the default streams, others are addresses. Where
    the caller names none, that on which the arrays are ready."""
    for attribute in ("ptr", "cuda_stream"):
        stream = getattr(stream, attribute, stream)
    if stream is None:
        stream = ready or 0
    return windows.integer("stream", stream, 0)


class Common(NamedTuple):
    """Keywords of every function."""

    out: Any = None
    alpha: float = 1.0
    beta: float = 0.0
    mode: ModeName = "cross_correlation"
    math: MathName | None = None
    stream: Any = None
    progress: Progress | None = None
    workspace: SupportsIndex | None = None
    prologue: Prologue | None = None
    sums: Sums | None = None

    def before(self) -> Before:
        if self.prologue is None:
            return Before()
        need_kind("prologue", self.prologue, Prologue, "a Prologue")
        return Before(*activation_of(self.prologue.activation))


class Finish(NamedTuple):
    """Keywords of what happens to the finished sum."""

    bias: Any = None
    scale: Any = None
    residual: Any = None
    residual_alpha: float = 1.0
    activation: ActivationSpec = None

    def epilogue(self) -> Epilogue:
        alpha = real("residual_alpha", self.residual_alpha)
        return Epilogue(*activation_of(self.activation), alpha)


class After(NamedTuple):
    """What comes after y: whether what backward needs is saved, and windows over y, with the shape
    of z. Of a gradient with respect to the bias also the shape of y, which nothing else tells."""

    saves: bool = False
    pool: Pool | None = None
    shape: tuple[int, ...] = ()
    y_shape: tuple[int, ...] = ()


class Along(NamedTuple):
    """A result that comes along with the call's own: the caller's array, if any, and its shape."""

    out: Any
    shape: tuple[int, ...]


class Done(NamedTuple):
    """A call that was run."""

    result: Any  # the array that the caller gets
    slot: Slot  # which it is
    shape: tuple[int, ...]
    bits: View | None  # that were saved
    call: Convolution
    operands: Operands
    on_current_stream: bool  # of arrays on a GPU, since the caller named none
    along: dict[Slot, Any]  # the arrays of what came along
    # What the function returns, of result and bits; None: the result alone.
    finish: Callable[[Any, View | None], Any] | None = None

    def answer(self) -> Any:
        """What the function returns."""
        return self.result if self.finish is None else self.finish(self.result, self.bits)


def convolution(
    direction: Direction,
    geometry: Geometry,
    common: Common,
    finish: Finish,
    after: After,
    math: Math,
    stream: int,
) -> Convolution:
    """A call made plain; `math` where the caller names none."""
    limited = common.workspace is not None
    return Convolution(
        direction,
        geometry.window,
        geometry.groups,
        mode_of(common.mode),
        math if common.math is None else math_of(common.math),
        real("alpha", common.alpha),
        real("beta", common.beta),
        finish.epilogue(),
        stream,
        windows.integer("workspace", common.workspace, 0) if limited else -1,
        after.pool,
        after.saves,
        common.before(),
    )


def launch(
    direction: Direction,
    inputs: dict[Slot, View],
    slot: Slot,
    geometry: Geometry,
    common: Common,
    finish: Finish | None = None,
    after: After | None = None,
    along: Mapping[Slot, Along] | None = None,
) -> Done:
    """Runs a call that writes `slot`, or z where that is pooled, and what comes `along`; the first
    of `inputs` decides the type, the library and, but for filters and biases, the memory order."""
    finish, after = finish or Finish(), after or After()
    context = current_context()
    leader = next(iter(inputs.values()))
    call = convolution(direction, geometry, common, finish, after, context.math, 0)
    shape = geometry.shape
    if after.pool is not None and direction == Direction.FORWARD:
        slot, shape = "z", after.shape
    if call.beta != 0.0 and common.out is None:
        raise InvalidProblem(f"beta={call.beta} adds to the old values of out: pass out=")
    wanted: dict[Slot, Along] = {slot: Along(common.out, shape), **(along or {})}
    outputs: dict[Slot, View] = {}
    with Operands(leader) as operands:
        for name, operand in inputs.items():
            operands.read(name, operand)
        _read_prologue(operands, common.prologue, leader)
        read_finish(operands, finish, geometry.shape)
        if "cuda" not in context.device:
            operands.need_host()
        for name, one in wanted.items():
            outputs[name] = _output(name, one, leader, name == slot, context.results.empty)
            operands.write(name, outputs[name], one.shape)
        if "cuda" not in context.device:
            operands.need_host()
        sums = _sums(common.sums, operands, leader, shape, context.results.empty)
        call = call._replace(stream=stream_of(common.stream, operands.stream))
        bits = None
        if after.saves:
            count = saved_bytes(call, operands.tensors)
            bits = add_bits(count, operands, leader, context.results.empty)
        call = call._replace(saves=bits is not None)
        if after.y_shape:
            strides = (0,) * len(after.y_shape)
            operands.tensors["y"] = Tensor(leader.dtype, after.y_shape, strides)
        with pins.Use(context, operands.in_memory):
            context.run(call, operands.tensors, common.progress)
    if common.sums is not None and sums is not None:
        common.sums.receive(unwrap(sums), shape)
    results = {
        name: unwrap(outputs[name]) if one.out is None else one.out for name, one in wanted.items()
    }
    on_current = common.stream is None and operands.stream is not None
    return Done(results.pop(slot), slot, shape, bits, call, operands, on_current, results)


def keeps_order(slot: Slot) -> bool:
    """Whether a result lies in memory in the order of the call's first input."""
    return slot in ("x", "y", "z")


def _output(slot: Slot, wanted: Along, leader: View, own: bool, make: Any) -> View:
    """The caller's array, or a new one. The errors call the call's own result `out`."""
    if wanted.out is not None:
        return view("out" if own else slot, wanted.out)
    return allocate(leader, wanted.shape, keeps_order(slot), make)


def add_bits(count: int, operands: Operands, leader: View, make: Any) -> View | None:
    """Adds what is saved, so many bytes, to the operands; None where nothing is."""
    if count == 0:
        return None
    bits = allocate_bytes(leader, count, make)
    operands.write("saved", bits, bits.shape)
    return bits


def _read_prologue(operands: Operands, prologue: Prologue | None, source: View) -> None:
    """Adds the scale and shift of what is convolved, which is `source`."""
    if prologue is None or prologue.table is None:
        return
    table = view("prologue.table", prologue.table)
    need_shape(table.name, table.shape, (*source.shape[:2], 2), "samples and channels of x")
    operands.read("prologue", table)


def _sums(
    wanted: Sums | None, operands: Operands, leader: View, shape: tuple[int, ...], make: Any
) -> View | None:
    if wanted is None:
        return None
    need_kind("sums", wanted, Sums, "a Sums, which receives them")
    sums = allocate_sums(leader, (*shape[:2], SUM_NUMBERS), make)
    operands.write("sums", sums, sums.shape)
    return sums


def read_finish(operands: Operands, finish: Finish, shape: tuple[int, ...]) -> None:
    """Adds what is read when the sum is finished; `shape` is that of the sum."""
    channels = shape[1:2]
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
        need_shape("residual", operand.shape, shape, "the output's sizes")
        operands.read("residual", operand)
