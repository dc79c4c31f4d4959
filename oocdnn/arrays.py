"""From the caller's arrays to operands of a call, and back to arrays of the caller's library.

Taken without a copy: NumPy arrays, memory-mapped ones as files, torch tensors, CuPy arrays, and
whatever speaks `__array_interface__`, `__cuda_array_interface__` or DLPack. Element types are
float64, float32, float16 and bfloat16 (`ml_dtypes.bfloat16`, or torch's own).
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from oocdnn._arrays import gpu_arrays, mapped, torch_tensors
from oocdnn._arrays.addresses import address_of
from oocdnn._arrays.mapped import Array, MappedFile
from oocdnn._arrays.overlap import Extent, share_elements
from oocdnn._core.call import Slot, Tensor
from oocdnn._core.cdefs import DType
from oocdnn.errors import InvalidDtype, InvalidProblem, Unsupported

_NUMPY_TYPES = {
    "float32": DType.FLOAT32,
    "float64": DType.FLOAT64,
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
}
_SIZES = {
    DType.FLOAT32: 4,
    DType.FLOAT64: 8,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.BYTE: 1,
}
_SHORT_TYPES = (DType.FLOAT16, DType.BFLOAT16)
_HOST_DEVICES = (1, 3)  # DLPack: kDLCPU, kDLCUDAHost
_CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_TAKEN = (
    "NumPy arrays, CuPy arrays and torch tensors are taken, and what has __array_interface__, "
    "__cuda_array_interface__ or DLPack"
)


def type_name(dtype: DType) -> str:
    """float32, ..., as NumPy spells it."""
    return next(name for name, value in _NUMPY_TYPES.items() if value == dtype)


class View(NamedTuple):
    """One of the caller's arrays: where its elements lie. Strides are in bytes.

    `array` keeps them alive: what NumPy sees of host memory (a torch bfloat16 tensor appears as
    uint16), on a GPU the caller's own object. `library` is None for NumPy, the torch module, or an
    array API namespace. `stream` is the CUDA stream on which an array on a GPU is ready, None for
    host memory.
    """

    name: str
    array: Any
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    writable: bool = True
    library: Any = None
    stream: int | None = None
    tensor: Any = None  # torch's, whose version counter counts writes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return _SIZES[self.dtype]

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    @property
    def channels_last(self) -> bool:
        """Whether the strides put the channels (axis 1) innermost."""
        if self.ndim < 3 or self._row_major():
            return False
        channel, *spatial = self.strides[1:]
        extents = self.shape[2:]
        return all(
            channel < stride for stride, extent in zip(spatial, extents, strict=True) if extent > 1
        )

    @property
    def layout(self) -> "Layout":
        return _layout(self.shape, self.strides, self.itemsize)

    @property
    def extent(self) -> Extent:
        """The memory of the elements; strides are positive."""
        length = self.layout.length
        return Extent(self.address, self.shape, self.strides, self.itemsize, length)

    def _row_major(self) -> bool:
        step = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != step:
                return False
            step *= extent
        return True


class Layout(NamedTuple):
    """How elements lie in memory."""

    stride: tuple[int, ...]  # in elements, 0 where there is no second one
    length: int  # bytes from the first element to behind the last
    bad: int | None  # the first axis along which the core cannot walk


@functools.lru_cache(maxsize=512)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Layout:
    """Of `shape`, `strides` in bytes, and elements of `size` bytes."""
    if 0 in shape:
        return Layout((0,) * len(shape), 0, None)
    steps = tuple(step if n > 1 else 0 for n, step in zip(shape, strides, strict=True))
    length = size + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    bad = (s for s, n in enumerate(shape) if n > 1 and (steps[s] <= 0 or steps[s] % size))
    return Layout(tuple(step // size for step in steps), length, next(bad, None))


def _is_masked(array: Array) -> bool:
    """Asks nothing of NumPy that it would import now: a child that is forked meanwhile would wait
    for that for ever. Who has a masked array has imported it."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(array, masked)


def view(name: str, value: object) -> View:
    """Looks at a caller's array without copying; the errors name it as `name`."""
    if isinstance(value, np.ndarray):
        if _is_masked(value):
            raise InvalidDtype(
                f"{name} is a masked array, and masks are not looked at; {name}.filled()"
            )
        return host_view(name, value, _numpy_type(name, value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(name, value, torch)
    with gpu_arrays.reading(name, "__cuda_array_interface__"):
        seen = (
            gpu_arrays.of_interface(value) if hasattr(value, "__cuda_array_interface__") else None
        )
    if seen is not None:
        return _gpu_view(name, value, seen)
    if hasattr(value, "__dlpack_device__"):
        return _dlpack_view(name, value)
    with gpu_arrays.reading(name, "__array_interface__"):
        array = np.asarray(value) if hasattr(value, "__array_interface__") else None
    if array is not None:
        return host_view(name, array, _numpy_type(name, array))
    raise InvalidDtype(f"{name} is of type {type(value).__name__}; {_TAKEN}")


def host_view(
    name: str, array: Array, dtype: DType, library: Any = None, tensor: Any = None
) -> View:
    return View(
        name,
        array,
        dtype,
        tuple(array.shape),
        tuple(array.strides),
        address_of(array),
        array.flags.writeable,
        library,
        None,
        tensor,
    )


def _gpu_view(name: str, value: Any, seen: gpu_arrays.GpuArray, library: Any = None) -> View:
    dtype = _NUMPY_TYPES.get(seen.dtype)
    if dtype is None:
        raise InvalidDtype(
            f"{name} has elements of type {seen.dtype or 'unknown'}; float64, float32, float16 and "
            "bfloat16 are served"
        )
    return View(
        name,
        (value, seen.keeper),
        dtype,
        seen.shape,
        seen.strides,
        seen.address,
        seen.writable,
        library,
        seen.stream,
    )


def refuse_gpu(operand: View) -> Unsupported:
    """The error for an array on a GPU where the context computes on the CPU."""
    value = operand.array[0]
    name = operand.name
    return Unsupported(
        f"{name} ({type(value).__module__}.{type(value).__name__}) is not in host memory, and this "
        f'context computes on the CPU; use Context("cuda"), or pass a host copy '
        f"(cupy.asnumpy({name}), {name}.cpu())"
    )


@functools.lru_cache(maxsize=64)
def _served(dtype: np.dtype[Any]) -> DType | None:
    """NumPy makes the name anew each time it is asked for one."""
    return _NUMPY_TYPES.get(dtype.name) if dtype.isnative else None


def _numpy_type(name: str, array: Array) -> DType:
    dtype = _served(array.dtype)
    if dtype is not None:
        return dtype
    if array.dtype.name not in _NUMPY_TYPES:
        raise InvalidDtype(
            f"{name} has elements of type {array.dtype}; float64, float32, float16 and "
            f"ml_dtypes.bfloat16 are served, for example {name}.astype(numpy.float32)"
        )
    raise InvalidProblem(
        f"{name} has elements of the other byte order ({array.dtype.str}); convert it with "
        f"{name}.astype({name}.dtype.newbyteorder('='))"
    )


@functools.cache
def _torch_types(torch: Any) -> dict[Any, DType]:
    return {
        torch.float32: DType.FLOAT32,
        torch.float64: DType.FLOAT64,
        torch.float16: DType.FLOAT16,
        torch.bfloat16: DType.BFLOAT16,
    }


def _torch_view(name: str, tensor: Any, torch: Any) -> View:
    torch_tensors.need_plain(name, tensor, torch)
    dtype = _torch_types(torch).get(tensor.dtype)
    if dtype is None or tensor.layout != torch.strided:
        raise InvalidDtype(
            f"{name} has elements of type {tensor.dtype} in layout {tensor.layout}; strided "
            f"float64, float32, float16 and bfloat16 are served, for example {name}.float()"
        )
    torch_tensors.need_memory(name, tensor)
    plain = tensor.detach()  # which has the same version counter
    if tensor.device.type == "cuda":
        seen = _gpu_view(name, plain, gpu_arrays.of_torch(plain), torch)
        return seen._replace(tensor=plain)
    numpys = "uint16" if dtype == DType.BFLOAT16 else type_name(dtype)
    return host_view(name, torch_tensors.host_array(plain, numpys), dtype, torch, plain)


def _dlpack_view(name: str, value: Any) -> View:
    with gpu_arrays.reading(name, "DLPack"):
        kind = value.__dlpack_device__()[0]
    if kind not in (*_HOST_DEVICES, *_CUDA_DEVICES):
        raise Unsupported(f"{name} is on a device of DLPack's kind {kind}; pass a host copy")
    with gpu_arrays.reading(name, "DLPack"):
        seen = gpu_arrays.of_dlpack(value) if kind in _CUDA_DEVICES else None
    if seen is not None:
        return _gpu_view(name, value, seen)
    with gpu_arrays.reading(name, "DLPack"):
        array = np.from_dlpack(value)
    namespace = getattr(value, "__array_namespace__", None)
    library = namespace() if namespace else None
    return host_view(name, array, _numpy_type(name, array), library)


def _need_walkable(operand: View, layout: Layout) -> None:
    """Refuses what the core cannot walk."""
    name, size = operand.name, operand.itemsize
    if layout.bad is not None:
        raise InvalidProblem(
            f"{name} has a stride of {operand.strides[layout.bad]} bytes on axis {layout.bad}; "
            f"strides must be positive multiples of {size} bytes, pass "
            f"numpy.ascontiguousarray({name})"
        )
    if operand.address % size and not operand.empty:
        raise InvalidProblem(
            f"{name} does not begin at a multiple of {size} bytes; pass {name}.copy()"
        )


def unwrap(operand: View) -> Any:
    """The array in its own library, sharing the memory."""
    library: Any = operand.library
    if operand.stream is not None:
        return operand.array[0]
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
        self.views: dict[Slot, View] = {}
        self._files: dict[Slot, MappedFile] = {}
        self._extents: dict[Slot, Extent] = {}
        self.tensors: dict[Slot, Tensor] = {}

    def __enter__(self) -> "Operands":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._files:
            with ExitStack() as opened:
                for file in self._files.values():
                    opened.push(file)

    @property
    def stream(self) -> int | None:
        """The stream on which the first array on a GPU is ready; None where there is none."""
        for operand in self.views.values():
            if operand.stream is not None:
                return operand.stream
        return None

    @property
    def in_memory(self) -> Iterator[tuple[Array, int]]:
        """The arrays in host memory that the call uses there, each with the bytes of its span."""
        for slot, operand in self.views.items():
            if operand.stream is None and slot not in self._files:
                yield operand.array, self._extents[slot].length

    @property
    def usual(self) -> bool:
        """Whether all lies in memory, and none is empty."""
        return not self._files and not any(one.empty for one in self.views.values())

    def has(self, names: Iterable[str]) -> bool:
        """Whether the arrays of all these names are operands."""
        return {one.name for one in self.views.values()}.issuperset(names)

    def need_host(self) -> None:
        """Refuses arrays on a GPU."""
        for operand in self.views.values():
            if operand.stream is not None:
                raise refuse_gpu(operand)

    def read(self, slot: Slot, operand: View) -> None:
        """Adds an input; its type must be the leader's."""
        self._check_type(slot, operand)
        self._add(slot, operand, writing=False)

    def write(self, slot: Slot, operand: View, shape: tuple[int, ...]) -> None:
        """Adds an output, after all inputs: it must have `shape` and share nothing with them."""
        self._check_type(slot, operand)
        if operand.shape != shape:
            raise InvalidProblem(
                f"{operand.name} has shape {operand.shape}; the result has shape {shape}"
            )
        if not operand.writable:
            raise InvalidProblem(f"{operand.name} is read-only; pass a writable array")
        self._add(slot, operand, writing=True)
        for other, taken in self.views.items():
            if other != slot and self._overlap(slot, other) and not self._in_place(slot, other):
                raise InvalidProblem(
                    f"{operand.name} overlaps {taken.name}, and a convolution cannot run in "
                    f"place; pass another {operand.name}"
                )
        if operand.tensor is not None:
            torch_tensors.count_write(operand.tensor, operand.library)

    def _check_type(self, slot: Slot, operand: View) -> None:
        leader = self._leader
        sums = DType.FLOAT32 if leader.dtype in _SHORT_TYPES else leader.dtype
        own = {"saved": DType.BYTE, "prologue": sums, "sums": DType.FLOAT64}
        if operand.dtype == own.get(slot, leader.dtype):
            return
        if slot in ("bias", "scale", "db") and operand.dtype == sums:
            return
        if slot == "prologue":
            raise InvalidDtype(
                f"{operand.name} has elements of type {type_name(operand.dtype)}; beside "
                f"{leader.name} of {type_name(leader.dtype)} it takes {type_name(sums)}"
            )
        wanted = type_name(leader.dtype)
        raise InvalidDtype(
            f"{operand.name} has elements of type {type_name(operand.dtype)}, {leader.name} of "
            f"{wanted}; all arrays of a call are of one type, for example "
            f"{operand.name}.astype({leader.name}.dtype)"
        )

    def _add(self, slot: Slot, operand: View, writing: bool) -> None:
        layout = operand.layout
        _need_walkable(operand, layout)
        self.views[slot] = operand
        self._extents[slot] = operand.extent
        file = mapped.find(operand.array, writing) if operand.stream is None else None
        if file is None:
            self.tensors[slot] = Tensor(
                operand.dtype, operand.shape, layout.stride, operand.address
            )
            return
        self._files[slot] = file
        self.tensors[slot] = Tensor(
            operand.dtype, operand.shape, layout.stride, fd=file.fd, offset=file.offset
        )

    def _overlap(self, a: Slot, b: Slot) -> bool:
        if share_elements(self._extents[a], self._extents[b]):
            return True
        first, second = self._files.get(a), self._files.get(b)
        if first is None or second is None:
            return False
        if (first.device, first.inode) != (second.device, second.inode):
            return False
        return share_elements(
            self._extents[a]._replace(begin=first.offset),
            self._extents[b]._replace(begin=second.offset),
        )

    def _in_place(self, output: Slot, other: Slot) -> bool:
        """A residual that is the output itself: each element is read before it is written."""
        a, b = self.tensors[output], self.tensors[other]
        return other == "residual" and (
            (a.address, a.offset, a.stride, a.fd < 0) == (b.address, b.offset, b.stride, b.fd < 0)
        )
