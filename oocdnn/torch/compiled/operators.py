"""Operators of compiled graphs that Inductor calls and does not fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_NAME = "oocdnn_compiled"
_library = torch.library.Library(_NAME, "DEF")


def define(schema: str, run: Callable[..., Any], form: Callable[..., Any]) -> Any:
    """Defines an operator.

    Args:
        schema: With the name.
        run: The implementation. One for all devices: tokens are on the CPU, values on a GPU.
        form: Returns results that have no memory, for tracing.
    """
    name = schema.split("(", maxsplit=1)[0]
    _library.define(schema)
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAME}::{name}", form, lib=_library)
    return getattr(getattr(torch.ops, _NAME), name).default


def token_form(*_: Any) -> Tensor:
    """The form of a small tensor on the CPU that stands for something else."""
    return torch.empty(1, dtype=torch.int64, device="cpu")


def no_form(*_: Any) -> None:
    """The form of an operator without results."""
