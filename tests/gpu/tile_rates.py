"""How an engine's rate falls where tiles are small: layer after layer in tiles of 1, 2, 4, ...
images, in device memory.

    python tests/gpu/tile_rates.py --library build/native/lib/liboocdnn_testing.so

A line is a layer, a direction, a type and an engine, with milliseconds and TFLOP/s of each size.
Filter gradients of half types are summed in float, as they are where a batch is cut.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from math import prod
from pathlib import Path

import numpy as np
from doors import BACKWARD_FILTER, F32, DoorError, Rig, testing_library
from engine_rates import DIRECTIONS, TYPES, Layer, of_engine

LAYERS = (
    Layer("512-512 14", 1, 512, 512, (14, 14), 3, 1),
    Layer("256-256 56", 1, 256, 256, (56, 56), 3, 1),
    Layer("64-64 224", 1, 64, 64, (224, 224), 3, 1),
    Layer("512-512 28", 1, 512, 512, (28, 28), 3, 1),
    Layer("128-128 112", 1, 128, 128, (112, 112), 3, 1),
    Layer("1x1 64-256 56", 1, 64, 256, (56, 56), 1),
    Layer("32-32 96x96x64", 1, 32, 32, (96, 96, 64), 3, 1),
    Layer("2048-2048 32x1024", 1, 2048, 2048, (32, 256), 3, 1),
)
MOST = 1 << 26  # elements of a tensor
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def elements(layer: Layer) -> int:
    return max(prod((layer.n, layer.c, *layer.size)), prod((layer.n, layer.k, *layer.out)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=testing_library())
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--engine", action="append", help="only this; may come again")
    parser.add_argument("--zeros", action="store_true", help="of zeros, not of random numbers")
    parser.add_argument("--seconds", type=float, default=120, help="stop after this long")
    parser.add_argument("--out", type=Path, help="write every line as JSON, too")
    args = parser.parse_args()
    rig = Rig(args.library, args.device)
    print(rig.description)
    numbers = rig.array(MOST, F32)
    if not args.zeros:
        numbers[:] = np.random.default_rng(1).random(MOST, dtype=np.float32) - 0.5
    end = time.perf_counter() + args.seconds
    lines = []
    for layer in LAYERS:
        for kind, (dtype, math) in TYPES.items():
            for direction, name in DIRECTIONS.items():
                for engine in args.engine or [e for e in rig.engines if e != "direct"]:
                    found: dict[int, float] = {}
                    note = ""
                    for batch in BATCHES:
                        tile = dataclasses.replace(layer, n=batch)
                        if elements(tile) > MOST or time.perf_counter() > end:
                            break
                        sums = direction == BACKWARD_FILTER and kind == "bf16"
                        try:
                            op = tile.op(direction, dtype, math, sums=sums)
                            found[batch], note = of_engine(rig, numbers, op, engine)
                        except DoorError as error:
                            note = str(error)[:60]
                            break
                    if found:
                        rates = {b: rate_of(layer, b, s) for b, s in found.items()}
                        cells = " ".join(
                            f"{b}: {s * 1e3:.3f} ({rates[b]:.0f})" for b, s in found.items()
                        )
                        print(f"{layer.name} {name} {kind} {engine}: {cells}; {note}", flush=True)
                    lines.append(
                        {"layer": layer.name, "direction": name, "type": kind, "engine": engine,
                         "seconds": found, "note": note}
                    )  # fmt: skip
                    if args.out:
                        args.out.write_text("\n".join(map(json.dumps, lines)) + "\n")
    rig.close()


def rate_of(layer: Layer, batch: int, seconds: float) -> float:
    """TFLOP/s of so many images."""
    return dataclasses.replace(layer, n=batch).flops / seconds / 1e12


if __name__ == "__main__":
    main()
