"""Saved-tensor hooks of a thread. They are removed while code disables all hooks: `torch.func` does
so, and raises where any are set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from oocdnn.torch.limit.in_use import WhileInUse

_autograd = torch._C._autograd
# The latest hooks of a thread; with True while something is traced, too.
_LATEST = getattr(_autograd, "_top_saved_tensors_default_hooks", None)
# .hooks: those of a thread, the innermost last. .given: those that a thread of autograd's got from
# the one that called it, and that are away.
_thread = threading.local()
_packs: list[Callable[[Any], Any]] = []  # of all hooks in use


class Hooks:
    """Hooks from `push` to `pop`, both on one thread."""

    def __init__(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        self._pack, self._unpack = pack, unpack
        self._pushed: torch.autograd.graph.saved_tensors_hooks | None = None

    def push(self) -> None:
        _aside.begin()
        try:
            self._push()
        except BaseException:
            _aside.end()
            raise
        _packs.append(self._pack)
        _hooks().append(self)

    def pop(self) -> None:
        _hooks().remove(self)
        _packs.remove(self._pack)
        if self._pushed is not None:
            self._pop()
        _aside.end()

    def step_aside(self) -> None:
        """Takes the hooks away, where no others were set since. Versions of PyTorch that do not
        tell the latest ones are taken to have these."""
        pack = self._pack if _LATEST is None else (_LATEST(True) or (None,))[0]
        if self._pushed is not None and pack == self._pack:
            self._pop()

    def step_back(self) -> None:
        if self._pushed is None:
            self._push()

    def _push(self) -> None:
        pushed = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        pushed.__enter__()  # raises where PyTorch allows no hooks
        self._pushed = pushed

    def _pop(self) -> None:
        assert self._pushed is not None
        self._pushed.__exit__(None, None, None)
        self._pushed = None


def step_aside() -> None:
    """Takes all hooks of this thread away, where no others were set since."""
    for hooks in reversed(_hooks()):
        hooks.step_aside()


def _hooks() -> list[Hooks]:
    if not hasattr(_thread, "hooks"):
        _thread.hooks = []
    hooks: list[Hooks] = _thread.hooks
    return hooks


def _given() -> list[tuple[Any, Any]]:
    if not hasattr(_thread, "given"):
        _thread.given = []
    given: list[tuple[Any, Any]] = _thread.given
    return given


class _Aside(WhileInUse):
    """Tells the hooks of a thread when code disables all hooks, and when it enables them again."""

    def __init__(self) -> None:
        super().__init__()
        self._names = ("_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable")
        self._originals: list[Callable[..., Any]] = []

    def _change(self) -> None:
        self._originals = [getattr(_autograd, name) for name in self._names]
        self._set([self._disable, self._enable])

    def _restore(self) -> None:
        self._set(self._originals)

    def _set(self, functions: Sequence[Callable[..., Any]]) -> None:
        for name, function in zip(self._names, functions, strict=True):
            setattr(_autograd, name, function)

    def _disable(self, *given: Any) -> None:
        step_aside()
        self._take_given()
        self._originals[0](*given)

    def _enable(self) -> None:
        self._originals[1]()
        while given := _given():
            _autograd._push_saved_tensors_default_hooks(*given.pop())
        for hooks in _hooks():
            hooks.step_back()

    def _take_given(self) -> None:
        """Takes away what a thread of autograd's has from the one that called it."""
        while _LATEST is not None and (top := _LATEST(True)) and top[0] in _packs:
            _autograd._pop_saved_tensors_default_hooks()
            _given().append(top)


_aside = _Aside()
