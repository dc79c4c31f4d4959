"""First values of parameters, distributed as PyTorch's are by default."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oocdnn._arguments import dtype_of, flag
from oocdnn._arrays.allocation import allocating
from oocdnn._calls.windows import integer
from oocdnn.nn.parameter import Parameter

Seed = int | np.random.Generator | None


_SOURCES = (np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)
_LARGEST = 1 << 128


def _seed_of(seed: Any) -> Any:
    """What NumPy takes. Of anything else it looks for integers within, and a list that holds itself
    ends the process."""
    if seed is None or isinstance(seed, _SOURCES):
        return seed
    if isinstance(seed, (tuple, list)):
        return [integer("seed", one, 0, _LARGEST) for one in seed]
    return integer("seed", seed, 0, _LARGEST)


def uniform_pair(
    shape: tuple[int, ...], channels: int, bias: bool, dtype: npt.DTypeLike, seed: Seed
) -> tuple[Parameter, Parameter | None]:
    """A filter and a bias, uniform within 1 / sqrt(products that make an element of y).

    As PyTorch does it, these are counted on all axes of the filter but the first, also where the
    convolution is transposed.
    """
    kind = dtype_of("dtype", dtype)
    rng = np.random.default_rng(_seed_of(seed))
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))

    def draw(sizes: tuple[int, ...]) -> Any:
        with allocating(sizes, 8, "take fewer channels or a smaller filter"):
            return rng.uniform(-bound, bound, sizes).astype(kind)

    weight = Parameter(draw(shape))
    return weight, Parameter(draw((channels,))) if flag("bias", bias) else None
