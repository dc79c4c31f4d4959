"""A convolution and what comes after it in one pass: bias, activation, pool.

y never leaves the device; z, the pool of it, does, and in training the few bits that the backward
pass needs. Arrays, keywords and errors are those of `oocdnn.functions`.
"""

from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from oocdnn import _geometry
from oocdnn._call import Convolution, Slot
from oocdnn._cdefs import Direction
from oocdnn._geometry import Moves
from oocdnn._native import Progress
from oocdnn._operation import ActivationSpec, After, Common, Finish, MathName, ModeName, launch
from oocdnn._pool import Pool
from oocdnn._window import Padding, PerAxis
from oocdnn.arrays import View, unwrap, view

__all__ = ["Pool", "Saved", "conv_bias_act_pool"]


@dataclass(frozen=True)
class Saved:
    """What the backward pass needs of a forward pass, beside x and w.

    `bits` is an array of bytes of x's library and on its side, or None where nothing is needed. Of
    a max pool, for each element of z the place of the winner in its window, and one more value
    where relu or clipped relu are flat, in as few bits as that takes: 3 for 2x2, 4 for 3x3. Without
    a max pool, where the activation is one of the two, a bit for each element of y. Rows along W
    begin with a byte of their own, elements follow each other from the lowest bit on.
    """

    bits: Any
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    z_shape: tuple[int, ...]
    call: Convolution = field(repr=False)

    @property
    def nbytes(self) -> int:
        return 0 if self.bits is None else int(self.bits.nbytes)


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
    save_for_backward: bool = False,
    out: Any = None,
    alpha: float = 1.0,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> Any:
    """z = pool(activation(alpha * conv(x, w) * scale + b + residual_alpha * residual)).

    x: [N, C, [D, [H,]] W]; w: [K, C/groups, ...], 1-, 2- or 3-D by the axes of x; b: [K] or None;
    residual: shaped as y, the convolution's result.
    pool: a `Pool`; a number (or one per axis) is a maximum of windows of that size that touch, and
    what is left over at the end is dropped; None: z is y.
    Returns z, or with `save_for_backward` (z, saved), a `Saved`.
    """
    data, weights = view("x", x), view("w", w)
    rank = _geometry.data_rank(data.shape)
    moves = Moves(stride, padding, dilation, groups)
    geometry = _geometry.forward(rank, data.shape, weights.shape, *moves)
    after = After(save_for_backward)
    if pool is not None:
        after = After(save_for_backward, *_geometry.pooled(geometry.shape, pool))
    finish = Finish(b, scale, residual, residual_alpha, activation)
    common = Common(out, alpha, 0.0, mode, math, stream, progress, workspace)
    inputs: dict[Slot, View] = {"x": data, "w": weights}
    done = launch(Direction.FORWARD, inputs, "y", geometry, common, finish, after)
    if not save_for_backward:
        return done.result
    bits = None if done.bits is None else unwrap(done.bits)
    return done.result, Saved(bits, data.shape, weights.shape, done.shape, done.call)
