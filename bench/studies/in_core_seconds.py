"""Convolutions of integers with every operand on the GPU, by torch and by us."""

from functools import partial

import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import channels_last


def by_whom(
    card: Card, context: oocdnn.Context, shape: tuple[int, ...], w: torch.Tensor, kind: str,
    repeats: int, stride: int = 1,
) -> dict[str, float]:  # fmt: skip
    """The best seconds of a convolution of an x of that shape, padded by half of the filter, in
    both memory orders; infinity where there is no room."""
    rank = w.dim() - 2
    x = torch.randint(0, 7, shape, device=card.device, dtype=torch.int8).to(w.dtype)
    theirs = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    ours = (context.conv1d, context.conv2d, context.conv3d)[rank - 1]
    moves = {"stride": stride, "padding": w.shape[-1] // 2}
    seconds = {}
    for name, order in (("", torch.contiguous_format), (" channels last", channels_last(rank))):
        given = x.to(memory_format=order), w.to(memory_format=order)
        ways = {
            f"torch{name}": partial(theirs, *given, **moves),
            f"own{name}": partial(ours, *given, math=ARITHMETIC[kind].math, **moves),
        }
        for who, call in ways.items():
            seconds[who] = card.best_with_room(call, repeats)
            card.give_back()
    return seconds
