"""Arrays of the caller's that calls use again and again stay pinned for as long as they live.

An array counts from its first use on, by a weak reference to the one that owns its memory. It is
pinned when calls have used it some times over, and no longer when it goes, its memory changes, the
process forks, or the context is released.

What is not pinned is staged, so nothing here is an error: memory that belongs to no array (files,
bytes, other libraries' objects), small arrays, what passes the context's share, a driver that says
no.

Finalizers take no lock, because they may run in the midst of anything.
"""

import functools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from oocdnn._arrays.addresses import address_of
from oocdnn._arrays.mapped import Array
from oocdnn._core.native import HostMemory, bytes_at
from oocdnn.errors import DeviceError, OutOfMemory

LEAST_BYTES = 4 << 20  # below, staging costs less than the driver's calls
# Pinning and unpinning take 50 ms per GiB (H200), and staging 2 ms more than copies from and to
# pinned memory, 10 with few threads: what is used a few times, as activations are, is staged.
USES = 8
_MOST_UNPINNED = 64  # arrays that are watched and not pinned


class Pinner(Protocol):
    """What a context is here. `auto_pin_bytes` bounds all arrays together; 0: pin nothing."""

    @property
    def auto_pin_bytes(self) -> int: ...

    def pin(self, address: int, size: int) -> HostMemory: ...


class _Pinned(ABC):
    """Memory that may be pinned, and how many calls are using it, for which it stays so."""

    def __init__(self) -> None:
        self.calls = 0
        self._fading = False

    def leave(self) -> None:
        self.calls -= 1
        if self.calls == 0 and self._fading:
            self._fading = False
            self.unpin()

    def let_go(self) -> None:
        """Now, or at the end of the last call that uses it."""
        if self.calls:
            self._fading = True
        else:
            self.unpin()

    @abstractmethod
    def unpin(self) -> None:
        """Makes ordinary memory of it, if it is pinned."""


class Lease(_Pinned):
    """Pinned memory that one result lies in, as NumPy sees it."""

    def __init__(self, memory: HostMemory, size: int) -> None:
        super().__init__()
        self.memory, self._size = memory, size
        self.__array_interface__ = bytes_at(memory.address, size)
        with _state.lock:
            _state.leases.add(self)
            _state.leased = True

    def has(self, address: int) -> bool:
        return 0 <= address - self.memory.address < self._size

    def unpin(self) -> None:
        if self.memory.pinned:
            self.memory.unpin()


class _Watched(_Pinned):
    """An array that owns its memory."""

    def __init__(self, owner: Array) -> None:
        super().__init__()
        self.key = id(owner)
        self.owner = weakref.ref(owner, functools.partial(_gone, id(owner)))
        self.address, self.size = address_of(owner), owner.nbytes
        self.used = 0  # bytes, by calls
        self.refused = False
        self.memory: HostMemory | None = None
        self.pinner: weakref.ref[Pinner] | None = None

    def moved(self) -> bool:
        owner = self.owner()
        return owner is None or address_of(owner) != self.address or owner.nbytes != self.size

    def pin(self, pinner: Pinner) -> None:
        try:
            self.memory = pinner.pin(self.address, self.size)
            self.pinner = weakref.ref(pinner)
            _state.pinned[self.key] = self
        except (DeviceError, OutOfMemory):
            self.refused = True

    def unpin(self) -> None:
        memory, self.memory = self.memory, None
        if memory is not None:
            self.strike()
            memory.close()

    def strike(self) -> None:
        """From now on it counts for no call."""
        if _state.pinned.get(self.key) is self:
            _state.pinned.pop(self.key, None)


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal may fork in the midst of what it guards
        self.watched: dict[int, _Watched] = {}  # by the owner's id; the longest unused first
        self.pinned: dict[int, _Watched] = {}  # those of them that are
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.leased = False  # ever


_state = _State()


def _gone(key: int, reference: object) -> None:
    """An owner goes; its memory has not gone yet."""
    one = _state.watched.get(key)
    if one is not None and one.owner is reference:
        _state.watched.pop(key, None)
        one.unpin()


def _root(array: Array) -> "Array | Lease | None":
    """What keeps the memory of `array`, if its end is known: the array that owns it, or a lease."""
    root = array
    base: Any = array.base
    while isinstance(base, np.ndarray):
        root, base = base, base.base
    if base is None:
        return root if root.flags.owndata else None
    if isinstance(base, Lease):
        return base
    # Memory that is a device's own is pinned, and needs no watching.
    return _lease_of(root) if _state.leased and not isinstance(base, HostMemory) else None


def _lease_of(array: Array) -> "Lease | None":
    """The result in whose memory an array begins that came by way of another library's object."""
    begin = address_of(array)
    with _state.lock:
        return next((lease for lease in _state.leases if lease.has(begin)), None)


class Use:
    """While a call uses these arrays, each with the bytes that it spans in memory."""

    def __init__(self, pinner: Pinner, operands: Iterable[tuple[Array, int]]) -> None:
        self._pinner = pinner
        self._operands = operands
        self._entered: list[_Pinned] = []

    def __enter__(self) -> None:
        if self._pinner.auto_pin_bytes > 0 or _state.watched or _state.leased:
            try:
                _enter(self._pinner, self._operands, self._entered)
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        if self._entered:
            with _state.lock:
                for one in self._entered:
                    one.leave()


def _enter(pinner: Pinner, operands: Iterable[tuple[Array, int]], entered: list[_Pinned]) -> None:
    spans: dict[int, tuple[Array | Lease, int]] = {}
    with _state.lock:
        for one in _pinned():
            if one.moved():
                _drop([one])
        for array, span in operands:
            pinned = _state.pinned.get(id(array))
            if pinned is not None:
                _note(pinned, entered)
                continue
            root = _root(array)
            if root is not None:
                spans[id(root)] = root, span + spans.get(id(root), (root, 0))[1]
        for root, span in spans.values():
            if isinstance(root, Lease):
                _note(root, entered)
                continue
            pinned = _state.pinned.get(id(root))  # which a part of it stands for
            if pinned is None and root.nbytes >= LEAST_BYTES:
                pinned = _watch(root, span, pinner)
            if pinned is not None:
                _note(pinned, entered)


def _note(one: _Pinned, entered: list[_Pinned]) -> None:
    one.calls += 1
    entered.append(one)


def _pinned() -> list[_Watched]:
    return list(_state.pinned.values())


def _watch(owner: Array, span: int, pinner: Pinner) -> _Watched:
    """The entry of an array that is not pinned and that a call uses now; pinned if it is time."""
    one = _state.watched.pop(id(owner), None)
    if one is None or one.moved():
        one = _Watched(owner)
    _state.watched[one.key] = one
    if one.used >= USES * one.size and not one.refused:
        room = pinner.auto_pin_bytes - sum(other.size for other in _pinned())
        if one.size <= room:
            one.pin(pinner)
    one.used = min(one.used + span, USES * one.size)
    if len(_state.watched) - len(_state.pinned) > _MOST_UNPINNED:
        unpinned = [other for other in list(_state.watched.values()) if other.memory is None]
        for other in unpinned[:-_MOST_UNPINNED]:
            _state.watched.pop(other.key, None)
    return one


def _drop(ones: Iterable[_Watched]) -> None:
    for one in list(ones):
        _state.watched.pop(one.key, None)
        one.strike()
        one.let_go()


def release(pinner: Pinner) -> None:
    """Unpins what this context has pinned; the next use pins it again."""
    with _state.lock:
        for one in _pinned():
            if one.pinner is not None and one.pinner() in (pinner, None):
                one.let_go()


def forget(array: Array) -> None:
    """Leaves an array to the caller, who pins it, or does not any more."""
    root = _root(array)
    with _state.lock:
        one = _state.watched.get(id(root))
        if one is not None:
            _drop([one])


def _before_fork() -> None:
    """A child shares pages with its parent until one of them writes, and what the GPU then sees is
    not what the parent sees; and pinned results would not be there in the child."""
    _state.lock.acquire()
    for one in (*_pinned(), *_state.leases):
        one.let_go()


def _after_fork_in_parent() -> None:
    _state.lock.release()


def _after_fork_in_child() -> None:
    global _state
    _state = _State()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
