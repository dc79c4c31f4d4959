"""How fast the finishing pass runs on a GPU, and the one that restores dy of what came after it,
against what its memory copies.

    python tests/gpu/epilogue_rates.py

A row is what comes after a convolution; the figures are those of the best tile by the trace: bytes
of the sums that are read, and of z and its bits that are written, or the other way round, per
second, and as a share of a copy inside the device (which is timed with PyTorch, or given in TB/s:
--copy 4.1).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import oocdnn

CHAINS: dict[str, dict[str, Any]] = {
    "bias relu": {},
    "bias relu, saved": {"save_for_backward": True},
    "bias relu max 2": {"pool": 2},
    "bias relu max 2, saved": {"pool": 2, "save_for_backward": True},
    "bias relu max 3/2, saved": {"pool": oocdnn.Pool("max", 3, 2, 1), "save_for_backward": True},
    "bias relu avg 2": {"pool": oocdnn.Pool("avg", 2)},
}
BEHIND: dict[str, dict[str, Any]] = {
    "relu": {},
    "relu max 2": {"pool": 2},
    "relu max 3/2": {"pool": oocdnn.Pool("max", 3, 2, 1)},
    "relu avg 2": {"pool": oocdnn.Pool("avg", 2)},
    "relu max 1x2": {"pool": oocdnn.Pool("max", (1, 2))},  # of no kernel of its own
}
CALLS = 3


def copy_rate() -> float:
    """Bytes read and written per second by a copy of 1 GiB."""
    import torch

    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = 0.0
    for _ in range(20):
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = max(best, 2 * source.nbytes / (begin.elapsed_time(end) * 1e-3))
    return best


def finish_rate(x: np.ndarray, w: np.ndarray, chain: dict[str, Any], budget: str) -> float:
    """Of the best tile of a few calls."""
    bias = np.zeros(w.shape[0], x.dtype)
    with oocdnn.Context("cuda", budget, trace=True, profile="none") as ctx:
        for _ in range(CALLS):
            made = ctx.conv_bias_act_pool(x, w, bias, activation="relu", **chain)
        events = json.loads(ctx.take_trace())["traceEvents"]
        stats = ctx.stats
    z, saved = made if isinstance(made, tuple) else (made, None)
    written = (z.nbytes + (saved.nbytes if saved else 0)) / stats.tiles
    return best_rate(events, "finish ", written)


def best_rate(events: list[Any], name: str, more: float) -> float:
    """Of the passes of that name, which read or write `more` bytes besides the tile's."""
    passes = [one for one in events if one.get("name", "").startswith(name)]
    return max((one["args"]["bytes"] + more) / (one["dur"] * 1e-6) for one in passes)


def restore_rate(x: np.ndarray, w: np.ndarray, chain: dict[str, Any], budget: str) -> float:
    """Of the best tile of a few calls, for dx."""
    with oocdnn.Context("cuda", budget, trace=True, profile="none") as ctx:
        forward: Any = ctx.conv_bias_act_pool
        z, saved = forward(x, w, activation="relu", save_for_backward=True, **chain)
        ctx.take_trace()
        for _ in range(CALLS):
            ctx.conv_bias_act_pool_backward(z, saved, None, w, needs=("dx",))
        events = json.loads(ctx.take_trace())["traceEvents"]
        return best_rate(events, "restore ", (z.nbytes + saved.nbytes) / ctx.stats.tiles)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copy", type=float, help="TB/s of a copy inside the device")
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of y")
    parser.add_argument("--budget", default="4GiB")
    options = parser.parse_args()
    copies = options.copy * 1e12 if options.copy else copy_rate()
    print(f"a copy inside the device: {copies / 1e12:.2f} TB/s")
    x = oocdnn.empty((8, 16, options.size, options.size), np.float32)
    x[...] = np.random.default_rng(0).standard_normal((16, 1, 1), np.float32)
    w = np.random.default_rng(1).standard_normal((64, 16, 1, 1), np.float32)
    last = np.moveaxis(oocdnn.empty((8, options.size, options.size, 16), np.float32), -1, 1)
    last[...] = x
    for layout, data in (("nchw", x), ("nhwc", last)):
        for name, chain in CHAINS.items():
            rate = finish_rate(data, w, chain, options.budget)
            print(f"{layout} {name:26} {rate / 1e12:5.2f} TB/s  {rate / copies:5.0%}", flush=True)
        for name, chain in BEHIND.items():
            rate = restore_rate(data, w, chain, options.budget)
            print(
                f"{layout} dy behind {name:16} {rate / 1e12:5.2f} TB/s  {rate / copies:5.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
