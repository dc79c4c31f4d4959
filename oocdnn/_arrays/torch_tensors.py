"""torch tensors as operands: what they are refused for, and their memory on the host as NumPy's.

Nothing here imports torch, which is passed in by whoever has found it.
"""

import sys
from typing import Any

import numpy as np

from oocdnn._arrays.mapped import Array
from oocdnn.errors import InvalidProblem, Unsupported

_TYPESTRS = {name: np.dtype(name).str for name in ("float32", "float64", "float16", "uint16")}


def need_plain(name: str, tensor: Any, torch: Any) -> None:
    """Refuses tensors whose derivatives would be lost, and those that are not plain memory."""
    if tensor.requires_grad and torch.is_grad_enabled() and not _is_wrapped(tensor, torch):
        raise Unsupported(
            f"{name} requires gradients, which are not recorded here; call the function of "
            f"oocdnn.torch, pass {name}.detach(), or call within torch.no_grad()"
        )
    need_no_transform(name, tensor, torch)
    own = type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    if own or tensor.is_nested:
        what = "a nested tensor" if tensor.is_nested else f"of type {type(tensor).__name__}"
        raise Unsupported(
            f"{name} is {what}, whose elements are not in one strided memory; pass the plain "
            "tensors that it is made of"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        remedy = "a tensor with data" if tensor.device.type == "meta" else f"{name}.cpu()"
        raise Unsupported(f"{name} is on {tensor.device}; pass {remedy}")


def _is_wrapped(tensor: Any, torch: Any) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def need_no_transform(name: str, tensor: Any, torch: Any) -> None:
    """Refuses tensors inside transforms of torch.func and those with tangents."""
    if _is_wrapped(tensor, torch):
        raise Unsupported(
            f"{name} is inside a transform of torch.func or vmap, which does not see this call; "
            "call the function of oocdnn.torch"
        )
    dual = torch.autograd.forward_ad
    carried = dual._current_level >= 0 and torch._C._is_fwd_grad_enabled()
    if carried and dual.unpack_dual(tensor).tangent is not None:
        raise Unsupported(
            f"{name} has a forward-mode tangent, which is not carried on here; call the function "
            f"of oocdnn.torch, or pass {name}.detach()"
        )


def need_memory(name: str, tensor: Any) -> None:
    """Refuses a strided tensor whose elements are not in its storage as they are."""
    if tensor.is_neg():
        raise InvalidProblem(
            f"{name} is stored with the other sign (its negative bit is set); pass "
            f"{name}.resolve_neg()"
        )
    count = tensor.numel()
    if count == 0:
        return
    if not tensor.is_contiguous():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((n - 1) * step for n, step in steps)
    reach = (tensor.storage_offset() + count) * tensor.element_size()
    size = tensor.untyped_storage().nbytes()
    if reach > size or tensor.data_ptr() == 0:
        raise InvalidProblem(
            f"{name} reaches to byte {reach} of a storage that has {size}: its memory was freed or "
            "never made; gather or allocate it again before the call (FSDP frees what is sharded)"
        )


class _Memory:
    """The memory of a tensor for NumPy. `Tensor.numpy` would make its storage one that cannot be
    resized, which FSDP does between calls."""

    def __init__(self, tensor: Any, kind: str) -> None:
        self.tensor = tensor
        strides = None
        if not tensor.is_contiguous():
            strides = tuple(tensor.element_size() * step for step in tensor.stride())
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "strides": strides,
            "typestr": kind,
            "data": (tensor.data_ptr(), False),
        }


def host_array(tensor: Any, dtype: str) -> Array:
    """The elements of a tensor in host memory, of type `dtype` to NumPy; it is kept alive."""
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), dtype)
    return np.asarray(_Memory(tensor, _TYPESTRS[dtype]))


def host_copy(tensor: Any) -> Array:
    """A copy of a small tensor, such as a weight of normalisation, which may be a parameter."""
    name = "a tensor of normalisation"
    need_no_transform(name, tensor, sys.modules["torch"])
    need_memory(name, tensor)
    copy: Array = tensor.detach().cpu().clone().numpy()
    return copy


def count_write(tensor: Any, torch: Any) -> None:
    """Has autograd know that the elements of `tensor` change, so that it refuses to compute
    gradients from the new ones where it has saved the old."""
    if not tensor.is_inference():  # those have no version counter, and are never saved
        torch.autograd.graph.increment_version(tensor)
