"""Random calls of the spill library, whose sources are compiled with sanitizers into the client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dropin.building import ROOT, compiler
from spill.scene import CLIENTS, MIB, run, variables, why_not

FLAGS = [
    "-D_GNU_SOURCE", "-std=gnu11", "-g", "-O1", f"-I{ROOT / 'native'}", "-pthread",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
]  # fmt: skip
SHORT, LONG = 5_000, 1_000_000

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def has_sanitizers(folder: Path) -> bool:
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    command = ["gcc", *FLAGS, "-o", str(folder / "empty"), str(source)]
    return shutil.which("gcc") is not None and subprocess.run(command, check=False).returncode == 0


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    if not has_sanitizers(folder):
        pytest.skip("gcc has no address and undefined-behaviour sanitizers here")
    spill = ROOT / "native" / "spill"
    script = folder / "runtime.map"
    text = (CLIENTS / "fake_cudart.map").read_text(encoding="utf-8")
    script.write_text(text.replace("VERSION", "13"), encoding="utf-8")
    runtime, program = folder / "libcudart.so.13", folder / "fuzz"
    compiler([*FLAGS, "-shared", "-fPIC", "-o", str(runtime), str(CLIENTS / "fake_cudart.c"),
              f"-Wl,-soname,{runtime.name}", f"-Wl,--version-script={script}",
              "-Wl,-Bsymbolic"])  # fmt: skip
    compiler([*FLAGS, "-o", str(program), str(Path(__file__).parent / "spill.c"),
              *map(str, sorted(spill.glob("*.c"))), str(runtime), f"-Wl,-rpath,{folder}",
              f"-Wl,--version-script={spill / 'spill.map'}", "-ldl"])  # fmt: skip
    return program


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(1, SHORT), *(pytest.param(seed, LONG, marks=pytest.mark.long) for seed in (2, 3))],
)
def test_random_calls_break_nothing(fuzzer, seed, calls):
    settings = variables(limit=8 * MIB, budget=4 * MIB) | {"LD_PRELOAD": ""}
    done = run(
        [fuzzer, str(seed), str(calls)],
        timeout=3600,
        OOCDNN_PINNED_LIMIT=str(64 * MIB),
        **settings,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{calls} calls, ")
    served, host = (int(part.split()[0]) for part in done.stdout.split(", ")[1:3])
    assert served > calls // 20
    assert host > calls // 200
