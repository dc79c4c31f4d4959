"""A device as a plan of a compiled step needs it: its room, its links, what nodes cost."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from oocdnn.network.timeline import Link
from oocdnn.torch.compiled.copies import card_of
from oocdnn.torch.compiled.costs import Costs, Estimated, Measured
from oocdnn.torch.limit.cuda_card import use_cublas
from oocdnn.torch.limit.link import measured
from oocdnn.torch.limit.optimizers import state_bytes

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addbmm, _aten.addmv, _aten.mv}

# Shares of the limit that are left for gaps between the allocator's tensors.
_GAPS = 0.05
_STEERED = 0.02  # if the allocator can be steered


class Room:
    """A device.

    Attributes:
        links: To host memory.
        costs: Of nodes.
        least: Bytes of the smallest value that is moved.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.card = card_of(device)
        self.least = self.card.least_bytes
        self.costs: Costs
        if device.type == "cuda":
            with _disable_current_modes():  # the compiler's own tensors have no memory
                self.links, self.costs = [measured(self.card)], Measured(device, self.card)
        else:  # whatever copies take, of which there is no need on the CPU
            self.links, self.costs = [Link(1e10, 1e10, 1.7e10)], Estimated(2e10, 1e11)

    def prepare(self, graph: fx.Graph) -> None:
        """Has cuBLAS allocate its workspaces if a graph multiplies matrices: in its first step the
        workspace of autograd's thread would come behind that step's tensors."""
        if self.device.type != "cuda" or not _multiplies(graph):
            return
        # PyTorch compiles under modes of its own, and without autograd's threads.
        with (
            _disable_current_modes(),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(True),
        ):
            use_cublas(self.device)

    def within(self, limit: int) -> int:
        """What a limit leaves for the values of a graph, and for gradients: less what is in use
        now, CUDA's context, and what optimizers will allocate. Gives unused memory back to the
        driver, and resets PyTorch's peak statistics."""
        if self.device.type != "cuda":
            return limit
        self.card.trim()
        gaps = _STEERED if self.steers() else _GAPS
        held = self.card.held() + self.card.others() + state_bytes(self.device)
        return int(limit * (1 - gaps)) - held

    def allocates(self) -> bool:
        """Whether PyTorch's allocator serves the device."""
        return self.card.heap() is not None

    def steers(self) -> bool:
        """Whether that can be steered."""
        heap = self.card.heap()
        return heap is not None and heap.expandable


@cache
def room_of(device: torch.device) -> Room:
    return Room(device)


def _multiplies(graph: fx.Graph) -> bool:
    """Returns true if a graph has matrix multiplications, which cuBLAS computes."""
    return any(getattr(node.target, "overloadpacket", None) in _PRODUCTS for node in graph.nodes)


def device_of(graph: fx.Graph) -> torch.device:
    """The GPU that a graph computes on, or the CPU."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor) and value.device.type == "cuda":
            return value.device
    return torch.device("cpu")
