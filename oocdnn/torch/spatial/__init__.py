"""Tensors that are split along a spatial axis over several GPUs, for convolutional networks.

    mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (4,))
    x = oocdnn.torch.spatial.scatter(volume, axis=2, group=mesh)
    loss = torch.nn.functional.mse_loss(model(x), oocdnn.torch.spatial.scatter(target, 2, mesh))
    loss.backward()

Each process of the group, started by torchrun, has its rows of each tensor and the whole model.
Halo rows come from the neighbours, and norms have the statistics of the whole tensor. Losses are
those of the whole tensor, and gradients of parameters are sums over the processes, on each of them.

- scatter, from_local, from_dtensor: split tensors; gather, to_dtensor: back.
- SpatialTensor: a torch.Tensor, to which functions of torch and modules of torch.nn apply.
- pointwise: functions of one's own whose rows do not depend on each other.
- replicate: the parameters of the first process on all.
"""

# Modules that enter functions of torch in the table of split tensors.
from oocdnn.torch.spatial import (  # noqa: F401
    convolution,
    elementwise,
    losses,
    normalization,
    pooling,
    reductions,
    resizing,
    views,
)
from oocdnn.torch.spatial.operands import pointwise
from oocdnn.torch.spatial.placement import (
    from_dtensor,
    from_local,
    gather,
    replicate,
    scatter,
    to_dtensor,
)
from oocdnn.torch.spatial.tensor import SpatialTensor

__all__ = [
    "SpatialTensor",
    "from_dtensor",
    "from_local",
    "gather",
    "pointwise",
    "replicate",
    "scatter",
    "to_dtensor",
]
