"""The Python package of cudnn-frontend as a client of the drop-in: the same random graphs with the
drop-in and without it.

    python tests/gpu/dropin_frontend.py [--graphs N] [--seed N] [--workers N] [--out FOLDER] ...

A graph is a convolution or a gradient, with or without an epilogue, in two or three dimensions.
The modes are: without the drop-in; with it and OOCDNN_WORKSPACE_LIMIT=1MiB; with it and operands in
pinned host memory; with it, operands in pageable host memory and a budget of 32 MiB. Every graph
that runs without the drop-in must run in each other mode, and its results agree within the bound of
two roundings. Prints a table, then the failures; their number is the exit status. Needs nothing but
the package `nvidia-cudnn-frontend`, cuDNN and NumPy; without the package it is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from frontend_graphs import MOST_PRODUCTS, Graph, difference, graphs, stored, strides

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Mode:
    place: str = "device"
    dropin: bool = True
    variables: tuple[tuple[str, str], ...] = ()


MODES = {
    "without": Mode(dropin=False),
    "limit": Mode(variables=(("OOCDNN_WORKSPACE_LIMIT", "1MiB"),)),
    "pinned": Mode(place="pinned"),
    "pageable": Mode(place="pageable", variables=(("OOCDNN_BUDGET", "32MiB"),)),
}


class Driver:
    """Memory of GPU 0, with nothing but the driver."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context = c_int(), c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxPushCurrent_v2", context)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answers {code}")

    def allocated(self, size: int) -> int:
        place = c_uint64()
        self.call("cuMemAlloc_v2", byref(place), c_size_t(max(size, 1)))
        return place.value

    def freed(self, place: int) -> None:
        self.call("cuMemFree_v2", c_uint64(place))

    def pinned(self, size: int) -> np.ndarray:
        """Whole pages, registered; `unpinned` ends that."""
        pages = np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)
        self.call("cuMemHostRegister_v2", c_void_p(pages.ctypes.data), c_size_t(pages.size), 0)
        return pages

    def unpinned(self, pages: np.ndarray) -> None:
        self.call("cuMemHostUnregister", c_void_p(pages.ctypes.data))

    def copy(self, to: int, source: int, size: int) -> None:
        self.call("cuMemcpyAsync", c_uint64(to), c_uint64(source), c_size_t(size), c_void_p())
        self.wait()

    def wait(self) -> None:
        self.call("cuStreamSynchronize", c_void_p())


class Operand:
    """A flat array in device, pinned or pageable memory."""

    def __init__(self, driver: Driver, place: str, values: np.ndarray):
        self.driver, self.place, self.like = driver, place, values
        self.host = values if place == "pageable" else driver.pinned(values.nbytes)
        self.address = self.host.ctypes.data
        ctypes.memmove(self.address, values.ctypes.data, values.nbytes)
        if place == "device":
            self.address = driver.allocated(values.nbytes)
            driver.copy(self.address, self.host.ctypes.data, values.nbytes)

    def get(self) -> np.ndarray:
        self.driver.wait()
        if self.place == "device":
            self.driver.copy(self.host.ctypes.data, self.address, self.like.nbytes)
        return self.host.view(self.like.dtype)[: self.like.size].copy()

    def close(self) -> None:
        if self.place == "device":
            self.driver.freed(self.address)
        if self.place != "pageable":
            self.driver.unpinned(self.host)


class Client:
    """A program that uses the package as its documentation says."""

    def __init__(self, place: str) -> None:
        self.driver, self.place = Driver(), place
        import cudnn

        self.cudnn: object = cudnn
        self.types = {
            "f32": cudnn.data_type.FLOAT,
            "f16": cudnn.data_type.HALF,
            "bf16": cudnn.data_type.BFLOAT16,
        }
        self.modes = [cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK]
        self.handle = cudnn.create_handle()

    def described(self, graph: Graph) -> tuple[object, dict[str, object], dict[str, tuple]]:
        """The package's graph, its tensors by name, and their sizes."""
        cudnn, single = self.cudnn, self.types["f32"]
        dtype, sizes = self.types[graph.dtype], {"x": graph.x, "w": graph.w, "y": graph.y}
        made = cudnn.pygraph(
            handle=self.handle, io_data_type=dtype, intermediate_data_type=single,
            compute_data_type=single,
        )  # fmt: skip

        def tensor(name: str) -> object:
            step = strides(sizes[name], graph.channels_last)
            return made.tensor(name=name, dim=list(sizes[name]), stride=step, data_type=dtype)

        window = {
            "padding": list(graph.padding),
            "stride": list(graph.stride),
            "dilation": list(graph.dilation),
        }
        named = {name: tensor(name) for name in ("x", "w", "y") if name != graph.output}
        if graph.direction == "fwd":
            result = made.conv_fprop(image=named["x"], weight=named["w"], **window)
        elif graph.direction == "bwd_data":
            result = made.conv_dgrad(loss=named["y"], filter=named["w"], **window)
        else:
            result = made.conv_wgrad(image=named["x"], loss=named["y"], **window)
        for step in graph.epilogue:
            if step == "relu":
                result = made.relu(input=result)
                continue
            vector = (1, graph.w[0], *[1] * (len(graph.x) - 2))
            sizes[step] = graph.y if step == "add" else vector
            named[step] = tensor(step)
            if step == "add":
                result = made.add(a=result, b=named[step])
            elif step == "bias":
                result = made.bias(input=result, bias=named[step])
            else:
                result = made.scale(input=result, scale=named[step])
        step = strides(sizes[graph.output], graph.channels_last)
        result.set_output(True).set_data_type(dtype)
        result.set_dim(list(sizes[graph.output])).set_stride(step)
        named[graph.output] = result
        return made, named, sizes

    def run(self, graph: Graph, seed: int) -> np.ndarray:
        """Builds and executes the graph; the output's bits, in its memory order."""
        made, named, sizes = self.described(graph)
        made.validate()
        made.build_operation_graph()
        made.create_execution_plans(self.modes)
        for index in range(made.get_execution_plan_count()):
            if "INVALID" in (name := made.get_plan_name_at_index(index)):
                raise RuntimeError(f"the plan at index {index} is named {name}")
        made.check_support()
        made.build_plans()
        rng = np.random.default_rng(seed)
        with contextlib.ExitStack() as stack:
            operands = {}
            for name in sorted(named):
                whole = rng.integers(-2, 3, int(np.prod(sizes[name])))
                values = stored(whole, graph.dtype)
                if name == graph.output:
                    values = stored(np.full(values.size, 77), graph.dtype)
                operands[name] = Operand(self.driver, self.place, values)
                stack.callback(operands[name].close)
            workspace = self.driver.allocated(made.get_workspace_size())
            stack.callback(self.driver.freed, workspace)
            addresses = {named[name]: operand.address for name, operand in operands.items()}
            made.execute(addresses, workspace, handle=self.handle)
            return operands[graph.output].get()


def work(mode: str, options: argparse.Namespace) -> None:
    """One worker: every graph of its share, a line of JSON for each, results in files."""
    client, folder = Client(MODES[mode].place), Path(options.out)
    begin = time.monotonic()
    for number, graph in enumerate(graphs(options.graphs, options.seed, options.products)):
        if number % options.workers != options.share:
            continue
        said: dict[str, object] = {"number": number, "begin": time.monotonic() - begin}
        if time.monotonic() - begin > options.seconds:
            said["error"] = "not begun, the time is over"
        else:
            print(json.dumps(said), flush=True)  # the graph that a crash happens in
            before = time.perf_counter()
            try:
                result = client.run(graph, options.seed + number)
                np.save(folder / f"{mode}-{number}.npy", result)
                said["ran"] = True
            except Exception as error:  # whatever the package raises is what is counted
                said["error"] = f"{type(error).__name__}: {error}"[:600]
            said["seconds"] = time.perf_counter() - before
        print(json.dumps(said), flush=True)


def library_folders() -> tuple[list[str], list[str]]:
    """cuDNN's folder, and those of the libraries that it and the package need."""
    sys.path.insert(0, str(HERE.parent))
    from dropin import building

    folder = building.nvidia_folder()
    cudnn = [str(folder / "lib")] if folder is not None else []
    site = Path(sysconfig.get_path("purelib"))
    places = [*site.glob("nvidia/*/lib"), Path("/usr/local/cuda/lib64")]
    beside = [folder.parent] if folder is not None else []
    places += [lib for parent in beside for lib in parent.glob("*/lib")]
    return cudnn, [str(p) for p in places if any(p.glob("libcudart.so*"))]


def environment(mode: str, out: Path) -> dict[str, str]:
    from oocdnn import cudnn

    kept = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    real, beside = library_folders()
    dropin = [str(cudnn.dropin_path().parent)] if MODES[mode].dropin else []
    paths = [*dropin, *real, *beside, os.environ.get("LD_LIBRARY_PATH", "")]
    kept |= {"LD_LIBRARY_PATH": ":".join(paths), "OOCDNN_LOG": "info"}
    kept |= {"OOCDNN_LOG_FILE": str(out / f"{mode}.log")}
    return kept | dict(MODES[mode].variables)


@dataclass
class Outcome:
    """All workers of a mode."""

    ran: dict[int, float]
    errors: dict[int, str]
    taken: int
    seconds: float


def collected(mode: str, out: Path, processes: list[subprocess.Popen[str]]) -> Outcome:
    found = Outcome({}, {}, 0, 0.0)
    for process in processes:
        text, _ = process.communicate()
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        for line in lines:
            number = line["number"]
            found.errors.setdefault(number, f"the process ended with {process.returncode}")
            if line.get("ran"):
                found.ran[number] = line["seconds"]
            if "ran" in line or "error" in line:
                found.errors[number] = line.get("error", "")
            found.seconds = max(found.seconds, line["begin"] + line.get("seconds", 0.0))
    found.errors = {number: text for number, text in found.errors.items() if text}
    log = out / f"{mode}.log"
    if log.exists():
        found.taken = log.read_text(encoding="utf-8").count(" taken ")
    return found


def compared(mode: str, all_graphs: list[Graph], out: Path, by: Outcome, against: Outcome):
    """The numbers of results that agree bit by bit, and the failures."""
    equal, failures = 0, []
    for number, graph in enumerate(all_graphs):
        what = f"{mode}: {number} {graph}"
        if number in against.ran and number not in by.ran:
            failures.append(f"{what}: {by.errors.get(number, 'it was not reached')}")
        if number not in against.ran and number in by.ran:
            print(f"{what}: runs, and not without the drop-in", flush=True)
        if number not in against.ran or number not in by.ran:
            continue
        results = [np.load(out / f"{which}-{number}.npy") for which in ("without", mode)]
        share = difference(graph, *results)
        equal += share == 0.0
        if share > 1:
            failures.append(f"{what}: a result is off by {share:.3g} of the bound")
    return equal, failures


def started(mode: str, options: argparse.Namespace, out: Path) -> list[subprocess.Popen[str]]:
    arguments = ["--graphs", options.graphs, "--seed", options.seed, "--workers", options.workers]
    arguments += ["--products", options.products, "--seconds", options.seconds]
    return [
        subprocess.Popen(
            [sys.executable, __file__, "--mode", mode, "--share", str(share), "--out", str(out),
             *map(str, arguments)],
            env=environment(mode, out), stdout=subprocess.PIPE, text=True,
        )
        for share in range(options.workers)
    ]  # fmt: skip


def judge(options: argparse.Namespace, out: Path) -> int:
    all_graphs = graphs(options.graphs, options.seed, options.products)
    for old in out.glob("*.log"):
        old.unlink()
    modes = [mode for mode in MODES if mode in (options.modes or MODES) or mode == "without"]
    processes = {mode: started(mode, options, out) for mode in modes}
    outcomes = {mode: collected(mode, out, processes[mode]) for mode in modes}
    without = outcomes["without"]
    failures = [] if without.ran else ["without: no graph runs"]
    print(f"{len(all_graphs)} graphs, of which {len(without.ran)} run without the drop-in")
    for number, error in sorted(without.errors.items()):
        print(f"without: {number} {all_graphs[number]}: {error.splitlines()[0][:160]}")
    rows = []
    for mode, outcome in outcomes.items():
        equal, found = compared(mode, all_graphs, out, outcome, without)
        failures += found
        both = len(outcome.ran.keys() & without.ran.keys())
        slowest = max(outcome.ran.values(), default=0.0)
        rows.append(
            f"{mode:10s} {len(outcome.ran):5d} {both:5d} {equal:5d} {outcome.taken:6d} "
            f"{outcome.seconds:8.1f} {slowest:8.2f}"
        )
        if MODES[mode].dropin and outcome.taken == 0:
            failures.append(f"{mode}: nothing was taken")
    report = {mode: asdict(outcome) for mode, outcome in outcomes.items()}
    (out / "frontend.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    print("\n".join(f"FAILED {failure}" for failure in failures))
    print("mode         run  both equal  taken  seconds  slowest")
    print("\n".join(rows))
    print("PASSED" if not failures else f"{len(failures)} FAILED", flush=True)
    return len(failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--products", type=float, default=MOST_PRODUCTS, help="of a graph")
    parser.add_argument("--workers", type=int, default=3, help="processes of a mode")
    parser.add_argument("--seconds", type=float, default=500.0, help="of a worker")
    parser.add_argument("--modes", nargs="*", choices=MODES)
    parser.add_argument("--out", help="the folder that keeps results and the report")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        work(options.mode, options)
        return 0
    if importlib.util.find_spec("cudnn") is None:
        print("skipped: the package nvidia-cudnn-frontend is not installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(options.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        return min(judge(options, out), 255)


if __name__ == "__main__":
    sys.exit(main())
