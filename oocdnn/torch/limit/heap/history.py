"""The history of PyTorch's allocator for CUDA, as PyTorch records it."""

from __future__ import annotations

from typing import Any

import torch

from oocdnn.torch.limit.heap.allocator import Extent, Heap
from oocdnn.torch.limit.heap.reading import Log

_ENTRIES = 1 << 20  # that are remembered, the latest ones
_DEFAULT_POOL = (0, 0)


class History:
    """Records one device's allocations while it is on."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on = False

    def start(self) -> bool:
        """Begins anew. False where the program itself records, or has an allocator of its own."""
        if torch.cuda.get_allocator_backend() != "native":
            return False
        if not self._on and torch._C._cuda_isHistoryEnabled():
            return False
        if self._on:
            _record(None)
        _record("all")
        self._on = True
        return True

    def stop(self, stream: int) -> Log | None:
        """What happened since, for one stream; None if nothing was recorded."""
        if not self._on:
            return None
        snapshot = torch.cuda.memory._snapshot()
        _record(None)
        self._on = False
        index = self._device.index
        entries = [
            (one["action"] == "alloc", one["addr"], one["size"])
            for one in snapshot["device_traces"][index]
            if one["action"] in ("alloc", "free_completed") and one["stream"] == stream
        ]
        return Log(entries, _heap(snapshot, index, stream))


def heap_of(device: torch.device, stream: int) -> Heap:
    """What the allocator holds now."""
    return _heap(torch.cuda.memory._snapshot(), device.index, stream)


def has_pools() -> bool:
    """True if the allocator has private pools on any device, as those of CUDA graphs."""
    return not all(map(_is_default, torch.cuda.memory._snapshot()["segments"]))


def _heap(snapshot: dict[str, Any], index: int | None, stream: int) -> Heap:
    here = [one for one in snapshot["segments"] if one["device"] == index]
    own = [one for one in here if _is_of(one, stream)]
    elsewhere = sum(one["total_size"] for one in here if not _is_of(one, stream))
    expandable = any(one["is_expandable"] for one in own)
    return Heap(tuple(map(_extent, own)), expandable, elsewhere)


def _record(what: str | None) -> None:
    torch.cuda.memory._record_memory_history(
        what, context=None, stacks="python", max_entries=_ENTRIES
    )


def _is_of(segment: dict[str, Any], stream: int) -> bool:
    return bool(segment["stream"] == stream and _is_default(segment))


def _is_default(segment: dict[str, Any]) -> bool:
    return tuple(segment.get("segment_pool_id", _DEFAULT_POOL)) == _DEFAULT_POOL


def _extent(segment: dict[str, Any]) -> Extent:
    return Extent(
        segment["address"],
        segment["segment_type"] == "small",
        segment["is_expandable"],
        tuple((block["size"], block["state"] != "inactive") for block in segment["blocks"]),
    )
