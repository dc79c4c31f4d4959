"""Row mutants: small faults, planted one at a time in a copy of the tree, that the suite must find.

The copy is built once. A mutant replaces one text of one file; native code is compiled again by
ninja, Python files are copied over the unpacked wheel. The tests of the mutant's folder run first,
then the whole suite; the first failure ends the mutant. No build of the working tree is touched.

    make reliability ROWS=mutants
    cd tests && OOCDNN_TESTING_LIBRARY=none python -m reliability.mutants --only NAME --keep
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from reliability.rows import Finding, Size

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.json")
SHARE = 0.95  # of the mutants must be found

# Mutants that may live, each with the reason.
EXPLAINED: dict[str, str] = {}
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line")
STAGE_SECONDS = 1800

# The tests that are nearest to a folder, by the longest prefix of the mutant's path.
NEAREST: dict[str, tuple[str, ...]] = {
    "native/base": ("geometry", "native", "model"),
    "native/geom": ("geometry", "model", "engine"),
    "native/model": ("model", "geometry"),
    "native/device/wrap": ("conformance", "native"),
    "native/device/cpu": ("conformance", "engine"),
    "native/device/cuda": ("gpu",),
    "native/memory": ("native", "engine"),
    "native/exec": ("engine", "native"),
    "native/library": ("native", "python", "model"),
    "native/capi": ("abi", "native", "python"),
    "native/shim": ("dropin", "gpu"),
    "native/dropin": ("dropin",),
    "native/spill": ("spill",),
    "oocdnn": ("python", "nn"),
    "oocdnn/nn": ("nn", "unet"),
    "oocdnn/torch": ("pytorch",),
    "oocdnn/cli": ("python", "dropin"),
    "bench": ("bench",),
    "perfmodel": ("model", "bench"),
}


@dataclass(frozen=True)
class Mutant:
    """One text of one file and what replaces it."""

    name: str
    path: str
    before: str
    after: str


def mutants() -> list[Mutant]:
    return [Mutant(**row) for row in json.loads(LIST.read_text(encoding="utf-8"))]


@dataclass
class Verdict:
    mutant: str
    found: bool
    by: str  # the first failure, or the reason why the mutant lived
    seconds: float = 0.0


def nearest(path: str) -> tuple[str, ...]:
    fitting = [prefix for prefix in NEAREST if path.startswith(prefix + "/")]
    return NEAREST[max(fitting, key=len)]


def replaced(text: str, mutant: Mutant) -> str:
    """The mutant's file; ValueError unless its text occurs exactly once."""
    count = text.count(mutant.before)
    if count != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.path} holds {mutant.before!r} {count} times, not once; "
            "name a text that is there once"
        )
    return text.replace(mutant.before, mutant.after)


@dataclass
class Workshop:
    """A built copy of the tree: sources, build folder, and the wheel unpacked."""

    folder: Path
    workers: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def native(self) -> Path:
        return self.folder / "native"

    @property
    def site(self) -> Path:
        return self.folder / "site"

    def build(self) -> None:
        names = self._output("git", "ls-files", "-z", cwd=ROOT).split("\0")
        for name in filter(None, names):
            source, target = ROOT / name, self.tree / name
            if not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        dist = self.folder / "dist"
        self._check(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", ".", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", str(dist)),
            f"--config-settings=build-dir={self.native}",
            "--config-settings=cmake.define.OOCDNN_TESTING=ON",
            cwd=self.tree,
        )
        (wheel,) = dist.glob("*.whl")
        self._check(sys.executable, "-m", "zipfile", "-e", str(wheel), str(self.site))

    def plant(self, mutant: Mutant) -> str:
        """Writes the mutant; an empty text, or the compiler's words where it does not compile."""
        source = self.tree / mutant.path
        source.write_text(replaced(source.read_text(encoding="utf-8"), mutant), encoding="utf-8")
        return self._install(mutant)

    def restore(self, mutant: Mutant) -> None:
        shutil.copyfile(ROOT / mutant.path, self.tree / mutant.path)
        words = self._install(mutant)
        assert not words, words

    def first_failure(self, *folders: str) -> str:
        """Of the tests of these folders, of all where there are none: empty if they pass."""
        paths = [f"tests/{folder}" for folder in folders]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *PYTEST, "-n", str(self.workers), *paths],
                cwd=self.tree,
                env=self._environment(),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=STAGE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the tests did not end in {STAGE_SECONDS} s"
        if done.returncode == 0:
            return ""
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return lines[0] if lines else f"pytest ended with {done.returncode}"

    def _install(self, mutant: Mutant) -> str:
        if mutant.path.startswith("native/"):
            done = self._run("cmake", "--build", str(self.native))
            if done.returncode != 0:
                return done.stdout[-2000:]
            package = str(self.site / "oocdnn")
            self._check("cmake", "--install", str(self.native), "--prefix", package)
            return ""
        package = self.site if mutant.path.startswith("oocdnn/") else self.site / "oocdnn"
        shutil.copyfile(self.tree / mutant.path, package / mutant.path)
        return ""

    def _environment(self) -> dict[str, str]:
        library = self.native / "lib" / "liboocdnn_testing.so"
        bin_folder = str(Path(sys.executable).parent)
        return os.environ | {
            "PATH": f"{bin_folder}:{os.environ.get('PATH', '')}",
            "LD_LIBRARY_PATH": str(Path(sys.prefix) / "lib"),
            "PYTHONPATH": str(self.site),
            "OOCDNN_TESTING_LIBRARY": str(library),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.variables,
        }

    def _run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd or self.tree,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )

    def _check(self, *command: str, cwd: Path | None = None) -> None:
        done = self._run(*command, cwd=cwd)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")

    def _output(self, *command: str, cwd: Path) -> str:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def judge(workshop: Workshop, mutant: Mutant, whole: bool) -> Verdict:
    began = time.monotonic()
    try:
        words = workshop.plant(mutant)
        if words:
            raise ValueError(f"{mutant.name} does not compile; change the mutant:\n{words}")
        by = workshop.first_failure(*nearest(mutant.path))
        if not by and whole:
            by = workshop.first_failure()
    finally:
        workshop.restore(mutant)
    lived = "lived" if whole else "lived in the nearest tests"
    return Verdict(mutant.name, bool(by), by or lived, time.monotonic() - began)


def run(chosen: list[Mutant], folder: Path, whole: bool, out: Path | None = None) -> list[Verdict]:
    for mutant in chosen:
        replaced((ROOT / mutant.path).read_text(encoding="utf-8"), mutant)
    workshop = Workshop(folder, workers=os.cpu_count() or 1)
    if not workshop.site.exists():
        workshop.build()
    verdicts = []
    for mutant in chosen:
        verdict = judge(workshop, mutant, whole)
        verdicts.append(verdict)
        print(f"{verdict.mutant}: {verdict.by} ({verdict.seconds:.0f} s)", flush=True)
        if out:
            out.write_text(json.dumps([vars(v) for v in verdicts], indent=1) + "\n", "utf-8")
    return verdicts


def measure(size: Size) -> Finding:
    if size is not Size.FULL:
        return Finding("not run: takes hours; ask for the full row", None)
    with tempfile.TemporaryDirectory(prefix="oocdnn-mutants-") as folder:
        verdicts = run(mutants(), Path(folder), whole=True)
    lived = [v.mutant for v in verdicts if not v.found]
    unexplained = [name for name in lived if name not in EXPLAINED]
    found = len(verdicts) - len(lived)
    figure = f"{found} of {len(verdicts)} mutants found; lived: {', '.join(lived) or 'none'}"
    passed = found >= SHARE * len(verdicts) and not unexplained
    return Finding(figure, passed, unexplained, {"found by": {v.mutant: v.by for v in verdicts}})


def main() -> int:
    parser = argparse.ArgumentParser(prog="reliability.mutants", description=__doc__)
    parser.add_argument("--only", help="mutants whose name holds one of these, with commas between")
    parser.add_argument("--folder", type=Path, help="build here, and go on with what it holds")
    parser.add_argument("--nearest", action="store_true", help="no whole suite for what lives")
    parser.add_argument("--out", type=Path, help="JSON of the verdicts")
    given = parser.parse_args()
    wanted = given.only.split(",") if given.only else [""]
    chosen = [m for m in mutants() if any(word in m.name for word in wanted)]
    folder = given.folder or Path(tempfile.mkdtemp(prefix="oocdnn-mutants-"))
    verdicts = run(chosen, folder, not given.nearest, given.out)
    found = sum(v.found for v in verdicts)
    print(f"{found} of {len(verdicts)} found")
    return 0 if found == len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
