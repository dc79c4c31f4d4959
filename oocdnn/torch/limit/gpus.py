"""The GPUs that the arguments of a memory limit name: its own, and those that it borrows from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from oocdnn._arguments import byte_count
from oocdnn._shown import shown
from oocdnn.errors import DeviceError, InvalidProblem, OutOfMemory
from oocdnn.torch.limit.cuda_card import driver_bytes


def gpu_of(device: torch.device | int | str | None) -> torch.device:
    """The GPU with its index; None is PyTorch's current one. Raises DeviceError where there is no
    such GPU."""
    if not torch.cuda.is_available():
        raise DeviceError(
            "memory_limit needs a GPU of PyTorch's: torch.cuda.is_available() is False"
        )
    try:
        asked = torch.device("cuda" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"device is {device!r}: {error}") from error
    index = torch.cuda.current_device() if asked.index is None else asked.index
    if asked.type != "cuda" or not 0 <= index < torch.cuda.device_count():
        raise DeviceError(
            f"device is {device!r}; there are {torch.cuda.device_count()} GPUs, cuda:0 the first"
        )
    return torch.device("cuda", index)


Borrow = Mapping[Any, int | str] | Sequence[Any]


def borrowed_of(gpu: torch.device, borrow: Borrow) -> dict[int, int]:
    """Bytes that `gpu` borrows, by the numbers of the other GPUs, in the given order; 0 where it is
    the link alone."""
    lenders: Iterable[tuple[Any, int | str]] = ()
    if isinstance(borrow, Mapping):
        lenders = borrow.items()
    elif isinstance(borrow, Sequence) and not isinstance(borrow, (str, bytes)):
        lenders = [(device, 0) for device in borrow]
    else:
        raise InvalidProblem(
            f"borrow is {shown(borrow)}; it must be GPUs, as ['cuda:1'], or GPUs with bytes, as "
            "{'cuda:1': '40GiB'}"
        )
    found: dict[int, int] = {}
    for device, size in lenders:
        lender, nbytes = gpu_of(device), byte_count(f"what {device} lends", size)
        if lender == gpu or nbytes < 0 or lender.index in found:
            raise InvalidProblem(
                f"{nbytes} bytes of {lender} for {gpu}: a GPU borrows bytes, or with 0 the link "
                "alone, from other GPUs, each of them named once"
            )
        free, _ = driver_bytes(lender)
        if nbytes > free:
            raise OutOfMemory(
                f"{nbytes} bytes are to be borrowed of {lender}, and {free} are free there"
            )
        found[int(lender.index)] = nbytes
    return found
