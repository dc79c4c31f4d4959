"""The texts of errors as the sources have them, for docs/reference/troubleshooting.md:

    PYTHONPATH=tests python -m python.messages

replaces the lists at the end of that page. What differs from call to call stands as ….
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "troubleshooting.md"
BEGIN = "<!-- every text, by tests/python/messages.py -->\n"

# By the names of codes, in the order of the page. What breaks a promise of ours has no entry of its
# own: the text is for us.
ERRORS = {
    "InvalidProblem": "Change the call as the text says.",
    "InvalidDtype": "Convert the array: all of a call are of one served type.",
    "OutOfMemory": "Give a larger budget (`error.least` bytes work), or free memory.",
    "Unsupported": "Take what the text names as the nearest that works.",
    "DeviceError": "Try again in a new context; `OOCDNN_LOG=debug` says more.",
    "FileError": "See to the file, its permissions, or room on the disk.",
    "ImportError": "Install again; `OOCDNN_LIBRARY` names another core library.",
    "RuntimeError": "The text says what has to come first.",
    "TypeError": "Pass what the text names.",
}
_NATIVE = re.compile(r'\bError\(\s*(?:Code::k)?(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*(?:PRI\w+\s*)?)+)')
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FORMAT = re.compile(r"%[-+#0]*[\d.*]*(?:hh|ll|[hlzjt])?[a-zA-Z]")


def native_texts() -> Iterator[tuple[str, str]]:
    """The error and the text of every Status that the core makes, without its tests'."""
    for path in sorted((ROOT / "native").rglob("*.[ch]pp")):
        if path.relative_to(ROOT / "native").parts[0] == "testing":
            continue
        for code, literals in _NATIVE.findall(path.read_text(encoding="utf-8")):
            text = "".join(_LITERAL.findall(literals)).replace('\\"', '"').replace("\\n", " ")
            yield (
                ("DeviceError" if code == "code" else code),
                _FORMAT.sub("…", text).replace("%%", "%"),
            )


def _words(node: ast.expr) -> str:
    """The text of an expression, as far as it stands there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + _words(node.right)
    return "…"


def python_texts() -> Iterator[tuple[str, str]]:
    """The same of what the package raises; what is said by a library is of that library."""
    for path in sorted((ROOT / "oocdnn").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in ERRORS:
                yield name, _words(node.args[0])


def texts() -> dict[str, list[str]]:
    """All of them by error, each once."""
    found: dict[str, set[str]] = defaultdict(set)
    for error, text in (*native_texts(), *python_texts()):
        plain = re.sub(r"…+", "…", " ".join(text.split()))
        if error in ERRORS and re.search(r"\w", plain.replace("…", "")):
            found[error].add(plain)
    return {error: sorted(found[error], key=str.casefold) for error in ERRORS if found[error]}


def lists() -> str:
    """The end of the page."""
    parts = []
    for error, found in texts().items():
        lines = "".join(f"    {text}\n" for text in found)
        parts.append(f"### {error}\n\n{ERRORS[error]}\n\n{lines}")
    return "\n".join(parts)


def main() -> None:
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{lists()}", encoding="utf-8")


if __name__ == "__main__":
    main()
