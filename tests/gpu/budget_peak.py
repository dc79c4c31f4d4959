"""The most device memory that is taken while new problems are planned and run, on the fake driver.

A line of JSON for each call: what the arrays on the device hold, the peak, and the context's own.
"""

from __future__ import annotations

import json
from ctypes import byref, c_size_t

import numpy as np
from driver import DeviceArray, call

import oocdnn

BUDGET = 1 << 20


def peak() -> int:
    most = c_size_t()
    call("fake_peak_bytes", byref(most))
    return most.value


def main() -> None:
    with oocdnn.Context("cuda", BUDGET, engine="cudnn", profile="none") as ctx:
        for size in (20, 64, 40, 90):
            for place in (np.array, DeviceArray):
                x, w = np.ones((3, 8, size, size), np.float32), np.ones((8, 8, 3, 3), np.float32)
                out = np.zeros((3, 8, size - 2, size - 2), np.float32)
                arrays = [place(x), place(w), place(out)]
                arrays_bytes = 0 if place is np.array else sum(a.nbytes for a in (x, w, out))
                peak()
                ctx.conv2d(arrays[0], arrays[1], out=arrays[2])
                stats = ctx.stats
                line = {"arrays": arrays_bytes, "peak": peak(), "prepared": stats.prepared}
                print(json.dumps(line | {"tiles": stats.tiles, "own": stats.peak_device_bytes}))
                del arrays


main()
