"""Saved tensors computed again from others that autograd saves, bit for bit.

A recipe describes the output of a node of autograd's graph in terms of what the nodes before it
saved: relu(batch norm(y)) from y and the saved statistics, a block's output from its last
convolution's result and the block before, a convolution's result from its input. It is found once,
where forward saves the tensor, and admitted only where it gave that tensor's very bits. Later steps
bind it to their own tensors, and only where they run the same operations on operands of the same
form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from oocdnn.torch.limit import fused
from oocdnn.torch.limit.calls import Call, Constant, Leaf, Part
from oocdnn.torch.limit.entry import Kept, Like, Packed, like_of
from oocdnn.torch.limit.kinds import KINDS, Kind, Operand, is_given, kind_of
from oocdnn.torch.limit.norms import same_bits
from oocdnn.torch.limit.programs import Program, build, evaluate
from oocdnn.torch.limit.trace import Node, Trace, is_saving

_DEPTH = 8  # operations between the result and what is saved, views aside
_HEAVY = 2  # of them, operations whose time is arithmetic

# Of operations on other operands than theirs, and of nodes that were freed.
FAILURES = (RuntimeError, TypeError, AttributeError, fused.NotFusable)

Source = Packed | Kept  # parameters are kept too

# The type of the nodes that accumulate the gradients of parameters.
_PARAMETER = torch._C._functions.AccumulateGrad


@dataclass(eq=False)
class Computation:
    """Computes one saved tensor from others: the form of the result and of each leaf."""

    like: Like
    leaves: tuple[Like, ...]

    @property
    def name(self) -> str:
        """`replay` where arithmetic runs again, else `rebuild`."""
        raise NotImplementedError

    def compute(self, leaves: Sequence[Tensor]) -> Tensor:
        """The result from its leaves."""
        raise NotImplementedError


@dataclass(eq=False)
class Recipe(Computation):
    """A tree of calls; leaves are in the order of a walk that takes operands from left to right.

    Args:
        fuse: Elementwise operations run in generated kernels, else each by itself.
    """

    root: Call
    fuse: bool = False
    program: Program | None = None

    @property
    def name(self) -> str:
        return "replay" if any(KINDS[call.name].heavy for call in self.root.calls) else "rebuild"

    def bind(self, tensor: Tensor, trace: Trace) -> Bound | None:
        """The recipe for a tensor of this step; None where it is not the same computation."""
        tensor = whole(tensor)
        node = tensor.grad_fn
        if node is None or like_of(tensor) != self.like or tensor.output_nr != self.root.output:
            return None
        sources: list[Source] = []
        try:
            if not _matches(self.root, node, node._sequence_nr(), trace, sources):
                return None
        except FAILURES:
            return None
        if tuple([source.like for source in sources]) != self.leaves:
            return None
        return Bound(self, sources)

    def outputs(self, sources: Sequence[Source]) -> list[Source]:
        """Sources that the step's trace tells; the others are with the nodes that read them."""
        leaves = zip(self.root.leaves, sources, strict=True)
        return [source for leaf, source in leaves if leaf is Leaf.OUTPUT]

    def compute(self, leaves: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """The result, in `out` where that is given. Autograd and autocast are off: operands have
        the types that the operations had."""
        enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # as `torch.no_grad` does, in less time
        try:
            with torch._C._DisableAutocast():
                if self.program is not None:
                    return self.program(leaves, out)
                self.program, value = build(self.root, self.like, leaves, self.fuse)
                return value if out is None else out.copy_(value)
        finally:
            torch._C._set_grad_enabled(enabled)


@dataclass
class Bound:
    """A recipe with the tensors of one step. It holds them as autograd does."""

    recipe: Computation
    sources: list[Source]


class Read(Protocol):
    """Reads what autograd holds."""

    def tensor(self, source: Source) -> Tensor:
        """On the device."""


def whole(tensor: Tensor) -> Tensor:
    """The tensor that fills the storage of a saved one: itself, or what it is a view of."""
    return tensor if _fills(tensor) or tensor._base is None else tensor._base


def _fills(tensor: Tensor) -> bool:
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


def admit(tensor: Tensor, trace: Trace, read: Read) -> Bound | str:
    """A recipe that gives the storage of a tensor that is being saved; else why there is none."""
    tensor = whole(tensor)
    if not _fills(tensor):
        return "part of a storage"
    admitted: list[Recipe] = []
    try:
        found = search(tensor, trace, read)
        if isinstance(found, str):
            return found
        recipes, sources = found
        for recipe in recipes:
            if not any(recipe.root == other.root for other in admitted):
                leaves = [read.tensor(source) for source in sources]
                if gives(recipe, leaves, tensor):
                    admitted.append(recipe)
    except FAILURES as error:  # also of sources that were written since
        return str(error)
    if not admitted:
        return f"{recipes[0].root.name}: other bits"
    if len(admitted) > 1:
        return f"{recipes[0].root.name}: several operations give the bits"
    return Bound(admitted[0], sources)


def gives(recipe: Computation, leaves: Sequence[Tensor], tensor: Tensor) -> bool:
    """Whether the recipe has the tensor's bits."""
    try:
        return same_bits(recipe.compute(leaves), tensor.detach())
    except FAILURES:
        return False


def search(tensor: Tensor, trace: Trace, read: Read) -> tuple[list[Recipe], list[Source]] | str:
    """Recipes of a tensor, the fastest first, and what they read; else why there is none."""
    node = tensor.grad_fn
    if node is None:
        return "not computed from what is saved"
    finder = _Finder(trace, read, node._sequence_nr())
    root = finder.call(node, tensor.output_nr, _DEPTH)
    if root is None:
        return finder.why
    if sum(KINDS[call.name].heavy for call in root.calls) > _HEAVY:
        return f"{root.name}: too much arithmetic"
    like, leaves = like_of(tensor), tuple(source.like for source in finder.sources)
    forms = (True, False) if fused.is_there(tensor) else (False,)
    recipes = [Recipe(like, leaves, one, fuse) for one in _guessed(root) for fuse in forms]
    return recipes, finder.sources


def _guessed(call: Call) -> list[Call]:
    """The call with each guess for what is not known of it or of those behind it."""
    calls = [call]
    for place, operand in enumerate(call.operands):
        if isinstance(operand, tuple):
            calls = [
                replace(
                    one,
                    operands=(
                        *one.operands[:place],
                        (operand[0], inner),
                        *one.operands[place + 1 :],
                    ),
                )
                for one in calls
                for inner in _guessed(operand[1])
            ]
    guesses = KINDS[call.name].guesses
    return [replace(one, settled=guess) for one in calls for guess in guesses] if guesses else calls


class _Finder:
    """One walk from a node towards what is saved."""

    def __init__(self, trace: Trace, read: Read, newest: int) -> None:
        self._trace, self._read, self._newest = trace, read, newest
        self.sources: list[Source] = []
        self.why = ""

    def call(self, node: Node, output: int, depth: int) -> Call | None:
        name, kind = kind_of(node)
        if kind is not None and kind.guesses and not is_saving(node):
            kind = None
        if kind is None or depth == 0 or (output != 0 and not kind.many):
            self.why = f"{name}: " + (
                "no row" if kind is None else "too deep" if not depth else "no result"
            )
            return None
        mark = len(self.sources)
        call = self._call(node, name, kind, output, depth if kind.view is not None else depth - 1)
        if call is None:
            self.why += f" < {name}"
            del self.sources[mark:]
        return call

    def _call(self, node: Node, name: str, kind: Kind, output: int, depth: int) -> Call | None:
        found: list[Part] = []
        mark = len(self.sources)
        for operand in kind.operands_of(node):
            one = self._operand(node, operand, depth) if is_given(operand, node) else None
            if one is None and is_given(operand, node):
                return None
            found.append(one)
        attributes, settled = kind.read(node), ()
        if kind.settle is not None:
            leaves = iter([self._read.tensor(source) for source in self.sources[mark:]])
            with torch.no_grad(), torch._C._DisableAutocast():
                values = [evaluate(one, leaves) for one in found]
                answer = kind.settle(*values, *attributes)
            if answer is None:
                self.why = "unknown arithmetic"
                return None
            settled = answer
        back = self._newest - node._sequence_nr()
        return Call(name, attributes, settled, back, output, tuple(found))

    def _operand(self, node: Node, operand: Operand, depth: int) -> Part:
        saved = _saved(node, operand)
        if isinstance(saved, Constant):
            return saved
        if saved is not None:
            self.sources.append(saved)
            return Leaf.SAVED
        behind = _behind(node, operand.edge)
        if behind is None:
            self.why = f"operand {operand.attribute or operand.edge} is not there"
            return None
        leaf = _leaf(behind, self._trace)
        if leaf is not None:
            self.sources.append(leaf[1])
            return leaf[0]
        call = self.call(*behind, depth)
        return None if call is None else (operand.edge, call)


def _saved(node: Node, operand: Operand) -> Source | Constant | None:
    """What a node saves of an operand."""
    if not operand.attribute:
        return None
    saved = getattr(node, operand.raw).data
    if type(saved) is Packed or isinstance(saved, Kept):
        return saved
    if isinstance(saved, Tensor) and saved.dim() == 0 and saved.device.type == "cpu":
        return Constant(saved.item())
    return None


def _behind(node: Node, edge: int) -> tuple[Node, int] | None:
    """The node behind an edge, and which of its outputs."""
    if not 0 <= edge < len(node.next_functions):
        return None
    behind, output = node.next_functions[edge]
    return None if behind is None else (behind, output)


def _leaf(behind: tuple[Node, int], trace: Trace) -> tuple[Leaf, Source] | None:
    if isinstance(behind[0], _PARAMETER):
        return Leaf.PARAMETER, Kept(behind[0].variable)
    saved = trace.output(*behind)
    return None if saved is None else (Leaf.OUTPUT, saved)


def _matches(call: Call, node: Node, newest: int, trace: Trace, sources: list[Source]) -> bool:
    """Whether a node of this step is the one of the call; collects its leaves."""
    name, kind = kind_of(node)
    if kind is None or name != call.name or newest - node._sequence_nr() != call.back:
        return False
    if not kind.has(node, call.attributes):
        return False
    operands = kind.operands_of(node)
    if len(operands) != len(call.operands):
        return False
    for part, operand in zip(call.operands, operands, strict=True):
        if not _part_matches(part, operand, node, newest, trace, sources):
            return False
    return True


def _part_matches(
    part: Part, operand: Operand, node: Node, newest: int, trace: Trace, sources: list[Source]
) -> bool:
    if part is None:
        return not is_given(operand, node)
    saved = _saved(node, operand)
    if isinstance(part, Constant) or isinstance(saved, Constant):
        return part == saved
    if saved is not None:
        sources.append(saved)
        return part is Leaf.SAVED
    behind = _behind(node, operand.edge)
    if behind is None:
        return False
    if isinstance(part, tuple):
        same = behind[1] == part[1].output
        return same and _matches(part[1], behind[0], newest, trace, sources)
    leaf = _leaf(behind, trace)
    if leaf is None or leaf[0] is not part:
        return False
    sources.append(leaf[1])
    return True
