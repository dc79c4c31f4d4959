"""An unmodified PyTorch training, in device memory or past its limit: see spill_programs.py.

    python spill_torch.py WHAT [--net vgg16] [--images 256] [--steps 20] [--seconds 40] [--tf32]

The last line that it prints is JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from dropin_nets import prepared, resnet50, small, vgg16
from torch import Tensor
from torch.nn.functional import cross_entropy

NETS = {"vgg16": (vgg16, 224, 1000), "resnet50": (resnet50, 224, 1000), "small": (small, 64, 10)}
LEDGER = (
    "limit", "budget", "others", "device_bytes", "device_peak", "host_bytes", "host_peak",
    "pinned_bytes", "refused",
)  # fmt: skip
WARM = 5  # steps until caches hold what a step needs
Answer = dict[str, Any]


def ledger() -> Answer | None:
    """The spill library's figures; None where it is not preloaded."""
    try:
        ask = ctypes.CDLL(None).oocdnn_spill_figures
    except AttributeError:
        return None
    values = (ctypes.c_int64 * len(LEDGER))()
    ask(values)
    return dict(zip(LEDGER, values, strict=True))


class Training:
    """A net, its optimizer and one batch; every run begins with the same."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.backends.cudnn.allow_tf32 = options.tf32
        torch.backends.cuda.matmul.allow_tf32 = options.tf32
        torch.manual_seed(0)
        make, side, classes = NETS[options.net]
        self.net, self.optimizer, self.x, self.target = prepared(
            make(), options.images, side, classes
        )
        torch.backends.cudnn.deterministic = False  # as programs have it

    def step(self, x: Tensor | None = None, target: Tensor | None = None) -> float:
        self.optimizer.zero_grad()
        x, target = (self.x, self.target) if x is None else (x, target)
        loss = cross_entropy(self.net(x), target)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def train(options: argparse.Namespace, saved: AbstractContextManager[Any] | None = None) -> Answer:
    """Steps until there are enough or the time is over: each one's loss and seconds, and how many
    requests were refused until its end, which grow no more once caches hold what a step needs."""
    training = Training(options)
    losses, seconds, refused = [], [], []
    end = time.perf_counter() + options.seconds
    with saved or nullcontext():
        while len(losses) < options.steps and (len(losses) <= WARM or time.perf_counter() < end):
            begin = time.perf_counter()
            losses.append(training.step())
            seconds.append(time.perf_counter() - begin)
            refused.append((ledger() or {}).get("refused", 0))
    return {"losses": losses, "seconds": seconds, "refused": refused}


def train_with_save_on_cpu(options: argparse.Namespace) -> Answer:
    return train(options, torch.autograd.graph.save_on_cpu(pin_memory=True))


def kernels(options: argparse.Namespace) -> Answer:
    """Where the time of a step goes: the kernels that take most of it."""
    from torch.profiler import ProfilerActivity, profile

    training = Training(options)
    for _ in range(WARM):
        training.step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        training.step()
    events = sorted(profiled.key_averages(), key=lambda e: e.self_device_time_total, reverse=True)
    return {
        "kernels": [
            {"name": e.key[:160], "calls": e.count, "seconds": e.self_device_time_total * 1e-6}
            for e in events[:40]
        ]
    }


def many(options: argparse.Namespace) -> Answer:
    """Pinned memory after a tenth of the steps, and after all."""
    training = Training(options)
    pinned = []
    for i in range(options.steps):
        training.step()
        if (i + 1) % (options.steps // 10) == 0:
            pinned.append((ledger() or {}).get("pinned_bytes", 0))
    return {"pinned": pinned}


class Images(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int, side: int) -> None:
        self.count, self.side = count, side

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, self.side, self.side, generator=generator), index % 10


def workers(options: argparse.Namespace) -> Answer:
    """Batches come from four forked workers, which are started when memory has spilled already."""
    training = Training(options)
    training.step()
    data = Images(options.images * options.steps, NETS[options.net][1])
    loader = torch.utils.data.DataLoader(
        data, options.images, num_workers=4, pin_memory=True, multiprocessing_context="fork"
    )
    losses = [training.step(x.cuda(non_blocking=True), target.cuda()) for x, target in loader]
    return {"losses": losses}


SCENES: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "train": train,
    "save_on_cpu": train_with_save_on_cpu,
    "kernels": kernels,
    "many": many,
    "workers": workers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=SCENES)
    parser.add_argument("--net", choices=NETS, default="small")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--tf32", action="store_true")
    options = parser.parse_args()
    answer = SCENES[options.what](options)
    torch.cuda.synchronize()
    answer |= {"ledger": ledger(), "torch_peak": torch.cuda.max_memory_allocated()}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
