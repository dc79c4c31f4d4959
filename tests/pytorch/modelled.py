"""A device made of the CPU's tensors with a model of PyTorch's caching allocator: what live
storages would reserve, and the history of a step."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from oocdnn.bench.training.counting import Counter, CountingCard
from oocdnn.torch.limit.heap.allocator import Allocator, Block, Heap
from oocdnn.torch.limit.heap.reading import Log


class Modelled(Counter):
    """Has each storage in an allocator's block of `scale` times its bytes.

    Attributes:
        entries: The history while it is recorded, else None.
        reserved: Most bytes that the allocator reserved since it was trimmed.
    """

    def __init__(self, scale: int = 1, *, expandable: bool = True) -> None:
        super().__init__()
        self.scale, self.allocator = scale, Allocator(expandable=expandable)
        self.entries: list[tuple[bool, int, int]] | None = None
        self.reserved = 0
        self._blocks: dict[int, tuple[Block, int]] = {}
        self._taken: dict[int, tuple[Block, int]] = {}

    def __torch_dispatch__(self, operation, types, given=(), named=None):  # type: ignore[no-untyped-def]
        self.live()  # frees come before what the operation allocates
        return super().__torch_dispatch__(operation, types, given, named)

    def add(self, tensor: torch.Tensor) -> None:
        key, before = tensor.untyped_storage()._cdata, len(self._live)
        known = self._live.get(key)
        super().add(tensor)
        if tensor.untyped_storage().nbytes() and (known is None or len(self._live) > before):
            self._allocate(key, self.scale * tensor.untyped_storage().nbytes())

    def live(self) -> int:
        for key in [k for k in self._blocks if k not in self._live or self._live[k][0].expired()]:
            self._free(key)
        return super().live()

    def release(self) -> None:
        self.live()
        self.allocator.trim()

    def trim(self) -> None:
        self.release()
        self.reserved = self.allocator.reserved

    def address(self, tensor: torch.Tensor) -> int:
        return self._blocks[tensor.untyped_storage()._cdata][0].address

    def note(self, nbytes: int) -> int:
        self.live()
        self._allocate(-1, nbytes)
        address = self._blocks[-1][0].address
        self._free(-1)
        return address

    def take(self, nbytes: int) -> int:
        self.live()
        block = self.allocator.allocate(nbytes)
        self.reserved = max(self.reserved, self.allocator.reserved)
        self._taken[block.address] = block, nbytes
        return block.address

    def give(self, address: int) -> None:
        self.live()
        self.allocator.free(self._taken.pop(address)[0])

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        self.live()
        if storage._cdata in self._blocks:
            self._free(storage._cdata)
        if nbytes:
            self._allocate(storage._cdata, self.scale * nbytes)

    def _allocate(self, key: int, nbytes: int) -> None:
        block = self.allocator.allocate(nbytes)
        self.reserved = max(self.reserved, self.allocator.reserved)
        self._blocks[key] = block, nbytes
        if self.entries is not None:
            self.entries.append((True, block.address, nbytes))

    def _free(self, key: int) -> None:
        block, nbytes = self._blocks.pop(key)
        if self.entries is not None:
            self.entries.append((False, block.address, nbytes))
        self.allocator.free(block)


class ModelCard(CountingCard):
    """`CountingCard` whose driver counts what the model reserves."""

    def __init__(self, counter: Modelled, rate: float = float("inf")) -> None:
        super().__init__(counter, rate)
        self._model = counter

    def taken(self) -> int:
        return self._model.reserved

    def release(self) -> None:
        self._model.release()

    def trim(self) -> None:
        self._model.trim()

    def watch(self) -> bool:
        self._model.live()
        self._model.entries = []
        return True

    def note(self, nbytes: int) -> int:
        return self._model.note(nbytes)

    def address(self, storage: torch.Tensor) -> int:
        return self._model.address(storage)

    def heap(self) -> Heap | None:
        self._model.live()
        return Heap(self._model.allocator.extents(), self._model.allocator.expandable)

    def take(self, nbytes: int) -> int:
        return self._model.take(nbytes)

    def give(self, address: int) -> None:
        self._model.give(address)

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        super().resize(storage, nbytes)
        self._model.resize(storage, nbytes)

    def watched(self) -> Log | None:
        entries, self._model.entries = self._model.entries, None
        if entries is None:
            return None
        self._model.live()
        allocator = self._model.allocator
        return Log(entries, Heap(allocator.extents(), allocator.expandable))

    def slab(self, nbytes: int) -> torch.Tensor:
        with _disable_current_modes():
            return torch.empty(nbytes, dtype=torch.uint8)
