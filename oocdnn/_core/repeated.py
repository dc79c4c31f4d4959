"""Calls that are made again, as C values that lack only addresses."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from oocdnn._core.call import Convolution, Slot, Tensor
from oocdnn._core.loading import _ffi
from oocdnn._core.native import NativeContext, _Call


@functools.cache
def _types() -> tuple[Any, Any, int, int]:
    """Types and offsets."""
    ffi = _ffi()
    data = ffi.offsetof("oocdnn_tensor", "data")
    stream = ffi.offsetof("oocdnn_convolution", "stream")
    return ffi.typeof("uintptr_t"), ffi.typeof("uintptr_t *"), data, stream


class _Placed(_Call):
    """A call of which all but addresses is filled in."""

    def __init__(
        self, call: Convolution, tensors: Mapping[Slot, Tensor], order: Sequence[Slot]
    ) -> None:
        super().__init__()
        self.fill(call, tensors)
        word, pointer, data, stream = _types()
        cast = _ffi().cast
        at = [int(cast(word, self._tensors[slot])) + data for slot in order]
        at.append(int(cast(word, self.convolution)) + stream)
        self.places = [cast(pointer, address) for address in at]


class Repeated:
    """A call that is made again, with the tensors of `order` and the stream at other addresses.
    Its C values are made when they are needed first, and as many as calls are under way at once."""

    def __init__(
        self, call: Convolution, tensors: Mapping[Slot, Tensor], order: Sequence[Slot]
    ) -> None:
        self._parts = call, dict(tensors), order
        self._idle: list[_Placed] = []

    def run(self, context: NativeContext, addresses: Sequence[int]) -> None:
        try:
            c = self._idle.pop()
        except IndexError:
            c = _Placed(*self._parts)
        try:
            for place, address in zip(c.places, addresses, strict=True):
                place[0] = address
            context._run(c)
        finally:
            c.interrupt.kept = None
            self._idle.append(c)
