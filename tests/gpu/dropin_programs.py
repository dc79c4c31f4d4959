"""What the drop-in does for unmodified programs on a GPU: PyTorch, JAX and C, with it and without.

    python tests/gpu/dropin_programs.py [SCENE ...] [--seconds S]

Prints every figure, then every failure; their number is the exit status. A scene that does not
begin within the seconds is left out, and counts as one. Scenes whose program is not installed are
skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
WITH, WITHOUT, DISABLED = "with", "without", "disabled"


@dataclass(frozen=True)
class Scene:
    """One program. Its runs take turns, so that a machine that drifts drifts for all of them."""

    program: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = (WITH, WITHOUT)
    taken: bool = True  # whether a run with the drop-in takes something
    alike: tuple[str, ...] = (WITH, WITHOUT)  # the runs whose "same" lines are equal
    ratio: str = ""  # the figure that may be 1 % larger than without the drop-in
    seconds: float = 60.0


SMALL = {"OOCDNN_BUDGET": "128MiB"}
OLD_API = {"TORCH_CUDNN_V8_API_DISABLED": "1"}
TURNS = (WITH, WITHOUT) * 2
ALL = (WITH, WITHOUT, DISABLED)


def torch_scene(name: str, **rest) -> Scene:
    return Scene((sys.executable, str(HERE / "dropin_torch.py"), name), **rest)


def net(name: str, **rest) -> Scene:
    program = (sys.executable, str(HERE / "dropin_nets.py"), name)
    return Scene(program, taken=False, **rest)


JAX = (sys.executable, str(HERE / "dropin_jax.py"), "layer")
# Less than fast engines want, and enough for fast tiles: XLA times what it is offered.
LAZY_JAX = {"OOCDNN_BUDGET": "1GiB", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
EITHER_OFF = {"alike": (WITHOUT, DISABLED), "ratio": "ms"}

SCENES = {
    "large": torch_scene("large"),
    "rows": torch_scene("rows"),
    "resnet": net("resnet", runs=ALL * 2, alike=ALL, ratio="step-ms"),
    # No ratio: the host bounds its step, and like runs differ by 8 %.
    "resnet-v7": net("resnet", variables=OLD_API, runs=TURNS),
    "vgg16": net("vgg16", runs=TURNS, ratio="step-ms"),
    "capture": net("capture"),
    "compile": net("compile"),
    "layer": torch_scene("layer", variables=SMALL, runs=ALL, **EITHER_OFF),
    "layer-v7": torch_scene("layer", variables=SMALL | OLD_API, runs=ALL, **EITHER_OFF),
    "layer-benchmark": torch_scene("layer-benchmark", variables=SMALL, alike=()),
    "jax": Scene(JAX, variables=LAZY_JAX),
    "c-pageable": Scene(("pageable", "16"), runs=(WITH,)),
    "c-pinned": Scene(("pinned", "64")),
    "legacy": torch_scene("legacy", runs=(WITH,)),
    "two": torch_scene("two", variables={"OOCDNN_BUDGET": "64MiB"}, runs=(WITH,)),
}
WIRE = 1.08  # of the time on the wires, for pinned operands


def is_script(scene: Scene) -> bool:
    return scene.program[0] == sys.executable


def missing_for(scene: Scene, clients: dict[str, Path]) -> str:
    """What the scene cannot do without and is not here; "" where all is."""
    if not is_script(scene):
        return "" if scene.program[0] in clients else "CUDA"
    module = "jax" if scene.program == JAX else "torch"
    return "" if importlib.util.find_spec(module) is not None else module


def build_clients(folder: Path) -> dict[str, Path]:
    """The C client for both kinds of memory; NVIDIA's header where it is there."""
    from dropin import building

    cuda = building.cuda_include()
    nvidia = building.nvidia_folder()
    headers = "nvidia" if nvidia is not None and cuda is not None else "ours"
    source = building.CLIENTS / "host_pointers.c"
    made = {"pageable": building.build(source, folder / "pageable", headers)}
    if cuda is not None:
        lib = cuda.parent / "lib64" if (cuda.parent / "lib64").is_dir() else cuda.parent / "lib"
        runtime = sorted(lib.glob("libcudart.so*"))[0]
        extra = ("-DPINNED", f"-isystem{cuda}", str(runtime), f"-Wl,-rpath,{lib}")
        made["pinned"] = building.build(source, folder / "pinned", headers, extra)
    print(f"the C client is built with {headers} header", flush=True)
    return made


class Run:
    """A process. A script begins to import when it is started, and works from its turn on."""

    def __init__(self, name: str, which: str, clients: dict[str, Path]) -> None:
        from dropin import building

        from oocdnn import cudnn

        self.name, self.which, self.scene = name, which, SCENES[name]
        self.log = Path(tempfile.mkdtemp()) / "log.txt"
        environment = os.environ | self.scene.variables
        environment |= {"OOCDNN_LOG": "info", "OOCDNN_LOG_FILE": str(self.log)}
        environment.pop("PYTHONSAFEPATH", None)  # a script's folder is where its imports are
        program, *rest = self.scene.program
        folder = building.nvidia_folder()
        if program in clients and folder is not None:
            paths = f"{folder / 'lib'}:{environment.get('LD_LIBRARY_PATH', '')}"
            environment["LD_LIBRARY_PATH"] = paths
        if which != WITHOUT:
            environment["LD_PRELOAD"] = str(cudnn.dropin_path())
        if which == DISABLED:
            environment["OOCDNN_DISABLE"] = "1"
        self.command = [str(clients.get(program, program)), *rest, which]
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, env=self.environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        return self.process

    def finish(self) -> tuple[list[str], list[str]]:
        """The lines that it printed and those that were logged; what went wrong is among them."""
        process = self.start()
        try:
            out, err = process.communicate("go\n", timeout=self.scene.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            out += f"\nfail not done after {self.scene.seconds:.0f} s"
        if process.returncode != 0:
            out += f"\nfail exit status {process.returncode}"
            print(err[-3000:])
        logged = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return out.splitlines(), logged


class Verdict:
    """What all runs of a scene said."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.same: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def add(self, run: Run, lines: list[str], logged: list[str]) -> None:
        where = f"{run.name}, {run.which}"
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "fail":
                self.failures.append(f"{where}: {rest}")
            elif kind == "figure":
                name, value = rest.rsplit(" ", 1)
                self.figures[name][run.which].append(float(value))
            elif kind == "same":
                name, _, value = rest.partition(" ")
                self.same[name][run.which].add(value)
        taken = [line for line in logged if " taken " in line]
        skipped = any(line.startswith("skipped") for line in lines)
        if taken:
            print(f"{len(taken)} taken, the last: {taken[-1]}", flush=True)
        if not taken and run.which == WITH and run.scene.taken and not skipped:
            self.failures.append(f"{where}: nothing was taken; logged: {logged[-3:]}")
        if taken and not (run.which == WITH and run.scene.taken):
            self.failures.append(f"{where}: something was taken")
        if logged and run.which == DISABLED:
            self.failures.append(f"{where}: there is a log: {logged[0]}")

    def close(self, name: str, scene: Scene) -> None:
        for what, by_run in self.same.items():
            values = set().union(*(by_run[which] for which in scene.alike))
            if len(values) > 1:
                self.failures.append(f"{name}: {what} differ: {dict(by_run)}")
        if scene.ratio and WITHOUT in scene.runs:
            by_run = self.figures[scene.ratio]
            for which in (WITH, DISABLED):
                if which not in scene.alike or not by_run[which] or not by_run[WITHOUT]:
                    continue
                ratio = min(by_run[which]) / min(by_run[WITHOUT])
                print(f"ratio {which}/without of {scene.ratio} {ratio:.4f}", flush=True)
                if ratio > 1.01:
                    self.failures.append(f"{name}: {scene.ratio} is {ratio:.4f} of that without")


def judge_wire(verdict: Verdict) -> None:
    """The time with pinned operands over that of copies both ways from and to the same memory."""
    figures = {name: by_run[WITH][0] for name, by_run in verdict.figures.items()}
    ratio = figures["ms"] / figures["wire-ms"]
    print(f"ratio {ratio:.3f} of the wire", flush=True)
    if ratio > WIRE:
        verdict.failures.append(f"c-pinned: {ratio:.3f} of the wire, not {WIRE}")


def play(name: str, runs: list[Run]) -> Verdict:
    """The runs of one scene, the first of those to come; while one is at work the next imports."""
    verdict, scene = Verdict(), SCENES[name]
    for which in scene.runs:
        run = runs.pop(0)
        print(f"== {name}, {which}", flush=True)
        begin = time.perf_counter()
        run.start()
        if runs and is_script(runs[0].scene):
            runs[0].start()
        lines, logged = run.finish()
        print("\n".join(lines), flush=True)
        verdict.add(run, lines, logged)
        print(f"-- {time.perf_counter() - begin:.1f} s", flush=True)
    verdict.close(name, scene)
    if name == "c-pinned" and "wire-ms" in verdict.figures:
        judge_wire(verdict)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    if unknown := set(options.scenes) - SCENES.keys():
        parser.error(f"no scene {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(HERE.parent))  # the folder of `dropin`
    end = time.monotonic() + options.seconds
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        clients = build_clients(Path(folder))
        names = []
        for name in options.scenes or SCENES:
            missing = missing_for(SCENES[name], clients)
            print(f"{name}: skipped, there is no {missing}" if missing else name)
            names += [] if missing else [name]
        runs = [Run(name, which, clients) for name in names for which in SCENES[name].runs]
        for name in names:
            if time.monotonic() > end:
                failures.append(f"{name}: not run, the time is over")
            else:
                failures += play(name, runs).failures
        if runs and runs[0].process is not None:
            runs[0].process.kill()
    print("\n".join(f"FAILED {failure}" for failure in failures) or "PASSED", flush=True)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
