"""A card whose memory is the host's, for studies where torch sees no GPU: torch computes on the
processor, and our calls take its tensors as arrays of the host."""

from __future__ import annotations

import time

import torch

from oocdnn.bench.gpu.card import Card
from oocdnn.bench.tensor import tensor


class HostBlock:
    """What stands in for managed memory."""

    def __init__(self, array) -> None:
        self.tensor = torch.zeros_like(tensor(torch, array))

    def prefetch(self, to_gpu: bool) -> None:
        pass

    def close(self) -> None:
        pass


class HostCard(Card):
    name = "the host"

    def __init__(self, device: str) -> None:
        self.torch, self.device, self.ordinal = torch, "cpu", 0

    def free_bytes(self) -> int:
        return 1 << 40

    def synchronize(self) -> None:
        pass

    def give_back(self) -> None:
        pass

    def span(self, work) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def kernels(self, work) -> str:
        work()
        return "some kernels"

    def reached(self, array):
        return tensor(torch, array)

    def managed(self, arrays):
        return {name: HostBlock(array) for name, array in arrays.items()}
