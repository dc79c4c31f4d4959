"""What else runs a convolution of arrays in host memory on a GPU: beside ours, in one run.

    oocdnn bench study peers --out result.json

- *zero copy*: cuDNN, through torch, on pinned host memory as it is; its kernels read and write over
  the wire. Where torch makes the output itself (backward), it makes it on the GPU.
- *managed*: x, w and y in managed memory, prefetched to the GPU before and to the host after the
  call. Everything together stays below half of what is free on the GPU.
- *ours*: pinned memory, with a budget of 2 GiB.

Floors and elements are those of the study `floor`; every result is compared with torch's in core.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial

import click
import torch

import oocdnn
from oocdnn.bench.arithmetic import ARITHMETIC
from oocdnn.bench.gpu import wires as gpu_wires
from oocdnn.bench.gpu.card import Card
from oocdnn.bench.gpu.tensors import Pinned, as_numpy, dtype_of
from oocdnn.bench.gpu.wires import Wires
from oocdnn.bench.layer_call import call_of
from oocdnn.bench.layers import DIRECTIONS, GPU_LAYERS, ROLES, Direction, Layer
from oocdnn.bench.peers.card import into
from oocdnn.bench.peers.torch_call import RESULTS
from oocdnn.bench.studies.least import by_torch
from oocdnn.bench.studies.study import Run, budget, device, maths, study
from oocdnn.cli.problems import parse

KINDS = ("fp32", "tf32", "bf16")
CASES = ("VGG16 conv1_2", "VGG16 conv3_2", "VGG16 conv4_2", "ResNet-50 1x1", "depthwise 3x3")


@dataclass
class Row:
    """Seconds of each way, and how many elements of its result differ; or why it did not run."""

    problem: str
    bytes_in: int
    bytes_out: int
    floors: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Bench:
    """What all cases share."""

    def __init__(
        self, run: Run, card: Card, context: oocdnn.Context, wires: Wires, repeats: int
    ) -> None:
        self.run, self.card, self.context = run, card, context
        self.wires, self.repeats, self.pinned = wires, repeats, Pinned()

    def measure(self, case: Layer, direction: Direction, kind: str) -> Row:
        torch.backends.cudnn.allow_tf32 = kind == "tf32"
        *sources, target = (
            self.pinned.tensor(operand, case.shape(operand), dtype_of(kind))
            for operand in ROLES[direction]
        )
        here = [self.card.fill(tensor, seed) for seed, tensor in enumerate(sources)]
        in_core = by_torch(case, direction)
        expected = in_core(*here)
        row = Row(
            f"{case.problem(direction)} {ARITHMETIC[kind].word}",
            sum(tensor.nbytes for tensor in sources),
            target.nbytes,
        )
        row.floors = {
            **self.wires.floors(row.bytes_in, row.bytes_out),
            "in core": self.card.best(partial(in_core, *here), self.repeats),
        }
        ways = Ways(self, case, direction, kind, sources, target)
        for name, way in ways.all().items():
            target.zero_()
            try:
                row.seconds[name] = way()
                row.wrong[name] = self.card.differing(target, expected)[0]
            except (RuntimeError, ValueError, TypeError, MemoryError) as error:
                row.failed[name] = str(error).splitlines()[0]
        del here, expected
        self.card.give_back()
        return row


class Ways:
    """Those in which a problem of arrays in pinned memory is computed; each gives its median
    seconds, by the clock, and leaves its result in `target`."""

    def __init__(
        self, bench: Bench, case: Layer, direction: Direction, kind: str,
        sources: Sequence[torch.Tensor], target: torch.Tensor,
    ) -> None:  # fmt: skip
        self._bench, self._case, self._direction, self._kind = bench, case, direction, kind
        self._problem = parse(case.problem(direction))
        self._sources, self._target = sources, target

    def all(self) -> Mapping[str, Callable[[], float]]:
        return {"ours": self.ours, "zero copy": self.zero_copy, "managed": self.managed}

    def _seconds(self, work: Callable[[], object]) -> float:
        def call() -> None:
            work()
            self._bench.card.synchronize()

        return self._bench.run.time(call, self._bench.repeats).median

    def ours(self) -> float:
        how = {"math": ARITHMETIC[self._kind].math}
        inputs, out = list(map(as_numpy, self._sources)), as_numpy(self._target)
        return self._seconds(
            call_of(self._bench.context, self._case, self._direction, inputs, out, **how)
        )

    def zero_copy(self) -> float:
        reached = self._bench.card.reached
        *inputs, out = (reached(as_numpy(tensor)) for tensor in (*self._sources, self._target))
        return self._seconds(self._into(inputs, out))

    def _into(self, inputs: Sequence[torch.Tensor], out: torch.Tensor) -> Callable[[], None]:
        named = dict(zip("xw", inputs, strict=True))
        return into(self._bench.card, self._problem, named, {RESULTS[self._direction]: out})

    def managed(self) -> float:
        operands = [*self._sources, self._target]
        with ExitStack() as stack:
            arrays = {str(i): as_numpy(tensor) for i, tensor in enumerate(operands)}
            blocks = list(self._bench.card.managed(arrays).values())
            for block in blocks:
                stack.callback(block.close)
            stack.callback(self._bench.card.synchronize)
            for block, tensor in zip(blocks, self._sources, strict=False):
                block.tensor.copy_(tensor)
            work = self._into([block.tensor for block in blocks[:-1]], blocks[-1].tensor)

            def call() -> None:
                for block in blocks:
                    block.prefetch(to_gpu=True)
                work()
                for block in blocks:
                    block.prefetch(to_gpu=False)

            seconds = self._seconds(call)
            self._target.copy_(blocks[-1].tensor)
            return seconds


def line(row: Row) -> str:
    limit, floor = max(row.floors.items(), key=lambda item: item[1])
    ways = [
        f"{way} {seconds * 1e3:8.2f} ms {seconds / floor:6.2f} x"
        f"{f' ({row.wrong[way]} DIFFER)' if row.wrong[way] else ''}"
        for way, seconds in row.seconds.items()
    ]
    ways += [f"{way}: {reason}" for way, reason in row.failed.items()]
    return f"{row.problem}: floor {floor * 1e3:.2f} ms ({limit}); " + "; ".join(ways)


which = click.option("--direction", "directions", multiple=True, type=click.Choice(DIRECTIONS))


@study("peers", device, budget("2GiB"), which, maths(KINDS), repeats=3, on="torch")
def command(
    run: Run, card: Card, device: str, budget: str, directions: Sequence[Direction],
    maths: Sequence[str], repeats: int,
) -> None:  # fmt: skip
    wires = gpu_wires.measure(card.ordinal)
    run.note("wires", asdict(wires))
    run.say(wires.text)
    done = {row["problem"] for row in run.rows()}
    cases = [
        (case, direction, kind)
        for case in GPU_LAYERS
        if case.name in CASES
        for direction in directions or ("fwd",)
        for kind in maths or ("tf32",)
    ]

    def problem(case: tuple[Layer, Direction, str]) -> str:
        return f"{case[0].problem(case[1])} {ARITHMETIC[case[2]].word}"

    with oocdnn.Context(device, budget) as context:
        bench = Bench(run, card, context, wires, repeats)
        for case in run.left(cases, problem, done):
            row = bench.measure(*case)
            run.keep(asdict(row), line(row))
