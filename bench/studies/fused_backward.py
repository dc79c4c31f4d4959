"""The gradients of a convolution with bias, relu and a 2x2 maximum: fused, against a call for each
of their parts."""

from collections.abc import Callable
from typing import Any

import numpy as np

import oocdnn
from oocdnn.bench.studies.timed import Timed, Timer

Array = np.ndarray[Any, Any]
Call = tuple[str, Callable[[], Any], list[Any], list[Array]]  # a name, what it reads and writes


class Backward:
    """Both ways to the gradients of a 3x3 convolution with padding 1, on arrays of one type.

    `room` are two arrays shaped as x, which has as many channels as w makes, and `dz` is shaped as
    what is pooled. The backward pass of the pool, and of relu, is that of a convolution that they
    come after of every channel with 1: their operands cross the wires as any other call's would.
    """

    def __init__(
        self, timer: Timer, x: Array, w: Array, b: Array, room: tuple[Array, Array], dz: Array,
        math: Any,
    ) -> None:  # fmt: skip
        self.context, self._timer = timer.context, timer
        self.x, self.w, self.b, self.room, self.dz = x, w, b, room, dz
        self.math = math
        self.ones = np.ones((w.shape[0], 1, 1, 1), w.dtype)
        self.gradients: dict[str, list[Array]] = {}  # of either way

    def _forward(self, x: Array, w: Array, out: Array | None = None, **how: Any) -> Any:
        groups = 1 if w is self.w else len(w)
        call: Any = self.context.conv_bias_act_pool
        return call(x, w, out=out, groups=groups, math=self.math, **how)

    def _backward(self, dz: Array, saved: oocdnn.Saved, w: Array, **out: Array) -> Any:
        call: Any = self.context.conv_bias_act_pool_backward
        return call(dz, saved, self.x, w, needs=tuple(out), out=out, math=self.math)

    def _timed(
        self, name: str, call: Callable[[], Any], sources: list[Any], targets: list[Array]
    ) -> Timed:
        return self._timer(name, call, sources, targets)[0]

    def _sums(self) -> tuple[Array, Array]:
        return np.empty_like(self.w), np.empty_like(self.b)

    def separate(self) -> list[Timed]:
        """Each reads what the one before it wrote. dx is left in the first room."""
        dw, db = self._sums()
        done = [self._timed(*one) for one in self._calls(*self._saved_apart(), dw, db)]
        self.gradients["separate"] = [self.room[0], dw, db]
        return done

    def _saved_apart(self) -> tuple[oocdnn.Saved, oocdnn.Saved]:
        """What a pool and relu save that come after a convolution of their own."""
        first, second = self.room
        self._forward(self.x, self.w, first, b=self.b, padding=1)
        save: dict[str, Any] = {"save_for_backward": True}
        _, alive = self._forward(first, self.ones, second, activation="relu", **save)
        _, winners = self._forward(second, self.ones, pool=2, **save)
        return winners, alive

    def _calls(
        self, winners: oocdnn.Saved, alive: oocdnn.Saved, dw: Array, db: Array
    ) -> list[Call]:
        (first, second), x, w = self.room, self.x, self.w
        context, how = self.context, {"math": self.math}
        return [
            (
                "pool backward",
                lambda: self._backward(self.dz, winners, self.ones, dx=first),
                [self.dz, winners.bits, self.ones],
                [first],
            ),
            (
                "relu backward",
                lambda: self._backward(first, alive, self.ones, dx=second),
                [first, alive.bits, self.ones],
                [second],
            ),
            (
                "backward data",
                lambda: context.conv_backward_data(second, w, x.shape, padding=1, out=first, **how),
                [second, w],
                [first],
            ),
            (
                "backward filter",
                lambda: context.conv_backward_filter(x, second, w.shape, padding=1, out=dw, **how),
                [x, second],
                [dw],
            ),
            (
                "backward bias",
                lambda: context.conv_backward_bias(second, out=db, **how),
                [second],
                [db],
            ),
        ]

    def fused(self) -> list[Timed]:
        """All three gradients in one call, and each in one of its own. dx is left in the second
        room."""
        dx, (dw, db) = self.room[1], self._sums()
        _, saved = self._forward(
            self.x, self.w, b=self.b, padding=1, activation="relu", pool=2, save_for_backward=True
        )
        x, w, both = self.x, self.w, [self.dz, saved.bits]
        parts: dict[str, tuple[list[Any], dict[str, Array]]] = {
            "backward": ([*both, x, w], {"dx": dx, "dw": dw, "db": db}),
            "dx of it": ([*both, w], {"dx": dx}),
            "dw of it": ([*both, x], {"dw": dw}),
            "db of it": (both, {"db": db}),
        }
        done = []
        for name, (sources, out) in parts.items():
            call = self._caller(saved, out)
            done.append(self._timed(name, call, sources, list(out.values())))
        self.gradients["fused"] = [dx, dw, db]
        return done

    def _caller(self, saved: oocdnn.Saved, out: dict[str, Array]) -> Callable[[], Any]:
        return lambda: self._backward(self.dz, saved, self.w, **out)
