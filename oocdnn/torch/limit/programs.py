"""A recipe's operations in the order in which they run, some of them fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit import fused
from oocdnn.torch.limit.calls import Call, Constant, Leaf, Part
from oocdnn.torch.limit.entry import Like, like_of
from oocdnn.torch.limit.kinds import KINDS


@dataclass(frozen=True)
class _Slot:
    """The place of a value."""

    at: int


@dataclass
class _Step:
    """Its result goes to the next slot.

    Args:
        free: Slots that no later step reads.
        over: One of them, whose tensor the result overwrites.
    """

    run: Callable[..., Tensor]
    operands: tuple[Any, ...]
    free: tuple[int, ...] = ()
    over: int | None = None

    def value(self, slots: list[Tensor | None]) -> Tensor:
        if self.over is not None:
            return self.run(*self._given(slots), out=slots[self.over])
        return self.run(*self._given(slots))

    def into(self, out: Tensor, slots: list[Tensor | None]) -> Tensor:
        """Writes the value."""
        if isinstance(self.run, fused.Kernel):
            return self.run(*self._given(slots), out=out)
        return out.copy_(self.value(slots))

    def _given(self, slots: list[Tensor | None]) -> Iterator[Any]:
        return (slots[o.at] if isinstance(o, _Slot) else o for o in self.operands)


class Program:
    """Made for leaves of certain forms; the leaves are the first slots."""

    def __init__(self, steps: list[_Step], leaves: int) -> None:
        self._steps = steps
        last: dict[int, _Step] = {}
        for step in steps:
            for operand in step.operands:
                if isinstance(operand, _Slot):
                    last[operand.at] = step
        for step in steps:
            step.free = tuple(at for at, one in last.items() if one is step)

    def __call__(self, leaves: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """The result, in `out` where that is given: of its form, but for the offset."""
        slots: list[Tensor | None] = list(leaves)
        *steps, last = self._steps
        for step in steps:
            slots.append(step.value(slots))
            for at in step.free:
                slots[at] = None
        return last.value(slots) if out is None else last.into(out, slots)


def build(root: Call, like: Like, leaves: Sequence[Tensor], fuse: bool) -> tuple[Program, Tensor]:
    """The program and its result, which has a storage of its own."""
    builder = _Builder(leaves, fuse)
    part = builder.call(root)
    at = builder.slot(part, like)
    value = builder.values[at]
    if like_of(value) != like or not _owns(value, leaves) or at != len(builder.values) - 1:
        value = builder.values[builder.emit(_copied(like), (_Slot(at),))]
    return Program(builder.steps, len(leaves)), value


def _owns(value: Tensor, leaves: Sequence[Tensor]) -> bool:
    storage = value.untyped_storage()
    whole = storage.nbytes() == value.numel() * value.element_size()
    return whole and all(storage.data_ptr() != leaf.untyped_storage().data_ptr() for leaf in leaves)


def _copied(like: Like) -> Callable[[Tensor], Tensor]:
    dtype, size, stride, _ = like

    def copied(value: Tensor) -> Tensor:
        if value.dtype != dtype or value.size() != size:
            raise RuntimeError("the recipe gives another type or shape")
        return torch.empty_strided(size, stride, dtype=dtype, device=value.device).copy_(value)

    return copied


class _Builder:
    """Runs the operations of a recipe and notes them as steps."""

    def __init__(self, leaves: Sequence[Tensor], fuse: bool) -> None:
        self.values: list[Any] = list(leaves)
        self.steps: list[_Step] = []
        self._leaves = len(leaves)
        self._fuse = fuse
        self._next = 0  # leaf

    def emit(self, run: Callable[..., Tensor], operands: tuple[Any, ...]) -> int:
        step = _Step(run, operands)
        if isinstance(run, fused.Kernel):
            step.over = next((slot for slot in run.over if self._is_temporary(slot)), None)
        self.values.append(step.value(self.values))
        self.steps.append(step)
        for operand in operands:
            if isinstance(operand, _Slot) and operand.at >= self._leaves:
                self.values[operand.at] = None  # in a tree nobody else reads it
        return len(self.values) - 1

    def _is_temporary(self, slot: int) -> bool:
        """Whether a value has a storage of its own. In a tree only one step reads it."""
        return slot >= self._leaves and _owns(self.values[slot], self.values[: self._leaves])

    def call(self, call: Call) -> fused.Expression:
        kind = KINDS[call.name]
        parts: list[Any] = [self._part(operand) for operand in call.operands]
        others = (*call.attributes, *call.settled)
        if self._fuse:
            try:
                if kind.view is not None:
                    return _through(parts[0], kind.view, others)
                if kind.fuse is not None:
                    return kind.fuse(*parts, *others)
            except (fused.NotFusable, RuntimeError):
                pass  # the operation runs by itself
        operands = tuple(
            _Slot(self.slot(part)) if isinstance(part, fused.Expression) else part for part in parts
        )
        run = kind.run
        if kind.many:
            run = _one_of(run, call.output)
        at = self.emit(run, (*operands, *others))
        return fused.Input(at, self.values[at])

    def slot(self, expression: fused.Expression, like: Like | None = None) -> int:
        """Where the value of an expression is."""
        if isinstance(expression, fused.Input):
            form = like_of(expression.tensor)
            if form == like_of(self.values[expression.slot]):
                return expression.slot
            _, size, stride, _ = form
            place = (_Slot(expression.slot), size, stride, expression.offset)
            return self.emit(fused.placed, place)
        whole = like is not None and like[1] == expression.shape
        stride = like[2] if like is not None and whole else fused.strides_of(expression)
        kernel = fused.Kernel(expression, stride)
        return self.emit(kernel, tuple(map(_Slot, kernel.slots)))

    def _part(self, operand: Part) -> Any:
        if operand is None:
            return None
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Leaf):
            self._next += 1
            return fused.Input(self._next - 1, self.values[self._next - 1])
        return self.call(operand[1])


def _through(
    expression: fused.Expression, view: Callable[..., Tensor], others: tuple[Any, ...]
) -> fused.Expression:
    return expression.through(lambda tensor: view(tensor, *others))


def _one_of(run: Callable[..., Any], output: int) -> Callable[..., Any]:
    def one(*operands: Any) -> Any:
        return run(*operands)[output]

    return one


def evaluate(operand: Part, leaves: Any) -> Any:
    """The value of an operand, each operation by itself; `leaves` iterates over its leaves."""
    if operand is None:
        return None
    if isinstance(operand, Constant):
        return operand.value
    if isinstance(operand, Leaf):
        return next(leaves)
    call = operand[1]
    kind = KINDS[call.name]
    values = [evaluate(one, leaves) for one in call.operands]
    result = kind.run(*values, *call.attributes, *call.settled)
    return result[call.output] if kind.many else result
