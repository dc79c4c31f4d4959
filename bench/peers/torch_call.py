"""A problem as torch computes it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from oocdnn.bench.amounts import groups_of
from oocdnn.bench.truth.passes import is_pass, touching
from oocdnn.cli.problems import Problem, window_of

RESULTS = {"fwd": "y", "bwd_data": "dx", "bwd_filter": "dw"}
Tensors = dict[str, Any]


def convolution(problem: Problem) -> Callable[[Any, Any], Any]:
    """torch's own function for the direction: takes the two inputs, tensors in the order of the
    direction, and returns the result. Raises ValueError for what torch does not compute."""
    import torch

    window = window_of(problem)
    if window.before != window.after:
        raise ValueError("torch pads both ends of an axis alike")
    if "mode" in problem.keywords:
        raise ValueError("torch computes cross-correlations only")
    moves = (list(window.stride), list(window.before), list(window.dilation))
    rest = (False, [0] * problem.rank, groups_of(problem))  # not transposed
    if problem.direction == "fwd":
        return lambda x, w: torch.ops.aten.convolution(x, w, None, *moves, *rest)
    data = problem.direction == "bwd_data"

    def backward(first: Any, second: Any) -> Any:
        """Of what is not read torch wants to know the shape."""
        dy, other = (first, second) if data else (second, first)
        empty = torch.empty(1, dtype=dy.dtype, device=dy.device)
        x, w = (empty.expand(problem.x), other) if data else (other, empty.expand(problem.w))
        mask = [data, not data, False]
        gradients = torch.ops.aten.convolution_backward(dy, x, w, None, *moves, *rest, mask)
        return gradients[0 if data else 1]

    return backward


def prepared(problem: Problem, inputs: Mapping[str, Any]) -> Callable[[], Tensors]:
    """torch's call on tensors by name, as a `Task` has them; gives its results. What comes before
    gradients is done here. Raises ValueError for what torch does not compute."""
    if is_pass(problem):
        return _pass(problem, inputs)
    work, (first, second) = convolution(problem), inputs.values()
    return lambda: {RESULTS[problem.direction]: work(first, second)}


def _pass(problem: Problem, inputs: Mapping[str, Any]) -> Callable[[], Tensors]:
    """The convolution, its bias, relu and pool one after the other; gradients by autograd."""
    import torch

    convolve = convolution(replace(problem, direction="fwd"))
    relu = problem.clips or "activation" in problem.keywords
    window = touching(problem) or ()
    pool = getattr(torch.nn.functional, f"max_pool{problem.rank}d")

    def forward(x: Any, w: Any, b: Any) -> Any:
        y = convolve(x, w) if b is None else convolve(x, w) + b.view(-1, *(1,) * problem.rank)
        y = torch.relu(y) if relu else y
        return pool(y, window) if problem.pool else y

    x, w = inputs["x"], inputs["w"]
    if problem.direction == "fwd":
        return lambda: {"y": forward(x, w, inputs.get("b"))}
    needs = {RESULTS[problem.direction], *problem.along}
    sources = {"dx": x, "dw": w, "db": w.new_zeros(problem.w[0])}
    wanted = {name: sources[name].requires_grad_() for name in sources if name in needs}
    z = forward(x, w, sources["db"])

    def backward() -> Tensors:
        gradients = torch.autograd.grad(z, list(wanted.values()), inputs["dz"], retain_graph=True)
        return dict(zip(wanted, gradients, strict=True))

    return backward


def convolve_into(problem: Problem, inputs: Mapping[str, Any], out: Any) -> None:
    """Forward, by cuDNN, which writes to `out` itself."""
    import torch

    window = window_of(problem)
    torch.ops.aten.cudnn_convolution.out(
        inputs["x"], inputs["w"], window.before, window.stride, window.dilation,
        groups_of(problem), False, False, torch.backends.cudnn.allow_tf32, out=out,
    )  # fmt: skip
