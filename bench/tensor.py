"""Arrays as tensors, for modules that have to work without torch."""

from typing import Any

import ml_dtypes
import numpy as np

from oocdnn._arrays.mapped import Array


def tensor(torch: Any, array: Array) -> Any:
    """The array's memory as a tensor."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
