"""Convolutions for PyTorch, with gradients: `import oocdnn.torch`.

    with oocdnn.Context(budget="2GiB"):
        oocdnn.torch.take(model)
        model(x).sum().backward()

- conv1d, ..., conv_transpose3d: those of torch.nn.functional, as operators that torch.compile and
  autograd know, derivatives of any order included.
- Conv1d, ..., ConvTranspose3d: those of torch.nn.
- take, give_back: has the convolutions of a model computed here, and by torch again.
- memory_limit, or within: trains within so many device bytes, with the bits of plain PyTorch.
- spatial (a module of its own): tensors that are split along an axis over several GPUs.
- empty, host_pool: tensors in host memory that a GPU reaches at the speed of the wire.

A call uses the innermost `with oocdnn.Context(...)` of its thread, as everywhere in oocdnn.
"""

from oocdnn.torch.functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.memory import empty, host_pool
from oocdnn.torch.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from oocdnn.torch.taking import give_back, take

within = memory_limit

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "empty",
    "give_back",
    "host_pool",
    "memory_limit",
    "take",
    "within",
]
