"""Layers that hold parameters and their gradients, a loss, an optimizer, and files for all of it.

    net = Chain(Conv2d(1, 8, 3, padding=1), ReLU(), Flatten(), Linear(8 * 64, 10))
    loss, optimizer = CrossEntropyLoss(), SGD(net.parameters(), lr=0.1)
    loss(net(x), targets)
    net.backward(loss.backward(), needs_dx=False)
    optimizer.step()
    optimizer.zero_grad()

Arguments, defaults, names and first values are PyTorch's; pools take the arguments of
`oocdnn.Pool`. Convolutions run within the budget of the context that the functions use, the rest in
NumPy where the arrays are NumPy's, in CuPy where they are CuPy's.
"""

from oocdnn.nn import activation
from oocdnn.nn.activation import *  # noqa: F403
from oocdnn.nn.chain import Chain
from oocdnn.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from oocdnn.nn.flatten import Flatten
from oocdnn.nn.fused import ConvBiasActPool
from oocdnn.nn.layer import Layer
from oocdnn.nn.linear import Linear
from oocdnn.nn.loss import CrossEntropyLoss
from oocdnn.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from oocdnn.nn.optimizer import SGD
from oocdnn.nn.parameter import Parameter
from oocdnn.nn.pooling import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from oocdnn.nn.residual import Residual
from oocdnn.nn.state import load, save
from oocdnn.nn.upsample import Upsample

__all__ = [
    "SGD",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Chain",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvBiasActPool",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CrossEntropyLoss",
    "Flatten",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "Layer",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Parameter",
    "Residual",
    "Upsample",
    "load",
    "save",
]
__all__ += activation.__all__
