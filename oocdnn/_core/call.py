"""A call as plain values: what the core is asked to do, and where its tensors live."""

import os
from dataclasses import dataclass
from typing import Literal, NamedTuple

from oocdnn._core.cdefs import Activation, Direction, DType, Math, Mode, PoolMode

# The places of tensors in a call. x, w, y are dx, dw, dy where the direction says so; where x is dx
# and other gradients come along, input is x, and dw and db are these.
# prologue is the scale and shift of what is convolved, sums those of what is written.
Slot = Literal[
    "x", "w", "y", "bias", "scale", "residual", "z", "saved", "input", "dw", "db", "prologue",
    "sums",
]  # fmt: skip


class Tensor(NamedTuple):
    """A strided tensor in memory (`address`) or in an open file (`fd`, byte `offset`).

    Strides are in elements. The owner of the memory or the descriptor keeps it alive.
    """

    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    address: int = 0
    fd: int = -1
    offset: int = 0


class Window(NamedTuple):
    """How a filter moves: one entry per spatial axis, in the order D, H, W."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]  # padding
    after: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.stride)


class Epilogue(NamedTuple):
    """What happens to the finished sum; the tensors are operands of their own."""

    activation: Activation = Activation.IDENTITY
    parameter: float = 0.0
    residual_alpha: float = 1.0


class Before(NamedTuple):
    """The activation of what is convolved; its scale and shift are an operand."""

    activation: Activation = Activation.IDENTITY
    parameter: float = 0.0


class Pool(NamedTuple):
    """Windows over y: one entry per spatial axis."""

    mode: PoolMode
    window: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]  # padding
    after: tuple[int, ...]
    ceil: bool


class Convolution(NamedTuple):
    """The parameters of one call. `stream` is the caller's CUDA stream, 0 on the CPU device."""

    direction: Direction
    window: Window
    groups: int = 1
    mode: Mode = Mode.CROSS_CORRELATION
    math: Math = Math.FP32
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: Epilogue = Epilogue()
    stream: int = 0
    workspace: int = -1  # the most bytes of an engine's; below 0: as many as the context allows
    pool: Pool | None = None
    saves: bool = False  # what backward needs is written too
    before: Before = Before()


@dataclass(frozen=True)
class Options:
    """How a context is made. None means the variable of the same name, then the default."""

    device: str | None = None
    budget: str | None = None
    engine: str | None = None
    wrap: str | None = None
    profile: str | os.PathLike[str] | None = None
    planning: str | None = None
    workspace: str | None = None
    busy_gpus: str | None = None
    borrow: str | None = None
    threads: int = 0
    reproducible: bool = False
    trace: bool = False
    host_cap: int = 0
    link_gb_per_s: float = 0.0
    planning_seconds: float = 0.0
