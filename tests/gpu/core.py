"""ctypes over device_functions.cpp: a device, its one stream, arrays in its reach."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import Structure, byref, c_char_p, c_double, c_int, c_int64, c_void_p
from typing import Any

import numpy as np

F32, F64, F16, BF16 = range(4)
SIZES = (4, 8, 2, 2)
NAMES = ("f32", "f64", "f16", "bf16")
STORED: tuple[Any, ...] = (np.float32, np.float64, np.float16, np.uint16)  # bf16 as its bits
X, W, Y, BIAS = range(4)
FORWARD, BACKWARD_DATA, BACKWARD_FILTER, BACKWARD_BIAS = range(4)
METHODS = ("nothing", "engine", "rows", "transpose")
UNSUPPORTED = 4  # of the codes
Index = tuple[int, ...]
_TEXT = 4096
_six = c_int64 * 6
_three = c_int64 * 3


class View(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int64), ("stride", _six)]


class Layout(Structure):
    _fields_ = [("dtype", c_int64), ("shape", _six), ("stride", _six), ("bytes", c_int64)]


class Transfer(Structure):
    _fields_ = [
        ("view", View),
        ("layout", Layout),
        ("operand", c_int64),
        ("origin", _six),
        ("extent", _six),
        ("valid_begin", _six),
        ("valid_end", _six),
        ("tile_begin", _six),
        ("tile_end", _six),
        ("tile", c_void_p),
        ("bounce", c_void_p),
        ("bounce_bytes", c_int64),
    ]


class Op(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("direction", "n", "g", "k", "c")),
        *((name, _three) for name in ("inp", "filter", "out", "pad", "stride", "dilation")),
        *((name, c_int64) for name in ("dtype", "out_dtype", "accumulates", "math")),
        ("workspace_limit", c_int64),  # plus 1; 0: none
        ("first_choice", c_int64),
        ("may_compile", c_int64),
    ]


class Finish(Structure):
    _fields_ = [
        ("out", c_void_p),
        ("layout", Layout),
        *((name, c_void_p) for name in ("old", "residual", "bias", "scale")),
        *((name, c_double) for name in ("alpha", "beta", "residual_alpha", "parameter")),
        *((name, c_int64) for name in ("operand", "activation")),
    ]


class CoreError(RuntimeError):
    """A function answered with a status; `code` is its number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, rounded to nearest even; through float32, which test values fit."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def store(values: np.ndarray, dtype: int) -> np.ndarray:
    """Float64 values as the elements of `dtype` that hold them."""
    return to_bf16(values) if dtype == BF16 else values.astype(STORED[dtype])


def load(stored: np.ndarray, dtype: int) -> np.ndarray:
    if dtype == BF16:
        wide = stored.astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def dense(shape: Sequence[int], order: Sequence[int] = (0, 1, 2, 3, 4, 5)) -> list[int]:
    """Strides without gaps; `order` names the dimensions, the fastest last."""
    strides, step = [0] * 6, 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return strides


NHWC = (0, 3, 4, 5, 1, 2)


def layout(dtype: int, shape: Sequence[int], order: Sequence[int] = (0, 1, 2, 3, 4, 5)) -> Layout:
    elements = int(np.prod(shape, dtype=np.int64))
    return Layout(dtype, _six(*shape), _six(*dense(shape, order)), elements * SIZES[dtype])


class Rig:
    """A device, its stream and its memory, which all go with close()."""

    def __init__(self, library: str, device: str) -> None:
        self.lib = ctypes.CDLL(library)
        self.lib.oocdnn_gpu_free_bytes.restype = c_int64
        self.lib.oocdnn_gpu_workspace.restype = c_int64
        self.lib.oocdnn_gpu_busy_seconds.restype = c_double
        self.text = ctypes.create_string_buffer(_TEXT)
        self.handle = c_void_p()
        self.blocks: list[tuple[int, c_void_p, int]] = []
        self.executables: list[c_void_p] = []
        self.taken = ""  # the engine and more, of the last that was prepared
        self._try("open", c_char_p(device.encode()), byref(self.handle))
        self.description = self.text.value.decode()
        self.engines = self.description.split("; engines ")[1].split()

    def _try(self, name: str, *args: Any) -> None:
        code = getattr(self.lib, "oocdnn_gpu_" + name)(*args, self.text, c_int64(_TEXT))
        if code != 0:
            raise CoreError(code, self.text.value.decode())

    def close(self) -> None:
        for executable in self.executables:
            self.lib.oocdnn_gpu_destroy(executable)
        self.release(0)
        self.lib.oocdnn_gpu_close(self.handle)

    def release(self, keep: int) -> None:
        """Frees all memory but the `keep` oldest blocks."""
        for host, memory, size in reversed(self.blocks[keep:]):
            self.lib.oocdnn_gpu_free(self.handle, c_int(host), memory, c_int64(size))
        del self.blocks[keep:]

    def memory(self, size: int, *, host: bool) -> int:
        address = c_void_p()
        self._try("allocate", self.handle, c_int(host), c_int64(size), byref(address))
        self.blocks.append((int(host), address, size))
        return int(address.value or 0)

    def array(self, elements: int, dtype: int) -> np.ndarray:
        """Pinned host memory as a flat array of stored elements."""
        size = max(elements, 1) * SIZES[dtype]
        raw = (ctypes.c_char * size).from_address(self.memory(size, host=True))
        return np.frombuffer(raw, dtype=STORED[dtype], count=elements)

    def copy(self, verb: str, transfer: Transfer) -> None:
        self._try("copy", self.handle, c_int(verb == "drain"), byref(transfer))

    def method(self, verb: str, transfer: Transfer, *, host: bool = True) -> str:
        numbers = (c_int64 * 2)()
        which = self.lib.oocdnn_gpu_method(
            byref(transfer), c_int(verb == "drain"), c_int(host), numbers
        )
        return f"{METHODS[which]} calls={numbers[0]} vector={numbers[1]}"

    def move(
        self, lay: Layout, source: int, target: int, begin: Index, to: Index, extent: Index
    ) -> None:
        boxes = (_six(*begin), _six(*to), _six(*extent))
        self._try("move", self.handle, byref(lay), c_void_p(source), c_void_p(target), *boxes)

    def fill(self, buffer: int, size: int, byte: int) -> None:
        self._try("fill", self.handle, c_void_p(buffer), c_int64(size), c_int(byte))

    def finish(self, args: Finish) -> None:
        self._try("finish", self.handle, byref(args))

    def prepare(self, op: Op, engine: str | None = None) -> tuple[c_void_p, dict[int, Layout], int]:
        """On `engine`, or on the first that takes it; `taken` then names it."""
        executable = c_void_p()
        for name in (engine,) if engine else self.engines:
            number = c_int(self.engines.index(name))
            try:
                self._try("prepare", self.handle, number, byref(op), byref(executable))
                break
            except CoreError as error:
                if name in (engine, self.engines[-1]) or error.code != UNSUPPORTED:
                    raise
        self.executables.append(executable)
        self.taken = self.text.value.decode()
        layouts = {}
        for operand in (X, W, Y, BIAS):
            layouts[operand] = Layout()
            self.lib.oocdnn_gpu_layout(executable, c_int(operand), byref(layouts[operand]))
        return executable, layouts, int(self.lib.oocdnn_gpu_workspace(executable))

    def run(self, executable: c_void_p, tiles: Sequence[int], workspace: int, add: bool) -> None:
        pointers = (c_void_p * 4)(*tiles)
        self._try("run", self.handle, executable, pointers, c_void_p(workspace), c_int(add))

    def synchronize(self) -> None:
        self._try("synchronize", self.handle)

    def busy_seconds(self) -> float:
        return float(self.lib.oocdnn_gpu_busy_seconds(self.handle))

    def whole(self, lay: Layout, tile: int, view: View) -> Transfer:
        """The transfer of a whole tensor of the layout's shape."""
        zero, shape = _six(), lay.shape
        return Transfer(view, lay, X, zero, shape, zero, shape, zero, shape, tile)

    def upload(self, values: np.ndarray, lay: Layout) -> int:
        """A new tile that holds float64 `values` of six dimensions."""
        keep = len(self.blocks)
        tile = self.memory(int(lay.bytes), host=False)
        flat = self.array(values.size, F64)
        flat[:] = values.reshape(-1)
        view = View(flat.ctypes.data, F64, _six(*dense(values.shape)))
        self.copy("fetch", self.whole(lay, tile, view))
        self.synchronize()
        self.release(keep + 1)
        return tile

    def download(self, lay: Layout, tile: int) -> np.ndarray:
        keep = len(self.blocks)
        shape = tuple(lay.shape)
        flat = self.array(int(np.prod(shape)), F64)
        self.copy("drain", self.whole(lay, tile, View(flat.ctypes.data, F64, _six(*dense(shape)))))
        self.synchronize()
        values = flat.reshape(shape).copy()
        self.release(keep)
        return values


def testing_library() -> str | None:
    """liboocdnn_testing.so: OOCDNN_TESTING_LIBRARY, or None where it is not there."""
    path = os.environ.get("OOCDNN_TESTING_LIBRARY", "")
    return path if os.path.exists(path) else None
