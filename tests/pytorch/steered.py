"""Steps whose allocations are steered: in numbers, and of a network beside a model of PyTorch's
allocator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from pytorch.modelled import ModelCard, Modelled
from torch import nn
from torch.nn import functional as F

from oocdnn.network.plan import Schedule
from oocdnn.network.planner import least_limit
from oocdnn.network.timeline import Operation, Timeline
from oocdnn.torch.limit.heap.allocations import Allocations, Item
from oocdnn.torch.limit.heap.allocator import Allocator, Extent, Heap
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.step_kinds import Known

MIB = 1 << 20


def stepwise(*operations: Sequence[Item]) -> tuple[Allocations, Schedule, Heap]:
    """A step without saved tensors, whose operations allocate MiB; the heap holds a parameter."""
    timeline = Timeline(tuple(Operation(str(i), 1.0) for i in range(len(operations))), 0)
    items = tuple(tuple((number, size * MIB) for number, size in one) for one in operations)
    allocator = Allocator(expandable=True)
    persistent = frozenset({allocator.allocate(20 * MIB).address})
    heap = Heap(allocator.extents(), expandable=True)
    nothing = tuple(0 for _ in operations)
    return Allocations(timeline, items, nothing, (), persistent), Schedule([]), heap


def far(heap: Heap, gap: int, *blocks: tuple[int, bool]) -> Heap:
    """The heap with a further mapped part of its segment, behind so many MiB."""
    first = heap.extents[0]
    address = first.address + first.nbytes + gap * MIB
    some = tuple((size * MIB, used) for size, used in blocks)
    return Heap((*heap.extents, Extent(address, False, True, some)), expandable=True)


class Net(nn.Module):
    """Two levels of a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(F.instance_norm(self.first(x)))
        z = F.gelu(F.instance_norm(self.second(F.max_pool2d(y, 2))))
        z = F.interpolate(F.gelu(self.up(z)), scale_factor=2.0)
        return self.last(torch.cat([y, z], 1))


@contextlib.contextmanager
def limited(
    share: float, more: int = 0
) -> Iterator[tuple[memory_limit, Known, ModelCard, Callable[[], None]]]:
    """A network after its first step, planned for a share of its bytes beyond the least limit, and
    `more`; with what runs a step."""
    torch.manual_seed(0)
    net, x, target = Net(), torch.randn(2, 1, 32, 32), torch.randint(0, 3, (2, 32, 32))
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    counter = Modelled()

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), target).backward()
        optimizer.step()

    with counter:
        for tensor in (x, target, *net.parameters()):
            counter.add(tensor)
        card = ModelCard(counter)
        with memory_limit(1 << 40, card=card, planning=1.0) as run:
            step()
            (kind,) = run._steps.kinds
            least, most = least_limit(kind.timeline), kind.timeline.peak_bytes
            run.limit = run._steps.planning.following.limit = (
                int(least + share * (most - least)) + more
            )
            run._steps.planning.replan(kind)
            yield run, kind, card, step
        card.close()
