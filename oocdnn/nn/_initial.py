"""First values of parameters, distributed as PyTorch's are by default."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oocdnn.nn.parameter import Parameter

Seed = int | np.random.Generator | None


def uniform_pair(
    shape: tuple[int, ...], channels: int, bias: bool, dtype: npt.DTypeLike, seed: Seed
) -> tuple[Parameter, Parameter | None]:
    """A filter and a bias, uniform within 1 / sqrt(products that make an element of y).

    As PyTorch does it, these are counted on all axes of the filter but the first, also where the
    convolution is transposed.
    """
    rng = np.random.default_rng(seed)
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))

    def draw(sizes: tuple[int, ...]) -> Any:
        return rng.uniform(-bound, bound, sizes).astype(dtype)

    weight = Parameter(draw(shape))
    return weight, Parameter(draw((channels,))) if bias else None
