"""Exact convolutions whose tensors do not fit the device.

    y = oocdnn.conv2d(x, w, b, padding=1)

`oocdnn.functions`, `oocdnn.fused` and `oocdnn.gradients` describe the calls, `oocdnn.Context` the
device and its budget, `oocdnn.nn` layers and how to train them, `oocdnn.errors` what can go wrong,
and `oocdnn.workspace` how to divide a workspace.
"""

from oocdnn import nn
from oocdnn._calls.stack import current_context
from oocdnn._core.cdefs import VERSION as __version__
from oocdnn.chain import Chain, Link, conv_chain
from oocdnn.chain_gradients import ChainGradients, conv_chain_backward
from oocdnn.context import Context, Stats
from oocdnn.errors import (
    DeviceError,
    FileError,
    InvalidDtype,
    InvalidProblem,
    OutOfMemory,
    Unsupported,
)
from oocdnn.functions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from oocdnn.fused import Pool, Saved, conv_bias_act_pool, conv_bias_act_pool_backward
from oocdnn.gradients import conv_backward_bias, conv_backward_data, conv_backward_filter
from oocdnn.memory import empty, pin
from oocdnn.normalization import (
    Prologue,
    Sums,
    batch_norm,
    batch_statistics,
    concatenate,
    group_norm,
    instance_norm,
)
from oocdnn.plans import Plan, forget_plans, plan_for_profile
from oocdnn.upsampling import conv_upsample

__all__ = [
    "Chain",
    "ChainGradients",
    "Context",
    "DeviceError",
    "FileError",
    "InvalidDtype",
    "InvalidProblem",
    "Link",
    "OutOfMemory",
    "Plan",
    "Pool",
    "Prologue",
    "Saved",
    "Stats",
    "Sums",
    "Unsupported",
    "__version__",
    "batch_norm",
    "batch_statistics",
    "concatenate",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_bias_act_pool",
    "conv_bias_act_pool_backward",
    "conv_chain",
    "conv_chain_backward",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_upsample",
    "current_context",
    "empty",
    "forget_plans",
    "group_norm",
    "instance_norm",
    "nn",
    "pin",
    "plan_for_profile",
]
