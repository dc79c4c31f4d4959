"""How much a problem computes, and how much data it has."""

import math

import numpy as np

from oocdnn._problem import Problem


def groups_of(problem: Problem) -> int:
    return int(problem.keywords.get("groups", 1))


def flops(problem: Problem) -> int:
    """Floating-point operations of a call in any direction; padding counts as data."""
    return 2 * math.prod(problem.y) * math.prod(problem.w[1:])


def operand_bytes(problem: Problem) -> int:
    """Of x, w and y together."""
    elements = sum(math.prod(shape) for shape in (problem.x, problem.w, problem.y))
    return elements * np.dtype(problem.dtype).itemsize


def longest_sum(problem: Problem) -> int:
    """Products that go into one element of the result, at most."""
    taps = math.prod(problem.w[2:])
    lengths = {
        "fwd": problem.w[1] * taps,
        "bwd_data": problem.w[0] // groups_of(problem) * taps,
        "bwd_filter": problem.y[0] * math.prod(problem.y[2:]),
    }
    return lengths[problem.direction]
