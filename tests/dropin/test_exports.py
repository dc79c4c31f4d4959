"""What the preloaded file is, as the loader sees it, and our declarations against NVIDIA's."""

import re
import shutil
import subprocess

import pytest
from dropin import building

from oocdnn import cudnn

ABI = building.ROOT / "native" / "abi"
DECLARATIONS = ("cudnn_functions.h", "cudnn_handed_on.h")
OUR_OWN = {"oocdnn_dropin_real"}
FIRST_LISTED, LAST_LISTED = 919, 928


def listed() -> dict[str, int]:
    """The one list of exports, with the version that first has each."""
    text = (ABI / "cudnn_exports.h").read_text(encoding="utf-8")
    return {name: int(since) for name, since in re.findall(r"F\((\w+), (\d+)\)", text)}


def readelf(path, *flags: str) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    return subprocess.run(
        ["readelf", "-W", *flags, path], check=True, capture_output=True, text=True
    ).stdout


def exports(path) -> dict[str, str]:
    """Version node by name of each function that an object defines."""
    pattern = r"FUNC +GLOBAL DEFAULT +\d+ (\w+)(?:@@(\S+))?$"
    return dict(re.findall(pattern, readelf(path, "--dyn-syms"), re.MULTILINE))


def test_the_list_is_that_of_the_versions_it_names():
    names = listed()
    assert len(names) == 243
    assert sum(since <= FIRST_LISTED for since in names.values()) == 224
    assert set(names.values()) == {FIRST_LISTED, LAST_LISTED}


def test_exports_are_the_list_under_cudnns_own_version_node():
    found = exports(cudnn.dropin_path())
    assert set(found) == set(listed()) | OUR_OWN
    assert set(found.values()) == {"libcudnn.so.9"}


def test_it_has_cudnns_soname_and_needs_libc_alone():
    dynamic = readelf(cudnn.dropin_path(), "-d")
    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libcudnn.so.9"]
    assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"]


def test_the_real_library_exports_what_is_listed_for_its_version():
    real = building.real_library()
    command = (
        "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudnnGetVersion())",
        str(real),
    )
    done = subprocess.run(["python3", "-c", *command], capture_output=True, text=True, check=True)
    version = int(done.stdout) // 100
    found = set(exports(real))
    assert {name for name, since in listed().items() if since <= version} <= found
    if version in (FIRST_LISTED, LAST_LISTED):
        assert found == {name for name, since in listed().items() if since <= version}


def enumerators() -> dict[str, int]:
    text = "".join((ABI / name).read_text(encoding="utf-8") for name in cudnn._HEADERS)
    return {name: int(value) for name, value in re.findall(r"\b(CUDNN_\w+) = (\d+)", text)}


def structs() -> dict[str, list[str]]:
    text = (ABI / "cudnn_legacy.h").read_text(encoding="utf-8")
    bodies = re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL)
    return {name: re.findall(r"(\w+)(?:\[\d+\])?;", body) for body, name in bodies}


def test_our_declarations_are_nvidias(tmp_path):
    """The compiler compares: our prototypes stand after NVIDIA's, and every number is asserted."""
    flags = building.include_flags("nvidia")
    folder = building.nvidia_folder() / "include"
    theirs = "".join(path.read_text(encoding="utf-8") for path in folder.glob("cudnn*.h"))
    numbers = {name: v for name, v in enumerators().items() if re.search(rf"\b{name}\b", theirs)}
    assert len(numbers) > 150
    lines = ["#include <cudnn.h>", "#include <stddef.h>"]
    lines += [f'#include "abi/{name}"' for name in DECLARATIONS]
    lines += [f'_Static_assert({n} == {v}, "{n}");' for n, v in numbers.items()]
    source = tmp_path / "compare.c"
    source.write_text("\n".join(lines) + "\n")
    building.compiler([*flags, f"-I{ABI.parent}", "-fsyntax-only", str(source)])


def test_our_structs_have_nvidias_layout(tmp_path):
    found = structs()
    assert len(found) == 3
    printed = []
    for headers in ("ours", "nvidia"):
        lines = ["#include <cudnn.h>", "#include <stddef.h>", "#include <stdio.h>"]
        lines += ["int main(void) {"]
        for name, fields in found.items():
            lines.append(f'  printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'  printf("{f} %zu\\n", offsetof({name}, {f}));' for f in fields]
        source = tmp_path / f"{headers}.c"
        source.write_text("\n".join([*lines, "}"]) + "\n")
        program = building.build(source, tmp_path / headers, headers)
        printed.append(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == 3 * 8


@pytest.mark.parametrize("since", [FIRST_LISTED, LAST_LISTED])
def test_declared_functions_are_exported(since):
    text = "".join((ABI / name).read_text(encoding="utf-8") for name in DECLARATIONS)
    declared = set(re.findall(r"^\w[\w *]*?(cudnn\w+)\(", text, re.MULTILINE))
    assert len(declared) > 110
    newer = {"cudnnGetExecutionPlanWorkspaceSize"} if since == FIRST_LISTED else set()
    assert declared - newer <= {name for name, v in listed().items() if v <= since}
