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
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BITS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
ADDING = 2.0**-23  # tensor cores truncate sums


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


@dataclass(frozen=True)
class Graph:
    direction: str  # fwd, bwd_data, bwd_filter
    x: tuple[int, ...]
    w: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: str
    channels_last: bool
    epilogue: tuple[str, ...]

    @property
    def y(self) -> tuple[int, ...]:
        spatial = (
            (extent + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
            for extent, taps, pad, stride, dilation in zip(
                self.x[2:], self.w[2:], self.padding, self.stride, self.dilation, strict=True
            )
        )
        return (self.x[0], self.w[0], *spatial)

    @property
    def output(self) -> str:
        return {"fwd": "y", "bwd_data": "x", "bwd_filter": "w"}[self.direction]

    def terms(self) -> int:
        """The most products that one output sums."""
        if self.direction == "bwd_filter":
            return int(np.prod(self.y[2:])) * self.x[0]
        channels = self.w[1] if self.direction == "fwd" else self.w[0]
        return int(np.prod(self.w[2:])) * channels

    def products(self) -> float:
        return float(np.prod(self.y)) * float(np.prod(self.w[1:]))

    def __str__(self) -> str:
        def text(sizes: tuple[int, ...]) -> str:
            return "x".join(map(str, sizes))

        order = "nhwc" if self.channels_last else "nchw"
        end = "".join(f" +{step}" for step in self.epilogue)
        return (
            f"conv{len(self.x) - 2}d:{self.direction} x{text(self.x)} w{text(self.w)} "
            f"pad{text(self.padding)} str{text(self.stride)} dil{text(self.dilation)} "
            f"{self.dtype} {order}{end}"
        )


# Graphs that were refused with the drop-in and a limit, while the real library ran them.
KNOWN = (
    Graph("fwd", (2, 16, 128, 16), (88, 16, 3, 7), (0, 1), (1, 1), (1, 1), "f16", True, ()),
    Graph("fwd", (8, 40, 104, 8), (8, 40, 3, 1), (1, 0), (1, 1), (1, 1), "f32", True, ()),
    Graph(
        "fwd", (1, 128, 16, 64), (88, 128, 3, 3), (0, 0), (2, 2), (1, 1), "f32", True,
        ("bias", "relu"),
    ),
    Graph("bwd_data", (8, 176, 128, 56), (64, 176, 7, 7), (3, 3), (2, 3), (1, 1), "f32", True, ()),
    Graph(
        "bwd_filter", (8, 128, 64, 88), (200, 128, 1, 1), (0, 0), (1, 3), (1, 2), "f32", True, ()
    ),
    Graph(
        "bwd_filter", (1, 200, 40, 128, 40), (104, 200, 3, 3, 5), (1, 1, 2), (3, 2, 3), (1, 1, 1),
        "bf16", True, (),
    ),
)  # fmt: skip
MOST_ELEMENTS = 1 << 22  # of a tensor
MOST_PRODUCTS = 2e10  # of a graph
EPILOGUES = ((), (), (), ("bias",), ("relu",), ("bias", "relu"), ("scale", "bias"),
             ("add",), ("add", "relu"), ("bias", "add", "relu"))  # fmt: skip


def drawn(draw: random.Random) -> Graph | None:
    """A random graph; nothing where it has no output, or is too large for many of them."""
    rank = draw.choice((2, 2, 3))
    direction = draw.choice(("fwd", "bwd_data", "bwd_filter"))
    groups = draw.choice((1, 1, 1, 1, 2, 4))
    step = draw.choice((1, 8, 8, 8))
    channels = step * draw.randint(1, 24) * groups
    filters = step * draw.randint(1, 24) * groups
    taps = tuple(draw.choice((1, 3, 3, 5, 7)[: 5 - (rank - 2)]) for _ in range(rank))
    extents = tuple(8 * draw.randint(1, 16 if rank == 2 else 6) for _ in range(rank))
    if draw.random() < 0.3:  # groups of one channel each
        channels = filters = groups = 8 * draw.randint(1, 12)
    made = Graph(
        direction,
        (draw.choice((1, 2, 8)), channels, *extents),
        (filters, channels // groups, *taps),
        tuple(draw.choice((0, extent // 2, 1)) for extent in taps),
        tuple(draw.choice((1, 1, 1, 2, 3)) for _ in range(rank)),
        tuple(draw.choice((1, 1, 1, 2)) for _ in range(rank)),
        draw.choice(("f32", "f16", "bf16")),
        draw.random() < 0.7,
        draw.choice(EPILOGUES) if direction == "fwd" else (),
    )
    if min(made.y) < 1:
        return None
    largest = max(int(np.prod(sizes)) for sizes in (made.x, made.w, made.y))
    return made if largest <= MOST_ELEMENTS else None


def graphs(count: int, seed: int, products: float) -> list[Graph]:
    draw = random.Random(seed)
    found = [one for one in KNOWN if one.products() <= products]
    while len(found) < count:
        one = drawn(draw)
        if one is not None and one.products() <= products:
            found.append(one)
    return found[:count]


def strides(sizes: tuple[int, ...], channels_last: bool) -> list[int]:
    order = [0, *range(2, len(sizes)), 1] if channels_last else list(range(len(sizes)))
    found, step = [0] * len(sizes), 1
    for axis in reversed(order):
        found[axis] = step
        step *= sizes[axis]
    return found


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Whole numbers that all types hold, as the bits of the type."""
    single = values.astype(np.float32)
    if dtype == "bf16":
        return (single.view(np.uint32) >> 16).astype(np.uint16)
    return single.astype(BITS[dtype])


def as_numbers(bits: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32)


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


def difference(graph: Graph, first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference of two results, in parts of what both may be off by together."""
    if np.array_equal(first, second):
        return 0.0
    one = as_numbers(first, graph.dtype).astype(np.float64)
    other = as_numbers(second, graph.dtype).astype(np.float64)
    terms, scale = graph.terms(), 2.0 if "scale" in graph.epilogue else 1.0
    magnitude = scale * 4.0 * terms + 4.0
    steps = 1 + len(graph.epilogue)
    sums = terms * ADDING / (1 - terms * ADDING) * magnitude
    bound = 2 * (sums + steps * UNIT[graph.dtype] * np.maximum(np.abs(one), np.abs(other)))
    worst = np.abs(one - other) / bound
    return float("inf") if np.isnan(worst).any() else float(worst.max())


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
