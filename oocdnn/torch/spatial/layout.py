"""The split of a tensor's axis over the processes of a group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist

Rows = tuple[int, int]  # from the first, to before the last; of the whole axis


def even(length: int, processes: int) -> tuple[int, ...]:
    """The lengths of equal shares of `length` rows; the first ones have a row more."""
    least, more = divmod(length, processes)
    return tuple(least + (process < more) for process in range(processes))


@dataclass(frozen=True)
class Layout:
    """The split of one axis: process `i` of `group` holds `lengths[i]` rows, in order.

    `axis` counts from the end, so that it names the same axis of operands of fewer dimensions.
    """

    group: Any
    axis: int
    lengths: tuple[int, ...]

    @cached_property
    def total(self) -> int:
        return sum(self.lengths)

    @cached_property
    def process(self) -> int:
        """The number of this process within the group."""
        return int(dist.get_rank(self.group))

    @cached_property
    def owned(self) -> tuple[Rows, ...]:
        """The rows of each process."""
        ends = tuple(accumulate(self.lengths))
        return tuple((end - length, end) for end, length in zip(ends, self.lengths, strict=True))

    @property
    def own(self) -> Rows:
        """The rows of this process."""
        return self.owned[self.process]

    def with_lengths(self, lengths: Sequence[int]) -> "Layout":
        return Layout(self.group, self.axis, tuple(lengths))

    def whole(self, shape: Sequence[int]) -> torch.Size:
        """The shape of the whole tensor whose part here has `shape`."""
        sizes = list(shape)
        sizes[self.axis] = self.total
        return torch.Size(sizes)

    def dim(self, ndim: int) -> int:
        """The axis, counted from the first of `ndim` dimensions."""
        return ndim + self.axis


def lengths_of(bounds: Sequence[int]) -> tuple[int, ...]:
    """From the first rows of all processes and the end of the last to lengths."""
    return tuple(end - begin for begin, end in pairwise(bounds))


def pieces(rows: Sequence[Rows], layout: Layout) -> Iterator[tuple[int, Rows]]:
    """Cuts ranges of rows where owners change: (owner, rows), in the order of `rows`.

    Rows before the first and after the last of the axis have no owner: -1.
    """
    for begin, end in rows:
        for owner, (first, last) in (
            (-1, (begin, min(end, 0))),
            *enumerate(layout.owned),
            (-1, (max(begin, layout.total), end)),
        ):
            low, high = max(begin, first), min(end, last)
            if low < high:
                yield owner, (low, high)
