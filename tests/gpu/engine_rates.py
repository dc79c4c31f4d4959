"""How fast the CUDA device's engines convolve one tile in device memory, beside PyTorch.

    python tests/gpu/engine_rates.py --library build/native/lib/liboocdnn_testing.so

A row is a layer, a direction and a type; a column an engine, in milliseconds and TFLOP/s. PyTorch
(where it is installed) gets dense and channels-last tensors, its heuristics, and may use Winograd
and FFT in fp32, which our engines may not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from doors import (
    BACKWARD_DATA,
    BACKWARD_FILTER,
    BF16,
    F32,
    FORWARD,
    DoorError,
    Op,
    Rig,
    View,
    W,
    X,
    Y,
    _six,
    _three,
    dense,
    testing_library,
)

DIRECTIONS = {FORWARD: "fwd", BACKWARD_DATA: "bwd_data", BACKWARD_FILTER: "bwd_filter"}
TYPES = {"f32": (F32, 0), "f32/tf32": (F32, 1), "bf16": (BF16, 0)}


@dataclass
class Layer:
    name: str
    n: int
    c: int
    k: int
    size: tuple[int, ...]
    taps: int
    pad: int = 0
    stride: int = 1
    groups: int = 1

    @property
    def out(self) -> tuple[int, ...]:
        return tuple((s + 2 * self.pad - self.taps) // self.stride + 1 for s in self.size)

    @property
    def flops(self) -> float:
        total = 2.0 * self.n * self.k * self.c // self.groups * self.taps ** len(self.size)
        for extent in self.out:
            total *= extent
        return total

    def op(self, direction: int, dtype: int, math: int, *, sums: bool) -> Op:
        op = Op()
        op.direction, op.n, op.g = direction, self.n, self.groups
        op.k, op.c = self.k // self.groups, self.c // self.groups
        op.dtype, op.out_dtype, op.math = dtype, F32 if sums else dtype, math
        op.accumulates = int(sums)

        def spatial(values: Sequence[int], missing: int) -> Any:
            return _three(*[missing] * (3 - len(values)), *values)

        rank = len(self.size)
        op.inp, op.out = spatial(self.size, 1), spatial(self.out, 1)
        op.filter = spatial([self.taps] * rank, 1)
        op.pad, op.stride = spatial([self.pad] * rank, 0), spatial([self.stride] * rank, 1)
        op.dilation = _three(1, 1, 1)
        return op


LAYERS = (
    Layer("vgg 3-64 224", 32, 3, 64, (224, 224), 3, 1),
    Layer("vgg 64-64 224", 16, 64, 64, (224, 224), 3, 1),
    Layer("vgg 128-256 56", 32, 128, 256, (56, 56), 3, 1),
    Layer("vgg 256-256 56", 16, 256, 256, (56, 56), 3, 1),
    Layer("vgg 512-512 14", 64, 512, 512, (14, 14), 3, 1),
    Layer("resnet stem", 32, 3, 64, (224, 224), 7, 3, 2),
    Layer("resnet 1x1 256-64", 32, 256, 64, (56, 56), 1),
    Layer("resnet 1x1/2 512-1024", 32, 512, 1024, (28, 28), 1, 0, 2),
    Layer("resnet 3x3/2 256-256", 32, 256, 256, (28, 28), 3, 1, 2),
    Layer("depthwise 256 56", 32, 256, 256, (56, 56), 3, 1, 1, 256),
    Layer("volume 64-64 64", 1, 64, 64, (64, 64, 64), 3),
)


def best(work: Callable[[], None], busy: Callable[[], float], runs: int) -> float:
    """Seconds of the fastest of a few runs; the first, which loads code, is not counted."""
    seconds = float("inf")
    for run in range(runs + 1):
        before = busy()
        work()
        after = busy()
        if run > 0 or runs == 0:
            seconds = min(seconds, after - before)
    return seconds


def of_engine(rig: Rig, numbers: np.ndarray, op: Op, engine: str) -> tuple[float, str]:
    keep = len(rig.blocks)
    begin = time.perf_counter()
    executable, layouts, workspace = rig.prepare(op, engine)
    prepared = time.perf_counter() - begin
    tiles = [rig.memory(max(int(layouts[o].bytes), 8), host=False) for o in range(4)]
    for operand in (X, W, Y):  # real numbers: a GPU runs faster on constants
        lay = layouts[operand]
        view = View(numbers.ctypes.data, F32, _six(*dense(tuple(lay.shape))))
        rig.copy("fetch", rig.whole(lay, tiles[operand], view))
    scratch = rig.memory(workspace, host=False) if workspace else 0

    def busy() -> float:
        rig.synchronize()
        return rig.busy_seconds()

    def work() -> None:
        rig.run(executable, tiles, scratch, False)

    seconds = best(work, busy, 0 if engine == "direct" else 4)
    rig.release(keep)
    taken = rig.taken.split()[1] if " " in rig.taken else ""
    return seconds, f"{taken} ws {workspace / 2**20:.0f}M prep {prepared * 1e3:.0f}"


def of_torch(torch: Any, layer: Layer, direction: int, kind: str, *, last: bool) -> float:
    torch.backends.cudnn.allow_tf32 = "tf32" in kind
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    rank = len(layer.size)
    order = torch.contiguous_format
    if last:
        order = torch.channels_last if rank == 2 else torch.channels_last_3d

    def tensor(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype).to(memory_format=order)

    x = tensor(layer.n, layer.c, *layer.size)
    w = tensor(layer.k, layer.c // layer.groups, *[layer.taps] * rank)
    y = tensor(layer.n, layer.k, *layer.out)
    stride, pad, one = [layer.stride] * rank, [layer.pad] * rank, [1] * rank
    mask = [direction == BACKWARD_DATA, direction == BACKWARD_FILTER, False]

    def work() -> None:
        if direction == FORWARD:
            torch.conv3d(x, w, None, stride, pad, one, layer.groups) if rank == 3 else torch.conv2d(
                x, w, None, stride, pad, one, layer.groups
            )
            return
        torch.ops.aten.convolution_backward(
            y, x, w, None, stride, pad, one, False, [0] * rank, layer.groups, mask
        )

    seconds = float("inf")
    for run in range(5):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        if run > 0:
            seconds = min(seconds, begin.elapsed_time(end) * 1e-3)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=testing_library())
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sums", action="store_true", help="partial sums in float, too")
    parser.add_argument("--seconds", type=float, default=120, help="stop after this long")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    rig = Rig(args.library, args.device)
    print(rig.description)
    most = max(prod((lay.n, lay.c, *(s + 2 * lay.pad for s in lay.size))) for lay in LAYERS)
    most = max(most, *(prod((lay.n, lay.k, *lay.out)) for lay in LAYERS))
    numbers = rig.array(most, F32)
    numbers[:] = np.random.default_rng(1).random(most, dtype=np.float32) - 0.5
    end = time.perf_counter() + args.seconds
    for layer in LAYERS:
        for direction, name in DIRECTIONS.items():
            for kind, (dtype, math) in TYPES.items():
                if time.perf_counter() > end:
                    print("out of time")
                    return
                cells = []
                for engine in rig.engines:
                    for sums in (False, True) if args.sums and engine != "direct" else (False,):
                        op = layer.op(direction, dtype, math, sums=sums)
                        if engine == "direct":  # padding is data there
                            op.inp = _three(*(op.inp[d] + 2 * op.pad[d] for d in range(3)))
                            op.pad = _three(0, 0, 0)
                        try:
                            seconds, note = of_engine(rig, numbers, op, engine)
                        except DoorError as error:
                            cells.append(f"{engine} -- {str(error)[:60]}")
                            continue
                        rate = layer.flops / seconds / 1e12
                        cells.append(
                            f"{engine}{'+' * sums} {seconds * 1e3:.3f} ms {rate:.0f} TF {note}"
                        )
                if torch is not None:
                    for last in (False, True):
                        seconds = of_torch(torch, layer, direction, kind, last=last)
                        rate = layer.flops / seconds / 1e12
                        order = "nhwc" if last else "nchw"
                        cells.append(f"torch-{order} {seconds * 1e3:.3f} ms {rate:.0f} TF")
                print(f"{layer.name} {name} {kind}: " + " | ".join(cells), flush=True)
    rig.close()


if __name__ == "__main__":
    main()
