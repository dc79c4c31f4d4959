"""What optimizers will allocate."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

_ADAPTIVE = 2  # tensors of a parameter's size that an optimizer keeps, where that is not known


def state_bytes(device: torch.device, least: int = 0) -> int:
    """Bytes that the process's optimizers allocate on a device in their first step, in tensors of
    at least so many."""
    total = 0
    for optimizer in _optimizers():
        for group in optimizer.param_groups:
            count = _tensors(optimizer, group)
            total += count * sum(
                one.nbytes
                for one in group["params"]
                if one.device == device
                and one.requires_grad
                and one not in optimizer.state
                and one.nbytes >= least
            )
    return total


def _optimizers() -> Iterator[Optimizer]:
    for one in gc.get_objects():
        if issubclass(type(one), Optimizer):
            yield one


def _tensors(optimizer: Optimizer, group: dict[str, Any]) -> int:
    """How many tensors of a parameter's size an optimizer keeps for it."""
    if isinstance(optimizer, torch.optim.SGD):
        return int(group["momentum"] != 0)
    if isinstance(optimizer, torch.optim.RMSprop):
        return 1 + int(group["momentum"] != 0) + int(group["centered"])
    return _ADAPTIVE + int(bool(group.get("amsgrad")))
