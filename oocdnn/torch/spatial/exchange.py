"""Exchange of rows and sums over the processes of a group, for autograd.

All processes of a group call these functions in the same order, as they do any collective of
torch.distributed. Each process knows all layouts, so no sizes are sent.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable as _once

from oocdnn.torch.spatial.layout import Layout, Rows, pieces

Wanted = tuple[tuple[Rows, ...], ...]  # ranges of rows for each process, in the order wanted
Plan = tuple[tuple[tuple[int, Rows], ...], ...]  # for each process: the owner, and its rows
NO_ROWS: tuple[Rows, ...] = ()


@lru_cache(maxsize=4096)
def _plan(wanted: Wanted, layout: Layout) -> tuple[Plan, bool]:
    """The owners of the rows that each process gets, and whether any gets rows of another."""
    plan = tuple(tuple(pieces(rows, layout)) for rows in wanted)
    others = any(owner not in (process, -1) for process, of in enumerate(plan) for owner, _ in of)
    return plan, others


def _format(x: Tensor) -> torch.memory_format:
    """The memory order of rows that are cut from `x`."""
    for order, ndim in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if x.ndim == ndim and not x.is_contiguous() and x.is_contiguous(memory_format=order):
            return order
    return torch.contiguous_format


def _sizes(x: Tensor, axis: int, count: int) -> list[int]:
    return [count if dim == axis else size for dim, size in enumerate(x.shape)]


def zeros(x: Tensor, axis: int, count: int) -> Tensor:
    """`count` rows of zeros beside those of `x`."""
    shape = _sizes(x, axis % x.ndim, count)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=_format(x)).zero_()


def _all_to_all(
    x: Tensor, layout: Layout, out: Sequence[Sequence[Tensor]], counts: Sequence[Sequence[int]]
) -> tuple[Any, list[Iterator[Tensor]]]:
    """Begins to send `out`, tensors of rows for each process; returns what to wait for, and as many
    contiguous tensors of `counts` rows as come from each. `x` has their type and other sizes."""
    axis = layout.dim(x.ndim)
    shapes = [[_sizes(x, axis, count) for count in of] for of in counts]
    sizes = [[torch.Size(shape).numel() for shape in of] for of in shapes]
    # In logical order, because strides differ between processes.
    sent = [rows.contiguous().view(-1) for of in out for rows in of]
    came = x.new_empty(sum(sum(of) for of in sizes))
    # Bytes, because not every backend knows every type.
    work = dist.all_to_all_single(
        came.view(torch.uint8),
        (sent[0] if len(sent) == 1 else torch.cat(sent or [came[:0]])).view(torch.uint8),
        [sum(of) * x.element_size() for of in sizes],
        [sum(rows.numel() for rows in of) * x.element_size() for of in out],
        group=layout.group,
        async_op=True,
    )
    flat = iter(came.split([size for of in sizes for size in of]))
    return work, [iter([next(flat).view(shape) for shape in of]) for of in shapes]


def start_rows(
    x: Tensor, layout: Layout, wanted: Wanted, value: float = 0.0
) -> Callable[[], Tensor]:
    """Begins to collect the rows that this process wants of the whole tensor; those outside of the
    axis have `value`. Returns a function that waits for the rows and returns them: `x`, a view of
    it or a new tensor. A GPU can compute in the meantime. Not differentiable."""
    (plan, crosses), me, axis = _plan(wanted, layout), layout.process, layout.dim(x.ndim)
    first = layout.own[0]

    def own(rows: Rows) -> Tensor:
        return x.narrow(axis, rows[0] - first, rows[1] - rows[0])

    work: Any = None
    came: list[Iterator[Tensor]] = []
    if crosses:
        out = [[own(r) for o, r in of if o == me != process] for process, of in enumerate(plan)]
        processes = range(len(plan))
        counts = [[r[1] - r[0] for o, r in plan[me] if o == process != me] for process in processes]
        work, came = _all_to_all(x, layout, out, counts)

    def finish() -> Tensor:
        if work is not None:
            work.wait()
        parts = []
        for owner, rows in plan[me]:
            if owner == me:
                parts.append(own(rows))
            elif owner >= 0:
                parts.append(next(came[owner]).contiguous(memory_format=_format(x)))
            else:
                parts.append(zeros(x, axis, rows[1] - rows[0]).fill_(value))
        if not parts:
            return x.narrow(axis, 0, 0)
        return torch.cat(parts, axis) if len(parts) > 1 else parts[0]

    return finish


def collect_rows(x: Tensor, layout: Layout, wanted: Wanted, value: float = 0.0) -> Tensor:
    """The rows that `start_rows` begins to collect."""
    return start_rows(x, layout, wanted, value)()


def return_rows(g: Tensor, layout: Layout, wanted: Wanted) -> Tensor:
    """The reverse of `collect_rows`: adds all processes' rows up where they came from, those of the
    process itself first, then in the order of the processes. Not differentiable."""
    (plan, crosses), me, axis = _plan(wanted, layout), layout.process, layout.dim(g.ndim)
    first, end = layout.own
    total = zeros(g, axis, end - first)

    def add(rows: Rows, part: Tensor) -> None:
        total.narrow(axis, rows[0] - first, rows[1] - rows[0]).add_(part)

    out: list[list[Tensor]] = [[] for _ in plan]
    parts = g.split([rows[1] - rows[0] for _, rows in plan[me]], axis) if plan[me] else ()
    for (owner, rows), part in zip(plan[me], parts, strict=True):
        if owner == me:
            add(rows, part)
        elif owner >= 0:
            out[owner].append(part)
    if crosses:
        back = [[r for o, r in of if o == me != process] for process, of in enumerate(plan)]
        work, came = _all_to_all(g, layout, out, [[r[1] - r[0] for r in of] for of in back])
        work.wait()
        for ranges, tensors in zip(back, came, strict=True):
            for rows, part in zip(ranges, tensors, strict=True):
                add(rows, part)
    return total


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """torch.autograd.function.once_differentiable with types: second derivatives raise an error."""
    found: Callable[..., Any] = _once(backward)
    return found


def _new(rows: Tensor, x: Tensor) -> Tensor:
    """A copy where `rows` are `x` or a view: custom functions return new tensors."""
    return rows.clone() if rows is x or rows._is_view() else rows


class _Collect(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Layout, wanted: Wanted, value: float) -> Tensor:
        ctx.layout, ctx.wanted = layout, wanted
        return _new(collect_rows(x, layout, wanted, value), x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _Return.apply(g, ctx.layout, ctx.wanted), None, None, None


class _Return(Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, layout: Layout, wanted: Wanted) -> Tensor:
        ctx.layout, ctx.wanted = layout, wanted
        return return_rows(g, layout, wanted)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Any:
        return _Collect.apply(x, ctx.layout, ctx.wanted, 0.0), None, None


def collect(x: Tensor, layout: Layout, wanted: Wanted, value: float = 0.0) -> Tensor:
    """`collect_rows` for autograd. Where each process wants its local rows, `x` itself."""
    if wanted == tuple((rows,) for rows in layout.owned):
        return x
    return _Collect.apply(x, layout, wanted, value)


def redistribute(x: Tensor, layout: Layout, lengths: Sequence[int]) -> Tensor:
    """The rows of another split of the same axis."""
    other = layout.with_lengths(lengths)
    return collect(x, layout, tuple((rows,) for rows in other.owned))


def without_rows(
    x: Tensor, axis: int, function: Callable[[Tensor], Tensor], rows: int = 1
) -> Tensor:
    """The result of `function` on a process that has no rows of it: of the sizes that `rows` rows
    of `x` have, with none along `axis`. It is part of the autograd graph, so that backward takes
    the same collectives on all processes."""
    probe = torch.empty(_sizes(x, x.ndim + axis, rows), dtype=x.dtype, device="meta")
    shape = list(function(probe).shape)
    shape[axis] = 0
    return x.new_zeros(shape) + x.sum() * 0


@lru_cache(maxsize=256)
def constant(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor that is kept: a copy from the host synchronizes with the device."""
    with torch.inference_mode(False):  # for autograd too
        return torch.tensor(values, dtype=dtype, device=device)


class _Whole(Function):
    """All rows on each process. Each process has the whole gradient and takes its local rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        every = ((0, layout.total),)
        return _new(collect_rows(x, layout, (every,) * len(layout.lengths)), x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        return own_rows(g, ctx.layout), None


def whole(x: Tensor, layout: Layout) -> Tensor:
    """The whole tensor, on each process."""
    return _Whole.apply(x, layout)


def own_rows(x: Tensor, layout: Layout) -> Tensor:
    """This process's rows of a tensor that each process has whole."""
    first, end = layout.own
    return x.narrow(layout.axis, first, end - first)


class _SumOfGradients(Function):
    """Identity; the gradients of all processes are summed, in one collective for each type."""

    @staticmethod
    def forward(ctx: Any, group: Any, *values: Tensor) -> Any:
        ctx.group = group
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, *sum_over(grads, ctx.group))


def sum_over(values: Sequence[Tensor | None], group: Any) -> tuple[Tensor | None, ...]:
    """Sums of each value over the processes; values of one type go together."""
    found = list(values)
    for dtype in dict.fromkeys(value.dtype for value in found if value is not None):
        at = [i for i, value in enumerate(found) if value is not None and value.dtype == dtype]
        some = [found[i] for i in at]
        flat = torch.cat([value.reshape(-1) for value in some if value is not None])
        dist.all_reduce(flat, group=group)
        for i, part in zip(at, flat.split([v.numel() for v in some if v is not None]), strict=True):
            old = found[i]
            assert old is not None
            found[i] = part.view(old.shape)
    return tuple(found)


def replicated(group: Any, *values: Tensor | None) -> tuple[Tensor | None, ...]:
    """Values that all processes have alike, for use with split tensors: their gradients are summed
    over the group."""
    at = [i for i, value in enumerate(values) if value is not None and value.requires_grad]
    if not at or not torch.is_grad_enabled():
        return values
    found = list(values)
    for i, value in zip(at, _SumOfGradients.apply(group, *(values[i] for i in at)), strict=True):
        found[i] = value
    return tuple(found)


class _Sum(Function):
    """An all-reduce. Each process has the gradient of the sum, which is that of its own term."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Any) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, None


def summed(value: Tensor, group: Any) -> Tensor:
    """The sum of all processes' values."""
    return _Sum.apply(value, group)
