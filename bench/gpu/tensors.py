"""Tensors and arrays over the same memory, and pinned memory for them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC

Array = np.ndarray[Any, np.dtype[Any]]


def dtype_of(kind: str) -> torch.dtype:
    """Of the elements in a kind of arithmetic."""
    found: torch.dtype = getattr(torch, ARITHMETIC[kind].dtype)
    return found


def as_numpy(tensor: torch.Tensor) -> Array:
    """The same memory; bfloat16 is what `ml_dtypes` calls so."""
    array: Array
    if tensor.dtype != torch.bfloat16:
        array = tensor.numpy()
    else:
        import ml_dtypes

        array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return array


def bytes_of(tensor: torch.Tensor) -> Array:
    """The memory of a contiguous tensor."""
    return as_numpy(tensor).reshape(-1).view(np.uint8)


def channels_last(rank: int) -> torch.memory_format:
    """The memory order that has the channels innermost."""
    return torch.channels_last if rank == 2 else torch.channels_last_3d


class Pinned:
    """Pinned memory that all cases use in turn, one piece for each name."""

    def __init__(self) -> None:
        self._piece: dict[str, Array] = {}

    def tensor(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor in it; what that name held before is overwritten."""
        size = math.prod(shape) * dtype.itemsize
        held = self._piece.get(name)
        if held is None or held.size < size:
            self._piece.pop(name, None)
            held = self._piece[name] = oocdnn.empty(size, np.uint8)
        return torch.from_numpy(held[:size]).view(dtype).view(*shape)
