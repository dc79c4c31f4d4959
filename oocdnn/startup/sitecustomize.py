"""Read by Python at its start in programs that `oocdnn run --limit` runs.

Once the program imports torch, its training is planned (`oocdnn.torch.program`). Nothing else is
imported here. The program's own `sitecustomize` is read as it would be without this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Then(Loader):
    """Delegates to a loader, and calls one function before the module is executed and one after."""

    def __init__(self, loader: Loader, before: Callable[[], None], after: Callable[[], None]):
        self._loader, self._before, self._after = loader, before, after

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._before()
        self._loader.exec_module(module)
        self._after()


class _Finder:
    """Finds torch as the others do, and has its training planned once it is imported. Whoever asks
    only whether torch is there gets the same answer, and changes nothing."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch" or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = importlib.util.find_spec(name) if name not in sys.modules else None
        finally:
            self._searching.now = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Then(spec.loader, _set_allocator, _plan)
        return spec


def _set_allocator() -> None:
    """PyTorch's segments grow in place, unless the program says otherwise, or what passes the limit
    is served from host memory, which serves whole segments."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    if os.environ.get("OOCDNN_SPILL") != "host" and not any(map(os.environ.get, names)):
        os.environ[names[1]] = "expandable_segments:True"


def _plan() -> None:
    """Has the training planned from the moment at which the program initializes CUDA."""
    torch = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    lazy_call = getattr(getattr(torch, "cuda", None), "_lazy_call", None)
    if version is not None and lazy_call is not None:
        lazy_call(_begin)


def _begin() -> None:
    try:
        from oocdnn.torch import program

        program.begin()
    except Exception as error:  # as in another Python than the one oocdnn is installed in
        if sys.stderr is not None:
            print(f"oocdnn: training is not planned: {error}", file=sys.stderr)


def _read_own() -> None:
    """Reads the `sitecustomize` that comes after this one, and after those of other installations
    that are like it."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = sys.path
    while True:
        folders = [os.path.abspath(path) for path in paths]
        paths = paths[folders.index(here) + 1 :] if here in folders else paths
        spec = PathFinder.find_spec("sitecustomize", paths)
        if spec is None or spec.loader is None or spec.origin is None:
            return
        here = os.path.dirname(os.path.abspath(spec.origin))
        if not here.endswith(os.path.join("oocdnn", "startup")):
            break
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("OOCDNN_PLAN") and os.environ.get("OOCDNN_DISABLE", "0") in ("", "0"):
    sys.meta_path.insert(0, _Finder())
_read_own()
