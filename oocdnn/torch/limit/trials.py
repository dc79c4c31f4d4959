"""Recipes and smaller forms, looked for and timed while a step is recorded."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch
from torch import Tensor

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Found, Numbered
from oocdnn.torch.limit.deep import SLICES, Bounds, Deep, Inner, candidates, composed
from oocdnn.torch.limit.entry import Entry, Packed, Version, bytes_of, label_of
from oocdnn.torch.limit.recipes import FAILURES, Bound, Recipe, admit, gives, whole
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.squeeze import Form, form_of
from oocdnn.torch.limit.trace import Trace
from oocdnn.torch.limit.values import Values

_BUSY = 1e-3  # seconds in which the host enqueues a recipe, or a smaller form
_LARGE = 32  # parts of the limit: deep recipes are tried for tensors of one or more


class Trials:
    """Tries what gives a storage's bytes again, for each new storage of one step.

    Args:
        limit: Device bytes.
    """

    def __init__(
        self, card: Card, recorder: Recorder, values: Values, found: Found, limit: int
    ) -> None:
        self._card, self._recorder, self._values = card, recorder, values
        self._found, self._limit = found, limit
        self._bounds = Bounds()  # of large tensors
        self._reads: dict[int, dict[int, int]] = {}  # by them: numbers and bytes
        self._slices: dict[int, set[int]] = {}  # in which their recipes give their bits
        self._versions: dict[int, list[Version]] = {}  # of what the recipes of each entry read
        self._fetches = 0  # bytes that trials of deep recipes may fetch: no more than were saved

    def arrived(self, entry: Entry, tensor: Tensor, trace: Trace, numbered: Numbered) -> None:
        """A new storage is being saved."""
        self._fetches += entry.nbytes
        self._recorder.seen[entry].label = label_of(tensor)
        beside = trace.latest()
        self._found.beside[entry.number] = {one.index for one in beside}
        form = form_of(tensor, beside)
        if form is not None:
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._time(entry, form)
        own = self._recipe(entry, tensor, trace, numbered)
        if own is not None and _LARGE * entry.nbytes >= self._limit:
            self._bounds.add(entry.number, own)
            self._reads[entry.number] = {o.number: o.nbytes for o in _read(own)}
            self._slices[entry.number] = set()
            absent: dict[int, Entry] = {}
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._slice(entry.number, whole(tensor), own)
                for inner in candidates(entry.number, entry.nbytes, self._reads):
                    self._deep(entry, tensor, trace, own, inner, absent)
            for one in absent.values():
                self._recorder.store.drop(one)

    def ends(self) -> None:
        """Forward has ended. Recipes that read what was written since cannot run in backward."""
        for number, versions in self._versions.items():
            if any(tensor._version != version for tensor, version in versions):
                del self._recorder.recipes[number]
                self._found.deep.pop(number, None)

    def _recipe(
        self, entry: Entry, tensor: Tensor, trace: Trace, numbered: Numbered
    ) -> Bound | None:
        bound = admit(tensor, trace, self._values)
        if isinstance(bound, str):
            return None
        if any(one is entry or numbered.get(one.number) is not one for one in _read(bound)):
            return None  # it reads itself, or an earlier step's
        recipe = bound.recipe
        assert isinstance(recipe, Recipe)
        self._run(entry, bound, lambda: recipe.bind(tensor, trace))
        self._found.recipes[entry.number] = recipe
        outputs = recipe.outputs(bound.sources)
        self._found.traced[entry.number] = {source.index for source in outputs}
        return bound

    def _slice(self, number: int, tensor: Tensor, own: Bound) -> None:
        """Finds the slices in which a recipe by itself gives the bits: what follows may hide other
        ones, as a factor that is zero in the first step. A constant tells nothing of them."""
        values = tensor.detach()  # no node of autograd's is made
        if bool((values == values[(0,) * values.dim()]).all()):
            return
        leaves = [self._values.tensor(source) for source in own.sources]
        for slices in SLICES:
            bound = composed(own, frozenset(), self._bounds, slices)
            if bound is not None and gives(bound.recipe, leaves, tensor):
                self._slices[number].add(slices)

    def _deep(
        self,
        entry: Entry,
        tensor: Tensor,
        trace: Trace,
        own: Bound,
        inner: Inner,
        absent: dict[int, Entry],
    ) -> None:
        """Tries a deep recipe, unless too much would have to be fetched for it; adds to `absent`
        what was fetched."""
        recipe = self._found.recipes[entry.number]
        for slices in SLICES:
            if any(slices not in self._slices[number] for number in inner):
                continue
            bound = composed(own, inner, self._bounds, slices)
            if bound is None:
                return
            fetched = {one.number: one for one in _read(bound) if one.storage is None}
            nbytes = sum(one.nbytes for one in fetched.values())
            if nbytes > self._fetches:
                return
            self._fetches -= nbytes
            absent |= fetched
            try:
                leaves = [self._values.tensor(source) for source in bound.sources]
            except FAILURES:  # a source was written since
                return
            deep = bound.recipe
            assert isinstance(deep, Deep)
            if gives(deep, leaves, whole(tensor)):

                def bind(deep: Deep = deep) -> Bound | None:
                    again = recipe.bind(tensor, trace)
                    return None if again is None else deep.bind(again, self._bounds)

                self._run(entry, bound, bind)
                self._found.deep.setdefault(entry.number, []).append(deep)
                return

    def _run(self, entry: Entry, bound: Bound, bind: Callable[[], Bound | None]) -> None:
        """Measures a recipe as a later step binds and computes it. The first uses take the host
        several times as long and are not measured. A deep recipe has run for several slices."""

        def compute() -> Tensor:
            return bound.recipe.compute([self._values.tensor(one) for one in bound.sources])

        bind()
        if isinstance(bound.recipe, Recipe):
            compute()
        self._recorder.computing()
        self._card.peak()
        before = self._card.held()
        began = time.perf_counter()
        bind()
        host = time.perf_counter() - began
        self._card.busy(_BUSY)
        begin, began = self._card.mark(), time.perf_counter()
        made = compute()
        host += time.perf_counter() - began
        end = self._card.mark()
        extra = max(self._card.peak() - before - entry.nbytes, 0)
        self._recorder.computed(entry, made)
        numbers = tuple(dict.fromkeys(one.number for one in _read(bound)))
        self._recorder.recipe(entry, numbers, bound.recipe.name, begin, end, host, extra)
        self._versions.setdefault(entry.number, []).extend(
            one.saved_version for one in bound.sources
        )

    def _time(self, entry: Entry, form: Form) -> None:
        """Times a smaller form. Its kernels are compiled before."""
        assert entry.storage is not None
        storage = bytes_of(entry.storage)
        form.expand(form.squeeze(storage), entry.nbytes)
        self._card.busy(_BUSY)
        begin, began = self._card.mark(), time.perf_counter()
        form.expand(form.squeeze(storage), entry.nbytes)
        host = time.perf_counter() - began
        self._recorder.squeezed(entry, form, begin, self._card.mark(), host)
        self._found.forms[entry.number] = form


def _read(bound: Bound) -> list[Entry]:
    """The entries that a recipe reads."""
    return [source.entry for source in bound.sources if isinstance(source, Packed)]
