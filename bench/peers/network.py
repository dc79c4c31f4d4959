"""What else trains a network whose activations are many: torch, and its ways to keep less of them.

- *auto*: ours within the same budget, and the model chooses what is kept in host memory.
- *layer-by-layer*: ours within the same budget, but what layers make is kept in host memory.
- *torch*: everything where it computes, in core.
- *save-on-cpu*: what backward needs is moved to host memory, and back.
- *checkpoint*: only what blocks between pools begin with is kept; the rest is computed again.
- *accumulate*: the batch in eighths, one after the other; gradients are summed.

Images are in host memory at the beginning of a step, except for torch in core, and gradients stay
where torch computes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from typing import Any

import oocdnn
from oocdnn.bench.network import ROOM, Network, Training, needs
from oocdnn.bench.peers.peer import (
    Absent,
    Peer,
    Ready,
    failing_as_absent,
    finish,
    peak_of,
    roomy,
    torch_for,
)
from oocdnn.bench.tensor import tensor

PARTS = 8  # of a batch whose gradients are summed
PINNED = 2  # times the bytes that torch pins at most: powers of two

Step = Callable[[Any], Any]  # forward, by torch


@contextmanager
def whole(task: Training, device: str) -> Iterator[Ready]:
    """Ours with room for everything."""
    network = task.network
    with roomy(device, network.data_bytes, math=network.math) as context:
        yield Ready(task.call(context), peak=lambda: context.stats.peak_device_bytes)


@contextmanager
def auto(task: Training, device: str) -> Iterator[Ready]:
    """The model may choose to keep all."""
    with _within(task, device) as context:
        yield Ready(
            task.call(context, recompute="auto"), peak=lambda: context.stats.peak_device_bytes
        )


@contextmanager
def layer_by_layer(task: Training, device: str) -> Iterator[Ready]:
    """Its floor is its own: activations cross the wire."""
    with _within(task, device) as context:
        yield Ready(
            task.call(context, recompute=False),
            peak=lambda: context.stats.peak_device_bytes,
            floor_seconds=lambda: task.network.layers_floor_seconds(context, task.pinned),
        )


@contextmanager
def _within(task: Training, device: str) -> Iterator[oocdnn.Context]:
    """The budget, where what is kept has room in host memory."""
    network = task.network
    _need_host(int(ROOM * network.data_bytes))
    with oocdnn.Context(device, task.budget, math=network.math) as context:
        yield context


def _need_host(host_bytes: int) -> None:
    why = needs(host_bytes)
    if why is not None:
        raise Absent(why)


class TorchNetwork:
    """The network's layers as torch has them."""

    def __init__(self, torch: Any, task: Training, device: str) -> None:
        self.torch, self.task, self.device = torch, task, device
        modules: list[list[Any]] = []
        self.parameters: dict[str, Any] = {}
        made = task.parameters
        for i, (layer, w, b) in enumerate(zip(task.network.layers, made.w, made.b, strict=True)):
            convolution = torch.nn.Conv2d(layer.c, layer.k, 3, padding=1, device=device)
            with torch.no_grad():
                convolution.weight.copy_(tensor(torch, w))
                convolution.bias.copy_(tensor(torch, b))
            self.parameters |= {f"{i}.weight": convolution.weight, f"{i}.bias": convolution.bias}
            modules.append([convolution, torch.nn.ReLU()])
            if layer.pooled:
                modules[-1].append(torch.nn.MaxPool2d(2))
        self.model = torch.nn.Sequential(*(one for layer in modules for one in layer))
        self.blocks = _blocks(torch, modules)

    def step(self, forward: Step, parts: int, here: tuple[Any, Any] | None) -> None:
        """A batch in parts; `here` are x and dz where they are on the device already."""
        self.model.zero_grad()
        x, dz = here or (tensor(self.torch, self.task.x), tensor(self.torch, self.task.dz))
        size, zs = -(-len(x) // parts), list[Any]()
        for begin in range(0, len(x), size):
            of, dof = (one[begin : begin + size].to(self.device) for one in (x, dz))
            z = forward(of)
            z.backward(dof)
            zs.append(z.detach())
        self.z = zs[0] if len(zs) == 1 else self.torch.cat(zs)
        finish(self.torch, self.device)

    def results(self) -> dict[str, Any]:
        gradients = {name: one.grad.cpu().numpy() for name, one in self.parameters.items()}
        return {"z": self.z.cpu().numpy(), **gradients}


def _blocks(torch: Any, modules: list[list[Any]]) -> list[Any]:
    """The layers up to each pool."""
    ends = [sum(len(one) == 3 for one in modules[:i]) for i in range(len(modules))]
    numbered = groupby(zip(ends, modules, strict=True), lambda pair: pair[0])
    return [
        torch.nn.Sequential(*(one for _, layer in pairs for one in layer)) for _, pairs in numbered
    ]


def _by_torch(
    way: Callable[[TorchNetwork], Step] = lambda made: made.model,
    parts: int = 1,
    in_core: bool = False,
    around: Callable[[Any, str], AbstractContextManager[Any]] = lambda torch, device: nullcontext(),
    host_bytes: Callable[[Network], int] = lambda network: 0,
) -> Peer:
    @contextmanager
    def peer(task: Training, device: str) -> Iterator[Ready]:
        torch = torch_for(device, task.network.math == "tf32")
        _need_host(host_bytes(task.network))
        with failing_as_absent():
            peak = peak_of(torch, device)
            made = TorchNetwork(torch, task, device)
            pair = tensor(torch, task.x), tensor(torch, task.dz)
            here = (pair[0].to(device), pair[1].to(device)) if in_core else None
            forward = way(made)

            def call() -> None:
                with around(torch, device):
                    made.step(forward, min(parts, task.network.batch), here)

            yield Ready(call, peak=peak)
            task.results = made.results()

    return peer


def _checkpointed(made: TorchNetwork) -> Step:
    from torch.utils.checkpoint import checkpoint

    def forward(x: Any) -> Any:
        for block in made.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    return forward


def _saved_on_cpu(torch: Any, device: str) -> AbstractContextManager[Any]:
    saved: AbstractContextManager[Any] = torch.autograd.graph.save_on_cpu(
        pin_memory=device != "cpu"
    )
    return saved


def _saved_bytes(network: Network) -> int:
    """What each operation saves for backward, each for itself: a convolution its x, relu its
    result, a pool what it reads and, in 8 bytes each, where the largest were."""
    saved = 0
    for one in network.layers:
        y, z = one.k * one.size**2, one.k * one.z_size**2
        saved += one.c * one.size**2 + y + (y + 2 * z if one.pooled else 0)
    return PINNED * 4 * network.batch * saved


NETWORK_PEERS: dict[str, Peer] = {
    "whole": whole,
    "torch": _by_torch(in_core=True),
    "accumulate": _by_torch(parts=PARTS),
    "checkpoint": _by_torch(_checkpointed),
    "save-on-cpu": _by_torch(around=_saved_on_cpu, host_bytes=_saved_bytes),
    "auto": auto,
    "layer-by-layer": layer_by_layer,
}
