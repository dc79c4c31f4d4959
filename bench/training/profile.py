"""Where the time of training steps goes: on a GPU, from PyTorch's profiler, kernels, idle time and
its cause, copies, and calls of the runtime that allocate or register memory; on the host, the hooks
of a limit, by what they do."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from oocdnn.torch import memory_limit
from oocdnn.torch.limit.entry import Held, Packed

Event = dict[str, Any]

_ALLOCATING = (
    "cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease",
    "cudaHostRegister", "cudaHostUnregister", "cudaHostAlloc", "cudaMallocHost",
)  # fmt: skip
_KINDS = (  # of kernels, by a part of the name; the first that is found
    ("norm", ("bn_", "batch_norm", "BatchNorm", "layer_norm", "LayerNorm", "GroupNorm")),
    ("convolution", ("xmma", "cudnn", "cutlass", "gemm", "nvjet", "conv", "implicit")),
    ("elementwise", ("elementwise",)),
)


def _kind_of(kernel: Event) -> str:
    if kernel["cat"] != "kernel":
        return "copy or set"
    name = kernel["name"]
    if name == "fused":  # of `oocdnn.torch.limit.fused`
        return "fused recipe"
    return next((kind for kind, parts in _KINDS if any(p in name for p in parts)), "other")


def _idle(kernels: list[Event], launches: dict[int, Event]) -> tuple[float, float]:
    """Microseconds between kernels: those whose launch came after the one before had ended are the
    host's; in the others the stream waited for another one."""
    host = waiting = 0.0
    end = kernels[0]["ts"]
    for kernel in kernels:
        gap = kernel["ts"] - end
        if gap > 0:
            launch = launches.get(kernel["args"].get("correlation"))
            if launch is None or launch["ts"] + launch["dur"] > end + 1.0:
                host += gap
            else:
                waiting += gap
        end = max(end, kernel["ts"] + kernel["dur"])
    return host, waiting


def _copies(events: list[Event], steps: int) -> dict[str, Any]:
    """Milliseconds and GiB a step, by direction."""
    found: dict[str, Any] = {}
    for way in ("DtoH", "HtoD"):
        ours = [e for e in events if e["cat"] == "gpu_memcpy" and way in e["name"]]
        found[way] = {
            "ms": sum(e["dur"] for e in ours) / 1e3 / steps,
            "gib": sum(e["args"].get("bytes", 0) for e in ours) / 2**30 / steps,
            "copies": len(ours) / steps,
        }
    return found


def breakdown(trace: list[Event], steps: int) -> dict[str, Any]:
    """Figures of a step, from the events of a trace of `steps` of them. Times are milliseconds."""
    calls = [e for e in trace if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    launches = {e["args"]["correlation"]: e for e in calls if "correlation" in e.get("args", {})}
    device = [e for e in trace if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    streams: dict[int, list[Event]] = defaultdict(list)
    for event in device:
        streams[event["args"]["stream"]].append(event)
    main = max(streams, key=lambda one: sum(e["cat"] == "kernel" for e in streams[one]))
    kernels = sorted(streams[main], key=lambda e: e["ts"])
    host, waiting = _idle(kernels, launches)
    times: Counter[str] = Counter()
    for kernel in kernels:
        times[_kind_of(kernel)] += kernel["dur"]
    in_calls: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for call in calls:
        in_calls[call["name"]] += call["dur"]
        number[call["name"]] += 1

    def each(microseconds: float) -> float:
        return microseconds / 1e3 / steps

    return {
        "span_ms": each(kernels[-1]["ts"] + kernels[-1]["dur"] - kernels[0]["ts"]),
        "busy_ms": each(sum(e["dur"] for e in kernels)),
        "idle_host_ms": each(host),
        "idle_waiting_ms": each(waiting),
        "kernels": len(kernels) / steps,
        "kernels_ms": {kind: each(spent) for kind, spent in times.most_common()},
        "copies": _copies(device, steps),
        "calls_ms": {name: each(spent) for name, spent in in_calls.most_common(6)},
        "allocating_calls": {name: number[name] for name in _ALLOCATING if number[name]},
    }


def profiled(step: Callable[[], object], steps: int = 2) -> dict[str, Any]:
    """`breakdown` of so many steps."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())["traceEvents"]
    return breakdown(trace, steps)


def hooks(run: memory_limit, step: Callable[[], object], steps: int = 3) -> dict[str, Any]:
    """Calls of a limit's hooks in a step, and their milliseconds, by direction and by what becomes
    of the saved tensor."""
    calls, spent = Counter[str](), defaultdict[str, float](float)
    pack, unpack = run._steps.pack, run._steps.unpack

    def packed(tensor: torch.Tensor) -> Any:
        began = time.perf_counter()
        saved = pack(tensor)
        took = time.perf_counter() - began
        name = f"pack, {_treatment(saved)}"
        calls[name] += 1
        spent[name] += took
        return saved

    def unpacked(saved: Any) -> torch.Tensor:
        there = not isinstance(saved, Packed) or saved.entry.storage is not None
        name = f"unpack, {_treatment(saved)}{'' if there else ', absent'}"
        began = time.perf_counter()
        tensor = unpack(saved)
        spent[name] += time.perf_counter() - began
        calls[name] += 1
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):  # instead of the limit's
        for _ in range(steps):
            step()
    return {
        name: {"calls": number / steps, "ms": 1e3 * spent[name] / steps}
        for name, number in sorted(calls.items())
    }


def _treatment(saved: Any) -> str:
    if isinstance(saved, Packed):
        entry = saved.entry
        ways = {"rebuild": entry.bound, "squeeze": entry.squeezed, "swap": entry.slab}
        return next((name for name, way in ways.items() if way is not None), "keep")
    return "keep" if isinstance(saved, Held) else "stays"
