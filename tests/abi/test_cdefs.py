"""What Python believes about the C interface, against what a C compiler says."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import cffi
import pytest

from oocdnn._core import cdefs

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native" / "capi" / "oocdnn.h"
ENUMS = (
    "status",
    "dtype",
    "direction",
    "mode",
    "math",
    "activation",
    "batch_policy",
    "policy",
    "block_state",
)


def generator():
    path = HEADER.with_name("make_cdefs.py")
    spec = importlib.util.spec_from_file_location("make_cdefs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ffi():
    ffi = cffi.FFI()
    ffi.cdef(cdefs.CDEF)
    return ffi


@pytest.fixture(scope="module")
def run_c(tmp_path_factory):
    """Compiles a main function that prints, and gives its lines."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")

    def run(statements: list[str]) -> list[str]:
        folder = tmp_path_factory.mktemp("abi")
        source = folder / "print.c"
        body = "\n  ".join(statements)
        includes = f'#include <stdio.h>\n#include "{HEADER}"\n'
        source.write_text(f"{includes}int main(void) {{\n  {body}\n  return 0;\n}}\n")
        subprocess.run(["gcc", "-std=c11", "-o", folder / "print", source], check=True)
        done = subprocess.run([folder / "print"], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    return run


def structs(ffi) -> list[str]:
    names = re.findall(r"^\} (oocdnn_\w+);$", cdefs.CDEF, re.MULTILINE)
    return [name for name in names if ffi.typeof(name).kind == "struct"]


def test_committed_file_is_what_the_generator_writes():
    text = generator().generate(HEADER.read_text(encoding="utf-8"))
    assert text == (ROOT / "oocdnn" / "_core" / "cdefs.py").read_text(encoding="utf-8"), (
        "run python native/capi/make_cdefs.py"
    )


def test_every_struct_has_the_compilers_layout(ffi, run_c):
    names = structs(ffi)
    assert len(names) >= 5
    statements, seen = [], []
    for name in names:
        statements.append(f'printf("{name} %zu %zu\\n", sizeof({name}), _Alignof({name}));')
        seen.append(f"{name} {ffi.sizeof(name)} {ffi.alignof(name)}")
        for field, info in ffi.typeof(name).fields:
            place = f"{name}.{field}"
            statements.append(
                f'printf("{place} %zu %zu\\n", offsetof({name}, {field}), '
                f"sizeof((({name} *)0)->{field}));"
            )
            seen.append(f"{place} {info.offset} {ffi.sizeof(info.type)}")
    assert run_c(statements) == seen


def test_every_enum_has_the_headers_values(ffi, run_c):
    statements, seen = [], []
    for name in ENUMS:
        for value, member in sorted(ffi.typeof(f"oocdnn_{name}").elements.items()):
            statements.append(f'printf("{member} %d\\n", (int){member});')
            seen.append(f"{member} {value}")
    assert run_c(statements) == seen


@pytest.mark.parametrize("name", ENUMS)
def test_python_enums_mirror_the_c_enums(ffi, name):
    title = name.title().replace("_", "")
    python = getattr(cdefs, generator().CLASS_NAMES.get(name, title))
    members = {
        member.removeprefix("OOCDNN_").removeprefix(f"{name.upper()}_"): value
        for value, member in ffi.typeof(f"oocdnn_{name}").elements.items()
    }
    assert {member.name: member.value for member in python} == members


def test_version_is_the_headers(run_c):
    numbers = ", ".join(f"OOCDNN_VERSION_{part}" for part in ("MAJOR", "MINOR", "PATCH"))
    assert run_c([f'printf("%d.%d.%d\\n", {numbers});']) == [cdefs.VERSION]


def test_every_function_is_exported():
    from oocdnn._core import native

    functions = re.findall(r"\b(oocdnn_\w+)\(", cdefs.CDEF)
    assert len(functions) >= 15
    for function in functions:
        assert getattr(native._library(), function), function


def test_library_and_header_are_of_one_version():
    from oocdnn._core import native

    assert native.version() == cdefs.VERSION
