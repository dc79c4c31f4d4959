"""Holds the imports of oocdnn/ to an order: no circle, and no lower layer imports a higher one.

Imports for type checkers alone do not count.
"""

import ast
import graphlib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What the modules of a folder may import of the package, besides the folder.
LAYERS = {
    "oocdnn._core": ("errors", "_arguments", "_shown"),
    "oocdnn._arrays": ("_core", "arrays", "errors"),
    "oocdnn.network": ("_core", "errors", "_files", "_page", "_shown"),
}


def modules(root: Path) -> dict[str, Path]:
    """The modules of the package, by name."""
    found = {}
    for file in sorted((root / "oocdnn").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(node: ast.AST, known: dict[str, Path]) -> set[str]:
    """The modules that the code imports, in functions too."""
    found = set()
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            names = {f"{child.module}.{alias.name}" for alias in child.names}
            found |= {name if name in known else child.module for name in names}
        elif isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        found |= imported(child, known)
    return {name for name in found if name in known}


def graph(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {
        name: imported(ast.parse(file.read_text(encoding="utf-8")), known) - {name}
        for name, file in known.items()
    }


@cache
def project() -> dict[str, set[str]]:
    return graph(ROOT)


def is_in(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")


def test_no_circle() -> None:
    graphlib.TopologicalSorter(project()).prepare()  # raises CycleError with the modules


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "oocdnn"
    package.mkdir()
    (package / "one.py").write_text("from oocdnn import two\n")
    (package / "two.py").write_text("def later():\n    from oocdnn.one import x\n")
    with pytest.raises(graphlib.CycleError, match=r"oocdnn\.one"):
        graphlib.TopologicalSorter(graph(tmp_path)).prepare()
    (package / "two.py").write_text("if TYPE_CHECKING:\n    from oocdnn.one import x\n")
    graphlib.TopologicalSorter(graph(tmp_path)).prepare()


@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer: str) -> None:
    allowed = (layer, *(f"oocdnn.{name}" for name in LAYERS[layer]))
    wrong = [
        f"{module} imports {name}"
        for module, names in project().items()
        for name in sorted(names)
        if is_in(module, layer) and not any(is_in(name, folder) for folder in allowed)
    ]
    assert not wrong
