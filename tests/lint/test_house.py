"""Rules of the house that no linter knows: bounded files, headers in plain C, one list of tools."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native" / "capi" / "oocdnn.h"
FOLDERS = ("native", "oocdnn", "perfmodel", "bench", "tests")
SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".S", ".py", ".txt"}
LONGEST = 800

# Files that read better in one piece, each with the reason.
MAY_BE_LONGER: dict[str, str] = {
    "perfmodel/profiles/h200.txt": "what a machine has written: a line for each rate it measured",
}


def lengths() -> dict[str, int]:
    return {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in SUFFIXES and "__pycache__" not in file.parts
    }


def test_files_do_one_thing_and_stay_short() -> None:
    long = {name: count for name, count in lengths().items() if count > LONGEST}
    assert not {name: count for name, count in long.items() if name not in MAY_BE_LONGER}
    assert not MAY_BE_LONGER.keys() - long.keys(), "listed as long, but is not"


@pytest.mark.parametrize(
    ("compiler", "language"),
    [("gcc", ("-std=c11", "-xc")), ("g++", ("-std=c++11", "-xc++"))],
)
def test_public_header_compiles_alone(compiler: str, language: tuple[str, ...]) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    flags = ("-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
    done = subprocess.run(
        [compiler, *language, *flags, "-"],
        input=f'#include "{HEADER}"\n',
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_build_group_repeats_the_build_requirements() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    def entries(start: str) -> list[str]:
        match = re.search(rf"^{start} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        assert match is not None, start
        return [line.strip() for line in match.group(1).splitlines()]

    required = entries("requires")
    assert entries("build")[: len(required)] == required


def test_package_page_is_the_readme() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ('readme = "README.md"' in text) == (ROOT / "README.md").is_file()


def test_the_library_carries_all_sources_of_its_kernels():
    """NVRTC compiles what is embedded, and finds no other file."""
    native = ROOT / "native"
    folder = native / "device" / "cuda"
    text = (folder / "embedded.cpp").read_text()
    embedded = set(re.findall(r'FILE\(\w+, "([^"]+)"\)', text))
    sources = {path for path in folder.iterdir() if path.suffix in {".cu", ".cuh"}}
    assert {path.relative_to(native).as_posix() for path in sources} <= embedded
    included = {
        name
        for file in embedded
        for name in re.findall(r'^#include "([^"]+)"', (native / file).read_text(), re.MULTILINE)
    }
    assert included <= embedded
    assert embedded <= included | {"device/cuda/kernels.cu"}
