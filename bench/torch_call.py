"""A problem as torch computes it."""

from collections.abc import Callable
from typing import Any

from oocdnn._problem import Problem, window_of
from oocdnn.bench.amounts import groups_of


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
