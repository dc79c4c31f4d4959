"""Convolutions and transposed convolutions of split tensors.

Each process computes its local rows of the output. Forward collects the halo of the input from the
neighbours. Backward collects a halo of the output's gradient instead, once for both gradients: the
gradient of the local rows of the input is then complete, and the filter's is a sum over these rows,
which an all-reduce completes. So each row of an output and of an input's gradient is computed as
without a split, and backward needs no halo of the input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oocdnn.torch.spatial.edges import Edges, edges_of
from oocdnn.torch.spatial.exchange import (
    NO_ROWS,
    Wanted,
    collect_rows,
    once_differentiable,
    replicated,
    start_rows,
    zeros,
)
from oocdnn.torch.spatial.layout import Layout, Rows
from oocdnn.torch.spatial.tensor import SpatialTensor, implements_each, local, per_axis, wrap
from oocdnn.torch.spatial.windows import TransposedInputs, TransposedWindow, Window

# Local bytes from which on the kernels for both ends take less time than a copy of all rows.
LEAST_BYTES = 1 << 27


@dataclass(frozen=True)
class ConvolutionArguments:
    """The arguments of a convolution for each spatial axis; `at` is the axis of the split."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    at: int

    def run(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool,
        padding: int = 0, output_padding: int = 0,
    ) -> Tensor:  # fmt: skip
        """The convolution of some rows with these paddings along the axis of the split."""
        return torch.ops.aten.convolution(
            x, weight, bias, self.stride, self._with(self.padding, padding), self.dilation,
            transposed, self._with(self.output_padding, output_padding), self.groups,
        )  # fmt: skip

    def run_backward(
        self, dy: Tensor, x: Tensor, weight: Tensor, transposed: bool, padding: int,
        needs: Sequence[bool],
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        """The gradients of the input and of the filter."""
        found = torch.ops.aten.convolution_backward(
            dy, x, weight, None, self.stride, self._with(self.padding, padding), self.dilation,
            transposed, self._with(self.output_padding, 0), self.groups, [*needs, False],
        )  # fmt: skip
        return found[0], found[1]

    def _with(self, values: Sequence[int], own: int) -> list[int]:
        return [own if axis == self.at else value for axis, value in enumerate(values)]


@dataclass(frozen=True)
class Needed:
    """The rows that each process collects, and the paddings of this process's convolution."""

    wanted: Wanted
    padding: int = 0
    output_padding: int = 0


def _by_windows(window: Window, outputs: Layout) -> Needed:
    """The input rows that the local output rows read."""
    return Needed(window.inputs_of_each(outputs.owned))


def _by_spread(window: Window, outputs: Layout, inputs: int) -> Needed:
    """The input rows that add to the local output rows; `inputs` are all of them."""
    spread = TransposedWindow(window)
    parts = [
        spread.inputs(rows, inputs) if rows[0] < rows[1] else TransposedInputs(NO_ROWS, 0, 0)
        for rows in outputs.owned
    ]
    own = parts[outputs.process]
    return Needed(tuple(part.rows for part in parts), own.padding, own.output_padding)


@dataclass(frozen=True)
class SplitConvolution:
    """One convolution of a split tensor."""

    inputs: Layout
    outputs: Layout
    window: Window
    arguments: ConvolutionArguments
    transposed: bool
    shape: tuple[int, ...]  # of the local rows of the output
    bytes_each: int  # of the input's rows, in the mean of all processes

    @cached_property
    def edges(self) -> tuple[Edges, ...] | None:
        """The ends of all processes' rows, if a halo is put beside these alone; else None."""
        if self.transposed or self.bytes_each < LEAST_BYTES:
            return None
        return edges_of(self.window, self.inputs, self.outputs)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        edges = self.edges
        if edges is not None:
            return self._forward_with_edges(edges, x, weight, bias)
        need = self._forward_rows
        rows = collect_rows(x, self.inputs, need.wanted)
        if not torch.Size(self.shape).numel():
            return x.new_empty(self.shape)
        cut = need.padding, need.output_padding
        return self.arguments.run(rows, weight, bias, self.transposed, *cut)

    @cached_property
    def _forward_rows(self) -> Needed:
        if self.transposed:
            return _by_spread(self.window, self.outputs, self.inputs.total)
        return _by_windows(self.window, self.outputs)

    @cached_property
    def _backward_rows(self) -> Needed:
        if self.transposed:
            return _by_windows(self.window, self.inputs)
        return _by_spread(self.window, self.inputs, self.outputs.total)

    def _forward_with_edges(
        self, edges: tuple[Edges, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        axis = self.inputs.axis
        own, outputs = self.inputs.own, self.outputs.own
        wanted = tuple(
            ((e.first.inputs[0], rows[0]), (rows[1], e.last.inputs[1]))
            for e, rows in zip(edges, self.inputs.owned, strict=True)
        )
        arriving = start_rows(x, self.inputs, wanted)
        mine = edges[self.inputs.process]
        y = self.arguments.run(x, weight, bias, False, mine.padding)
        others = arriving()
        before = own[0] - mine.first.inputs[0]
        above, below = others.split([before, others.shape[axis] - before], axis)
        ends = (
            (mine.first, (above, _rows(x, axis, own, (own[0], mine.first.inputs[1])))),
            (mine.last, (_rows(x, axis, own, (mine.last.inputs[0], own[1])), below)),
        )
        used = [(edge, parts) for edge, parts in ends if edge.outputs[0] < edge.outputs[1]]
        slabs = [(torch.cat(parts, axis),) for _, parts in used]
        found = _at_once(slabs, lambda slab: self.arguments.run(slab, weight, bias, False))
        for (edge, _), rows in zip(used, found, strict=True):
            _rows(y, axis, outputs, edge.outputs).copy_(rows)
        return y

    def backward(
        self, dy: Tensor, x: Tensor, weight: Tensor, needs: Sequence[bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradients of the local rows of x, and this process's part of the filter's."""
        edges = self.edges
        if edges is not None:
            return self._backward_with_edges(edges, dy, x, weight, needs)
        need = self._backward_rows
        rows = collect_rows(dy, self.outputs, need.wanted)
        if not x.numel() or not rows.numel():
            return torch.zeros_like(x), torch.zeros_like(weight)
        return self.arguments.run_backward(rows, x, weight, self.transposed, need.padding, needs)

    def _backward_with_edges(
        self, edges: tuple[Edges, ...], dy: Tensor, x: Tensor, weight: Tensor,
        needs: Sequence[bool],
    ) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
        axis = self.inputs.axis
        own, outputs = self.inputs.own, self.outputs.own
        wanted = tuple((e.first.others, e.last.others) for e in edges)
        arriving = start_rows(dy, self.outputs, wanted)
        mine = edges[self.inputs.process]
        dx, dw = self.arguments.run_backward(dy, x, weight, False, mine.padding, needs)
        others = arriving()
        before = mine.first.others[1] - mine.first.others[0]
        parts = others.split([before, others.shape[axis] - before], axis)
        used = [
            (edge, spread, rows, edge is mine.first)
            for edge, rows in zip((mine.first, mine.last), parts, strict=True)
            if (spread := edge.spread) is not None
        ]
        if dx is not None:
            slabs = []
            for edge, spread, rows, first in used:
                front, (low, high), behind = spread.rows
                near = _rows(dy, axis, outputs, (outputs[0], high) if first else (low, outputs[1]))
                order = [rows, near] if first else [near, rows]
                part = _rows(x, axis, own, edge.gradients)
                slabs.append((_between(front, order, behind, axis), part))
            found = self._input_gradients([spread.padding for _, spread, *_ in used], slabs, weight)
            for (edge, *_), part in zip(used, found, strict=True):
                _rows(dx, axis, own, edge.gradients).copy_(part)
        if dw is not None:
            slabs = []
            for edge, _, rows, _ in used:
                low, high = self.window.inputs(edge.others)
                known = max(low, own[0]), min(high, own[1])
                part = _rows(x, axis, own, known)
                slabs.append((rows, _between((low, known[0]), [part], (known[1], high), axis)))
            for others, parts in _together(slabs):
                _, more = self.arguments.run_backward(
                    others, parts, weight, False, 0, (False, True)
                )
                dw += more
        return dx, dw

    def _input_gradients(
        self, paddings: Sequence[int], slabs: Sequence[tuple[Tensor, ...]], weight: Tensor
    ) -> list[Tensor]:
        def of(padding: int) -> Callable[[Tensor, Tensor], Tensor]:
            def run(dy: Tensor, x: Tensor) -> Tensor:
                dx, _ = self.arguments.run_backward(dy, x, weight, False, padding, (True, False))
                assert dx is not None
                return dx

            return run

        if len(set(paddings)) == 1:
            return _at_once(slabs, of(paddings[0]))
        return [of(padding)(*slab) for padding, slab in zip(paddings, slabs, strict=True)]


def _together(slabs: Sequence[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Operands of equal sizes as one batch."""
    if len({tuple(part.shape for part in slab) for slab in slabs}) != 1:
        return list(slabs)
    return [tuple(torch.cat(parts) for parts in zip(*slabs, strict=True))]


def _at_once(slabs: Sequence[tuple[Tensor, ...]], run: Callable[..., Tensor]) -> list[Tensor]:
    """The result for each, by one launch where their sizes are equal."""
    return [rows for batch in _together(slabs) for rows in run(*batch).split(len(slabs[0][0]))]


def _rows(x: Tensor, axis: int, own: Rows, rows: Rows) -> Tensor:
    """A range of the local rows."""
    return x.narrow(axis, rows[0] - own[0], rows[1] - rows[0])


def _between(front: Rows, parts: Sequence[Tensor], behind: Rows, axis: int) -> Tensor:
    """Parts one after the other, between rows of zeros."""
    before, after = (zeros(parts[0], axis, end - begin) for begin, end in (front, behind))
    return torch.cat([before, *parts, after], axis)


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, problem: SplitConvolution
    ) -> Tensor:
        ctx.problem = problem
        ctx.save_for_backward(x, weight)
        return problem.forward(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        problem, needs = ctx.problem, ctx.needs_input_grad
        dx = dw = None
        if needs[0] or needs[1]:
            dx, dw = problem.backward(dy, x, weight, needs[:2])
        db = dy.sum([dim for dim in range(dy.ndim) if dim != 1]) if needs[2] else None
        return dx, dw, db, None


def _same(taps: int, dilation: int) -> tuple[int, int]:
    """Rows of the padding "same" in front and behind."""
    total = dilation * (taps - 1)
    return total // 2, total - total // 2


def _paddings(
    padding: Any, taps: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    if padding == "valid":
        padding = 0
    if padding == "same":
        return tuple(_same(t, d) for t, d in zip(taps, dilation, strict=True))
    return tuple((number, number) for number in per_axis(padding, len(taps)))


def _cast(*values: Tensor | None) -> list[Tensor | None]:
    """Casts to the type of autocast, which does not apply within custom autograd functions."""
    kind = next(value.device.type for value in values if value is not None)
    if not torch.is_autocast_enabled(kind):
        return list(values)
    dtype = torch.get_autocast_dtype(kind)
    return [
        value.to(dtype) if value is not None and value.dtype != torch.float64 else value
        for value in values
    ]


def convolve(
    function: str, transposed: bool, x: SpatialTensor, weight: Tensor, bias: Tensor | None,
    stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int,
) -> SpatialTensor:  # fmt: skip
    """conv1d to conv_transpose3d; `function` is the name that errors have."""
    if not isinstance(x, SpatialTensor):
        raise TypeError(f"{function} of a split filter or bias: only its input can be split")
    layout, rank = x.spatial_layout, weight.ndim - 2
    at = rank + layout.axis
    if at < 0:
        raise ValueError(
            f"{function} has {rank} spatial axes, but its input is split along axis "
            f"{layout.axis}; split one of its last {rank}"
        )
    _check(
        function, tuple(x.shape), tuple(weight.shape), None if bias is None else tuple(bias.shape),
        *(tuple(v) if isinstance(v, list) else v for v in (stride, padding, output_padding)),
        groups, tuple(dilation) if isinstance(dilation, list) else dilation,
    )  # fmt: skip
    rows, weight, bias = _cast(local(x), *replicated(layout.group, weight, bias))
    assert rows is not None
    assert weight is not None
    batched = rows.ndim == rank + 2
    rows = rows if batched else rows.unsqueeze(0)
    taps, dilation = tuple(weight.shape[2:]), per_axis(dilation, rank)
    paddings = _paddings(padding, taps, dilation)
    if any(first != last for axis, (first, last) in enumerate(paddings) if axis != at):
        # "same" with an even window: rows of zeros behind, as torch has it.
        rims = [
            (0, 0 if axis == at else last - first) for axis, (first, last) in enumerate(paddings)
        ]
        rows = torch.nn.functional.pad(rows, [number for rim in reversed(rims) for number in rim])
    arguments = ConvolutionArguments(
        per_axis(stride, rank), tuple(p for p, _ in paddings), dilation,
        per_axis(output_padding, rank), groups, at,
    )  # fmt: skip
    problem = _problem(
        layout, arguments, paddings[at][1], transposed, rows.shape, tuple(weight.shape),
        rows.element_size(),
    )  # fmt: skip
    y = _Convolution.apply(rows, weight, bias, problem)
    return wrap(y if batched else y.squeeze(0), problem.outputs)


@lru_cache(maxsize=1024)
def _check(
    function: str, x: Sequence[int], weight: Sequence[int], bias: Sequence[int] | None,
    stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any,
) -> None:  # fmt: skip
    """Raises what torch raises for whole tensors, on all processes alike."""
    operands = [
        None if size is None else torch.empty(size, device="meta") for size in (x, weight, bias)
    ]
    extra = (output_padding, groups, dilation) if "transpose" in function else (dilation, groups)
    getattr(torch, function)(*operands, stride, padding, *extra)


@lru_cache(maxsize=1024)
def _problem(
    layout: Layout, arguments: ConvolutionArguments, after: int, transposed: bool,
    shape: Sequence[int], filters: Sequence[int], element_bytes: int,
) -> SplitConvolution:  # fmt: skip
    """`shape`: of the local rows. `after`: the padding behind along the split axis; the others have
    as much at both ends."""
    whole, at = layout.whole(shape), arguments.at
    out = [shape[0], filters[1] * arguments.groups if transposed else filters[0]]
    windows = []
    for axis, (size, taps) in enumerate(zip(whole[2:], filters[2:], strict=True)):
        before = arguments.padding[axis]
        behind = after if axis == at else before
        window = Window(taps, arguments.stride[axis], arguments.dilation[axis], before, behind)
        spread = (size - 1) * window.stride - before - behind + window.reach
        out.append(spread + arguments.output_padding[axis] if transposed else window.outputs(size))
        windows.append(window)
    window, total = windows[at], out[2 + at]
    shares = TransposedWindow(window) if transposed else window
    outputs = layout.with_lengths(shares.lengths(layout.lengths, total))
    out[2 + at] = outputs.lengths[outputs.process]
    bytes_each = whole.numel() * element_bytes // len(layout.lengths)
    return SplitConvolution(layout, outputs, window, arguments, transposed, tuple(out), bytes_each)


@implements_each(torch.conv1d, torch.conv2d, torch.conv3d)
def _conv(
    function: Any, input: Any, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> SpatialTensor:  # fmt: skip
    name = function.__name__
    return convolve(name, False, input, weight, bias, stride, padding, 0, dilation, groups)


@implements_each(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
def _conv_transpose(
    function: Any, input: Any, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> SpatialTensor:  # fmt: skip
    return convolve(
        function.__name__, True, input, weight, bias, stride, padding, output_padding, dilation,
        groups,
    )  # fmt: skip
