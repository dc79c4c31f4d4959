"""From whole tensors, parts and DTensors to split tensors, and back."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from oocdnn.torch.spatial.exchange import own_rows, redistribute, replicated
from oocdnn.torch.spatial.layout import Layout, even, lengths_of
from oocdnn.torch.spatial.tensor import SpatialTensor, local, share, wrap


def _group(group: Any) -> Any:
    """A process group from one, from a mesh of one dimension, or from None."""
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ValueError(
                f"a mesh of {group.ndim} dimensions: pass one of them, as in "
                f'mesh["{(group.mesh_dim_names or ("name",))[-1]}"]'
            )
        return group.get_group()
    if group is not None:
        return group
    if not dist.is_initialized():
        raise RuntimeError(
            "there is no process group: call torch.distributed.init_process_group first, and start "
            "the program by torchrun"
        )
    return dist.group.WORLD


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"there is no axis {axis} in a tensor of {ndim} dimensions")
    return axis if axis < 0 else axis - ndim


def scatter(
    tensor: Tensor, axis: int, group: Any = None, lengths: Sequence[int] | None = None
) -> SpatialTensor:
    """Splits a tensor, which each process of the group has whole, along `axis`.

    `group` is a process group, or a device mesh of one dimension; None: all processes. `lengths`
    are the rows of each process; None: equal shares, the first ones a row longer. The split tensor
    is a copy of this process's rows, so that the whole one can be freed. Raises ValueError where
    lengths do not add up.
    """
    group = _group(group)
    axis = _axis(axis, tensor.ndim)
    size = dist.get_world_size(group)
    lengths = even(tensor.shape[axis], size) if lengths is None else tuple(lengths)
    layout = Layout(group, axis, tuple(lengths))
    if len(lengths) != size or min(lengths) < 0 or layout.total != tensor.shape[axis]:
        raise ValueError(
            f"lengths {lengths} do not split {tensor.shape[axis]} rows over {size} processes"
        )
    (value,) = replicated(group, tensor)
    assert value is not None
    return wrap(own_rows(value, layout).clone(memory_format=torch.preserve_format), layout)


def from_local(rows: Tensor, axis: int, group: Any = None) -> SpatialTensor:
    """A split tensor of which each process has `rows`, over the same memory.

    The sizes may differ along `axis` only; else ValueError is raised on each process.
    """
    group = _group(group)
    axis = _axis(axis, rows.ndim)
    own = (tuple(rows.shape), str(rows.dtype), rows.requires_grad)
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, own, group=group)
    shapes = [shape for shape, *_ in every]
    others = {(*shape[: axis or None], *shape[axis:][1:]) for shape in shapes}
    if len(others) > 1 or len({tuple(other) for _, *other in every}) > 1:
        raise ValueError(
            f"parts of a tensor that is split along axis {axis} differ in more than rows: {every}"
        )
    return share(rows, Layout(group, axis, tuple(shape[axis] for shape in shapes)))


def gather(tensor: SpatialTensor) -> Tensor:
    """The whole tensor, on each process: `tensor.full_tensor()`."""
    return tensor.full_tensor()


def from_dtensor(tensor: Any) -> SpatialTensor:
    """A split tensor over the memory of a torch.distributed.tensor.DTensor with one placement,
    Shard, on a mesh of one dimension. Raises ValueError for others."""
    placements = tensor.placements
    if len(placements) != 1 or not placements[0].is_shard():
        raise ValueError(f"a DTensor with the placements {placements}: pass one with one Shard")
    return from_local(tensor.to_local(), placements[0].dim, tensor.device_mesh)


def to_dtensor(tensor: SpatialTensor, mesh: Any) -> Any:
    """A DTensor with the placement Shard on `mesh`, of one dimension and of the processes of the
    tensor's group. Rows move where the shares of DTensor, as those of torch.chunk, are others."""
    from torch.distributed.tensor import DTensor, Shard

    layout = tensor.spatial_layout
    shape = layout.whole(local(tensor).shape)
    count = len(layout.lengths)
    share = -(-layout.total // count)
    ends = [min(share * number, layout.total) for number in range(count + 1)]
    rows = redistribute(local(tensor), layout, lengths_of(ends)).contiguous()
    stride = torch.empty(shape, device="meta").stride()
    placements = [Shard(layout.dim(len(shape)))]
    return DTensor.from_local(rows, mesh, placements, shape=shape, stride=stride)


def replicate(module: torch.nn.Module, group: Any = None) -> torch.nn.Module:
    """Gives all processes the parameters and buffers of the first one of the group; returns the
    module. Needed where processes do not initialize them alike."""
    group = _group(group)
    first = dist.get_global_rank(group, 0)
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            dist.broadcast(value, first, group=group)
    return module
