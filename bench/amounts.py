"""How much a problem computes, and how much data it has."""

import math

import numpy as np

from oocdnn.cli.problems import Problem, pooled


def groups_of(problem: Problem) -> int:
    return int(problem.keywords.get("groups", 1))


def flops(problem: Problem) -> int:
    """Floating-point operations of a call in any direction; padding counts as data."""
    return 2 * math.prod(problem.y) * math.prod(problem.w[1:])


def operand_bytes(problem: Problem) -> int:
    """Of x, w and y together, of z where y is only on the way; where gradients come along with dx,
    of all that cross. Bits that are saved are left out."""
    shapes = [problem.x, problem.w, pooled(problem)]
    if "dw" in problem.along:
        shapes += [problem.x, problem.w]
    return sum(map(math.prod, shapes)) * np.dtype(problem.dtype).itemsize


def longest_sum(problem: Problem) -> int:
    """Products that go into one element of a result, at most."""
    taps = math.prod(problem.w[2:])
    lengths = {
        "fwd": problem.w[1] * taps,
        "bwd_data": problem.w[0] // groups_of(problem) * taps,
        "bwd_filter": problem.y[0] * math.prod(pooled(problem)[2:]),  # one of a window has a dy
    }
    longest = lengths[problem.direction]
    return max(longest, lengths["bwd_filter"]) if problem.along else longest
