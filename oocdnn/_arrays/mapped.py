"""Finds the file behind a memory-mapped array, so that the core can read and write it directly.

A view or slice of a numpy.memmap counts too. Where the file cannot be told for certain (it was
deleted or replaced, has no name, or the mapping is copy-on-write) the answer is None and the array
is treated as plain memory. Mapping and file are coherent on Linux: both are the page cache.
"""

import mmap
import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class MappedFile:
    """An open file and the byte offset of an array's first element in it."""

    fd: int
    offset: int
    device: int
    inode: int

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> "MappedFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def find(array: Array, writing: bool) -> MappedFile | None:
    """Opens the file behind `array`, for writing too where asked, or None. The caller closes it."""
    memmap = _memmap_below(array)
    if memmap is None or memmap.mode == "c" or memmap.filename is None:
        return None
    mapping = memmap._mmap  # type: ignore[attr-defined]
    start = np.frombuffer(mapping, np.uint8, count=1).__array_interface__["data"][0]
    address = array.__array_interface__["data"][0]
    first = memmap.offset - memmap.offset % mmap.ALLOCATIONGRANULARITY
    try:
        fd = os.open(memmap.filename, os.O_RDWR if writing else os.O_RDONLY)
    except OSError:
        return None
    status = os.fstat(fd)
    if _inode_at(start) != status.st_ino:
        os.close(fd)
        return None
    return MappedFile(fd, first + address - start, status.st_dev, status.st_ino)


def is_in_file(array: Array) -> bool:
    """Whether there may be a file behind `array`."""
    return _memmap_below(array) is not None


def _memmap_below(array: Array) -> "np.memmap[Any, Any] | None":
    """The nearest numpy.memmap that still knows its mapping, following views to their bases."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and isinstance(getattr(base, "_mmap", None), mmap.mmap):
            return base
        base = base.base
    return None


def _inode_at(address: int) -> int | None:
    """The inode that this process maps at `address`, from the kernel's own table."""
    try:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as table:
            for line in table:
                span, _, _, _, inode, *_ = line.split(maxsplit=5)
                low, high = (int(part, 16) for part in span.split("-"))
                if low <= address < high:
                    return int(inode)
    except OSError:
        pass
    return None
