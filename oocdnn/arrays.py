"""From the caller's arrays to operands of a call, and back to arrays of the caller's library.

Taken without a copy: NumPy arrays, memory-mapped ones as files, torch tensors on the CPU, and
whatever speaks `__array_interface__` or DLPack for CPU memory. Element types are float64, float32,
float16 and bfloat16 (`ml_dtypes.bfloat16`, or torch's own).
"""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from oocdnn import _mapped
from oocdnn._call import Slot, Tensor
from oocdnn._cdefs import DType
from oocdnn._mapped import Array, MappedFile
from oocdnn.errors import InvalidDtype, InvalidProblem, Unsupported

_NUMPY_TYPES = {
    "float32": DType.FLOAT32,
    "float64": DType.FLOAT64,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
}
_SHORT_TYPES = (DType.FLOAT16, DType.BFLOAT16)
_HOST_DEVICES = (1, 3)  # DLPack: kDLCPU, kDLCUDAHost
_TAKEN = "NumPy arrays, torch CPU tensors, and arrays with __array_interface__ or DLPack are taken"


def type_name(dtype: DType) -> str:
    """float32, ..., as NumPy spells it."""
    return next(name for name, value in _NUMPY_TYPES.items() if value == dtype)


@dataclass(frozen=True)
class View:
    """One of the caller's arrays as NumPy sees it, sharing its memory.

    A torch bfloat16 tensor appears as uint16, so `dtype` says what the elements are. `library` is
    None for NumPy, the torch module, or an array API namespace.
    """

    name: str
    array: Array
    dtype: DType
    library: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def channels_last(self) -> bool:
        """Whether the strides put the channels (axis 1) innermost."""
        if self.array.ndim < 3 or self.array.flags.c_contiguous:
            return False
        channel, *spatial = self.array.strides[1:]
        extents = self.array.shape[2:]
        return all(
            channel < stride for stride, extent in zip(spatial, extents, strict=True) if extent > 1
        )


def view(name: str, value: object) -> View:
    """Looks at a caller's array without copying; the errors name it as `name`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(name, value, torch)
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidDtype(
            f"{name} is a masked array, and masks are not looked at; {name}.filled()"
        )
    if isinstance(value, np.ndarray):
        return View(name, value, _numpy_type(name, value))
    if hasattr(value, "__cuda_array_interface__"):
        raise _refused_device(name, value)
    if hasattr(value, "__dlpack_device__"):
        return _dlpack_view(name, value)
    if hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return View(name, array, _numpy_type(name, array))
    raise InvalidDtype(f"{name} is of type {type(value).__name__}; {_TAKEN}")


def _refused_device(name: str, value: object) -> Unsupported:
    return Unsupported(
        f"{name} ({type(value).__module__}.{type(value).__name__}) is not in host memory, and this "
        f"version computes on arrays in host memory and files only; pass a host copy "
        f"(cupy.asnumpy({name}), {name}.cpu())"
    )


def _numpy_type(name: str, array: Array) -> DType:
    dtype = _NUMPY_TYPES.get(array.dtype.name)
    if dtype is None:
        raise InvalidDtype(
            f"{name} has elements of type {array.dtype}; float64, float32, float16 and "
            f"ml_dtypes.bfloat16 are served, for example {name}.astype(numpy.float32)"
        )
    if not array.dtype.isnative:
        raise InvalidProblem(
            f"{name} has elements of the other byte order ({array.dtype.str}); convert it with "
            f"{name}.astype({name}.dtype.newbyteorder('='))"
        )
    return dtype


def _torch_view(name: str, tensor: Any, torch: Any) -> View:
    if tensor.device.type != "cpu":
        raise _refused_device(name, tensor)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            f"{name} requires gradients, which are not recorded here; pass {name}.detach(), or "
            "call within torch.no_grad()"
        )
    types = {
        torch.float32: DType.FLOAT32,
        torch.float64: DType.FLOAT64,
        torch.float16: DType.FLOAT16,
        torch.bfloat16: DType.BFLOAT16,
    }
    if tensor.dtype not in types or tensor.layout != torch.strided:
        raise InvalidDtype(
            f"{name} has elements of type {tensor.dtype} in layout {tensor.layout}; strided "
            f"float64, float32, float16 and bfloat16 are served, for example {name}.float()"
        )
    plain = tensor.detach()
    dtype = types[tensor.dtype]
    if dtype == DType.BFLOAT16:
        return View(name, plain.view(torch.int16).numpy().view(np.uint16), dtype, torch)
    return View(name, plain.numpy(), dtype, torch)


def _dlpack_view(name: str, value: Any) -> View:
    if value.__dlpack_device__()[0] not in _HOST_DEVICES:
        raise _refused_device(name, value)
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidDtype(f"{name} cannot be read through DLPack: {error}") from error
    namespace = getattr(value, "__array_namespace__", None)
    return View(name, array, _numpy_type(name, array), namespace() if namespace else None)


def _check_layout(operand: View) -> tuple[int, ...]:
    """The element strides of an array, if the core can walk them."""
    array, name = operand.array, operand.name
    size = array.itemsize
    if array.size == 0:
        return (0,) * array.ndim
    for axis, (extent, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        if extent > 1 and (stride <= 0 or stride % size):
            raise InvalidProblem(
                f"{name} has a stride of {stride} bytes on axis {axis}; strides must be positive "
                f"multiples of {size} bytes, pass numpy.ascontiguousarray({name})"
            )
    if not array.flags.aligned:
        raise InvalidProblem(
            f"{name} does not begin at a multiple of {size} bytes; pass {name}.copy()"
        )
    strides = zip(array.shape, array.strides, strict=True)
    return tuple(stride // size if extent > 1 else 0 for extent, stride in strides)


def allocate(like: View, shape: tuple[int, ...], keep_order: bool = True) -> View:
    """A new array of the type and library of `like`, in its memory order where asked.

    The elements are not set. The order is channels-last where that of `like` is, else row-major.
    """
    dtype = like.array.dtype
    if keep_order and like.channels_last and len(shape) > 2:
        array: Array = np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)
    else:
        array = np.empty(shape, dtype)
    return View("out", array, like.dtype, like.library)


def unwrap(operand: View) -> Any:
    """The array in its own library, sharing the memory."""
    library: Any = operand.library
    if library is None:
        return operand.array
    if library.__name__ == "torch":
        if operand.dtype == DType.BFLOAT16:
            return library.from_numpy(operand.array.view(np.int16)).view(library.bfloat16)
        return library.from_numpy(operand.array)
    return library.from_dlpack(operand.array)


class Operands:
    """The tensors of one call, with the files that they lie in. A context manager: closes them."""

    def __init__(self, leader: View) -> None:
        self._leader = leader
        self._views: dict[Slot, View] = {}
        self._files: dict[Slot, MappedFile] = {}
        self._opened = ExitStack()
        self.tensors: dict[Slot, Tensor] = {}

    def __enter__(self) -> "Operands":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def read(self, slot: Slot, operand: View) -> None:
        """Adds an input; its type must be the leader's."""
        self._check_type(slot, operand)
        self._add(slot, operand, writing=False)

    def write(self, slot: Slot, operand: View, shape: tuple[int, ...]) -> None:
        """Adds the output, after all inputs: it must have `shape` and share nothing with them."""
        self._check_type(slot, operand)
        if operand.shape != shape:
            raise InvalidProblem(
                f"{operand.name} has shape {operand.shape}; the result has shape {shape}"
            )
        if not operand.array.flags.writeable:
            raise InvalidProblem(f"{operand.name} is read-only; pass a writable array")
        self._add(slot, operand, writing=True)
        for other, taken in self._views.items():
            if other != slot and self._overlap(slot, other) and not self._in_place(slot, other):
                raise InvalidProblem(
                    f"{operand.name} overlaps {taken.name}, and a convolution cannot run in "
                    f"place; pass another {operand.name}"
                )

    def _check_type(self, slot: Slot, operand: View) -> None:
        leader = self._leader
        sums = DType.FLOAT32 if leader.dtype in _SHORT_TYPES else leader.dtype
        if slot in ("bias", "scale") and operand.dtype == sums:
            return
        if operand.dtype != leader.dtype:
            wanted = type_name(leader.dtype)
            raise InvalidDtype(
                f"{operand.name} has elements of type {type_name(operand.dtype)}, {leader.name} of "
                f"{wanted}; all arrays of a call are of one type, for example "
                f"{operand.name}.astype({leader.name}.dtype)"
            )

    def _add(self, slot: Slot, operand: View, writing: bool) -> None:
        stride = _check_layout(operand)
        self._views[slot] = operand
        file = _mapped.find(operand.array, writing)
        if file is None:
            address = operand.array.__array_interface__["data"][0]
            self.tensors[slot] = Tensor(operand.dtype, operand.shape, stride, address)
            return
        self._files[slot] = self._opened.enter_context(file)
        self.tensors[slot] = Tensor(
            operand.dtype, operand.shape, stride, fd=file.fd, offset=file.offset
        )

    def _overlap(self, a: Slot, b: Slot) -> bool:
        if np.may_share_memory(self._views[a].array, self._views[b].array):
            return True
        first, second = self._files.get(a), self._files.get(b)
        if first is None or second is None:
            return False
        if (first.device, first.inode) != (second.device, second.inode):
            return False
        return first.offset < second.offset + _extent(
            self._views[b].array
        ) and second.offset < first.offset + _extent(self._views[a].array)

    def _in_place(self, output: Slot, other: Slot) -> bool:
        """A residual that is the output itself: each element is read before it is written."""
        a, b = self.tensors[output], self.tensors[other]
        return other == "residual" and (
            (a.address, a.offset, a.stride, a.fd < 0) == (b.address, b.offset, b.stride, b.fd < 0)
        )


def _extent(array: Array) -> int:
    """Bytes from the first to behind the last element; strides are positive here."""
    if array.size == 0:
        return 0
    steps = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize + sum((n - 1) * stride for n, stride in steps if n > 1))
