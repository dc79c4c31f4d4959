"""Other ways to train in less memory, as PyTorch has them: what `memory_limit` is compared with."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from oocdnn.bench.training.models import Training
from oocdnn.errors import Unsupported

# Classes of what is checkpointed as one: torchvision's, timm's, and those of our own networks.
BLOCKS = {
    "BasicBlock", "Bottleneck", "CNBlock", "ConvNeXtBlock", "Double", "FusedMBConv",
    "InvertedResidual", "MBConv", "Residual", "_DenseLayer", "ASPP",
}  # fmt: skip


def blocks_of(net: nn.Module) -> list[nn.Module]:
    """The outermost modules of those classes; where there are none, the layers of `features` up to
    each pool, which become modules of their own."""
    found: list[nn.Module] = []

    def look(module: nn.Module) -> None:
        for child in module.children():
            if type(child).__name__ in BLOCKS:
                found.append(child)
            else:
                look(child)

    look(net)
    features = getattr(net, "features", None)
    if not found and isinstance(features, nn.Sequential):
        parts: list[list[nn.Module]] = [[]]
        for layer in features:
            parts[-1].append(layer)
            if isinstance(layer, nn.MaxPool2d):
                parts.append([])
        found = [nn.Sequential(*part) for part in parts if part]
        net.features = nn.Sequential(*found)
    return found


@contextlib.contextmanager
def _checkpointed(training: Training) -> Iterator[None]:
    for block in blocks_of(training.net):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    yield


@contextlib.contextmanager
def _compiled(budget: float, training: Training) -> Iterator[None]:
    import torch._functorch.config as config

    before = config.activation_memory_budget
    torch._dynamo.reset()
    config.activation_memory_budget = budget
    training.forward = torch.compile(training.net)
    try:
        yield
    finally:
        config.activation_memory_budget = before
        torch._dynamo.reset()


@contextlib.contextmanager
def _compiled_offload(training: Training) -> Iterator[None]:
    """PyTorch 2.11's compiled offloading of all saved values: copies on a stream of their own, with
    the copies back started ahead of their use."""
    import torch._functorch.config as config
    from torch._inductor import config as inductor

    if not hasattr(config, "enable_activation_offloading"):
        raise Unsupported(f"PyTorch {torch.__version__} does not compile offloads; 2.11 does")

    def mark(graph: torch.fx.Graph) -> None:
        for node in graph.nodes:
            if node.op == "call_function":
                node.meta["should_offload"] = True

    torch._dynamo.reset()
    training.forward = torch.compile(training.net)
    patched = config.patch(
        enable_activation_offloading=True, activation_offload_separate_stream=True,
        activation_offload_sink_wait=True, activation_reload_prefetch=True,
    )  # fmt: skip
    try:
        with patched, inductor.patch(joint_custom_post_pass=mark):
            yield
    finally:
        torch._dynamo.reset()


@contextlib.contextmanager
def _offloaded(module: str, training: Training) -> Iterator[None]:
    """`OffloadActivations` of a package, with its defaults."""
    del training
    try:
        made = importlib.import_module(module).OffloadActivations
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        raise Unsupported(f"{package} cannot be imported, install it by pip: {error}") from error
    with made():
        yield


@contextlib.contextmanager
def _saved_on_cpu(training: Training) -> Iterator[None]:
    with torch.autograd.graph.save_on_cpu(pin_memory=training.device.type == "cuda"):
        yield


@contextlib.contextmanager
def _hooked(training: Training) -> Iterator[None]:
    """What PyTorch's hooks for saved tensors take by themselves."""
    del training

    def same(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(same, same):
        yield


Peer = Callable[[Training], contextlib.AbstractContextManager[Any]]

# Entered around a training's steps. Gradients are accumulated by `Training.step` itself.
PEERS: dict[str, Peer] = {
    "hooks": _hooked,
    "save-on-cpu": _saved_on_cpu,
    "checkpoint": _checkpointed,
    "accumulate": lambda _: contextlib.nullcontext(),
    "trl-offload": functools.partial(_offloaded, "trl.models.activation_offloading"),
    "torchtune-offload": functools.partial(_offloaded, "torchtune.training"),
    "compile-offload": _compiled_offload,
    **{f"budget-{budget}": functools.partial(_compiled, budget) for budget in (0.2, 0.4, 0.7, 1.0)},
}
