"""The least time of a convolution's arithmetic, every operand on the GPU, for the floor."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import channels_last
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import ROLES, Direction, Layer
from oocdnn.bench.peers.torch_call import convolution
from oocdnn.bench.studies.floor_row import Seconds, counting
from oocdnn.cli.problems import parse

OTHER_ARITHMETIC = ("winograd", "fft")  # in the names of kernels
MANY_FLOPS = 2e13  # of a call that is timed once, and in fp32 not by torch: that takes minutes
CLEARLY = 0.8  # of a time, below which another does not matter beside it


def by_torch(case: Layer, direction: Direction) -> Callable[..., torch.Tensor]:
    """torch's own function for the direction; takes the inputs in the order of `ROLES`."""
    return convolution(parse(case.problem(direction)))


class Least:
    """A layer in a direction and a kind of arithmetic, its inputs on the GPU."""

    def __init__(
        self, card: Card, case: Layer, direction: Direction, kind: str,
        inputs: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        self._card, self._case, self._direction, self._kind = card, case, direction, kind
        self._inputs = inputs

    def seconds(self, context: oocdnn.Context, wire: float) -> tuple[Seconds, Seconds]:
        """Of torch; of ours too, where none of torch's count."""
        theirs = self._of_torch(wire)
        return theirs, {} if counting(theirs) else self._of_ours(context)

    def _of_torch(self, wire: float) -> Seconds:
        """Without torch's measurements, which take seconds, where what it guesses is well within
        the time of the wires, so that nothing faster would change the floor, or does not count,
        which what it would find counts no more."""
        many, judge = self._case.flops > MANY_FLOPS, self._kind == "fp32"
        if judge and many:
            return {"nchw": "not asked: what torch guesses for so many products may take minutes"}
        call = by_torch(self._case, self._direction)
        guessed = self._by_order(call, judge, measures=False)
        times = counting(guessed)
        if not times or min(times) <= CLEARLY * wire or many:
            return guessed
        return self._by_order(call, judge)

    def _of_ours(self, context: oocdnn.Context) -> Seconds:
        return self._by_order(partial(self._own, context), judge=False)

    def _own(self, context: oocdnn.Context, *inputs: torch.Tensor) -> None:
        """One call of oocdnn whose result lies as the first input does."""
        case, direction, first = self._case, self._direction, inputs[0]
        last = first.stride(1) == 1
        order = channels_last(case.rank) if last else torch.contiguous_format
        shape = case.shape(ROLES[direction][-1])
        out = torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=order)
        call_of(context, case, direction, inputs, out, math=ARITHMETIC[self._kind].math)()

    def _by_order(self, call: Callable[..., object], judge: bool, measures: bool = True) -> Seconds:
        """What it cannot do is left out with its reason, and so is what computes otherwise, where
        that is judged. `measures`: whether torch chooses engines by its own measurements."""
        seconds: Seconds = {}
        torch.backends.cudnn.benchmark = measures
        orders = (("nchw", torch.contiguous_format), ("nhwc", channels_last(self._case.rank)))
        for name, order in orders:
            try:
                here = [tensor.contiguous(memory_format=order) for tensor in self._inputs]
                seconds[name] = self._time(partial(call, *here), judge)
            except RuntimeError as error:
                seconds[name] = str(error).splitlines()[0]
            here = []
            self._card.give_back()
        torch.backends.cudnn.benchmark = False
        return seconds

    def _time(self, work: Callable[[], object], judge: bool) -> float | str:
        names = self._card.kernels(work) if judge else ""
        other = next((word for word in OTHER_ARITHMETIC if word in names), None)
        took = self._card.best(work, 1 if self._case.flops > MANY_FLOPS else 3)
        return took if other is None else f"{took * 1e3:.2f} ms by {other}"
