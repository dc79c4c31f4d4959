"""Row mutants: small faults, planted one at a time in a copy of the tree, that the suite must find.

The tree is built once. Each mutant replaces one text of one file in a fresh copy of the result:
native code is compiled again by ninja, Python files are copied over the unpacked wheel. The tests
of the mutant's folder run first, then the rest of the suite. A mutant is found by a test that
fails, fails again by itself, and passes without the mutant. No build of the working tree is
touched.

Paths of a build are absolute. Where the system lets a process mount (`unshare`), several workshops
run at once, each with its copy mounted at the folder that was built; elsewhere one runs.

    make reliability ROWS=mutants
    cd tests && python -m reliability.mutants --only NAME --folder FOLDER --nearest
    cd tests && python -m reliability.mutants --only NAME --folder FOLDER --nearest --device cuda

On a GPU, mutants of kernels are judged by the conformance suite of the CUDA device alone; NVRTC
compiles the kernels, in one thread, so several workshops pay there.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from reliability.rows import Finding, Size

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.json")
SHARE = 0.95  # of the mutants must be found

# Mutants that may live, each with the reason.
EXPLAINED: dict[str, str] = {}
COPIED = ("native", "oocdnn", "perfmodel", "bench", "tests", "docs")
# The tree holds a folder `oocdnn` without a library, so the working folder is no place of modules.
PYTEST = (
    *("-c", "import sys; sys.path.remove(''); import pytest; raise SystemExit(pytest.main())"),
    *("-q", "-x", "--no-header", "--tb=line", "-o", "cache_dir=build/cache"),
)
LIVED = "lived"
ENDED = "pytest ended"  # without a test that failed
STAGE_SECONDS = 1800

# Tests that read the sources: they would find every mutant by its text.
OF_SOURCES = ("tests/lint", "tests/reliability/test_reliability.py::test_a_mutant_has_its_text")

# The tests that are nearest to a folder, folders or files, by the longest prefix of the mutant's
# path.
NEAREST: dict[str, tuple[str, ...]] = {
    "native/base": ("geometry", "native", "model", "engine"),
    "native/geom": ("geometry", "model", "engine", "abi"),
    "native/model": ("model", "geometry"),
    "native/device/wrap": ("conformance", "native"),
    "native/device/cpu": ("conformance", "native", "engine"),
    "native/device/cuda": ("gpu",),
    "native/memory": ("native", "engine"),
    "native/exec": ("engine", "native"),
    "native/network": ("network",),
    "native/heap": ("heap", "pytorch/test_allocator.py", "pytorch/test_steering.py"),
    "native/backends": ("native", "python", "model"),
    "native/store": ("native", "python", "model"),
    "native/planner": ("native", "python", "model"),
    "native/calibrate": ("native", "python", "model"),
    "native/library": ("engine", "native", "python"),
    "native/capi": ("abi", "native", "python", "engine"),
    "native/shim": ("dropin", "gpu"),
    "native/dropin": ("dropin",),
    "native/spill": ("spill",),
    "oocdnn": ("python", "nn"),
    "oocdnn/nn": ("nn", "unet"),
    "oocdnn/network": ("network",),
    "oocdnn/torch": ("pytorch",),
    "oocdnn/cli": ("python", "dropin"),
    "bench": ("bench",),
    "perfmodel": ("model", "bench"),
}


# On a GPU: what pytest is given for a mutant of any folder, and what is built for it. A new process
# compiles the kernels first, which takes a minute.
CONFORMANCE = ("tests/conformance/test_conformance.py", "-k", "cuda:direct")
GPU_TARGETS = ("oocdnn_installed", "oocdnn_testing")


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


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class Stopped(Exception):
    """The time is over."""


def shielded() -> bool:
    """Whether processes may have mounts of their own here."""
    command = ("unshare", "--mount", "mount", "--bind", "/tmp", "/tmp")
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass
class Workshop:
    """A copy of the built tree: the sources; in build/, CMake's folder and the wheel unpacked.

    `place` is the folder that was built, `store` the folder that holds this copy. Where they
    differ, commands run with the store mounted at the place.
    """

    place: Path
    store: Path
    cores: Sequence[int]  # on which its commands run
    ends: float  # time.monotonic() at which all has to end
    device: str = "cpu"

    def build(self) -> None:
        self.store.mkdir(parents=True)
        for path in ROOT.iterdir():
            if path.is_file():
                shutil.copy2(path, self.store)
            elif path.name in COPIED:
                shutil.copytree(path, self.store / path.name)
        self._check(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", ".", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", "build/dist"),
            f"--config-settings=build-dir={self._native}",
            "--config-settings=cmake.define.OOCDNN_TESTING=ON",
            "--config-settings=cmake.define.OOCDNN_CUDA_ARCHITECTURES=off",
            *(f"--config-settings=build.targets={target}" for target in self._targets),
        )
        (wheel,) = (self.store / "build" / "dist").glob("*.whl")
        self._check(sys.executable, "-m", "zipfile", "-e", str(wheel), str(self._site))

    def renew(self, built: Path) -> None:
        """Makes the store a copy of what was built, times of files included."""
        shutil.rmtree(self.store, ignore_errors=True)
        subprocess.run(["cp", "-a", str(built), str(self.store)], check=True)

    def plant(self, mutant: Mutant) -> None:
        """Writes the mutant and compiles it; ValueError where it does not compile."""
        source = self.store / mutant.path
        text = replaced(source.read_text(encoding="utf-8"), mutant)
        source.write_text(text, encoding="utf-8")
        if mutant.path.startswith("native/"):
            native = str(self._native)
            targets = ("--target", *self._targets) if self._targets else ()
            parallel = ("--parallel", str(len(self.cores)))
            code, words = self._run("cmake", "--build", native, *parallel, *targets)
            if code != 0:
                raise ValueError(f"{mutant.name} does not compile; change the mutant:\n{words}")
            self._check("cmake", "--install", native, "--prefix", str(self._site / "oocdnn"))
        else:
            site = self.store / self._site.relative_to(self.place)
            package = site if mutant.path.startswith("oocdnn/") else site / "oocdnn"
            shutil.copyfile(source, package / mutant.path)

    def first_failure(self, paths: Iterable[str], without: Iterable[str] = ()) -> str:
        """The test that fails first, or how pytest ended; empty if all pass."""
        cache = self.store / "build" / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        deselected = [word for name in without for word in ("--deselect", name)]
        on_cpu = self.device == "cpu"
        workers = ("-n", str(len(self.cores))) if on_cpu else ("-n", "0", "--timeout", "600")
        code, words = self._run(sys.executable, *PYTEST, *workers, *deselected, *paths)
        if code in (0, 5):  # 5: no tests
            return ""
        try:
            failed = json.loads((cache / "v/cache/lastfailed").read_text(encoding="utf-8"))
            return str(next(iter(failed)))
        except (FileNotFoundError, StopIteration):
            return f"{ENDED} with {code}: {words[-500:]}"

    @property
    def _targets(self) -> tuple[str, ...]:
        """Empty: all of them."""
        return () if self.device == "cpu" else GPU_TARGETS

    @property
    def _native(self) -> Path:
        return self.place / "build" / "native"

    @property
    def _site(self) -> Path:
        return self.place / "build" / "site"

    @property
    def _apart(self) -> bool:
        return self.store != self.place

    def _environment(self) -> dict[str, str]:
        def before(variable: str, folder: Path) -> str:
            return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))

        on_cpu = self.device == "cpu"
        return os.environ | {
            "PATH": before("PATH", Path(sys.executable).parent),
            "LD_LIBRARY_PATH": before("LD_LIBRARY_PATH", Path(sys.prefix) / "lib"),
            "PYTHONPATH": str(self._site),
            "OOCDNN_TESTING_LIBRARY": str(self._native / "lib" / "liboocdnn_testing.so"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {"OOCDNN_TEST_DEVICE": self.device}),
        }

    def _run(self, *command: str) -> tuple[int, str]:
        """Exit code and the last words of a command in the tree; Stopped once the time is over."""
        mounts = f'mount --bind "{self.store}" "{self.place}" && ' if self._apart else ""
        line = ("sh", "-c", f'{mounts}cd "{self.place}" && exec "$@"', "sh", *command)
        pinned = ("taskset", "--cpu-list", ",".join(map(str, self.cores)), *line)
        left = self.ends - time.monotonic()
        log = self.store.with_suffix(".log")  # a pipe would wait for what tests leave running
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    ("unshare", "--mount", *pinned) if self._apart else pinned,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=max(min(left, STAGE_SECONDS), 0),
                    check=False,
                )
                code = done.returncode
            except subprocess.TimeoutExpired:
                if left < STAGE_SECONDS:
                    raise Stopped from None
                code = -1
        return code, log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def _check(self, *command: str) -> None:
        code, words = self._run(*command)
        if code != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{words}")


@dataclass
class Run:
    """All workshops over one built tree in `folder`, which a later run goes on with."""

    folder: Path
    workshops: int
    whole: bool
    ends: float
    device: str = "cpu"
    out: Path | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    # Tests that fail without a mutant or not every time, and tests that passed without.
    unfit: set[str] = field(default_factory=set)
    passing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.place, self.built = self.folder / "place", self.folder / "built"
        self._lock = threading.Lock()

    def build(self) -> None:
        if self.built.exists():
            return
        shutil.rmtree(self.place, ignore_errors=True)
        Workshop(self.place, self.place, cores(), self.ends, self.device).build()
        subprocess.run(["cp", "-a", str(self.place), str(self.folder / "copy")], check=True)
        (self.folder / "copy").rename(self.built)

    def judge_all(self, chosen: Sequence[Mutant]) -> None:
        self.build()
        share = max(len(cores()) // self.workshops, 1)
        idle: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
        for number in range(self.workshops):
            store = self.folder / f"copy-{number}" if self.workshops > 1 else self.place
            own = cores()[number * share : (number + 1) * share] or cores()
            idle.put(Workshop(self.place, store, own, self.ends, self.device))
        # What compiles longest comes first.
        ordered = sorted(chosen, key=lambda mutant: not mutant.path.endswith((".hpp", ".h")))
        with ThreadPoolExecutor(self.workshops) as threads:
            tasks = [threads.submit(self._next, idle, mutant) for mutant in ordered]
        for task in tasks:
            task.result()

    def _next(self, idle: queue.SimpleQueue[Workshop], mutant: Mutant) -> None:
        workshop = idle.get()
        began = time.monotonic()
        try:
            by = self.found_by(workshop, mutant)
        except Stopped:
            return
        finally:
            idle.put(workshop)
        lived = LIVED if self.whole else f"{LIVED} in the nearest tests"
        verdict = Verdict(mutant.name, bool(by), by or lived, round(time.monotonic() - began, 1))
        with self._lock:
            print(f"{verdict.mutant}: {verdict.by} ({verdict.seconds:.0f} s)", flush=True)
            self.verdicts.append(verdict)
            if self.out:
                rows = [vars(one) for one in self.verdicts]
                self.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")

    def found_by(self, workshop: Workshop, mutant: Mutant) -> str:
        """The test that finds the mutant; empty if it lives."""
        near = [f"tests/{folder}" for folder in nearest(mutant.path)]
        stages: list[Sequence[str]] = [near if self.device == "cpu" else CONFORMANCE]
        if self.whole:
            stages.append(["tests", *(f"--ignore={folder}" for folder in near)])
        workshop.renew(self.built)
        workshop.plant(mutant)
        for stage in stages:
            while test := workshop.first_failure(stage, {*OF_SOURCES, *self.unfit}):
                if test.startswith(ENDED):
                    if self._tells(workshop, mutant, stage):
                        return test
                    raise RuntimeError(f"{mutant.name}: without it too, {test}")
                if self._tells(workshop, mutant, [test]):
                    return test
                self.unfit.add(test)
                print(f"not run from now on, fails without a mutant: {test}", flush=True)
        return ""

    def _tells(self, workshop: Workshop, mutant: Mutant, tests: Sequence[str]) -> bool:
        """Whether tests fail again, and pass without the mutant."""
        if not workshop.first_failure(tests):
            return False
        if self.passing.issuperset(tests):
            return True
        workshop.renew(self.built)
        if not workshop.first_failure(tests):
            self.passing.update(tests)
            return True
        workshop.plant(mutant)
        return False


def run(
    chosen: Sequence[Mutant],
    folder: Path,
    *,
    whole: bool,
    workshops: int | None = None,
    seconds: float = 1e9,
    device: str = "cpu",
    out: Path | None = None,
    done: Sequence[Verdict] = (),
) -> list[Verdict]:
    """The verdicts on the chosen mutants that end within the time. Those that are done are kept,
    but where the whole suite is asked for and only the nearest tests ran."""
    for mutant in chosen:
        replaced((ROOT / mutant.path).read_text(encoding="utf-8"), mutant)
    asked = workshops or max(len(cores()) // 3, 1)
    count = asked if shielded() else 1
    folder.mkdir(parents=True, exist_ok=True)
    kept = [verdict for verdict in done if verdict.found or verdict.by == LIVED or not whole]
    task = Run(folder.resolve(), count, whole, time.monotonic() + seconds, device, out, kept)
    known = {verdict.mutant for verdict in kept}
    task.judge_all([mutant for mutant in chosen if mutant.name not in known])
    return task.verdicts


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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="that runs tests")
    parser.add_argument("--workshops", type=int, help="mutants at a time; a third of the cores")
    parser.add_argument("--seconds", type=float, default=1e9, help="ends by then")
    parser.add_argument("--skip-done", type=Path, help="verdicts of an earlier run, to go on with")
    parser.add_argument("--out", type=Path, help="JSON of the verdicts, written after each")
    given = parser.parse_args()
    if given.device != "cpu" and not given.nearest:
        parser.error("on a GPU only the nearest tests are run; add --nearest")
    wanted = given.only.split(",") if given.only else [""]
    chosen = [m for m in mutants() if any(word in m.name for word in wanted)]
    done = []
    if given.skip_done and given.skip_done.exists():
        rows = json.loads(given.skip_done.read_text(encoding="utf-8"))
        done = [Verdict(**row) for row in rows]
    verdicts = run(
        chosen,
        given.folder or Path(tempfile.mkdtemp(prefix="oocdnn-mutants-")),
        whole=not given.nearest,
        workshops=given.workshops,
        seconds=given.seconds,
        device=given.device,
        out=given.out,
        done=done,
    )
    found = sum(v.found for v in verdicts)
    print(f"{found} of {len(verdicts)} found, {len(chosen)} chosen")
    return 0 if found == len(verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
