"""The convolutions of torch.nn: the same arguments, parameters and state dicts, computed by oocdnn.

Padding modes other than zeros write a padded copy of the input first, as torch does.
"""

from typing import Any

import torch
from torch import Tensor

from oocdnn.torch import functional

_CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


def convolve(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What torch.nn's Conv1d, Conv2d and Conv3d compute, as their `_conv_forward`."""
    x, padding = input, module.padding
    if module.padding_mode != "zeros":
        rims = module._reversed_padding_repeated_twice
        x, padding = torch.nn.functional.pad(x, rims, mode=module.padding_mode), 0
    moves = module.stride, padding, module.dilation, module.groups
    return _CONVOLVE[weight.ndim - 2](x, weight, bias, *moves)


def transpose(module: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
    """What torch.nn's ConvTranspose1d, -2d and -3d compute, as their `forward`."""
    weight = module.weight
    rank = weight.ndim - 2
    stride, padding, dilation = module.stride, module.padding, module.dilation
    reach = module.kernel_size, rank, dilation
    extra = module._output_padding(input, output_size, stride, padding, *reach)
    moves = stride, padding, extra, module.groups, dilation
    return _TRANSPOSE[rank](input, weight, module.bias, *moves)


class Conv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d."""

    _conv_forward = convolve


class Conv2d(torch.nn.Conv2d):
    """torch.nn.Conv2d."""

    _conv_forward = convolve


class Conv3d(torch.nn.Conv3d):
    """torch.nn.Conv3d."""

    _conv_forward = convolve


class ConvTranspose1d(torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d."""

    forward = transpose


class ConvTranspose2d(torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d."""

    forward = transpose


class ConvTranspose3d(torch.nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d."""

    forward = transpose
