"""`oocdnn.torch` with tensors in host memory that pass what it may use of the GPU: see
spill_programs.py.

    python torch_large.py NAME=WHAT[,OPTION=NUMBER] ...

As spill_torch.py: ready, then a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv3d as conv

import oocdnn
import oocdnn.torch

TESTS = Path(__file__).resolve().parents[1]
Answer = dict[str, Any]
BUDGET = "1GiB"
BLOCK = (1 << 22) + 7  # numbers that are made, and then repeated


def integers(shape: tuple[int, ...], seed: int) -> Tensor:
    """Whole numbers from -2 to 2, of which random ones are made for a part only."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randint(-2, 3, (BLOCK,), generator=generator).float()
    whole = torch.empty(shape)
    line = whole.view(-1)
    rows = line.numel() // BLOCK
    line[: rows * BLOCK].view(rows, BLOCK).copy_(some)
    line[rows * BLOCK :] = some[: line.numel() - rows * BLOCK]
    return whole


def unlike(x: Tensor, w: Tensor, y: Tensor, side: int) -> int:
    """Elements that differ from the exact sums, in windows of the first corner, the last and the
    middle."""
    wrong = 0
    height, width = x.shape[-2:]
    middle = (height // 2, width // 2)
    for top, left in ((0, 0), middle, (height - side, width - side)):
        # And what is around it.
        rows, columns = (slice(max(begin - 1, 0), begin + side + 1) for begin in (top, left))
        seen = conv(x[..., rows, columns].double(), w.double(), padding=1)
        seen = seen[..., top - rows.start :, left - columns.start :]
        exact = seen[..., :side, :side]
        wrong += int((y[..., top : top + side, left : left + side].double() != exact).sum())
    return wrong


def conv3d(channels: int = 256, planes: int = 5, height: int = 1090, width: int = 1922) -> Answer:
    """A large convolution of a CPU tensor, twice; its result is exact."""
    x = integers((1, channels, planes, height, width), 1)
    w = integers((channels, channels, 3, 3, 3), 2)
    seconds = []
    with oocdnn.Context(budget=BUDGET) as context:
        for _ in range(2):
            begin = time.perf_counter()
            y = oocdnn.torch.conv3d(x, w, padding=1)
            seconds.append(time.perf_counter() - begin)
        stats = context.stats
    return {
        "seconds": seconds, "unlike": unlike(x, w, y, min(12, height)),
        "bytes": x.nbytes + y.nbytes, "peak": stats.peak_device_bytes, "tiles": stats.tiles,
        "budget": stats.budget_bytes, "predicted_seconds": stats.predicted_seconds,
    }  # fmt: skip


def losses_of(model: torch.nn.Module, steps: int, extent: int) -> tuple[list[float], float]:
    from pytorch.nets import train

    begin = time.perf_counter()
    losses = train(model, steps, extent)
    return losses, time.perf_counter() - begin


def unet(width: int = 16, extent: int = 192, steps: int = 2) -> Answer:
    """A 3-D U-Net in host memory, taken, beside plain torch with all of the card."""
    from pytorch.nets import UNet

    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    model = UNet(width=width)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    plain_device = "cuda" if torch.cuda.is_available() else "cpu"
    plain, plain_seconds = losses_of(model.to(plain_device), steps, extent)
    peak = torch.cuda.max_memory_allocated() if plain_device == "cuda" else 0
    model.cpu().load_state_dict(state)
    if plain_device == "cuda":
        torch.cuda.empty_cache()
    oocdnn.torch.take(model)
    with oocdnn.Context(budget=BUDGET, planning="gradual") as context:
        losses, seconds = losses_of(model, steps, extent)
        stats = context.stats
    return {
        "losses": losses, "alone": plain, "whole_seconds": seconds, "plain_seconds": plain_seconds,
        "plain_peak": peak, "peak": stats.peak_device_bytes, "budget": stats.budget_bytes,
    }  # fmt: skip


def suites() -> Answer:
    """The tests of oocdnn.torch, some at a time."""
    environment = {name: text for name, text in os.environ.items() if "OOCDNN_LOG" not in name}
    environment["PYTHONSAFEPATH"] = "1"
    if torch.cuda.is_available():
        environment["OOCDNN_TEST_DEVICE"] = "cuda"
    files = [str(TESTS / "gpu" / "test_torch.py"), str(TESTS / "pytorch")]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-n", "8", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *files], cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    return {"status": done.returncode, "tail": done.stdout[-3000:]}


SCENES: dict[str, Callable[..., Answer]] = {"conv3d": conv3d, "unet": unet, "suites": suites}


def main(words: list[str]) -> None:
    sys.path.insert(0, str(TESTS))  # the folder of `pytorch`
    print("ready", flush=True)
    sys.stdin.readline()
    for name, text in (word.split("=", 1) for word in words):
        what, *options = text.split(",")
        numbers = {key: int(value) for key, value in (option.split("=") for option in options)}
        print(json.dumps({name: SCENES[what](**numbers)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
