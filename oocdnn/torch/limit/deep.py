"""Saved tensors computed through others that are not there: in slices of the batch, so that what is
between takes little memory.

A deep recipe composes a tensor's own recipe with those of some of its inputs, the inner tensors.
The recipes are bound one by one as the step saves the tensors, so that it adds no rules to theirs.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from oocdnn.torch.limit.entry import Kept, Like, Packed
from oocdnn.torch.limit.recipes import FAILURES, Bound, Computation, Recipe, Source
from oocdnn.torch.limit.rows import Rows, rows_of

SLICES = (8, 2)  # of the batch; fewer where these give other bits
_MOST = 3  # deep recipes of a tensor

Inner = frozenset[int]  # numbers of entries


class Bounds:
    """Recipes of the tensors of one step, by the numbers of entries. It holds no saved tensor that
    autograd does not hold."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Computation, list[Callable[[], Source | None]]]] = {}

    def add(self, number: int, bound: Bound) -> None:
        self._known[number] = bound.recipe, [_reference(source) for source in bound.sources]

    def get(self, number: int) -> Bound:
        """Raises LookupError where there is none, or one of its sources is gone."""
        recipe, references = self._known[number]
        sources = [source for one in references if (source := one()) is not None]
        if len(sources) < len(references):
            raise LookupError(f"a source of the recipe of entry {number} is gone")
        return Bound(recipe, sources)


def _reference(source: Source) -> Callable[[], Source | None]:
    """Weak, but to a parameter, which nothing else may hold in this form."""
    return partial(_same, source) if type(source) is Kept else weakref.ref(source)


def _same(source: Source) -> Source:
    return source


class _Chain:
    """Recipes in the order in which they run, the result's last.

    Args:
        own: Of the result.
        inner: Numbers of the tensors that are computed on the way.
        bounds: Their recipes.
    """

    def __init__(self, own: Bound, inner: Inner, bounds: Bounds) -> None:
        self._inner, self._bounds = inner, bounds
        self._places: dict[int, int] = {}  # of the recipes of inner tensors
        self.recipes: list[Recipe] = []
        self.operands: list[tuple[int, ...]] = []  # for each leaf: of a source, or ~ of a recipe
        self.sources: list[Source] = []
        self._add(own)

    def _add(self, bound: Bound) -> int:
        assert isinstance(bound.recipe, Recipe)
        operands = tuple([self._operand(source) for source in bound.sources])
        self.recipes.append(bound.recipe)
        self.operands.append(operands)
        return len(self.recipes) - 1

    def _operand(self, source: Source) -> int:
        number = source.entry.number if isinstance(source, Packed) else -1
        if number not in self._inner:
            self.sources.append(source)
            return len(self.sources) - 1
        if number not in self._places:
            self._places[number] = self._add(self._bounds.get(number))
        return ~self._places[number]


@dataclass
class _Part:
    """One recipe of a chain.

    Args:
        operands: For each leaf, the place of a source, or `~place` of a recipe.
        ended: Recipes whose results no later one reads.
        sized: The recipe for a number of images.
    """

    recipe: Recipe
    operands: tuple[int, ...]
    rows: Rows
    ended: tuple[int, ...]
    sized: dict[int, Recipe] = field(default_factory=dict)

    def of(self, number: int, images: int) -> Recipe:
        """The recipe for so many images."""
        found = self.sized.get(number)
        if found is None:
            like = _resized(self.recipe.like, number, images)
            root = self.rows.calls(number, images)
            found = self.sized[number] = replace(self.recipe, root=root, like=like, program=None)
        return found


@dataclass(eq=False)
class Deep(Computation):
    """A chain of recipes, computed in slices.

    Args:
        inner: Numbers of the entries that are computed on the way.
        images: In the batch.
        slices: Of the batch.
    """

    inner: Inner
    images: int
    slices: int
    _parts: tuple[_Part, ...]

    @property
    def name(self) -> str:
        return "replay" if any(one.recipe.name == "replay" for one in self._parts) else "rebuild"

    def bind(self, own: Bound, bounds: Bounds) -> Bound | None:
        """The recipe for a tensor of this step, from the tensor's own recipe and those of inner
        ones by their numbers; None where it is not the same computation."""
        try:
            chain = _Chain(own, self.inner, bounds)
        except LookupError:
            return None
        found = [(one.recipe, one.operands) for one in self._parts]
        if found != list(zip(chain.recipes, chain.operands, strict=True)):
            return None
        if self.leaves != tuple([one.like for one in chain.sources]):
            return None
        return Bound(self, chain.sources)

    def compute(self, leaves: Sequence[Tensor]) -> Tensor:
        dtype, size, stride, _ = self.like
        out = torch.empty_strided(size, stride, dtype=dtype, device=leaves[0].device)
        step = -(-self.images // self.slices)
        with torch.no_grad():
            for begin in range(0, self.images, step):
                self._slice(leaves, out, begin, min(step, self.images - begin))
        return out

    def _slice(self, leaves: Sequence[Tensor], out: Tensor, begin: int, number: int) -> None:
        made: list[Tensor | None] = []
        for part in self._parts:
            given = []
            for place, cut, like in zip(
                part.operands, part.rows.cut, part.recipe.leaves, strict=True
            ):
                if place >= 0:
                    leaf = leaves[place]
                    given.append(self._rows(leaf, begin, number) if cut else leaf)
                else:
                    value = made[~place]
                    assert value is not None
                    _, size, stride, _ = _resized(like, number, self.images)
                    given.append(value.as_strided(size, stride))
            last = part is self._parts[-1]
            target = self._rows(out, begin, number) if last else None
            made.append(part.of(number, self.images).compute(given, target))
            for place in part.ended:
                made[place] = None

    def _rows(self, tensor: Tensor, begin: int, number: int) -> Tensor:
        """Rows of some images."""
        each = tensor.size(0) // self.images
        return tensor.narrow(0, each * begin, each * number)


def composed(own: Bound, inner: Inner, bounds: Bounds, slices: int) -> Bound | None:
    """A deep recipe of the tensor of a recipe; None where images cannot be computed apart."""
    try:
        chain = _Chain(own, inner, bounds)
        found = [rows_of(recipe.root, recipe.leaves) for recipe in chain.recipes]
    except (LookupError, *FAILURES):
        return None
    all_rows = [rows for rows in found if rows is not None]
    images = math.gcd(*(rows.most for rows in all_rows))
    if len(all_rows) < len(found) or images < 2 or not _passes_images(chain, all_rows, images):
        return None
    last = {~o: place for place, some in enumerate(chain.operands) for o in some if o < 0}
    parts = [
        _Part(recipe, operands, rows, tuple([o for o, reader in last.items() if reader == place]))
        for place, (recipe, operands, rows) in enumerate(
            zip(chain.recipes, chain.operands, all_rows, strict=True)
        )
    ]
    leaves = tuple([source.like for source in chain.sources])
    like = chain.recipes[-1].like
    deep = Deep(like, leaves, inner, images, min(slices, images), tuple(parts))
    return Bound(deep, chain.sources)


def _passes_images(chain: _Chain, all_rows: Sequence[Rows], images: int) -> bool:
    """Whether each recipe reads the images of an inner tensor in the layout of its result."""
    if not all(_is_dense(recipe.like, images) for recipe in chain.recipes):
        return False
    for recipe, operands, rows in zip(chain.recipes, chain.operands, all_rows, strict=True):
        for operand, cut, like in zip(operands, rows.cut, recipe.leaves, strict=True):
            if operand < 0:
                whole = chain.recipes[~operand].like
                same = like[0] == whole[0] and math.prod(like[1]) == math.prod(whole[1])
                if not (cut and same and _is_dense(like, images)):
                    return False
    return True


def _is_dense(like: Like, images: int) -> bool:
    """Whether the images are contiguous in the storage, from its first element."""
    _, size, stride, offset = like
    return (
        offset == 0
        and len(size) > 0
        and size[0] % images == 0
        and stride[0] * size[0] == math.prod(size)
    )


def _resized(like: Like, number: int, images: int) -> Like:
    """The form for so many images."""
    dtype, size, stride, offset = like
    return dtype, torch.Size((size[0] // images * number, *size[1:])), stride, offset


def candidates(number: int, nbytes: int, reads: Mapping[int, Mapping[int, int]]) -> Iterator[Inner]:
    """Inner tensors of deep recipes that are worth a trial: inputs whose own recipes read less than
    they have, and, step by step, those that are as large as the result.

    Args:
        number: Of the result.
        nbytes: Of the result.
        reads: What recipes read, numbers and bytes, by the numbers of their results. Others are not
            expanded.
    """

    def front(inner: Inner) -> dict[int, int]:
        """Inputs that can be expanded."""
        found = {n: size for one in (number, *inner) for n, size in reads[one].items()}
        return {n: size for n, size in found.items() if n in reads and n not in inner}

    def grown(inner: Inner) -> Inner:
        while more := {n for n, size in front(inner).items() if sum(reads[n].values()) < size}:
            inner |= more
        return inner

    inner = grown(frozenset())
    if inner:
        yield inner
    for _ in range(_MOST - bool(inner)):
        large = {n for n, size in front(inner).items() if size >= nbytes}
        if not large:
            return
        inner = grown(inner | large)
        yield inner
