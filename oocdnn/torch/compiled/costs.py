"""Seconds that the nodes of a graph take on a device.

What Inductor does not fuse is run once as it is, on values of the same form; the rest is as long as
the memory takes to read and write what the kernel does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from oocdnn.torch.limit.card import Card

_COPIED = 1 << 28  # bytes of the copy that measures the memory
_FUSED = 0.82  # of that bandwidth: what Inductor's kernels of ResNet and ConvNeXt had on an H200
_RUNS = 3
_AHEAD = 2e-3  # seconds of other work on the device, in which the host enqueues the runs
_UNKNOWN = 4096  # a size that the values of tensors decide


@dataclass(frozen=True)
class Cost:
    """Args:
    seconds: On the device.
    workspace: Device bytes besides operands and results.
    """

    seconds: float
    workspace: int = 0


class Costs(Protocol):
    bandwidth: float  # bytes a second that fused kernels read and write together

    def of(self, node: fx.Node) -> Cost:
        """The cost of a node that Inductor does not fuse."""


class Estimated:
    """By operations and bytes.

    Args:
        bandwidth: Bytes a second of the device's memory.
        rate: Floating-point operations a second.
    """

    def __init__(self, bandwidth: float, rate: float) -> None:
        self.bandwidth, self._rate = bandwidth, rate

    def of(self, node: fx.Node) -> Cost:
        moved = sum(nbytes_of(one) for one in node.all_input_nodes) + nbytes_of(node)
        return Cost(max(moved / self.bandwidth, _operations(node) / self._rate))


class Measured:
    """By running on a GPU, once for each form of operands."""

    def __init__(self, device: torch.device, card: Card) -> None:
        self._device, self._card = device, card
        source = torch.empty(_COPIED, dtype=torch.uint8, device=device)
        copied = self._run(lambda: source.clone())
        self.bandwidth = _FUSED * 2 * _COPIED / copied.seconds
        self._estimated = Estimated(self.bandwidth, float("inf"))
        self._known: dict[Any, Cost] = {}

    def of(self, node: fx.Node) -> Cost:
        key = _form(node)
        if key not in self._known:
            try:
                with _disable_current_modes(), torch.no_grad():
                    args, kwargs = (self._values(given) for given in (node.args, node.kwargs))
                    self._known[key] = self._run(lambda: node.target(*args, **kwargs))
            except Exception:  # it needs other values, or more memory than there is
                self._known[key] = self._estimated.of(node)
        return self._known[key]

    def _values(self, given: Any) -> Any:
        def value(one: Any) -> Any:
            if isinstance(one, fx.Node):
                return tree_map(self._made, one.meta["val"])
            return self._made(one)

        return tree_map(value, given, is_leaf=lambda one: isinstance(one, fx.Node))

    def _made(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            device = self._device if value.device.type == self._device.type else value.device
            size, stride = hints(value.size()), hints(value.stride())
            made = torch.empty_strided(size, stride, dtype=value.dtype, device=device)
            return made.uniform_(-1, 1) if value.dtype.is_floating_point else made.zero_()
        if isinstance(value, torch.SymInt):
            return hints([value])[0]
        if isinstance(value, torch.SymFloat | torch.SymBool):
            return value.node.hint
        return value

    def _run(self, call: Callable[[], Any]) -> Cost:
        index = self._device
        call()
        torch.cuda.synchronize(index)
        torch.cuda.reset_peak_memory_stats(index)
        before, marks = torch.cuda.memory_allocated(index), []
        with torch.cuda.device(index):
            self._card.busy(_AHEAD)
            for _ in range(_RUNS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                made = call()
                end.record()
                marks.append((begin, end))
                left = torch.cuda.memory_allocated(index)
                del made
        torch.cuda.synchronize(index)
        peak = torch.cuda.max_memory_allocated(index)
        seconds = min(begin.elapsed_time(end) for begin, end in marks) * 1e-3
        return Cost(seconds, max(peak - max(left, before), 0))


def hints(values: Any) -> list[int]:
    """Sizes as numbers: of symbols, what they were when the graph was traced, where that was
    known."""
    return [_hint(one) if isinstance(one, torch.SymInt) else int(one) for one in values]


def _hint(size: torch.SymInt) -> int:
    hint = size.node.hint
    return _UNKNOWN if hint is None else int(hint)


def nbytes_of(node: fx.Node) -> int:
    """Device bytes of the tensors of a node, from the first to the last element."""
    total = 0
    for value in tree_leaves(node.meta.get("val")):
        if isinstance(value, Tensor) and value.layout is torch.strided:
            sizes, strides = hints(value.size()), hints(value.stride())
            if all(sizes):
                extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
                total += extent * value.element_size()
    return total


def _operations(node: fx.Node) -> int:
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(getattr(node.target, "_overloadpacket", None))
    if count is None:
        return 0

    def value(one: Any) -> Any:
        return one.meta["val"] if isinstance(one, fx.Node) else one

    args, kwargs = (
        tree_map(value, given, is_leaf=lambda one: isinstance(one, fx.Node))
        for given in (node.args, node.kwargs)
    )
    try:
        return int(count(*args, **kwargs, out_val=node.meta["val"]))
    except Exception:  # forms that the counter does not know
        return 0


def _form(node: fx.Node) -> Any:
    """Equal for nodes that take equally long."""

    def form(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.dtype, tuple(hints(value.size())), tuple(hints(value.stride()))
        return repr(value)

    def known(one: Any) -> Any:
        leaf = one.meta.get("val") if isinstance(one, fx.Node) else one
        return tuple(form(value) for value in tree_leaves(leaf))

    leaves = tree_leaves((node.args, node.kwargs), is_leaf=lambda one: isinstance(one, fx.Node))
    return node.target, tuple(known(one) for one in leaves)
