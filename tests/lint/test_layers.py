"""Holds every `#include "..."` under native/ to the list native/LAYERS."""

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
SYSTEM_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".S"}
BACK_ENDS = ("device/cpu", "device/cuda")


def read_layers(text: str) -> dict[str, set[str]]:
    """The folders of a LAYERS file in order, each with the folders that it may include."""
    layers: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        folder, allowed = line.split(":")
        names = allowed.split()
        unknown = [name for name in names if name not in layers]
        assert not unknown, f"LAYERS: {folder} names {unknown}, which do not stand above it"
        layers[folder.strip()] = {*names, folder.strip()}
    return layers


def folder_of(path: str, layers: dict[str, set[str]]) -> str | None:
    """The listed folder in which the file `path` lies directly, or None."""
    folder = path.rpartition("/")[0]
    return folder if folder in layers else None


def violations(native: Path, layers: dict[str, set[str]]) -> list[str]:
    """One line for each file or include under `native` that breaks the list."""
    found = []
    for file in sorted(native.rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        name = file.relative_to(native).as_posix()
        folder = folder_of(name, layers)
        if folder is None:
            found.append(f"{name}: its folder is not listed in LAYERS")
            continue
        for included in INCLUDE.findall(file.read_text(encoding="utf-8")):
            target = folder_of(included, layers)
            if target is None:
                found.append(f'{name}: "{included}" is no path from native/ into a listed folder')
            elif target not in layers[folder]:
                found.append(f"{name}: {folder} may not include {included}")
            elif not (native / included).is_file():
                found.append(f'{name}: "{included}" does not exist')
    return found


def sources() -> dict[str, str]:
    return {
        file.relative_to(NATIVE).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted(NATIVE.rglob("*"))
        if file.suffix in SUFFIXES
    }


def test_every_include_follows_the_layers() -> None:
    layers = read_layers((NATIVE / "LAYERS").read_text(encoding="utf-8"))
    assert not violations(NATIVE, layers)


def test_siblings_under_device_never_name_one_another() -> None:
    layers = read_layers((NATIVE / "LAYERS").read_text(encoding="utf-8"))
    siblings = {"device/cpu", "device/cuda", "device/wrap"}
    for folder in siblings:
        assert layers[folder] & siblings == {folder}


def test_one_file_names_the_back_ends() -> None:
    naming = [
        name
        for name, text in sources().items()
        if not name.startswith(("device/", "testing/"))
        and any(included.startswith(BACK_ENDS) for included in INCLUDE.findall(text))
    ]
    assert len(naming) <= 1, naming


def test_onednn_stays_in_its_plug_in() -> None:
    naming = [
        name
        for name, text in sources().items()
        if not name.startswith("device/cpu/onednn/")
        and any("dnnl" in included for included in SYSTEM_INCLUDE.findall(text))
    ]
    assert not naming


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("geom/a.cpp", '#include "base/b.hpp"', None),
        ("geom/a.cpp", '#include "geom/g.hpp"', None),
        ("base/a.hpp", '  #  include "geom/g.hpp"', "base may not include geom/g.hpp"),
        ("device/cpu/a.cpp", '#include "device/wrap/w.hpp"', "may not include device/wrap/w.hpp"),
        ("geom/a.cpp", '#include "g.hpp"', "no path from native/"),
        ("geom/a.cpp", '#include "base/gone.hpp"', "does not exist"),
        ("odd/a.cpp", "", "not listed in LAYERS"),
        ("geom/deeper/a.cpp", "", "not listed in LAYERS"),
    ],
)
def test_a_violation_is_caught(tmp_path: Path, file: str, line: str, complaint: str | None) -> None:
    layers = read_layers("base:\ngeom: base\ndevice/cpu: base\ndevice/wrap: base geom\n")
    for name in ("base/b.hpp", "geom/g.hpp", "device/wrap/w.hpp", file):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / file).write_text(line + "\n", encoding="utf-8")
    found = violations(tmp_path, layers)
    if complaint is None:
        assert not found
    else:
        assert len(found) == 1
        assert complaint in found[0]


def test_a_list_out_of_order_is_caught() -> None:
    with pytest.raises(AssertionError, match="do not stand above"):
        read_layers("geom: base\nbase:\n")
