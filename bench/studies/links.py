"""Calls over borrowed links, beside the GPU's own link and bare copies over the same links.

    oocdnn bench study links --borrow cuda:1 --out result.json

Bare copies are of large pieces of pinned memory, one after the other in each direction. Calls are
forward and the filter gradient of a 3x3 convolution of 64 channels, from and to pinned memory. With
`--trains`, the first lender trains a ResNet-50 in another process, by itself and while calls of the
filter gradient borrow its link.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click

import oocdnn
from oocdnn._core.swap import IN, OUT, NativeSwapper
from oocdnn.bench.gpu.memory import Gpu, ordinal_of
from oocdnn.bench.studies.devices import Bench
from oocdnn.bench.studies.study import Run, budget, device, images, study

COPIED, COPIES = 256 << 20, 8  # bytes of a bare copy, and copies in each direction
SECONDS = 8.0  # of training
WARM_STEPS = 10
WAYS = {"in": (IN,), "out": (OUT,), "both": (IN, OUT)}


@dataclass
class Compared:
    """Medians in seconds, with the GPU's own link and with all."""

    case: str
    moved_bytes: int  # in and out
    own: float
    borrowed: float
    engine: str = ""

    def line(self) -> str:
        own, borrowed = (self.moved_bytes / s / 1e9 for s in (self.own, self.borrowed))
        return (
            f"{self.case}: own link {self.own:.4f} s, {own:.1f} GB/s; all links "
            f"{self.borrowed:.4f} s, {borrowed:.1f} GB/s, {self.own / self.borrowed:.2f} times"
        )


class Bare:
    """Copies between pinned memory and the GPU, in both directions."""

    def __init__(self, ordinal: int, lenders: Sequence[str]) -> None:
        self._gpu, self._swapper = Gpu(ordinal), NativeSwapper(ordinal)
        for lender in lenders:
            self._swapper.borrow_link(ordinal_of(lender))
        self._ends = {
            way: (self._gpu.allocate(COPIED), self._swapper.slab(COPIED)) for way in (IN, OUT)
        }

    def copy(self, ways: Sequence[int]) -> None:
        stream, tickets = self._gpu.stream, []
        for _ in range(COPIES):
            for way in ways:
                there, slab = self._ends[way]
                tickets.append(self._swapper.start(way, stream, there, slab, COPIED))
        for ticket in tickets:
            self._swapper.wait(ticket, stream)
        self._gpu.synchronize()

    def close(self) -> None:
        for there, _ in self._ends.values():
            self._gpu.free(there)
        self._ends.clear()  # and what is pinned


def train(where: str, model: str, count: int, seconds: float) -> list[float]:
    """The times of training steps on a device, after some; for about so many seconds."""
    import torch
    from torch.nn.functional import cross_entropy

    from oocdnn.bench.training.models import MODELS

    made = MODELS[model]
    device = torch.device(where)
    net = made.make().to(device=device, memory_format=torch.channels_last)
    x, target = made.batch(count, made.size, torch.Generator(device))
    x = x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    spent: list[float] = []
    end = None
    while end is None or time.perf_counter() < end:
        began = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        loss.item()
        spent.append(time.perf_counter() - began)
        if len(spent) == WARM_STEPS:
            end = time.perf_counter() + seconds
    return spent[WARM_STEPS:]


def trained_beside(lender: str, work: Callable[[Future[Any]], object]) -> float:
    """The median of training steps on the lender, in another process, while `work` runs, which is
    given what ends with them."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as other:
        steps = other.submit(train, lender, "resnet50", 256, SECONDS)
        work(steps)
        return statistics.median(steps.result())


@study(
    "links",
    device,
    click.option("--borrow", default="cuda:1", show_default=True, help="With commas."),
    budget("4GiB"),
    images,
    click.option("--size", default=224, show_default=True, type=click.IntRange(min=3)),
    click.option("--trains", is_flag=True, help="The first lender trains meanwhile."),
    repeats=5,
    on="gpu",
)
def command(run: Run, repeats: int, images: int, size: int, trains: bool, **given: str) -> None:
    name, lenders = given["device"], [one for one in given["borrow"].split(",") if one]

    def seconds(call: Callable[[], object]) -> float:
        return run.time(call, repeats).median

    for case, ways in WAYS.items():
        spent = []
        for borrow in ((), lenders):
            bare = Bare(ordinal_of(name), borrow)
            spent.append(seconds(partial(bare.copy, ways)))
            bare.close()
        moved = COPIED * COPIES * len(ways)
        made = Compared(f"bare {case}", moved, own=spent[0], borrowed=spent[1])
        run.keep(asdict(made), made.line())
    how: dict[str, Any] = {"budget": given["budget"], "math": "tf32"}
    bench = Bench(images, size)
    with ExitStack() as stack:
        own = stack.enter_context(oocdnn.Context(name, borrow=[], **how))
        all_links = stack.enter_context(oocdnn.Context(name, borrow=lenders, **how))
        for case in ("fwd", "bwd_filter"):
            alone, shared = (seconds(partial(bench.run, one, case)) for one in (own, all_links))
            stats = all_links.stats
            moved = stats.bytes_h2d + stats.bytes_d2h
            made = Compared(case, moved, alone, shared, stats.engine)
            run.keep(asdict(made), made.line())
        if trains:
            _compare_training(run, lenders[0], partial(bench.run, all_links, "bwd_filter"))


def _compare_training(run: Run, lender: str, call: Callable[[], None]) -> None:
    def calls_until(end: Future[Any]) -> None:
        while not end.done():
            call()

    alone = trained_beside(lender, lambda _: None)
    beside = trained_beside(lender, calls_until)
    row = {"case": "training of a lender", "alone": alone, "beside": beside}
    run.keep(row, f"training of {lender}: {alone:.4f} s a step, beside {beside:.4f} s")
