"""Has the convolutions of a model computed by oocdnn, and by torch again.

A module stays the object that it is, with its class, parameters, buffers and hooks: all that
changes is a method, which the module itself then holds. So copies of it, and what pickle makes of
it, are taken too, and its state dict is the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from oocdnn.torch.modules import convolve, transpose

Choice = Callable[[str, torch.nn.Module], bool]

# The classes, the method that computes, and what takes its place.
_METHODS: tuple[tuple[type[torch.nn.Module], str, Callable[..., Any]], ...] = (
    (torch.nn.Conv1d, "_conv_forward", convolve),
    (torch.nn.Conv2d, "_conv_forward", convolve),
    (torch.nn.Conv3d, "_conv_forward", convolve),
    (torch.nn.ConvTranspose1d, "forward", transpose),
    (torch.nn.ConvTranspose2d, "forward", transpose),
    (torch.nn.ConvTranspose3d, "forward", transpose),
)


def take(model: torch.nn.Module, where: Choice | None = None) -> list[str]:
    """Has the convolutions of `model` computed by oocdnn; returns the names of those modules.

    `where(name, module)` says which, None means all. Left alone are modules that compute in a way
    of their own: of a class derived from torch.nn's with another `forward`, or changed by others.
    """
    taken = []
    for name, module in model.named_modules():
        method = _method_of(module)
        if method is not None and (where is None or where(name, module)):
            attribute, function = method
            setattr(module, attribute, partial(function, module))
            taken.append(name)
    return taken


def give_back(model: torch.nn.Module) -> list[str]:
    """Undoes `take`, for all modules that are taken; returns their names."""
    given = []
    for name, module in model.named_modules():
        for attribute in ("_conv_forward", "forward"):
            method = vars(module).get(attribute)
            if isinstance(method, partial) and method.func in (convolve, transpose):
                delattr(module, attribute)
                given.append(name)
    return given


def _method_of(module: torch.nn.Module) -> tuple[str, Callable[..., Any]] | None:
    """The method to change and what it becomes; None if the module is to be left alone."""
    for plain, attribute, function in _METHODS:
        if isinstance(module, plain):
            torchs = all(
                getattr(type(module), method, None) is getattr(plain, method, None)
                and method not in vars(module)
                for method in ("forward", "_conv_forward")
            )
            return (attribute, function) if torchs else None
    return None
