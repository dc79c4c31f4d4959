"""A program that asks for device memory, a runtime that has none, and the spill library between."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from dropin.building import ROOT, compiler

from oocdnn import cudnn

CLIENTS = Path(__file__).parent / "clients"
MIB = 2**20
LIMIT, BUDGET = 64 * MIB, 8 * MIB
SHARE = LIMIT - BUDGET
SMALL = SHARE // 64
RESERVE = SHARE // 32
REFUSED = "2 none"
MEASURING = 1  # wait for the device before the first block in host memory is written
BIG = 48 * MIB  # of a share of 56 MiB: one fits, two do not
FULL = [f"0 m 2 {BIG}"]
TWICE = [f"0 m 3 {BIG}"] * 2


def spill_path() -> Path:
    return cudnn.dropin_path().parent / "liboocdnn_spill.so"


def why_not() -> str | None:
    """Why the library cannot be tested here; None where it can be, or should."""
    if platform.machine() != "x86_64":
        return "the spill library takes x86-64"
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        return "a build with sanitizers has no spill library"
    return None if shutil.which("gcc") else "gcc is not installed"


def build_runtime(folder: Path, version: int) -> Path:
    """The library libcudart.so.VERSION of addresses, with the real one's version node."""
    text = (CLIENTS / "fake_cudart.map").read_text(encoding="utf-8")
    script, library = folder / f"{version}.map", folder / f"libcudart.so.{version}"
    script.write_text(text.replace("VERSION", str(version)), encoding="utf-8")
    compiler(["-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{ROOT / 'native'}", "-o", str(library),
              str(CLIENTS / "fake_cudart.c"), f"-Wl,-soname,{library.name}",
              f"-Wl,--version-script={script}", "-Wl,-Bsymbolic", "-pthread"])  # fmt: skip
    return library


def build_client(folder: Path, version: int) -> Path:
    program = folder / f"requests_{version}"
    library = build_runtime(folder, version)
    compiler(["-D_GNU_SOURCE", "-O2", f"-I{ROOT / 'native'}", "-o", str(program),
              str(CLIENTS / "requests.c"), str(library), f"-Wl,-rpath,{folder}", "-pthread",
              "-ldl"])  # fmt: skip
    return program


def variables(limit: int = LIMIT, budget: int = BUDGET, spill: str = "host") -> dict[str, str]:
    """What `oocdnn run --limit LIMIT --spill` hands on."""
    return {
        "OOCDNN_LIMIT": str(limit), "OOCDNN_BUDGET": str(budget), "OOCDNN_SPILL": spill,
        "LD_PRELOAD": str(spill_path()),
    }  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """The runtime's own first, then those of oocdnn_spill_figures."""

    used: int
    peak: int
    registered: int
    registrations: int
    waits: int
    looks: int
    host_at_wait: int
    device_at_free: int
    limit: int
    budget: int
    others: int
    device_bytes: int
    device_peak: int
    host_bytes: int
    host_peak: int
    pinned_bytes: int
    refused: int


@dataclass(frozen=True)
class Outcome:
    answers: list[str]
    figures: Figures
    said: list[str]


def run(command: list[str | Path], text: str = "", timeout: float = 60, **environment: str):
    """A process with only these OOCDNN_* variables, and without the sources in reach."""
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("OOCDNN_", "PYTORCH_", "LD_PRE"))
    }
    return subprocess.run(
        command, env=inherited | environment, input=text, capture_output=True, text=True,
        check=False, timeout=timeout, cwd="/",
    )  # fmt: skip


def play(program: Path, lines: list[str], *, together: bool = False, **environment: str) -> Outcome:
    """What the client says to these lines; `together`: its threads take no turns."""
    done = run([program, *(["together"] if together else [])], "\n".join(lines), **environment)
    assert done.returncode == 0, done.stderr
    *answers, last = done.stdout.splitlines()
    numbers = [int(word) for word in last.split()]
    assert len(numbers) == len(fields(Figures))
    return Outcome(answers, Figures(*numbers), done.stderr.splitlines())
