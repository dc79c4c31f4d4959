"""Has the convolutions of a model computed by oocdnn, and by torch again.

A module stays the object that it is, with its class, parameters, buffers and hooks: all that
changes is a method, which the module itself then holds, and its state dict is the same. The method
is bound to its module, so copies need methods of their own: those of `copy`, `pickle` and
`torch.nn.DataParallel` are taken too, and compute with their own parameters.
"""

import copyreg
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from oocdnn.torch.modules import convolve, transpose

Choice = Callable[[str, torch.nn.Module], bool]
Methods = dict[str, Callable[..., Any]]  # functions of the module, by the attribute that holds them

# The classes, the method that computes, and what takes its place.
_METHODS: tuple[tuple[type[torch.nn.Module], str, Callable[..., Any]], ...] = (
    (torch.nn.Conv1d, "_conv_forward", convolve),
    (torch.nn.Conv2d, "_conv_forward", convolve),
    (torch.nn.Conv3d, "_conv_forward", convolve),
    (torch.nn.ConvTranspose1d, "forward", transpose),
    (torch.nn.ConvTranspose2d, "forward", transpose),
    (torch.nn.ConvTranspose3d, "forward", transpose),
)
_REPLICATE = "_replicate_for_data_parallel"


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
            _bind(module, {attribute: function, _REPLICATE: _replicate})
            taken.append(name)
    return taken


def give_back(model: torch.nn.Module) -> list[str]:
    """Undoes `take`, for all modules that are taken; returns their names."""
    given = []
    for name, module in model.named_modules():
        methods = _methods_in(module)
        for attribute in methods:
            delattr(module, attribute)
        if methods:
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


def _methods_in(module: torch.nn.Module) -> Methods:
    """The methods of ours that a module holds."""
    held = vars(module)
    found = {}
    for attribute in ("_conv_forward", "forward", _REPLICATE):
        method = held.get(attribute)
        if isinstance(method, partial) and method.func in (convolve, transpose, _replicate):
            found[attribute] = method.func
    return found


def _bind(module: torch.nn.Module, methods: Methods) -> None:
    """Has `module` hold these methods, and `copy` and `pickle` bind those of its copies."""
    for attribute, function in methods.items():
        vars(module)[attribute] = partial(function, module)
    copyreg.dispatch_table.setdefault(type(module), _reduce)


def _replicate(module: torch.nn.Module) -> Any:
    """A replica as `torch.nn.DataParallel` makes them, with methods of its own."""
    replica = type(module)._replicate_for_data_parallel(module)
    _bind(replica, _methods_in(module))
    return replica


def _reduce(module: torch.nn.Module) -> Any:
    """Reduces a module for `copy` and `pickle` as its class does, without the methods of ours."""
    reduced = module.__reduce_ex__(4)
    methods = _methods_in(module)
    if not methods or len(reduced) < 3 or not isinstance(reduced[2], dict):
        return reduced
    make, arguments, state, *rest = reduced
    plain = {name: value for name, value in state.items() if name not in methods}
    return (_remake, (methods, make, arguments), plain, *rest)


def _remake(methods: Methods, make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    module = make(*arguments)
    _bind(module, methods)
    return module
