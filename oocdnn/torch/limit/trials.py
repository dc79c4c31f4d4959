"""Recipes and smaller forms, looked for and timed while a step is recorded."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from oocdnn.torch.limit.card import Card
from oocdnn.torch.limit.courses import Found, Numbered
from oocdnn.torch.limit.entry import Entry, Packed, bytes_of, label_of
from oocdnn.torch.limit.recipes import admit, compute
from oocdnn.torch.limit.record import Recorder
from oocdnn.torch.limit.squeeze import Form, form_of
from oocdnn.torch.limit.trace import Trace
from oocdnn.torch.limit.values import Values


class Trials:
    """Tries what gives a storage's bytes again, for each new storage of one step."""

    def __init__(self, card: Card, recorder: Recorder, values: Values, found: Found) -> None:
        self._card, self._recorder, self._values = card, recorder, values
        self._found = found

    def arrived(self, entry: Entry, tensor: Tensor, trace: Trace, numbered: Numbered) -> None:
        """A new storage is being saved."""
        entry.label = label_of(tensor)
        beside = trace.latest()
        self._found.beside[entry.number] = {one.index for one in beside}
        form = form_of(tensor, beside)
        if form is not None:
            with contextlib.suppress(torch.cuda.OutOfMemoryError):
                self._time(entry, form)
        self._recipe(entry, tensor, trace, numbered)

    def _recipe(self, entry: Entry, tensor: Tensor, trace: Trace, numbered: Numbered) -> None:
        bound = admit(tensor, trace, self._values)
        if isinstance(bound, str):
            return
        read = [s.entry for s in bound.sources if isinstance(s, Packed)]
        if any(one is entry or numbered.get(one.number) is not one for one in read):
            return  # it reads itself, or an earlier step's
        self._recorder.computing()
        self._card.peak()
        before = self._card.held()
        self._card.busy()
        begin = self._card.mark()
        made = compute(bound.recipe, [self._values.tensor(source) for source in bound.sources])
        end = self._card.mark()
        extra = max(self._card.peak() - before - entry.nbytes, 0)
        self._recorder.computed(entry, made)
        numbers = tuple(dict.fromkeys(one.number for one in read))
        self._recorder.recipe(entry, numbers, bound.recipe.name, begin, end, extra)
        self._found.recipes[entry.number] = bound.recipe
        self._found.traced[entry.number] = {source.index for source in bound.outputs}

    def _time(self, entry: Entry, form: Form) -> None:
        """Times a smaller form. Its kernels are compiled before."""
        assert entry.storage is not None
        storage = bytes_of(entry.storage)
        form.expand(form.squeeze(storage), entry.nbytes)
        self._card.busy()
        begin = self._card.mark()
        form.expand(form.squeeze(storage), entry.nbytes)
        self._recorder.squeezed(entry, form, begin, self._card.mark())
        self._found.forms[entry.number] = form
