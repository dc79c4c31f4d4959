"""The core library's copies between a GPU and slabs through cffi."""

import os
import weakref
from typing import Any

from oocdnn._core.cdefs import Way
from oocdnn._core.loading import _ffi, _library
from oocdnn._core.native import _check

OUT, IN = (int(way) for way in Way)


class NativeSwapper:
    """An oocdnn_swapper. Its functions are looked up once: they are called at every copy. Where it
    is used in a forked child, the driver's error says so."""

    def __init__(self, ordinal: int) -> None:
        ffi, library = _ffi(), _library()
        made = ffi.new("oocdnn_swapper **")
        _check(library.oocdnn_create_swapper(ordinal, made))
        self._handle = made[0]
        self._ticket, self._answer = ffi.new("int64_t *"), ffi.new("int32_t *")
        self._start, self._wait = library.oocdnn_start_copy, library.oocdnn_wait_for_copy
        self._done = library.oocdnn_copy_done
        # Not at exit: what still holds slabs may be read then, and the process frees all anyway.
        end = weakref.finalize(self, _destroy, made[0], os.getpid())
        end.atexit = False

    def slab(self, nbytes: int, lender: int | None = None) -> "Slab":
        """Page-locked memory of exactly that size, or memory of the GPU with the number `lender`,
        which is freed with the last reference to it."""
        return Slab(self, nbytes, lender)

    def borrow_link(self, lender: int) -> None:
        """Copies with host memory go over that GPU's link too, from here on."""
        _check(_library().oocdnn_borrow_link(self._handle, lender))

    def start(self, way: int, stream: int, device: int, slab: "Slab", nbytes: int) -> int:
        """The ticket of a copy that begins when the stream has arrived here."""
        status = self._start(self._handle, way, stream, device, slab.address, nbytes, self._ticket)
        if status:
            _check(status)
        return int(self._ticket[0])

    def wait(self, ticket: int, stream: int) -> None:
        """Has the stream wait for the end of the copy, whose ticket ends."""
        status = self._wait(self._handle, ticket, stream)
        if status:
            _check(status)

    def done(self, ticket: int) -> bool:
        _check(self._done(self._handle, ticket, self._answer))
        return bool(self._answer[0])


class Slab:
    """Page-locked host memory, or memory of another GPU."""

    __slots__ = ("__weakref__", "_swapper", "address", "nbytes")

    def __init__(self, swapper: NativeSwapper, nbytes: int, lender: int | None) -> None:
        address, library = _ffi().new("uint64_t *"), _library()
        if lender is None:
            _check(library.oocdnn_allocate_slab(swapper._handle, nbytes, address))
        else:
            _check(library.oocdnn_borrow_slab(swapper._handle, lender, nbytes, address))
        self._swapper, self.address, self.nbytes = swapper, int(address[0]), nbytes
        end = weakref.finalize(self, _free, swapper, self.address, os.getpid())
        end.atexit = False


def _destroy(handle: Any, process: int) -> None:
    if os.getpid() == process:
        _library().oocdnn_destroy_swapper(handle)


def _free(swapper: NativeSwapper, address: int, process: int) -> None:
    if os.getpid() == process:
        _library().oocdnn_free_slab(swapper._handle, address)
