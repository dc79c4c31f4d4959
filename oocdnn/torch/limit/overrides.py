"""The kernels that take the place of PyTorch's while a limit needs them.

They run below autograd: the graph and what it saves are as without them, and no other operation is
slower.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oocdnn.torch.limit import in_place, parts

_KERNELS = {**parts.KERNELS, **in_place.KERNELS}


class _Overrides:
    """The kernels of each device type that is in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: dict[str, int] = {}
        self._libraries: dict[str, Any] = {}

    def count(self, key: str, more: int) -> None:
        """So many tables more use the dispatch key. The kernels learn anew at each first use: the
        interpreter counts otherwise while a compiled function is active."""
        with self._lock:
            if more > 0 and not any(self._uses.values()):
                self._count("CPU", 1)
                _in_a_thread(_learn)
                self._count("CPU", -1)
            self._count(key, more)

    def _count(self, key: str, more: int) -> None:
        uses = self._uses[key] = self._uses.get(key, 0) + more
        library = self._libraries.get(key)
        if uses and library is None:
            self._libraries[key] = _registered(key)
        elif not uses and library is not None:
            self._libraries.pop(key)._destroy()


overrides = _Overrides()


def _registered(key: str) -> Any:
    """Kernels that another library has replaced are left alone."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch has kernels of its own for CUDA
        for name, kernel in _KERNELS.items():
            if f"aten/{name}/{key}" not in torch.library._impls:
                library.impl(name, kernel, key)
    return library


def _in_a_thread(run: Callable[[], object]) -> None:
    """Where no mode, hook or autocast of the program's thread is seen."""
    thread = threading.Thread(target=run)
    try:
        thread.start()
    except RuntimeError:  # no further thread
        return
    thread.join()


def _learn() -> None:
    """Has the kernels learn what a tensor looks like that nobody else holds."""
    x = torch.ones(1, 1, 1, 1, requires_grad=True)
    kept: list[Tensor] = []

    def twice(operation: Callable[[Tensor], Tensor]) -> None:
        for _ in range(2):
            operation(x).mul(2).sum().backward()

    def held(operation: Callable[[Tensor], Tensor]) -> None:
        """By Python, by the engine, and as the storage of another tensor."""
        y = operation(x)
        y.register_hook(kept.append)
        y.mul(2).sum().backward()
        y = operation(x)
        torch.autograd.grad(y.mul(2).sum(), (y, x))
        y = operation(x)
        y.register_hook(lambda gradient: kept.append(gradient.detach()))
        y.mul(2).sum().backward()

    for owned, operation in (
        (in_place.owned, torch.relu),
        (in_place.owned_named, partial(torch.nn.functional.gelu, approximate="tanh")),
        (parts.owned, partial(torch.nn.functional.conv2d, weight=torch.ones(1, 1, 1, 1))),
    ):
        with suppress(Exception):  # of another library's kernel: nothing is overwritten then
            owned.learn(partial(twice, operation), partial(held, operation))

    def pooled(unpack: Callable[[Tensor], Tensor], times: int) -> None:
        for _ in range(times):
            with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
                torch.nn.functional.max_pool2d(x * 2, 1).sum().backward()

    def copied(tensor: Tensor) -> Tensor:
        kept.append(tensor.clone())
        return kept[-1]

    def shared() -> None:
        for unpack in (lambda tensor: tensor, Tensor.detach, copied):
            pooled(unpack, 1)
        torch.nn.functional.max_pool2d(x * 2, 1).sum().backward()

    with suppress(Exception):
        in_place.owned_input.learn(partial(pooled, Tensor.clone, 2), shared)
