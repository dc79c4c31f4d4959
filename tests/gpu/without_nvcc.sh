#!/usr/bin/env bash
# Builds the library without machine code for GPUs, as where no nvcc is, and has it compile its kernels by NVRTC and use them.
# Needs cmake, ninja and the package.
set -e
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cmake -G Ninja -S native -B "$build" -DOOCDNN_CUDA_ARCHITECTURES=off >"$build/log"
ninja -C "$build" oocdnn >>"$build/log" || { tail -30 "$build/log"; exit 1; }
OOCDNN_LIBRARY=$build/lib/liboocdnn.so XDG_CACHE_HOME=$build/cache python3 - <<'PROGRAM'
import json
import numpy as np
import oocdnn

x, w = np.ones((9, 8, 40, 41), np.float32), np.ones((8, 8, 3, 3), np.float32)
with oocdnn.Context("cuda", "256KiB") as context:
    (kernels,) = (c for c in json.loads(context.info())["components"] if c["name"] == "kernels")
    print(kernels["text"])
    assert "NVRTC" in kernels["text"], kernels
    assert (context.conv2d(x, w) == 72).all()
    assert context.stats.tiles > 1
PROGRAM
