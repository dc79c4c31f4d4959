"""Exact convolutions whose tensors do not fit the device.

    y = oocdnn.conv2d(x, w, b, padding=1)

`oocdnn.functions`, `oocdnn.fused` and `oocdnn.gradients` describe the calls, `oocdnn.Context` the
device and its budget, `oocdnn.nn` layers and how to train them, `oocdnn.errors` what can go wrong,
and `oocdnn.workspace` how to divide a workspace.
"""

from oocdnn import nn
from oocdnn._cdefs import VERSION as __version__
from oocdnn._stack import current_context
from oocdnn.chain import Chain, Link, conv_chain
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
from oocdnn.plans import Plan, forget_plans, plan_for_profile

__all__ = [
    "Chain",
    "Context",
    "DeviceError",
    "FileError",
    "InvalidDtype",
    "InvalidProblem",
    "Link",
    "OutOfMemory",
    "Plan",
    "Pool",
    "Saved",
    "Stats",
    "Unsupported",
    "__version__",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_bias_act_pool",
    "conv_bias_act_pool_backward",
    "conv_chain",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "current_context",
    "empty",
    "forget_plans",
    "nn",
    "pin",
    "plan_for_profile",
]
