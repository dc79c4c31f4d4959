"""Unmodified PyTorch trainings, in device memory or past its limit: see spill_programs.py.

    python spill_torch.py NAME=WHAT[,OPTION=VALUE] ...    (of `Wish`: net=vgg16, images=256, tf32=1)

It is ready when it says so, and begins with the next line of its input. For each training a line of
JSON, its figures under the NAME, as soon as there are any.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
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
LEAST = 2  # steps that are made however long they take
Answer = dict[str, Any]


@dataclass
class Wish:
    """What a word of the command line asks for."""

    what: str
    net: str = "small"
    images: int = 64
    steps: int = 20
    seconds: float = 40.0  # in which the last step begins
    tf32: bool = False
    last: bool = False  # tensors channels last
    profile: bool = False  # one step more, kernel by kernel


def wish(text: str) -> Wish:
    what, *options = text.split(",")
    made = Wish(what)
    for name, value in (option.split("=") for option in options):
        kind = type(getattr(made, name))
        setattr(made, name, value == "1" if kind is bool else kind(value))
    return made


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

    def __init__(self, wished: Wish) -> None:
        torch.backends.cudnn.allow_tf32 = wished.tf32
        torch.backends.cuda.matmul.allow_tf32 = wished.tf32
        torch.manual_seed(0)
        make, side, classes = NETS[wished.net]
        self.net, self.optimizer, self.x, self.target = prepared(
            make(), wished.images, side, classes
        )
        if wished.last:
            self.net = self.net.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        torch.backends.cudnn.deterministic = False  # as programs have it

    def step(self, x: Tensor | None = None, target: Tensor | None = None) -> float:
        self.optimizer.zero_grad()
        x, target = (self.x, self.target) if x is None else (x, target)
        loss = cross_entropy(self.net(x), target)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def train(wished: Wish, saved: AbstractContextManager[Any] | None = None) -> Answer:
    """Steps until there are enough or the time is over: each one's loss and seconds, and how many
    requests were refused until its end, which grow no more once caches hold what a step needs."""
    training = Training(wished)
    losses, seconds, refused = [], [], []
    end = time.perf_counter() + wished.seconds
    with saved or nullcontext():
        while len(losses) < wished.steps and (len(losses) < LEAST or time.perf_counter() < end):
            begin = time.perf_counter()
            losses.append(training.step())
            seconds.append(time.perf_counter() - begin)
            refused.append((ledger() or {}).get("refused", 0))
    answer = {"losses": losses, "seconds": seconds, "refused": refused, "ended": time.time()}
    return answer | (kernels(training) if wished.profile else {})


def train_with_save_on_cpu(wished: Wish) -> Answer:
    return train(wished, torch.autograd.graph.save_on_cpu(pin_memory=True))


def kernels(training: Training) -> Answer:
    """Where the time of a step goes: the kernels that take most of it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        begin = time.perf_counter()
        training.step()
        seconds = time.perf_counter() - begin
    events = sorted(profiled.key_averages(), key=lambda e: e.self_device_time_total, reverse=True)
    return {
        "profiled_seconds": seconds,
        "kernels": [
            {"name": e.key[:160], "calls": e.count, "seconds": e.self_device_time_total * 1e-6}
            for e in events[:40]
        ],
    }


def many(wished: Wish) -> Answer:
    """Pinned memory after a tenth of the steps, and after all."""
    training = Training(wished)
    pinned = []
    for i in range(wished.steps):
        training.step()
        if (i + 1) % (wished.steps // 10) == 0:
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


def workers(wished: Wish) -> Answer:
    """Batches come from four forked workers, which are started when memory has spilled already."""
    training = Training(wished)
    training.step()
    data = Images(wished.images * wished.steps, NETS[wished.net][1])
    loader = torch.utils.data.DataLoader(
        data, wished.images, num_workers=4, pin_memory=True, multiprocessing_context="fork"
    )
    losses = [training.step(x.cuda(non_blocking=True), target.cuda()) for x, target in loader]
    return {"losses": losses}


SCENES: dict[str, Callable[[Wish], Answer]] = {
    "train": train,
    "save_on_cpu": train_with_save_on_cpu,
    "many": many,
    "workers": workers,
}


def figures_of(wished: Wish) -> Answer:
    """Of one training; nothing of it is left."""
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    try:
        answer = SCENES[wished.what](wished)
    except torch.OutOfMemoryError as error:
        answer = {"failed": f"out of memory: {error}"}
    torch.cuda.synchronize()
    answer |= {
        "ledger": ledger(),
        "torch_peak": torch.cuda.max_memory_allocated(),
        "whole_seconds": time.perf_counter() - begin,
    }
    gc.collect()
    torch.cuda.empty_cache()
    return answer


def main(words: list[str]) -> None:
    wishes = {name: wish(text) for name, text in (word.split("=", 1) for word in words)}
    print("ready", flush=True)
    sys.stdin.readline()
    for name, wished in wishes.items():
        print(json.dumps({name: figures_of(wished)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
