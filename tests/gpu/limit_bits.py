"""Training within a limit beside plain PyTorch, bit by bit, under deterministic algorithms.

    python tests/gpu/limit_bits.py [NAME ...] [--mode fp32 --mode fp16] [--seconds S] [--out FILE]

NAME is a model of MODELS below, a program of PROGRAMS, or ddp, which needs two GPUs. Each trains
20 steps (ddp 10) plainly and within a limit, with the same seeds, a fresh batch in each step and
dropout on. Compared are the losses, the gradients of the last step, parameters, buffers, the state
of the optimizer and of the gradient scaler, and that of the random numbers. The limit holds what is
no activation, and a share of the activations. Operations without a deterministic gradient are
replaced; each row names them. The exit status is the number of rows that failed or differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # read where PyTorch is loaded
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from torch import Tensor, nn
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException, spawn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

from oocdnn.bench.training.device import Device, device_of
from oocdnn.bench.training.models import MODELS, Objective, Training, small
from oocdnn.bench.training.rows import GIB, Row, Rows, tidy
from oocdnn.errors import OutOfMemory

NAMES = (
    "alexnet", "vgg16", "vgg16_bn", "resnet18", "resnet50", "mobilenet_v3_large",
    "efficientnet_b0", "convnext_tiny", "densenet121", "deeplabv3_resnet50", "unet2d", "unet3d",
)  # fmt: skip
STEPS, DDP_STEPS = 20, 10
SHARE = 0.6  # of the activations that the limit holds
DDP_SHARE = 0.9  # both processes have one limit, under which no convolution is to run in parts
ATTEMPTS = 6  # limits, where the first is less than a step needs, or runs convolutions in parts
Values = dict[str, Tensor]


class Checkpointed(nn.Module):
    """Halves of a network under `checkpoint`; nested: a block within the second half too."""

    def __init__(self, net: nn.Sequential, reentrant: bool, nested: bool) -> None:
        super().__init__()
        self.first, self.inner, self.last = net[:5], net[5:7], net[7:]
        self._reentrant, self._nested = reentrant, nested

    def _section(self, layers: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(layers, x, use_reentrant=self._reentrant)

    def _half(self, x: Tensor) -> Tensor:
        return self._section(self.inner, x) if self._nested else self.inner(x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(checkpoint(self._half, x, use_reentrant=self._reentrant))


class Tied(nn.Module):
    """Two convolutions with one weight, before and after the same activation."""

    def __init__(self, channels: int, net: nn.Sequential) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.second.weight = self.first.weight
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        x = self.net[:4](x)
        x = F.silu(self.second(F.silu(self.first(x))))
        return self.net[4:](x)


def shared(channels: int) -> nn.Module:
    """A network that runs two of its blocks twice."""
    net = small(channels)
    net[6], net[8] = net[5], net[7]
    return net


def penalty(forward: Callable[[Tensor], Tensor], x: Tensor, target: Tensor) -> Tensor:
    """The loss with a penalty on its slope: backward of a gradient."""
    x = x.requires_grad_()
    loss = F.cross_entropy(forward(x), target)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + slope.square().sum()


@dataclass(frozen=True)
class Program:
    """How a network is trained: `make` from a number of channels, the parts of its batch whose
    gradients are accumulated, and its objective where it is not the usual one."""

    make: Callable[[int], nn.Module]
    parts: int = 1
    objective: Objective | None = None


PROGRAMS = {
    "shared": Program(shared),
    "tied": Program(lambda channels: Tied(channels, small(channels))),
    "checkpoint": Program(lambda channels: Checkpointed(small(channels), False, False)),
    "reentrant": Program(lambda channels: Checkpointed(small(channels), True, False)),
    "nested": Program(lambda channels: Checkpointed(small(channels), False, True)),
    "nested-reentrant": Program(lambda channels: Checkpointed(small(channels), True, True)),
    "double-backward": Program(small, objective=penalty),
    "accumulation": Program(small, parts=4),
}


@dataclass(frozen=True)
class Scale:
    """Sizes of a run: images of a model's batch, where not its own for a comparison; images, pixels
    of an axis and channels of the programs; seconds for a plan."""

    images: int = 0
    program: tuple[int, int, int] = (64, 128, 64)
    planning: float = 0.5


TINY = Scale(images=2, program=(4, 32, 16), planning=0.1)


def results(training: Training, losses: list[Tensor]) -> Values:
    """Everything that has to be equal, in host memory."""
    found: Values = {f"loss of step {i}": loss for i, loss in enumerate(losses)}
    for name, one in training.net.named_parameters():
        if one.grad is not None:
            found[f"gradient of {name}"] = one.grad
    found |= dict(training.net.state_dict())
    for number, state in training.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                found[f"{key} of parameter {number}"] = value
    if training.scaler.is_enabled():
        found["scale"] = torch.tensor(training.scaler.get_scale())
    found["random numbers of the host"] = torch.get_rng_state()
    if training.device.type == "cuda":
        found["random numbers of the device"] = torch.cuda.get_rng_state()
    with _disable_current_modes():  # what is kept for later is none of the device's
        return {name: value.detach().cpu().clone() for name, value in found.items()}


def differences(ours: Values, theirs: Values) -> list[str]:
    """Names of what is not the same to the bit."""

    def as_bytes(value: Tensor) -> Tensor:
        return value.contiguous().reshape(-1).view(torch.uint8)

    return [
        name
        for name in dict.fromkeys([*ours, *theirs])
        if name not in ours
        or name not in theirs
        or ours[name].shape != theirs[name].shape
        or not torch.equal(as_bytes(ours[name]), as_bytes(theirs[name]))
    ]


@dataclass
class Trained:
    """Results of a training; bytes of what stays between its steps, at its peak, and as the driver
    counts them."""

    values: Values
    between: int
    peak: int
    driver: int


def train(
    device: Device, training: Training, steps: int, around: AbstractContextManager[Any]
) -> Trained:
    torch.manual_seed(1)
    losses: list[Tensor] = []
    with around:
        for number in range(steps):
            if number == 2:  # the optimizer has its state
                device.restart()
            x, target = training.batch(number)
            losses.append(training.step(x, target))
            del x, target
        nbytes = device.allocated(), device.most_allocated(), device.most_driver()
        return Trained(results(training, losses), *nbytes)


def compare(
    device: Device,
    make: Callable[[], Training],
    steps: int,
    planning: float,
    attempts: int = ATTEMPTS,
    share: float = SHARE,
) -> Row:
    """Trains plainly and within a limit. The limit grows where it is less than a step needs, and
    where convolutions run in parts, whose filter gradients are other sums."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        plain = train(device, make(), steps, nullcontext())
        tidy(device)
        limit = device.others() + plain.between + int(share * (plain.peak - plain.between))
        refused: list[str] = []
        while True:
            try:
                training, run = make(), device.limit(limit, planning, {})
                ours = train(device, training, steps, run)
                parts = sum(len(known.parts) for known in run._steps.kinds)
                if not parts or len(refused) + 1 == attempts:
                    break
                refused.append(f"{limit / GIB:.3f} GiB: {parts} convolutions in parts")
                limit += (plain.peak - plain.between) // 10
            except (OutOfMemory, torch.OutOfMemoryError) as error:
                refused.append(f"{limit / GIB:.3f} GiB: {type(error).__name__}: {error}"[:200])
                if len(refused) == attempts:
                    raise
                limit = int(1.05 * max(getattr(error, "least", None) or 0, limit))
            training = run = None  # type: ignore[assignment]
            tidy(device)
        differing = differences(ours.values, plain.values)
        row: Row = {
            "limit_gib": limit / GIB,
            "share": (limit - device.others() - plain.between) / (plain.peak - plain.between),
            "plain_peak_gib": plain.peak / GIB,
            "between_steps_gib": plain.between / GIB,
            "peak_gib": ours.peak / GIB,
            "driver_gib": ours.driver / GIB,
            "state": run._steps.mode.value,
            "in_parts": parts,
            "replaced": training.replaced,
            "compared": len(plain.values),
            "last_loss": float(plain.values[f"loss of step {steps - 1}"]),
            "equal": not differing,
        }
        if run.plan is not None:
            row["policies_gib"] = {
                policy.value: n / GIB for policy, n in run.plan.explain().nbytes.items() if n
            }
        if refused:
            row["refused"] = refused
        if differing:
            del training, run
            tidy(device)
            again = train(device, make(), steps, nullcontext())
            row["differing"] = [*differing[:8], f"{len(differing)} in all"]
            row["plain_equals_itself"] = not differences(again.values, plain.values)
    told = {str(one.message).split("\n")[0][:120] for one in heard}
    row["without_deterministic_form"] = sorted(one for one in told if "deterministic" in one)
    return row


def program_of(device: Device, name: str, mode: str, scale: Scale) -> Callable[[], Training]:
    """What makes the training of a program."""
    program, (images, size, channels) = PROGRAMS[name], scale.program
    model = replace(MODELS["small"], make=lambda: program.make(channels))

    def make() -> Training:
        training = Training(model, mode, device.kind, images=images, size=size, exact=True)
        training.parts = program.parts
        if program.objective is not None:
            training.objective = program.objective
        return training

    return make


def model_of(device: Device, name: str, mode: str, scale: Scale) -> Callable[[], Training]:
    """What makes the training of a model."""
    model = MODELS[name]
    images = scale.images if name in NAMES else 0
    size = model.sample_size
    return lambda: Training(model, mode, device.kind, images=images, size=size, exact=True)


def rank(number: int, kind: str, folder: str, port: int, mode: str, scale: Scale) -> None:
    """One of two processes: plain `DistributedDataParallel`, then within a limit; a row for each
    way of holding gradients goes to a file of the folder."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    if kind == "cuda":
        torch.cuda.set_device(number)
    else:
        torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    backend = "nccl" if kind == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, rank=number, world_size=2)
    device = device_of(kind)
    for view in (False, True):
        path = Path(folder, f"process {number}, gradients {'as views' if view else 'copied'}.json")
        try:
            with device.counted():
                make = _parallel(device, number, mode, scale, view)
                row = compare(device, make, DDP_STEPS, scale.planning, 1, DDP_SHARE)
        except Exception as error:
            path.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"[:400]}))
            raise  # ends the other process, which would wait
        path.write_text(json.dumps(row))
        tidy(device)
    torch.distributed.destroy_process_group()


def _parallel(
    device: Device, number: int, mode: str, scale: Scale, view: bool
) -> Callable[[], Training]:
    images, size, channels = scale.program

    def make() -> Training:
        model = replace(MODELS["small"], make=lambda: small(channels))
        training = Training(model, mode, device.kind, images=images, size=size)
        ids = [number] if device.kind == "cuda" else None
        training.forward = DistributedDataParallel(
            training.net, device_ids=ids, gradient_as_bucket_view=view, bucket_cap_mb=0.05
        )
        training.process, training.processes = number, 2
        return training

    return make


def distributed(rows: Rows, kind: str, modes: list[str], scale: Scale) -> None:
    """Rows of both processes and both ways of holding gradients."""
    if kind == "cuda" and torch.cuda.device_count() < 2:
        rows.add({"name": "ddp", "skipped": f"{torch.cuda.device_count()} GPU; it needs two"})
        return
    for mode in modes:
        with tempfile.TemporaryDirectory() as folder:

            def both(mode: str = mode, folder: str = folder) -> Row:
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", 0))
                    port = taken.getsockname()[1]
                given = (kind, folder, port, mode, scale)
                with contextlib.suppress(ProcessRaisedException, ProcessExitedException):
                    spawn(rank, given, nprocs=2)
                found = sorted(Path(folder).glob("*.json"))
                each = {path.stem: json.loads(path.read_text()) for path in found}
                equal = len(each) == 4 and all(row.get("equal") is True for row in each.values())
                return {"equal": equal, "processes": each}

            rows.attempt({"name": "ddp", "arithmetic": mode, "steps": DDP_STEPS}, both)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--mode", action="append", choices=("fp32", "fp16", "bf16", "tf32"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seconds", type=float, default=540, help="nothing is begun after so many")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", default="", help="a file for all rows")
    given = parser.parse_args(arguments)
    known = [*NAMES, *PROGRAMS, "ddp"]
    names = given.names or known
    unknown = [name for name in names if name not in [*known, *MODELS]]
    if unknown:
        parser.error(f"no such names: {', '.join(unknown)}; there are {', '.join(known)}")
    modes = given.mode or ["fp32", "fp16"]
    scale = Scale() if given.device == "cuda" else TINY
    device = device_of(given.device)
    torch.use_deterministic_algorithms(True, warn_only=True)
    rows = Rows(device, "python tests/gpu/limit_bits.py", given.seconds, given.out)
    for name in names:
        if name == "ddp":
            distributed(rows, given.device, modes, scale)
            continue
        for mode in modes:
            make = (program_of if name in PROGRAMS else model_of)(device, name, mode, scale)
            about = {"name": name, "arithmetic": mode, "steps": given.steps}

            def measure(make: Callable[[], Training] = make) -> Row:
                return compare(device, make, given.steps, scale.planning)

            with device.counted():
                rows.attempt(about, measure)
    torch.use_deterministic_algorithms(False)
    return sum(1 for row in rows.rows if "error" in row or row.get("equal") is False)


if __name__ == "__main__":
    sys.exit(main())
