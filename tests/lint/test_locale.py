"""Numbers become text, and text numbers, without the C locale: its decimal separator may be a
comma. base/numbers.hpp converts in C++, ooc_format in the C of native/spill."""

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
PROGRAMS = "testing/exercise/"  # set no locale
CONVERTERS = {"base/numbers.cpp", "spill/say.c"}  # call vsnprintf in the C locale

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
DEPENDS = re.compile(
    r"\b(strto(?:d|f|ld)|atof|sto(?:d|f|ld)|vs?n?printf|vfprintf|to_string"
    r"|o?stringstream|setprecision)\s*[(\s]"
)
CALL = re.compile(r"\b[fsd]?n?(?:printf|scanf)\s*\((.*?)\)\s*[;)=!<&|]", re.DOTALL)
FRACTION = re.compile(r"%[-+ #0']*[\d*]*(?:\.[\d*]*)?[lL]?[aefg]", re.IGNORECASE)


def dependent(text: str) -> list[str]:
    """What in a source would follow the program's locale."""
    code = COMMENT.sub("", text)
    calls = (found[1] for found in CALL.finditer(code))
    return [found[1] for found in DEPENDS.finditer(code)] + [
        found for call in calls for found in FRACTION.findall(call)
    ]


def test_no_number_depends_on_the_locale() -> None:
    found = {}
    for file in sorted(NATIVE.rglob("*")):
        name = file.relative_to(NATIVE).as_posix()
        if file.suffix not in SUFFIXES or name.startswith(PROGRAMS):
            continue
        names = dependent(file.read_text(encoding="utf-8"))
        if name in CONVERTERS:
            assert names == ["vsnprintf"], name
        elif names:
            found[name] = names
    assert not found


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("const double x = std::strtod(text, &end);", ["strtod"]),
        ("text += std::to_string(value);", ["to_string"]),
        ("std::ostringstream text;", ["ostringstream"]),
        ('std::snprintf(text, bytes, "%s: %.3g", name, x);', ["%.3g"]),
        ('fprintf(stderr, "%d of "\n  "%5.1f\\n", a, b);', ["%5.1f"]),
        ('snprintf(text, bytes, "%s %d%%", name, x);', []),
        ('if (sscanf(line, "%lf", &x) == 1) return x;', ["%lf"]),
        ("strtoll(value, &end, 10);  // not strtod(", []),
        ('return Format("%.17g", x);', []),
    ],
)
def test_what_depends_on_the_locale_is_found(line: str, names: list[str]) -> None:
    assert dependent(line) == names
