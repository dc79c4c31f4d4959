"""Has PyTorch's allocator put a step's allocations where they leave few gaps.

The runtime takes free blocks where it acts, so that what is allocated next goes into the holes that
it leaves, and gives them back where it acts later. Where that is not enough, unused memory is given
back to the driver in the midst of the step, which takes longer. The core library finds both
(native/heap).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from oocdnn._core.heap import steered, trimmed
from oocdnn._core.native import Progress
from oocdnn.torch.limit.heap.allocations import Point, Step
from oocdnn.torch.limit.heap.allocator import Heap

Act = tuple[int, int]  # address and bytes that are taken there; 0 bytes: it is given back


@dataclass(frozen=True)
class Steering:
    """What the runtime takes and gives back in a step.

    Args:
        end: Address up to which everything is mapped before the first step.
        acts: At points, in order; what none gives back is given back at the end of the step.
        reserved: Most bytes taken from the driver.
        trims: Points at which unused memory is given back to the driver, and how many bytes.
    """

    end: int
    acts: dict[Point, tuple[Act, ...]]
    reserved: int
    trims: Mapping[Point, int] = field(default_factory=dict)


def steer(
    step: Step,
    heap: Heap,
    limit: int,
    end: float,
    number: int = 0,
    progress: Progress | None = None,
) -> Steering | None:
    """Steering under which no more than `limit` bytes are reserved; None if none was found by the
    moment `end` of `time.monotonic`, or the allocator has no expandable segments. Each `number`
    looks elsewhere. What `progress` raises ends the search; it is called every few milliseconds."""
    seconds = end - time.monotonic()
    found = steered(heap.native, step.requests, limit - heap.elsewhere, number, seconds, progress)
    if found is None:
        return None
    acts: defaultdict[Point, list[Act]] = defaultdict(list)
    for group, address, nbytes in found.acts:
        point = step.groups[group].point
        assert point is not None
        acts[point].append((address, nbytes))
    made = {point: tuple(some) for point, some in acts.items()}
    return Steering(found.end, made, found.reserved + heap.elsewhere)


def trims(step: Step, heap: Heap, limit: int) -> Steering | None:
    """Trims under which no more than `limit` bytes are reserved; None if none help."""
    found = trimmed(heap.native, step.requests, limit - heap.elsewhere)
    if found is None:
        return None
    points: dict[Point, int] = {}
    for group, nbytes in found.trims:
        point = step.groups[group].point
        assert point is not None
        points[point] = nbytes
    return Steering(0, {}, found.reserved + heap.elsewhere, points)
