"""Calls like earlier ones, without what follows from shapes and keywords.

What was checked and made plain for a call holds for all that have its key (see `keys`), and stands
here as C values that lack only addresses. Left to be looked at is where the arrays lie, whether the
result may be written, and what it shares. A call that is unusual in this (a file, an overlap, ...)
goes the long way, which also knows what to say of it.
"""

import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec

from oocdnn._arrays import gpu_arrays, mapped, pins
from oocdnn._arrays.addresses import address_of
from oocdnn._arrays.allocation import allocate, allocate_bytes
from oocdnn._arrays.mapped import Array
from oocdnn._arrays.overlap import Extent, share_elements
from oocdnn._calls import stack
from oocdnn._calls.keys import Key, key_of, names_of
from oocdnn._calls.operation import Done, keeps_order
from oocdnn._core.repeated import Repeated
from oocdnn.arrays import View, unwrap, view

if TYPE_CHECKING:
    from oocdnn.context import Context

P = ParamSpec("P")


class Prepared:
    """A call without its arrays. Threads may run it at once."""

    def __init__(self, done: Done, names: list[str]) -> None:
        tensors, views, own = done.operands.tensors, done.operands.views, done.slot
        slots = {seen.name: slot for slot, seen in views.items()}
        order = [slots[name] for name in names]
        # Of each array: whether it is on a GPU, the bytes of an element, and those from the first
        # element to behind the last.
        self._given = [
            (views[slot].stream is not None, views[slot].itemsize, views[slot].layout.length)
            for slot in order
        ]
        self._out = names.index("out") if "out" in names else None
        # What may lie just where the result lies.
        self._in_place = [
            slot == "residual" and tensors[slot].stride == tensors[own].stride for slot in order
        ]
        self._leader_name = next(iter(views.values())).name
        self._leader = names.index(self._leader_name)
        self._shape, self._keeps_order = done.shape, keeps_order(own)
        self._bits = 0 if done.bits is None else done.bits.shape[0]
        self._makes = self._out is None or self._bits > 0
        self._stream = None if done.on_current_stream else done.call.stream
        self._finish = done.finish
        if self._out is None:
            order.append(own)
        if self._bits:
            order.append("saved")
        self._repeated = Repeated(done.call, tensors, order)

    def run(self, context: "Context", arrays: list[Any]) -> Any:
        """What the function returns, or None where the call has to go the long way."""
        addresses: list[int] = []
        for array, (on_gpu, size, _) in zip(arrays, self._given, strict=True):
            if on_gpu:
                address = array.data.ptr
            elif array.base is None or not mapped.is_in_file(array):
                address = address_of(array)
            else:
                return None
            if address % size:
                return None
            addresses.append(address)
        if self._out is not None and not self._may_write(arrays, addresses, self._out):
            return None
        made = self._make(context, arrays) if self._makes else []
        addresses += [one.address for one in made]
        addresses.append(gpu_arrays.cupy_stream() if self._stream is None else self._stream)
        with pins.Use(context, self._in_memory(arrays, made)):
            context.run_again(self._repeated, addresses)
        result = unwrap(made[0]) if self._out is None else arrays[self._out]
        if self._finish is None:
            return result
        return self._finish(result, made[-1] if self._bits else None)

    def _may_write(self, arrays: list[Any], addresses: list[int], out: int) -> bool:
        on_gpu, size, length = self._given[out]
        if not (on_gpu or arrays[out].flags.writeable):
            return False
        begin = addresses[out]
        end = begin + length
        for i, (_, other_size, other_length) in enumerate(self._given):
            other = addresses[i]
            meets = other < end and begin < other + other_length
            if not meets or i == out or (self._in_place[i] and other == begin):
                continue
            written, read = arrays[out], arrays[i]
            if share_elements(
                Extent(begin, written.shape, written.strides, size, length),
                Extent(other, read.shape, read.strides, other_size, other_length),
            ):
                return False
        return True

    def _make(self, context: "Context", arrays: list[Any]) -> list[View]:
        """The arrays that the caller has not."""
        leader, make = view(self._leader_name, arrays[self._leader]), context.results.empty
        made = []
        if self._out is None:
            made.append(allocate(leader, self._shape, self._keeps_order, make))
        if self._bits:
            made.append(allocate_bytes(leader, self._bits, make))
        return made

    def _in_memory(self, arrays: list[Any], made: list[View]) -> Iterator[tuple[Array, int]]:
        """The arrays in host memory, each with the bytes that it spans."""
        for array, (on_gpu, _, length) in zip(arrays, self._given, strict=True):
            if not on_gpu:
                yield array, length
        for new in made:
            if new.stream is None:
                yield new.array, new.layout.length


class Memory:
    """The calls that a context remembers; the oldest go. Takes no lock."""

    def __init__(self, most: int = 512) -> None:
        self._most = most
        self._calls: dict[Key, Prepared] = {}
        self._keys: deque[Key] = deque()  # in the order of the calls
        self.find = self._calls.get

    def add(self, key: Key, call: Prepared) -> None:
        if self._calls.setdefault(key, call) is call:
            self._keys.append(key)
            while len(self._keys) > self._most:
                self._calls.pop(self._keys.popleft(), None)


def remembered(function: Callable[P, Done]) -> Callable[P, Any]:
    """`function`, which launches one call, with a short path for a call like an earlier one."""
    signature = inspect.signature(function)
    parameters = tuple(signature.parameters)

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> Any:
        context = stack.known_context()
        if context is None:
            return function(*args, **keywords).answer()
        arrays: list[Any] = []
        key = key_of([function, int(context.math)], args, keywords, arrays)
        if key is None:
            return function(*args, **keywords).answer()
        prepared = context.prepared.find(key)
        answer = None if prepared is None else prepared.run(context, arrays)
        if answer is None:
            done = function(*args, **keywords)
            answer = done.answer()
            if prepared is None and done.operands.usual:
                names = names_of(parameters, args, keywords)
                if done.operands.has(names):  # an array may also say what stride is
                    context.prepared.add(key, Prepared(done, names))
        return answer

    call.__signature__ = signature.replace(return_annotation=Any)  # type: ignore[attr-defined]
    return call
