"""Arrays in a GPU's memory: where their elements lie, on which stream they are ready, new ones.

CuPy and torch are asked in their own words, everything else through `__cuda_array_interface__` or
DLPack. Nothing here imports a library that the caller has not.
"""

import ctypes
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oocdnn.errors import InvalidDtype, Unsupported

_LEGACY_STREAM = 1  # of __cuda_array_interface__ and DLPack
_DLPACK_KINDS = {2: "float", 4: "bfloat"}


@dataclass(frozen=True)
class GpuArray:
    """What a call needs to know. Strides in bytes; `keeper` holds what must live as long."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    writable: bool
    stream: int
    keeper: Any


@contextmanager
def reading(name: str, protocol: str) -> Iterator[None]:
    """While an object of another library says where its elements lie, which may raise anything."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, InvalidDtype) else f"{type(error).__name__}: "
        raise InvalidDtype(f"{name} cannot be read through {protocol}: {kind}{error}") from error


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_cupy(value: object) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def is_of_cupy(kind: type) -> bool:
    """Whether `kind` is CuPy's class of arrays itself."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and kind is cupy.ndarray


def cupy_stream() -> int:
    """The stream on which CuPy's arrays are ready."""
    stream: int = sys.modules["cupy"].cuda.get_current_stream().ptr
    return stream


def _dense(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def of_torch(tensor: Any) -> GpuArray:
    """A torch tensor on a CUDA device, ready on torch's current stream of that device."""
    torch = sys.modules["torch"]
    size = tensor.element_size()
    return GpuArray(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(size * stride for stride in tensor.stride()),
        address=tensor.data_ptr(),
        writable=True,
        stream=torch.cuda.current_stream(tensor.device).cuda_stream,
        keeper=tensor,
    )


def _within(name: str, value: Any, least: int, most: int) -> int:
    number = operator.index(value)
    if not least <= number <= most:
        raise InvalidDtype(f"{number} in {name} is not from {least} to {most}")
    return number


def of_interface(value: Any) -> GpuArray:
    """CuPy's arrays, on its current stream, and all others with `__cuda_array_interface__`. What a
    wrong interface raises may be anything."""
    interface = value.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidDtype("masked arrays on a GPU are not served")
    if not isinstance(interface["typestr"], str):
        raise InvalidDtype(f"typestr is {interface['typestr']!r}, not a string")
    dtype = np.dtype(interface["typestr"])
    # Types that NumPy does not have travel as anonymous bytes, and the array itself knows more.
    name = dtype.name if dtype.kind != "V" else getattr(getattr(value, "dtype", None), "name", "")
    if not dtype.isnative:
        name = f"{name} of the other byte order"
    shape = tuple(_within("shape", extent, 0, 1 << 60) for extent in interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = _dense(shape, dtype.itemsize)
    steps = tuple(_within("strides", step, -(1 << 60), 1 << 60) for step in strides)
    if len(steps) != len(shape):
        raise InvalidDtype(f"the shape has {len(shape)} axes, and strides {len(steps)}")
    address, read_only = interface["data"]
    stream = cupy_stream() if is_cupy(value) else interface.get("stream")
    return GpuArray(
        dtype=name,
        shape=shape,
        strides=steps,
        address=_within("data", address or 0, 0, (1 << 64) - 1),
        writable=not read_only,
        stream=_within("stream", _LEGACY_STREAM if stream is None else stream, 0, (1 << 64) - 1),
        keeper=value,
    )


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def of_dlpack(value: Any) -> GpuArray:
    """Made ready on the legacy default stream by whoever owns it. The capsule, which is left as it
    is, keeps it alive."""
    capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    size, shape = tensor.bits // 8, tuple(tensor.shape[: tensor.ndim])
    strides = (
        tuple(size * stride for stride in tensor.strides[: tensor.ndim]) if tensor.strides else ()
    )
    return GpuArray(
        dtype=f"{_DLPACK_KINDS.get(tensor.kind, 'code')}{tensor.bits}",
        shape=shape,
        strides=strides or _dense(shape, size),
        address=(tensor.data or 0) + tensor.byte_offset,
        writable=True,
        stream=_LEGACY_STREAM,
        keeper=(value, capsule),
    )


def allocate(like: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    """A new array of the library, type and GPU of `like`; axes lie in memory in `order`."""
    empty, permute = _makers(like)
    wide = tuple(shape[axis] for axis in order)
    back = tuple(order.index(axis) for axis in range(len(shape)))
    return permute(empty(wide), back)


def allocate_of(like: Any, shape: tuple[int, ...], dtype: Literal["uint8", "float64"]) -> Any:
    """A new row-major array of the library and GPU of `like`, of a type of its own."""
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if is_cupy(like):
        with like.device:
            return sys.modules["cupy"].empty(shape, np.dtype(dtype))
    raise _no_makers(like)


def _no_makers(like: Any) -> Unsupported:
    return Unsupported(
        f"results cannot be made in the library of {type(like).__module__}.{type(like).__name__}; "
        "pass out="
    )


def _makers(like: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if is_torch(like):
        torch = sys.modules["torch"]
        return (
            lambda shape: torch.empty(shape, dtype=like.dtype, device=like.device),
            lambda array, axes: array.permute(axes),
        )
    if is_cupy(like):
        cupy = sys.modules["cupy"]

        def empty(shape: tuple[int, ...]) -> Any:
            with like.device:
                return cupy.empty(shape, like.dtype)

        return empty, cupy.transpose
    raise _no_makers(like)
