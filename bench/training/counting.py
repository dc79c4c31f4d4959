"""A device made of the CPU's tensors whose bytes are counted: live storages, at every operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from oocdnn.torch.limit.host_card import HostCard


class Counter(TorchDispatchMode):
    """Counts the storages that operations make while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(
        self, operation: Callable[..., Any], types: Any, given: Any = (), named: Any = None
    ) -> Any:
        result = operation(*given, **(named or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        self.most = max(self.most, self.live())
        return result

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._live.get(key)
        if known is None or known[0].expired():
            self._live[key] = StorageWeakRef(storage), storage.nbytes()

    def live(self) -> int:
        self._live = {k: one for k, one in self._live.items() if not one[0].expired()}
        return sum(nbytes for _, nbytes in self._live.values())


class CountingCard(HostCard):
    """`HostCard` with the bytes of a counter, which must be entered around the whole program."""

    def __init__(
        self, counter: Counter, rate: float = float("inf"), least_bytes: int = 256
    ) -> None:
        super().__init__(rate, least_bytes)
        self._counter = counter

    def used(self) -> int:
        return self._counter.live()

    def held(self) -> int:
        return self._counter.live()

    def peak(self) -> int:
        most = self._counter.most
        self._counter.most = self._counter.live()
        return most

    def slab(self, nbytes: int) -> torch.Tensor:
        with _disable_current_modes():
            return super().slab(nbytes)

    def discard(self, storage: torch.Tensor, own: bool) -> None:
        with _disable_current_modes():
            super().discard(storage, own)
