"""Convolutions of arrays in memory or in files, computed tile by tile within a device budget.

out = activation(alpha * conv * scale + b + residual_alpha * residual + beta * out)

Arrays are batched, axes N C [D [H]] W, of one type: float64, float32, float16 or bfloat16 (b and
scale may be float32 beside 16-bit arrays). A result is an array of x's library in x's memory order
(channels-last where x's strides say so) unless it goes to `out`. Results are complete on return,
but where all arrays are on a GPU: then the call returns when its work is enqueued, and the stream
goes on when it is done. The GIL is released meanwhile.

Keywords of all functions:

- `stride`, `dilation`: an integer, or one per spatial axis.
- `padding`: an integer, one per spatial axis, ((before, after), ...), "same" (stride 1) or "valid".
- `groups`: C and K are split into as many groups.
- `mode`: "cross_correlation", or "convolution", which mirrors the filter.
- `activation`: None, "relu", "sigmoid", "tanh", ("clipped_relu", top), ("elu", alpha),
  ("swish", beta), ("softplus", beta).
- `scale` (one number per output channel) and `residual` (shaped as the output).
- `out`: the array to write; `alpha`, `beta`: factors of the result and of out's old values.
- `math`: "fp32", "tf32", "fp32x3" or "fp32_fast", see `Context`; None means the context's.
- `stream`: the caller's CUDA stream, an object of its library or a number; None means the current
  stream of the library whose arrays are on a GPU. Arrays on a GPU and in pinned memory are read and
  written in its order.
- `progress`: called as progress(tiles_done, tiles) between tiles; what it raises ends the call.
- `workspace`: the most bytes of an engine's workspace; None means the context's limit.
- `prologue`: a `Prologue`, what x goes through on the device before it is convolved; `sums`: a
  `Sums`, which receives those of the result. See `oocdnn.normalization`.

Errors: InvalidProblem, InvalidDtype, OutOfMemory, Unsupported, DeviceError, FileError, and
KeyboardInterrupt, all of which leave the context usable and `out` partly written.

The definitions are those of cuDNN and PyTorch.
"""

from typing import Any, Protocol, SupportsIndex

from oocdnn._calls import call_geometry
from oocdnn._calls.call_geometry import SPATIAL, TAPS, Moves
from oocdnn._calls.operation import ActivationSpec, Common, Done, Finish, MathName, ModeName, launch
from oocdnn._calls.prepared import remembered
from oocdnn._calls.windows import Padding, PerAxis
from oocdnn._core.call import Slot
from oocdnn._core.cdefs import Direction
from oocdnn._core.native import Progress
from oocdnn.arrays import View, view
from oocdnn.normalization import Prologue, Sums


def _forward(rank: int, x: Any, w: Any, moves: Moves, finish: Finish, common: Common) -> Done:
    data, weights = view("x", x), view("w", w)
    geometry = call_geometry.forward(rank, data.shape, weights.shape, *moves)
    inputs: dict[Slot, View] = {"x": data, "w": weights}
    return launch(Direction.FORWARD, inputs, "y", geometry, common, finish)


def _transposed(
    rank: int,
    x: Any,
    w: Any,
    moves: Moves,
    output_padding: PerAxis,
    finish: Finish,
    common: Common,
) -> Done:
    data, weights = view("x", x), view("w", w)
    geometry = call_geometry.transposed(rank, data.shape, weights.shape, output_padding, *moves)
    inputs: dict[Slot, View] = {"y": data, "w": weights}
    return launch(Direction.BACKWARD_DATA, inputs, "x", geometry, common, finish)


class Convolve(Protocol):
    """conv1d, conv2d or conv3d."""

    def __call__(
        self,
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
        scale: Any = None,
        residual: Any = None,
        residual_alpha: float = 1.0,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        math: MathName | None = None,
        stream: Any = None,
        progress: Progress | None = None,
        workspace: SupportsIndex | None = None,
        prologue: Prologue | None = None,
        sums: Sums | None = None,
    ) -> Any: ...


class ConvolveTransposed(Protocol):
    """conv_transpose1d, conv_transpose2d or conv_transpose3d."""

    def __call__(
        self,
        x: Any,
        w: Any,
        b: Any = None,
        *,
        stride: PerAxis = 1,
        padding: Padding = 0,
        output_padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: SupportsIndex = 1,
        mode: ModeName = "cross_correlation",
        activation: ActivationSpec = None,
        scale: Any = None,
        residual: Any = None,
        residual_alpha: float = 1.0,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        math: MathName | None = None,
        stream: Any = None,
        progress: Progress | None = None,
        workspace: SupportsIndex | None = None,
        prologue: Prologue | None = None,
        sums: Sums | None = None,
    ) -> Any: ...


def _named(function: Any, name: str, document: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = document
    return remembered(function)


def _convolution(rank: int) -> Convolve:
    def convolve(
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
        scale: Any = None,
        residual: Any = None,
        residual_alpha: float = 1.0,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        math: MathName | None = None,
        stream: Any = None,
        progress: Progress | None = None,
        workspace: SupportsIndex | None = None,
        prologue: Prologue | None = None,
        sums: Sums | None = None,
    ) -> Done:
        moves = Moves(stride, padding, dilation, groups)
        finish = Finish(b, scale, residual, residual_alpha, activation)
        common = Common(out, alpha, beta, mode, math, stream, progress, workspace, prologue, sums)
        return _forward(rank, x, w, moves, finish, common)

    document = f"""Convolution over {rank} spatial ax{"es" if rank > 1 else "is"}.

    x: [N, C, {SPATIAL[rank]}]; w: [K, C/groups, {TAPS[rank]}]; b: [K] or None.
    Returns y: [N, K, ...], each spatial size floor((size + padding - reach) / stride) + 1 with
    reach = (taps - 1) * dilation + 1. The keywords are those of the module `oocdnn.functions`.
    """
    named: Convolve = _named(convolve, f"conv{rank}d", document)
    return named


def _transposed_convolution(rank: int) -> ConvolveTransposed:
    def convolve(
        x: Any,
        w: Any,
        b: Any = None,
        *,
        stride: PerAxis = 1,
        padding: Padding = 0,
        output_padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: SupportsIndex = 1,
        mode: ModeName = "cross_correlation",
        activation: ActivationSpec = None,
        scale: Any = None,
        residual: Any = None,
        residual_alpha: float = 1.0,
        out: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        math: MathName | None = None,
        stream: Any = None,
        progress: Progress | None = None,
        workspace: SupportsIndex | None = None,
        prologue: Prologue | None = None,
        sums: Sums | None = None,
    ) -> Done:
        moves = Moves(stride, padding, dilation, groups)
        finish = Finish(b, scale, residual, residual_alpha, activation)
        common = Common(out, alpha, beta, mode, math, stream, progress, workspace, prologue, sums)
        return _transposed(rank, x, w, moves, output_padding, finish, common)

    document = f"""Transposed convolution over {rank} spatial ax{"es" if rank > 1 else "is"}.

    The gradient of a convolution with respect to its input, as an operation of its own.
    x: [N, C, {SPATIAL[rank]}]; w: [C, K/groups, {TAPS[rank]}]; b: [K] or None.
    Returns y: [N, K, ...], each spatial size (size - 1) * stride + reach - padding +
    output_padding. `output_padding` (an integer or one per axis, less than the stride) says which
    of the possible sizes is meant. The other keywords are those of the module `oocdnn.functions`.
    """
    named: ConvolveTransposed = _named(convolve, f"conv_transpose{rank}d", document)
    return named


conv1d = _convolution(1)
conv2d = _convolution(2)
conv3d = _convolution(3)
conv_transpose1d = _transposed_convolution(1)
conv_transpose2d = _transposed_convolution(2)
conv_transpose3d = _transposed_convolution(3)
