"""`memory_limit`: the context manager under which a program trains within so many device bytes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import torch

from oocdnn.network.planner import Plan, plan
from oocdnn.network.timeline import Link, Timeline
from oocdnn.torch.limit.card import Card, CudaCard
from oocdnn.torch.limit.steps import Steps

_PROBE_BYTES = 1 << 28
_SLACK = 0.98  # of what the allocator may hold: its blocks are not filled to the last byte


class memory_limit:
    """Trains within `limit` device bytes of this process, as the driver counts them.

    The first step swaps everything that autograd saves and is timed; it is planned from then on.
    `step()` may mark the end of a step; otherwise one ends where forward begins again.
    """

    def __init__(self, limit: int, device: Any = None) -> None:
        self._limit = limit
        self._device = torch.device("cuda" if device is None else device)
        self.steps: Steps | None = None
        self.links: list[Link] = []

    def __enter__(self) -> memory_limit:
        device = torch.device("cuda", torch.cuda.current_device())
        card = CudaCard(device)
        if not self.links:
            self.links = [_measured(card)]
        self.steps = Steps(card, self._limit, self._plan)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self.steps.pack, self.steps.unpack)
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, traceback)
        assert self.steps is not None
        self.steps.close()

    def step(self) -> None:
        assert self.steps is not None
        self.steps.step()

    @property
    def plan(self) -> Plan | None:
        return self.steps.plan if self.steps is not None else None

    def _plan(self, timeline: Timeline) -> Plan:
        self.timeline = timeline
        free, total = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        others = total - free - reserved  # the context, libraries
        return plan(timeline, self.links, int(_SLACK * (self._limit - others)))


def _measured(card: Card) -> Link:
    """The link's rates, by copies of 256 MiB."""
    there = card.empty(_PROBE_BYTES)
    here = card.slab(_PROBE_BYTES)
    rates = []
    for way in (card.copy_out, card.copy_in):
        source, target = (there, here) if way == card.copy_out else (here, there)
        best = float("inf")
        for _ in range(4):
            torch.cuda.synchronize(card.device)
            began = time.perf_counter()
            way(source, target).wait()
            torch.cuda.synchronize(card.device)
            best = min(best, time.perf_counter() - began)
        rates.append(_PROBE_BYTES / best)
    return Link(rates[0], rates[1], 0.85 * sum(rates))
