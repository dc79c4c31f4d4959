"""Read by Python at its start in programs that `oocdnn run --limit` runs.

Once the program imports torch, its training is planned (`oocdnn.torch.program`). Nothing else is
imported here. The program's own `sitecustomize` is read as it would be without this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Then(Loader):
    """Loads a module, then calls a function."""

    def __init__(self, loader: Loader, function: Callable[[], None]) -> None:
        self._loader, self._function = loader, function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._function()


class _Finder:
    """Finds torch as the others do, and has its training planned once it is imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _set_allocator()
            spec.loader = _Then(spec.loader, _plan)
        return spec


def _set_allocator() -> None:
    """PyTorch's segments grow in place, unless the program says otherwise, or what passes the limit
    is served from host memory, which serves whole segments."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    if os.environ.get("OOCDNN_SPILL") != "host" and not any(map(os.environ.get, names)):
        os.environ[names[1]] = "expandable_segments:True"


def _plan() -> None:
    """Has the training planned from the moment at which the program initializes CUDA."""
    torch = sys.modules["torch"]
    if getattr(torch.version, "cuda", None) is not None:
        torch.cuda._lazy_call(_begin)


def _begin() -> None:
    try:
        from oocdnn.torch import program

        program.begin()
    except Exception as error:  # as in another Python than the one oocdnn is installed in
        print(f"oocdnn: training is not planned: {error}", file=sys.stderr)


def _read_own() -> None:
    """Reads the `sitecustomize` that comes after this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("OOCDNN_PLAN") and os.environ.get("OOCDNN_DISABLE", "0") in ("", "0"):
    sys.meta_path.insert(0, _Finder())
_read_own()
