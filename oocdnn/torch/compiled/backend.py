"""The backend of torch.compile: Inductor, with what is saved for backward planned."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._functorch import config as aot
from torch._inductor.compile_fx import compile_fx

from oocdnn._arguments import byte_count
from oocdnn._calls.budget import program_share
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.torch.compiled.arrange import arranged
from oocdnn.torch.compiled.partition import Partitioner
from oocdnn.torch.compiled.steering import Steered

_MOST = 1 << 62  # bytes
_INDUCTOR = {
    "reorder_for_peak_memory": False,
    "_post_fusion_custom_pass": arranged,
    # It knows nothing of copies on their way: memory is free when no reference to it is left.
    "allow_buffer_reuse": False,
    # A plan is made of times that were measured, so that no graph is met again.
    "fx_graph_cache": False,
}


# The options of programs that have compiled a graph: a program's are the same object for all.
_compiled: deque[Mapping[str, Any] | None] = deque(maxlen=64)


def oocdnn(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph by Inductor so that a training step takes no more device memory than a
    limit: `torch.compile(model, backend="oocdnn", options={"memory_limit": "16GiB"})`.

    What backward reads is kept, computed again, or copied to host memory and back while the GPU
    computes, whichever makes the fastest step.

    Args:
        options: `memory_limit`, device bytes of the process as the driver counts them, or "16GiB";
            under `oocdnn run --limit` that limit by itself. `planning`, seconds for the plan of
            a graph, 4 by default. All others are Inductor's.
        mode: Inductor's; without CUDA graphs.

    Raises:
        InvalidProblem: There is no limit, it is no positive number, CUDA graphs are asked for, or
            DistributedDataParallel splits the graph.
        Unsupported: highspy is not installed.
        OutOfMemory: The step does not fit; its `least` is a limit that suffices.
        RuntimeError: Inductor has no such option.

    What is raised is the `inner_exception` of the error that torch.compile gives the program.
    """
    given = dict(options or {})
    limit = _limit(given.pop("memory_limit", None))
    planning = given.pop("planning", 4.0)
    number = isinstance(planning, int | float) and not isinstance(planning, bool)
    if not number or not 0 < planning < float("inf"):
        raise InvalidProblem(f"planning is {planning!r}; it must be positive seconds")
    wished = torch._TorchCompileInductorWrapper(mode, given, None).config
    if wished.get("triton.cudagraphs"):
        raise InvalidProblem(
            "CUDA graphs cannot hold the copies of a plan; take a mode without them, such as "
            "'default' or 'max-autotune-no-cudagraphs'"
        )
    if _is_split():
        raise InvalidProblem(
            "DistributedDataParallel splits the graph, so that no plan has the whole step; set "
            "torch._dynamo.config.optimize_ddp = False"
        )
    if importlib.util.find_spec("highspy") is None:
        raise Unsupported(
            "the backend oocdnn plans by highspy, which is not there; install it by pip"
        )
    later = any(one is options for one in _compiled)
    partitioner = Partitioner(limit, planning, later)
    patches = {**_INDUCTOR, **wished, "custom_partitioner_fn": partitioner}
    try:
        with aot.patch(enable_autograd_cache=False):  # it would give the graphs of another limit
            compiled: Callable[..., Any] = compile_fx(graph, inputs, config_patches=patches)
    finally:  # what fails is not steered later
        steered = partitioner.taken()
    _compiled.append(options)
    return partial(_call, steered, compiled) if steered else compiled


def _call(steered: Sequence[Steered], compiled: Callable[..., Any], *given: Any) -> Any:
    """Calls a graph, whose points find what its steps are steered by for as long as it is there."""
    del steered
    return compiled(*given)


def _limit(given: int | str | None) -> int:
    if given is not None:
        limit = byte_count("memory_limit", given)
        if limit <= 0:
            raise InvalidProblem(f"memory_limit is {given!r}; it must be positive")
        return min(limit, _MOST)
    share = program_share()
    if share is None:
        raise InvalidProblem('the backend oocdnn needs a limit: options={"memory_limit": "16GiB"}')
    return share


def _is_split() -> bool:
    """True if DistributedDataParallel compiles one graph for each bucket of gradients."""
    if not torch.distributed.is_available():
        return False
    from torch.nn.parallel import DistributedDataParallel

    active = DistributedDataParallel._get_active_ddp_module() is not None
    return active and torch._dynamo.config.optimize_ddp not in (False, "no_optimization")
