"""A convolution with its bias, relu and pool in one pass, against a call for each of them.

    oocdnn bench study fused --out result.json

VGG16's conv1_2 in pinned memory: forward without and with what backward needs, and the four calls
that a program without fused passes makes, each out of core too (bias and relu as what comes after a
convolution of every channel with 1). Then all gradients in one call, and each in one of its own,
against the five calls that such a program makes: pool, relu, data, filter and bias. A floor is the
least time by the wires, every byte counted once, at the rates of the memory that the operands lie
in. What is said of tiles and engines where a call computes all gradients is of db, its last pass.
Elements are small integers: all ways must give the same bits, and some images' are held to torch in
core.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, dtype_of
from oocdnn.bench.gpu.wires import Gauge
from oocdnn.bench.studies.fused_backward import Backward
from oocdnn.bench.studies.study import Run, budget, device, images, maths, study
from oocdnn.bench.studies.timed import Timed, Timer, total

CHANNELS, SIZE = 64, 224
IMAGES_CHECKED = 8
EXACT = ("fp32", "tf32")  # in bf16 separate calls round y, and one pass does not


@dataclass
class Compared:
    """All ways in one kind of arithmetic."""

    math: str
    images: int
    fused: list[Timed] = field(default_factory=list)  # without and with saved bits
    separate: list[Timed] = field(default_factory=list)
    fused_backward: list[Timed] = field(default_factory=list)  # all gradients, and each
    separate_backward: list[Timed] = field(default_factory=list)
    wrong: dict[str, int] = field(default_factory=dict)  # elements that differ, by what from

    def lines(self) -> list[str]:
        forward = total(self.separate) / total(self.fused[:1])
        backward = total(self.separate_backward) / total(self.fused_backward[:1])
        return [
            f"{self.math}: forward {forward:.2f} times faster than four calls, backward "
            f"{backward:.2f} times than five; differ: {self.wrong}",
            *(f"  {one.line()}" for one in (*self.fused, *self.separate)),
            *(f"  {one.line()}" for one in (*self.fused_backward, *self.separate_backward)),
        ]


class Bench:
    """The tensors of one kind of arithmetic, and calls on them."""

    def __init__(self, card: Card, timer: Timer, kind: str, images: int) -> None:
        self.card, self._timer = card, timer
        dtype, self.math = dtype_of(kind), ARITHMETIC[kind].math
        shape = (images, CHANNELS, SIZE, SIZE)
        pinned, other, pooled = Pinned(), Pinned(), Pinned()
        self.x = pinned.tensor("x", shape, dtype)
        self.y = [pinned.tensor("y", shape, dtype), other.tensor("y", shape, dtype)]
        half = (images, CHANNELS, SIZE // 2, SIZE // 2)
        self.z = [place.tensor("x", half, dtype) for place in (pooled, other)]
        card.fill(self.x, 0)
        weights = pinned.tensor("w", (CHANNELS, CHANNELS, 3, 3), dtype)
        self.here = [card.fill(weights, 1), card.integers((CHANNELS,), dtype, 2)]
        self.w = as_numpy(weights)
        self.b = as_numpy(self.here[1].cpu())
        self.ones = np.ones((CHANNELS, 1, 1, 1), self.w.dtype)

    def timed(self, name: str, source: torch.Tensor, out: torch.Tensor, **how: Any) -> Timed:
        """Calls the one function that serves them all."""
        weights = how.pop("w", self.ones)
        groups = 1 if weights is self.w else CHANNELS
        values = {"x": as_numpy(source), "w": weights, "out": as_numpy(out)}
        sources = [values["x"], weights] + ([self.b] if how.get("b") is not None else [])

        def call() -> Any:
            made: Callable[..., Any] = self._timer.context.conv_bias_act_pool
            return made(**values, groups=groups, math=self.math, **how)

        one, made = self._timer(name, call, sources, [values["out"]])
        one.bytes_out += made[1].nbytes if isinstance(made, tuple) else 0
        return one

    def separate(self) -> list[Timed]:
        """Each reads what the one before it wrote."""
        first, second = self.y
        return [
            self.timed("convolution", self.x, first, w=self.w, padding=1),
            self.timed("bias", first, second, b=self.b),
            self.timed("relu", second, first, activation="relu"),
            self.timed("pool", first, self.z[1], pool=2),
        ]

    def fused(self) -> list[Timed]:
        how: dict[str, Any] = {
            "w": self.w,
            "b": self.b,
            "padding": 1,
            "activation": "relu",
            "pool": 2,
        }
        return [
            self.timed("forward", self.x, self.z[0], **how),
            self.timed("and saved bits", self.x, self.z[0], save_for_backward=True, **how),
        ]

    def backward(self) -> Backward:
        """Of a dz in the room of z, once that is not needed any more."""
        self.card.fill(self.z[0], 3)
        room = (as_numpy(self.y[0]), as_numpy(self.y[1]))
        x, dz = as_numpy(self.x), as_numpy(self.z[0])
        return Backward(self._timer, x, self.w, self.b, room, dz, self.math)

    def in_core(self) -> torch.Tensor:
        """Some images by torch. Integers are exact in TF32, and its engines only add products."""
        torch.backends.cudnn.allow_tf32 = True
        some = self.x[:IMAGES_CHECKED].to(self.card.device)
        return self._pooled(some)

    def dx_in_core(self) -> torch.Tensor:
        """Of as many images, behind what `in_core` computes."""
        some = self.x[:IMAGES_CHECKED].to(self.card.device).requires_grad_()
        self._pooled(some).backward(self.z[0][:IMAGES_CHECKED].to(self.card.device))
        assert some.grad is not None
        return some.grad

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.conv2d(x, self.here[0], self.here[1], padding=1)
        return torch.max_pool2d(torch.relu(y), 2)


def compare_backward(bench: Bench, one: Compared) -> None:
    backward = bench.backward()
    one.separate_backward, one.fused_backward = backward.separate(), backward.fused()
    apart, fused = (
        [torch.from_numpy(array) for array in backward.gradients[name]]
        for name in ("separate", "fused")
    )
    for name, ours, theirs in zip(("dx", "dw", "db"), fused, apart, strict=True):
        one.wrong[f"separate {name}"] = bench.card.differing(ours, theirs)[0]
    one.wrong["torch's dx"] = bench.card.differing(fused[0][:IMAGES_CHECKED], bench.dx_in_core())[0]


def compared(card: Card, timer: Timer, kind: str, images: int) -> Compared:
    bench = Bench(card, timer, kind, images)
    one = Compared(kind, images)
    one.separate = bench.separate()
    one.fused = bench.fused()
    fused, apart = bench.z
    one.wrong["separate calls"] = card.differing(fused, apart)[0]
    one.wrong["torch"] = card.differing(fused[:IMAGES_CHECKED], bench.in_core())[0]
    compare_backward(bench, one)
    return one


@study("fused", device, budget("2GiB"), images, maths(EXACT), repeats=5, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, images: int, maths: Sequence[str], repeats: int
) -> None:
    done = {(row["math"], row["images"]) for row in run.rows()}
    with Gauge(card.ordinal) as gauge, oocdnn.Context(device, budget) as context:
        timer = Timer(context, gauge, repeats, run.throttled)
        for kind in run.left(maths or EXACT, lambda kind: (kind, images), done):
            one = compared(card, timer, kind, images)
            run.keep(asdict(one), *one.lines())
